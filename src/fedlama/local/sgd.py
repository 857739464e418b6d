"""Plain SGD (Algorithm 1, line 5) with momentum, weight decay, learning-rate warm-up and step decay."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedlama.base import InputError, check_number, check_whole

DECAYED = ("all", "kernels")
LARGEST_FLOAT32 = 3.4e38


@dataclass(frozen=True)
class SGD:
    """x ← x − η_t · v with v ← momentum · v + (gradient + weight_decay · x).

    η_t rises linearly over the first `warmup_steps` steps of the run and is multiplied by `decay_factor` at each
    step in `decay_steps`. Momentum starts from zero whenever a window starts. `decayed` is what weight decay applies
    to: all parameters as in torch, or only the kernels (two or more dimensions) as in the paper's released code.
    """

    learning_rate: float
    batch_size: int
    momentum: float = 0.0
    weight_decay: float = 0.0
    warmup_steps: int = 0
    decay_steps: tuple[int, ...] = ()
    decay_factor: float = 0.1
    decayed: str = "all"

    def __post_init__(self) -> None:
        if isinstance(self.decay_steps, int):
            raise InputError(f"decay_steps must be a list of steps, not {self.decay_steps}")
        object.__setattr__(self, "decay_steps", tuple(self.decay_steps))
        check_whole("batch_size", self.batch_size, least=1)
        check_whole("warmup_steps", self.warmup_steps, least=0)
        for step in self.decay_steps:
            check_whole("a step of decay_steps", step, least=1)
        check_number("learning_rate", self.learning_rate, above=0, below=LARGEST_FLOAT32)
        check_number("momentum", self.momentum, least=0, below=1)
        check_number("weight_decay", self.weight_decay, least=0, below=LARGEST_FLOAT32)
        check_number("decay_factor", self.decay_factor, above=0, most=1)
        if self.decayed not in DECAYED:
            raise InputError(f"decayed must be one of {', '.join(DECAYED)}, not {self.decayed!r}")

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
