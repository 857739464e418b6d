"""How a process trains its clients: one after the other, or in stacks."""

from fedlama.training.trainers.one_by_one import OneByOneTrainer, Precision
from fedlama.training.trainers.stackable import can_stack
from fedlama.training.trainers.stacked import (
    BLOCK,
    Execution,
    StackedTrainer,
    block_of,
    suits_stacking,
)
from fedlama.training.trainers.trainer import Trainer

__all__ = [
    "BLOCK",
    "Execution",
    "OneByOneTrainer",
    "Precision",
    "StackedTrainer",
    "Trainer",
    "block_of",
    "can_stack",
    "suits_stacking",
]
