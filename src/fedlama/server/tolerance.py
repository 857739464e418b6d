"""What a server puts up with: which updates it refuses, how many clients are enough, and when it gives up.

The simulator takes it from `Faults`, where clients fail by a draw; Flower's strategy has it as arguments, and real
clients. What is decided here is the same for both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from torch import Tensor

from fedlama.base import InputError, Limits, check_options
from fedlama.core import Layout
from fedlama.rows import squared_distances
from fedlama.server.exclusions import NOT_FINITE, TOO_LARGE

# What happens to a round in which too few clients are left
OnTooFew = Literal["repeat", "stop"]
MinClients = Annotated[int, Limits(minimum=1)]
# So that ten times as much is still a float32
NormLimit = Annotated[float, Limits(above=0, maximum=1e30)]
MAX_NAMED = 4  # clients in a sentence, not a thousand


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """What a server tolerates.

    Arguments:
        min_clients: The fewest clients that are averaged.
        on_too_few: What happens where fewer are left: "repeat" the round with new clients, or "stop" the run.
        norm_limit: The largest L2 norm of an update of the due layers; None for any.
    """

    min_clients: MinClients = 1
    on_too_few: OnTooFew = "repeat"
    norm_limit: NormLimit | None = None

    def __post_init__(self) -> None:
        check_options(self)

    def refusal(
        self, *, loss: float, weights_are_finite: bool, norm: float | None
    ) -> str | None:
        """Why an update that arrived does not count; None for one that does.

        Arguments:
            loss: The client's.
            weights_are_finite: Whether all numbers of the update are.
            norm: Its L2 norm, as `update_norms` measures it; None where it was not measured, as without a limit.
        """
        is_finite = weights_are_finite and math.isfinite(loss)
        if not is_finite:
            return NOT_FINITE
        if self.norm_limit is None:
            return None
        assert norm is not None, "a limit is held against a norm"
        if norm > self.norm_limit:
            return TOO_LARGE
        return None

    def check_can_be_met(self, active: int, *, option: str) -> None:
        """Refuse to wait for more clients than train: every round would come to nothing.

        Arguments:
            active: How many clients train at a time.
            option: What `min_clients` is called where it was given.
        """
        if self.min_clients <= active:
            return
        who = f"{active} clients train"
        if active == 1:
            who = "1 client trains"
        raise InputError(f"{option} is {self.min_clients}, but only {who} at a time")

    def suffices(self, clients: int) -> bool:
        """Whether so many clients are enough to be averaged."""
        return clients >= self.min_clients

    def gives_up(self, attempts: int, *, maximum: int) -> bool:
        """Whether the run stops after an attempt that came to nothing, instead of repeating the round.

        Arguments:
            attempts: How many of this window came to nothing by now.
            maximum: After so many something else is wrong. A run that is resumed goes on counting, and is given as many
                again.
        """
        return self.on_too_few == "stop" or attempts % maximum == 0

    def too_few(
        self, named: Sequence[str], *, option: str, round: int, tried: str = ""
    ) -> str:
        """What is said where a run stops for that.

        Arguments:
            named: Some of the clients, each with its reason.
            option: What `min_clients` is called where it was given.
            round: The number of the round, counted from 1.
            tried: How often it was tried, if that is said.
        """
        listed = "; ".join(named)
        return (
            f"fewer than {option} = {self.min_clients} clients were left "
            f"in round {round}{tried} ({listed})"
        )


def update_norms(
    rows: Tensor, anchor: Tensor, layout: Layout, due: Sequence[int]
) -> Tensor:
    """‖x_i − anchor‖ over the due layers, one for every row: what a norm limit is held against.

    Of the layers, not of the statistics, which no learning rate scales.

    Arguments:
        rows: Those of clients, [clients, width].
        anchor: The server's before the round.
        layout: The model's.
        due: The layers.
    """
    slices = layout.slices_of(due)
    # In float64: the square of a large float32 is none.
    squares = squared_distances(anchor, rows, slices)
    return squares.sum(dim=1).sqrt()
