"""Local steps with the user's own function."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

from flwr.app import Context
from torch import Tensor, nn

from fedlama.base import InputError
from fedlama.flower.trainers import BY_SAMPLES, ROW, LocalWork
from fedlama.rows import Slot

TrainFunction = Callable[[nn.Module, range, Context], float]


class FunctionTrainer:
    """Takes local steps with the user's own function.

    Arguments:
        function: It takes the steps with the module, and returns its mean loss.
        samples: How many samples the client has, from Flower's context; None where nobody asks.
    """

    slots: tuple[Slot, ...] = ()
    sends: tuple[str, ...] = ()
    name = "a function"

    def __init__(
        self, function: TrainFunction, samples: Callable[[Context], int] | None
    ) -> None:
        self.options: dict[str, Any] = {}
        self.function = function
        self._samples = samples

    def check_rule(self, expected: str) -> None:
        """A function does a client's part of no rule.

        Arguments:
            expected: The rule that the strategy was given; empty for none.
        """
        if expected:
            raise InputError(
                f"this client trains with a function, and the strategy was given local={expected}"
            )

    def check_weights(self, weights: str) -> None:
        """Refuse to count as one sample among clients that count theirs.

        Arguments:
            weights: What the strategy weighs clients by.
        """
        if weights == BY_SAMPLES and self._samples is None:
            raise InputError(
                'the strategy was given weights="samples", and this client does not say how many it has: '
                "pass samples= to fedlama.flower.layerwise"
            )

    def samples(self, context: Context, client: int, seed: int) -> int:
        """How many samples the client has.

        Arguments:
            context: Flower's.
            client: The client's number.
            seed: The run's.
        """
        if self._samples is None:
            return 1
        return self._samples(context)

    def train(self, work: LocalWork) -> float:
        """Let the function take the task's steps on the row; the mean loss.

        Arguments:
            work: The client's row, and the steps to take on it.
        """
        row = work.rows[ROW]
        binding = work.binding
        layout = binding.layout

        # On a copy: the function changes all layers, of which only those that the task trains are taken over.
        binding.point_at(row.clone())
        binding.load_counters(work.counters)
        loss = self.function(binding.module, work.task.global_steps, work.context)
        mean_loss = _number(loss)
        after = binding.read()
        parts = work.trained_slices
        if parts is None:
            all_parameters = slice(0, layout.parameter_width)
            parts = [all_parameters]
        for part in [*parts, *layout.statistics]:
            row[part] = after[part]
        binding.save_counters(work.counters)
        return mean_loss


def _number(loss: object) -> float:
    """A loss as loops have it: a number of Python's or numpy's, or a tensor of one."""
    if isinstance(loss, Tensor) and loss.numel() == 1:
        return float(loss.detach())
    if isinstance(loss, numbers.Real):
        return float(loss)
    kind = type(loss).__name__
    raise InputError(
        f"the training function must return its mean loss, a number, not {kind}"
    )
