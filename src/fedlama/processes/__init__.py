"""Worker processes: how they are started, how they add numbers up, and how much memory there is for them."""
