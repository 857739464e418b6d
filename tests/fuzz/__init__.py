"""Hostile input for every reader: `python -m tests.fuzz --minutes 5`, and a short fixed part of it as tests."""

import sys
from pathlib import Path

# The files that other tests write are needed here, too
sys.path.insert(0, str(Path(__file__).parents[1]))
