"""Options of `simulate` that are judged by themselves, and what they mean where they are left out."""

from __future__ import annotations

import numbers
from typing import Literal, get_args

from fedlama.base import MAX_SEED, InputError, check_whole
from fedlama.compress import Codec
from fedlama.processes.bfloat16 import check_bfloat16
from fedlama.processes.devices import check_device
from fedlama.training.arguments import (
    check_choice,
    check_codecs,
    check_flag,
    check_numbers,
)
from fedlama.training.job import Evaluated
from fedlama.training.participation import Participation
from fedlama.training.trainers import EXECUTIONS, PRECISIONS, Execution, Precision

Weighting = Literal["uniform", "samples"]  # of a client in an average
WEIGHTINGS = get_args(Weighting)
EVALUATED = get_args(Evaluated)
DEFAULT_EVALUATIONS = 20


def check_options(
    *,
    uplink: Codec | None,
    downlink: Codec | None,
    iterations: int,
    seed: int,
    weights: Weighting,
    evaluate_every: int | None,
    evaluate: Evaluated,
    evaluate_clients: bool,
    evaluate_average: bool,
    average_steps: int,
    device: str,
    execution: Execution,
    precision: Precision,
) -> None:
    """Raise InputError unless each of these arguments of `simulate` is allowed by itself."""
    check_codecs(uplink=uplink, downlink=downlink)
    check_whole("seed", seed, minimum=0, maximum=MAX_SEED)
    check_numbers(
        iterations=iterations,
        evaluate_every=evaluate_every,
        average_steps=average_steps,
    )
    check_choice("precision", precision, PRECISIONS)
    check_choice("weights", weights, WEIGHTINGS)
    check_choice("execution", execution, EXECUTIONS)
    check_choice("evaluate", evaluate, EVALUATED)
    check_flag("evaluate_clients", evaluate_clients)
    check_flag("evaluate_average", evaluate_average)
    if evaluate_average and evaluate == "ema":
        raise InputError(
            'evaluate="ema" evaluates the moving average in place of the model: evaluate_average has nothing to add'
        )
    check_device(device)
    if precision == "bfloat16":
        check_bfloat16(device)


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
