"""`python -m fedlama` is the command line."""

from fedlama.cli import main

main()
