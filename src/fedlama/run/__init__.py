"""One run: its configuration, its directory, and getting from the one to the other."""
