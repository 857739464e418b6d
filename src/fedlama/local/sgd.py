"""Plain SGD (Algorithm 1, line 5) with momentum, weight decay, learning-rate warm-up and step decay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from torch import Tensor

from fedlama.base import InputError, Limits, check_options

LARGEST_FLOAT32 = 3.4e38


@dataclass(frozen=True)
class SGD:
    """x ← x − η_t · v with v ← momentum · v + (gradient + weight_decay · x).

    η_t rises linearly over the first `warmup_steps` steps of the run and is multiplied by `decay_factor` at each
    step in `decay_steps`. Momentum starts from zero whenever a window starts. `decayed` is what weight decay applies
    to: all parameters as in torch, or only the kernels (two or more dimensions) as in the paper's released code.
    """

    learning_rate: Annotated[float, Limits(above=0, below=LARGEST_FLOAT32)]
    batch_size: Annotated[int, Limits(minimum=1)]
    momentum: Annotated[float, Limits(minimum=0, below=1)] = 0.0
    weight_decay: Annotated[float, Limits(minimum=0, below=LARGEST_FLOAT32)] = 0.0
    warmup_steps: Annotated[int, Limits(minimum=0)] = 0
    decay_steps: tuple[Annotated[int, Limits(minimum=1)], ...] = ()
    decay_factor: Annotated[float, Limits(above=0, maximum=1)] = 0.1
    decayed: Literal["all", "kernels"] = "all"

    def __post_init__(self) -> None:
        if isinstance(self.decay_steps, int):
            raise InputError(f"decay_steps must be a list of steps, not {self.decay_steps}")
        object.__setattr__(self, "decay_steps", tuple(self.decay_steps))
        check_options(self)

    @property
    def memory_rows(self) -> int:
        """How many rows a client keeps beside its model."""
        return 1 if self.momentum else 0

    def rate(self, step: int) -> float:
        """η at a global step, counted from 0."""
        warmup = min(1.0, (step + 1) / self.warmup_steps) if self.warmup_steps else 1.0
        return self.learning_rate * warmup * self.decay_factor ** sum(step >= at for at in self.decay_steps)

    def update(self, row: Tensor, gradient: Tensor, memory: Tensor, kernels: Tensor, step: int) -> None:
        """One step on a row, or on a stretch of it, in place; `kernels` is 1 in kernels and 0 elsewhere."""
        if self.weight_decay:
            if self.decayed == "all":
                gradient.add_(row, alpha=self.weight_decay)
            else:
                gradient.addcmul_(row, kernels, value=self.weight_decay)
        if self.momentum:
            gradient = memory[0].mul_(self.momentum).add_(gradient)
        row.add_(gradient, alpha=-self.rate(step))
