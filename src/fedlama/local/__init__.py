"""Local update rules: what a client does with a gradient, as arithmetic on its row."""

from fedlama.local.rule import MODEL, LocalRule
from fedlama.local.sgd import SGD

__all__ = ["MODEL", "SGD", "LocalRule"]
