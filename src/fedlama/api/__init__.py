"""The front door in Python: what `fedlama run` and `fedlama study` do in a terminal, as functions."""
