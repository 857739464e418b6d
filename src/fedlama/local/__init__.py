"""Local update rules: what a client does with a gradient, as arithmetic on its row."""

from fedlama.local.feddyn import FedDyn
from fedlama.local.fednova import FedNova
from fedlama.local.fedprox import FedProx
from fedlama.local.rule import MODEL, LocalRule, Taken
from fedlama.local.scaffold import Scaffold
from fedlama.local.sgd import SGD
from fedlama.local.steps import steps_per_interval, steps_taken

__all__ = [
    "MODEL",
    "SGD",
    "FedDyn",
    "FedNova",
    "FedProx",
    "LocalRule",
    "Scaffold",
    "Taken",
    "steps_per_interval",
    "steps_taken",
]
