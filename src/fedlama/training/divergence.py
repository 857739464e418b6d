"""A training that went wrong: which client showed it, in which round, and what to do."""

from __future__ import annotations

import math

from fedlama.base import DivergenceError
from fedlama.data import Shards
from fedlama.training.current import Round


def check_finite(
    client: int, loss: float, weights_are_finite: bool, current: Round, shards: Shards
) -> None:
    """Raise DivergenceError for a client whose loss or weights are not finite."""
    loss_is_finite = math.isfinite(loss)
    if loss_is_finite and weights_are_finite:
        return
    name = shards.name_of(client)
    if not loss_is_finite:
        raise diverged(f"the loss of {name} was", current)
    raise diverged(f"the weights of {name} were", current)


def diverged(what: str, current: Round) -> DivergenceError:
    """What is said of a training that went wrong in this round."""
    before = current.position
    number = before.policy_state.round + 1
    first_step = before.step + 1
    return DivergenceError.because(
        f"{what} not finite in round {number} (from step {first_step})"
    )
