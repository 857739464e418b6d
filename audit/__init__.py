"""What fedlama depends on: versions, licences and known advisories, checked without a network."""
