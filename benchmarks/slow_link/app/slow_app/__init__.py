"""The LEAF CNN on a slow link."""
