"""The command line, one file per group of commands."""

from fedlama.cli.main import app, main

__all__ = ["app", "main"]
