"""Plain SGD (Algorithm 1, line 5) with momentum, weight decay, learning-rate warm-up and step decay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from torch import Tensor

from fedlama.base import Checked, InputError, Limits, check_options
from fedlama.local.plain_sync import PlainSync
from fedlama.local.steps import checked_steps
from fedlama.rows import Slot

VELOCITY = "velocity"
LARGEST_FLOAT32 = 3.4e38
LearningRate = Annotated[float, Limits(above=0, below=LARGEST_FLOAT32)]


@dataclass(frozen=True)
class SGD(PlainSync):
    """x ← x − η_t · v with v ← momentum · v + (gradient + weight_decay · x).

    η_t rises linearly over the first `warmup_steps` steps of the run and is multiplied by `decay_factor` at each
    step in `decay_steps`. Momentum starts from zero whenever a window starts.

    Arguments:
        learning_rate: η.
        batch_size: Samples per step.
        momentum: How much of the velocity is kept from step to step.
        weight_decay: How much of the weights is added to their gradient.
        warmup_steps: Steps at the start of the run over which the rate rises.
        decay_steps: Global steps at which the rate falls.
        decay_factor: By what it is multiplied there.
        decayed: What weight decay applies to: "all" parameters as in torch, or only "kernels" (two or more dimensions)
            as in the paper's released code.
        steps: How many steps a client takes per base interval: a number, a text like "2 epochs", or [least, most] to
            draw it for each client and window (default: as many as the interval has).
    """

    learning_rate: LearningRate
    batch_size: Annotated[int, Limits(minimum=1)]
    momentum: Annotated[float, Limits(minimum=0, below=1)] = 0.0
    weight_decay: Annotated[float, Limits(minimum=0, below=LARGEST_FLOAT32)] = 0.0
    warmup_steps: Annotated[int, Limits(minimum=0)] = 0
    decay_steps: tuple[Annotated[int, Limits(minimum=1)], ...] = ()
    decay_factor: Annotated[float, Limits(above=0, maximum=1)] = 0.1
    decayed: Literal["all", "kernels"] = "all"
    steps: Annotated[
        int | str | list[int] | tuple[int, int] | None, Checked(checked_steps)
    ] = None

    def __post_init__(self) -> None:
        if isinstance(self.decay_steps, int):
            raise InputError(
                f"decay_steps must be a list of steps, not {self.decay_steps}"
            )
        object.__setattr__(self, "decay_steps", tuple(self.decay_steps))
        object.__setattr__(self, "steps", checked_steps(self.steps))
        check_options(self)

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The velocity, where there is momentum; it is forgotten when a window ends."""
        if self.momentum:
            return (Slot(VELOCITY, without="set local.momentum to 0"),)
        return ()

    def rate(self, step: int) -> float:
        """η at a global step, counted from 0."""
        # Of the step alone: a resumed run, and a client that was away, have the rate of everybody else.
        warmup = 1.0
        if self.warmup_steps:
            risen = (step + 1) / self.warmup_steps
            warmup = min(1.0, risen)
        decays = 0
        for decay_step in self.decay_steps:
            if step >= decay_step:
                decays += 1
        decay = self.decay_factor**decays
        return self.learning_rate * warmup * decay

    def step(
        self,
        row: Tensor,
        gradient: Tensor,
        own: Mapping[str, Tensor],
        server: Mapping[str, Tensor],
        *,
        rate: float,
        kernels: Tensor,
    ) -> None:
        """One step on a row, or on a stretch of it, in place (Algorithm 1, line 5)."""
        if self.weight_decay:
            if self.decayed == "all":
                gradient.add_(row, alpha=self.weight_decay)
            else:
                gradient.addcmul_(row, kernels, value=self.weight_decay)
        direction = gradient
        if self.momentum:
            direction = own[VELOCITY]
            direction.mul_(self.momentum)
            direction.add_(gradient)
        row.add_(direction, alpha=-rate)
