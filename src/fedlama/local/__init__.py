"""Local update rules: what a client does with a gradient, as arithmetic on its row."""

from fedlama.local.feddyn import FedDyn
from fedlama.local.fednova import FedNova
from fedlama.local.fedprox import FedProx
from fedlama.local.on_sgd import OnSGD
from fedlama.local.plain_sync import PlainSync
from fedlama.local.rule import MODEL, LocalRule, Taken
from fedlama.local.scaffold import Scaffold
from fedlama.local.sgd import SGD, LearningRate
from fedlama.local.steps import steps_per_interval, steps_taken

__all__ = [
    "MODEL",
    "SGD",
    "FedDyn",
    "FedNova",
    "FedProx",
    "LearningRate",
    "LocalRule",
    "OnSGD",
    "PlainSync",
    "Scaffold",
    "Taken",
    "steps_per_interval",
    "steps_taken",
]
