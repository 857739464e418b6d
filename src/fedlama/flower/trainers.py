"""The door to the two ways in which a client takes its steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from flwr.app import Context
from torch import Tensor

from fedlama.flower.tasks import Task
from fedlama.rows import Binding, Slot

ROW = "row"  # the client's own numbers
BY_SAMPLES = "samples"  # of the strategy's `weights`
ANCHOR = "anchor"  # every layer as it was last synchronised


@dataclass(kw_only=True)
class LocalWork:
    """What a client has in hand when it begins with its steps.

    Arguments:
        task: The round.
        binding: The module.
        rows: The client's, by name; they are written to.
        counters: The model's whole-number buffers, which are written to.
        context: Flower's.
    """

    task: Task
    binding: Binding
    rows: dict[str, Tensor]
    counters: Tensor
    context: Context

    @property
    def trained_slices(self) -> list[slice] | None:
        """The parts of a row that change in training; None for all of it."""
        if self.task.trained is None:
            return None
        return self.binding.layout.slices_of(self.task.trained)


class ClientTrainer(Protocol):
    """What the two ways to train have in common."""

    @property
    def slots(self) -> tuple[Slot, ...]:
        """What a client keeps beside its row and the anchor."""
        ...

    @property
    def sends(self) -> tuple[str, ...]:
        """The rows that a client is sent beside the model."""
        ...

    @property
    def name(self) -> str:
        """How it trains, in words."""
        ...

    @property
    def options(self) -> dict[str, Any]:
        """How it trains, as a configuration has it; empty where it has no words for it."""
        ...

    def check_rule(self, expected: str) -> None:
        """Refuse to train where the server does not do its part of the rule, or that of another one."""
        ...

    def check_weights(self, weights: str) -> None:
        """Refuse to train where the server weighs by what this client does not know."""
        ...

    def samples(self, context: Context, client: int, seed: int) -> int:
        """How many samples the client has."""
        ...

    def train(self, work: LocalWork) -> float:
        """Take the task's steps on the client's row, in place; the mean loss."""
        ...
