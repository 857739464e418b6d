"""Configurations, run directories, and running one from the other."""
