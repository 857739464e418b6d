"""What a codec may say beside its code, in three subjects: what its sender keeps, its rate, the rounds of a window.

All of it has defaults, which are right for a codec that keeps nothing and is unbiased at one rate. `Codec` has these
hooks from here; override them on the codec itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from fedlama.compress.coded import Coded
from fedlama.rows import Slot


class SlotHooks:
    """What a sender keeps for its codec from one message to the next; by default nothing."""

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The rows that it keeps per client, by name and lifetime; most codecs keep none."""
        return ()

    def target(self, x: Tensor, own: Mapping[str, Tensor] | None) -> Tensor:
        """What is to be coded for `x`, given this client's slots in `own`.

        Arguments:
            x: The difference that is to be sent.
            own: The slots by name; None where the sender keeps none.
        """
        return x

    def remember(
        self, target: Tensor, decoded: Tensor, own: Mapping[str, Tensor] | None
    ) -> None:
        """Update this client's slots in place.

        Arguments:
            target: What was coded.
            decoded: What the receiver gets.
            own: The slots by name.
        """
        return


class RateHooks:
    """How many bits a codec takes, and how much of a difference it keeps; by default no rate, and all of it."""

    @property
    def rate(self) -> float | None:
        """Bits per number, where that can be chosen."""
        return None

    @property
    def sharing(self) -> str:
        """How a message shares its bits among layers, where there is a rate."""
        return "uniform"

    def kept(self, bits: float | None = None) -> float | None:
        """⟨x̂, x⟩/‖x‖² on average: 1 if unbiased, 1 − D if shrunk, None where it depends on the numbers.

        Arguments:
            bits: At another rate than the codec's own.
        """
        return 1.0

    def kept_of(self, coded: Coded) -> float | None:
        """The same for a tensor that was coded, as `coded` holds it.

        Arguments:
            coded: The tensor's code.
        """
        return self.kept()


class WindowHooks:
    """What changes from one round of a window to the next; by default nothing."""

    def for_round(
        self, round_in_window: int, rounds_per_window: int
    ) -> tuple[float | None, float]:
        """The rate in a round of a window (None: as always), and the factor by which the server multiplies.

        Arguments:
            round_in_window: Which round, counted from 0.
            rounds_per_window: Of how many.
        """
        return None, 1.0

    def gain_where(
        self, kept: float, round_in_window: int, rounds_per_window: int
    ) -> float:
        """The factor by which the server multiplies a layer that got other bits than planned.

        By default it is the planned one, as in `for_round`.

        Arguments:
            kept: Which part of the layer this round's message kept on average.
            round_in_window: Which round, counted from 0.
            rounds_per_window: Of how many.
        """
        _, planned = self.for_round(round_in_window, rounds_per_window)
        return planned

    def check_window(self, rounds_per_window: int) -> None:
        """Refuse windows of so many rounds if they do not fit; asked once, before anything is trained.

        Arguments:
            rounds_per_window: Of the layers that are synchronised most often.
        """
        self.for_round(0, rounds_per_window)
