"""Options of a run: their limits and defaults, for Python and for configuration files."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from fedlama.base import InputError, Limits, Positive, Seed, check_options
from fedlama.processes.bfloat16 import check_bfloat16
from fedlama.processes.devices import check_device
from fedlama.rows import Grouping
from fedlama.training.participation import Participation
from fedlama.training.trainers import Execution, Precision

Weighting = Literal["uniform", "samples"]  # of a client in an average
# Ema: the exponential moving average of the server's model
Evaluated = Literal["model", "ema"]
DEFAULT_EVALUATIONS = 20


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The arguments of `fedlama.simulate` that are numbers, texts and flags: what is explained there.

    A configuration file has them in several tables, with these types, limits and defaults (`run/tables.py`).

    Arguments:
        iterations: How many global steps to train.
        seed: Decides every random draw.
        weights: What a client weighs in an average.
        layers: What is averaged as one.
        adaptive: Patterns of the names of layers that may get a longer interval.
        evaluate_every: Cycle ends that pass a multiple of so many steps are evaluated; None for about 20 of them.
        evaluate: What is evaluated and returned.
        evaluate_clients: Whether the model is also evaluated on each client's own samples.
        evaluate_average: Whether a moving average is also evaluated, beside the model.
        average_steps: Over how many steps that average reaches back.
        device: Where: "cpu", "cuda" or "auto".
        execution: How a process trains its clients.
        precision: Of local steps.
        checkpoint_minutes: How many minutes lie between two checkpoints in a run directory.
    """

    iterations: Positive
    seed: Seed = 0
    weights: Weighting = "uniform"
    layers: Grouping = "tensor"
    adaptive: Sequence[str] | None = None
    evaluate_every: Positive | None = None
    evaluate: Evaluated = "model"
    evaluate_clients: bool = False
    evaluate_average: bool = False
    average_steps: Positive = 120
    device: str = "auto"
    execution: Execution = "auto"
    precision: Precision = "float32"
    checkpoint_minutes: Annotated[float, Limits(minimum=0)] = 5.0

    def __post_init__(self) -> None:
        check_options(self)
        if self.evaluate_average and self.evaluate == "ema":
            raise InputError(
                'evaluate="ema" evaluates the moving average in place of the model: evaluate_average has nothing to add'
            )

    def check_machine(self) -> None:
        """Raise InputError unless this machine has the device and can compute in this precision."""
        check_device(self.device)
        if self.precision == "bfloat16":
            check_bfloat16(self.device)

    @property
    def evaluation_interval(self) -> int:
        """After how many steps the model is evaluated, also where nobody said."""
        return self.evaluate_every or default_evaluate_every(self.iterations)


def default_evaluate_every(iterations: int) -> int:
    """So that a run is evaluated about 20 times."""
    return -(-iterations // DEFAULT_EVALUATIONS)


def participation_of(
    given: float | int | Participation, window: int | None
) -> Participation:
    """What `participation` and `window` mean together; the number 1 may be meant as one client or as all of them."""
    if isinstance(given, Participation):
        if window is not None:
            raise InputError("window is given twice: put it into the Participation")
        return given
    if isinstance(given, float):
        return Participation(fraction=given, window=window)
    is_number = isinstance(given, numbers.Real) and not isinstance(given, bool)
    if is_number and given == 1:
        raise InputError(
            f"participation = {given} may mean one client or all of them: write "
            f"participation=fedlama.Participation(clients=1) or participation=fedlama.Participation(fraction=1.0)"
        )
    return Participation(clients=given, window=window)
