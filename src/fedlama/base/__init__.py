"""What every room may use: errors, checks of numbers, keys for random draws, JSON helpers. Standard library only."""

from fedlama.base.checks import check_number, check_whole
from fedlama.base.errors import DivergenceError, InputError, RunError
from fedlama.base.plain import with_tuples
from fedlama.base.randomness import random_key

__all__ = ["DivergenceError", "InputError", "RunError", "check_number", "check_whole", "random_key", "with_tuples"]
