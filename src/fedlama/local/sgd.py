"""Plain SGD (Algorithm 1, line 5) with momentum, weight decay, learning-rate warm-up and step decay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from fedlama.base import InputError, check_number, check_whole
from fedlama.rows import Slot

VELOCITY = "velocity"
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
    def slots(self) -> tuple[Slot, ...]:
        """The velocity, where there is momentum; it is forgotten when a window ends."""
        if self.momentum:
            return (Slot(VELOCITY, without="set local.momentum to 0"),)
        return ()

    @property
    def server_slots(self) -> tuple[Slot, ...]:
        """Nothing."""
        return ()

    @property
    def sends(self) -> tuple[str, ...]:
        """Nothing."""
        return ()

    def rate(self, step: int) -> float:
        """η at a global step, counted from 0."""
        warmup = 1.0
        if self.warmup_steps:
            warmup = min(1.0, (step + 1) / self.warmup_steps)
        decays = sum(step >= at for at in self.decay_steps)
        return self.learning_rate * warmup * self.decay_factor**decays

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
        if self.weight_decay and self.decayed == "all":
            gradient.add_(row, alpha=self.weight_decay)
        elif self.weight_decay:
            gradient.addcmul_(row, kernels, value=self.weight_decay)
        if self.momentum:
            gradient = own[VELOCITY].mul_(self.momentum).add_(gradient)
        row.add_(gradient, alpha=-rate)

    def sync(self, row: Tensor, own: Mapping[str, Tensor], server: Mapping[str, Tensor], *, steps: range) -> None:
        """A client sends its numbers as they are, and its velocity stays its own."""

    def merge(self, anchor: Tensor, mean: Tensor, own: Mapping[str, Tensor], *, steps: range, share: float) -> Tensor:
        """The average as it is."""
        return mean
