"""The report as one HTML page, and following runs while they are going."""
