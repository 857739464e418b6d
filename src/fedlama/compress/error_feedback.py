"""Error feedback: F. Seide et al., "1-Bit Stochastic Gradient Descent", Interspeech 2014; S. P. Karimireddy, Q.
Rebjock, S. Stich, M. Jaggi, "Error Feedback Fixes SignSGD and other Gradient Compression Schemes", ICML 2019 (arXiv
1901.09847).

What a code leaves out is kept and sent later: e ← x + e − C(x + e). Clients of a federation come and go, so a
residual that waits for a client's return is old by then. Within a window the same clients take part in every round,
and a residual with that lifetime costs no memory beyond it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Annotated

from torch import Tensor

from fedlama.base import InputError, Limits, check_flag, check_options, shown
from fedlama.compress.codec import Codec
from fedlama.compress.forwarding import Forwarding
from fedlama.compress.limits import MAX_BITS, MIN_BITS
from fedlama.core import Layout
from fedlama.rows import Lifetime, Slot

RESIDUAL = "residual"


@dataclass(frozen=True)
class ErrorFeedback(Forwarding):
    """Add what earlier messages left out, code the sum for the least error, and keep what this message leaves out.

    Arguments:
        codec: The codec inside, which keeps nothing itself.
        lifetime: How long a client's residual is kept: "window", until its cohort leaves, or "run", until the client
            returns.
        profile: How a window's bits are shared among its rounds, for example (1/6, 1/6, 1/6, 1/2). It needs a codec
            with a rate and the lifetime of a window. A layer that is synchronised less often gets the shares of all
            rounds since it last was. By default all rounds get the same.
        gain: Whether the server multiplies what it receives in a window by K/Σ_j c_j, so that the sum over the window
            is not smaller than it should be although the last residual is lost. By default it does so wherever it can:
            for a lifetime of a window and a codec whose error is known. Without it, what is sent once in a window at
            0.3 bits would arrive as a quarter of itself.
    """

    codec: Codec
    lifetime: Lifetime = "window"
    profile: tuple[Annotated[float, Limits(minimum=0, maximum=1)], ...] | None = None
    gain: bool | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.codec, Codec):
            raise InputError(
                f"error feedback goes around a codec, not around {shown(self.codec)}"
            )
        if self.codec.slots:
            raise InputError(
                f"error feedback goes around a codec that keeps nothing itself, not around {self.codec!r}"
            )
        profile: object = self.profile
        if profile is not None:
            is_list = isinstance(profile, Sequence) and not isinstance(profile, str)
            if not is_list:
                raise InputError(
                    f"profile must be a list of shares, not {shown(profile)}"
                )
        check_options(self)
        if self.gain is not None:
            self._check_gain(self.gain)
        if self.profile is not None:
            self._check_profile(self.profile)
            shares = tuple(float(share) for share in self.profile)
            object.__setattr__(self, "profile", shares)

    def _check_gain(self, gain: bool) -> None:
        check_flag("gain", gain)
        if gain and self.lifetime != "window":
            raise InputError(
                "a gain makes up for what is lost at a window's end, so lifetime must be window"
            )
        if gain and self.kept() is None:
            raise InputError(
                f"a gain needs a codec whose error is known, not {self.codec!r}"
            )

    def _check_profile(self, profile: Sequence[float]) -> None:
        if not math.isclose(sum(profile), 1.0, abs_tol=1e-6):
            raise InputError(
                f"the shares of profile must add up to 1, not to {sum(profile):g}"
            )
        if self.codec.rate is None:
            raise InputError(
                f"a profile needs a codec with a rate, such as Rotate, not {self.codec!r}"
            )
        if self.lifetime != "window":
            raise InputError(
                "a profile is over the rounds of a window, so lifetime must be window"
            )

    @property
    def slots(self) -> tuple[Slot, ...]:
        """One residual row per client."""
        return (Slot(RESIDUAL, self.lifetime, without="code without error feedback"),)

    @property
    def _has_gain(self) -> bool:
        if self.gain is not None:
            return self.gain
        # By default wherever it can be computed, as the class says
        if self.lifetime != "window":
            return False
        return self.kept() is not None

    @cached_property
    def inner(self) -> Codec:
        """The variant with the least error: whatever it leaves out is sent later."""
        return self.codec.under_feedback()

    def target(self, x: Tensor, own: Mapping[str, Tensor] | None) -> Tensor:
        """x + e."""
        if own is None:
            return x
        residual = self._residual(own)
        return x + residual.reshape(x.shape)

    def remember(
        self, target: Tensor, decoded: Tensor, own: Mapping[str, Tensor] | None
    ) -> None:
        """e ← x + e − C(x + e)."""
        if own is None:
            return
        residual = self._residual(own)
        left_out = target - decoded
        residual.copy_(left_out.reshape(residual.shape))

    def _residual(self, own: Mapping[str, Tensor]) -> Tensor:
        if RESIDUAL not in own:
            raise InputError(
                f"error feedback needs the slot {RESIDUAL!r}, and was given {', '.join(own) or 'none'}"
            )
        return own[RESIDUAL]

    def fitted(self, layout: Layout) -> ErrorFeedback:
        """Around the code for one model."""
        codec = self.codec.fitted(layout)
        return replace(self, codec=codec)

    def for_small_tensors(self) -> ErrorFeedback:
        """The same feedback, without a profile: they are too few to be worth one."""
        return ErrorFeedback(
            self.codec.for_small_tensors(),
            lifetime=self.lifetime,
            profile=None,
            gain=self.gain,
        )

    def for_whole_run(self) -> ErrorFeedback:
        """With a residual that is never dropped, and so nothing that makes up for a loss at a window's end."""
        if self.lifetime == "run":
            return self
        if self.profile is not None or self.gain:
            raise InputError(
                "downlink takes no profile and no gain: the server loses nothing when a window ends"
            )
        return replace(self, lifetime="run")

    def for_round(
        self, round_in_window: int, rounds_per_window: int
    ) -> tuple[float | None, float]:
        """The profile's rate in this round, and the gain of the window."""
        rates, gain = _plan(self, rounds_per_window)
        rate = rates[round_in_window]
        return rate, gain

    def check_window(self, rounds_per_window: int) -> None:
        """Refuse a profile that has not the same number of shares for each of these rounds."""
        shares = len(self.profile or ())
        # A single layer may be synchronised once in a window; if all are, a profile would silently do nothing
        if rounds_per_window == 1 and shares > 1:
            raise InputError(
                f"profile has {shares} shares, but the window has 1 round: "
                f"set window to several rounds, or leave out profile"
            )
        super().check_window(rounds_per_window)

    def gain_where(
        self, kept: float, round_in_window: int, rounds_per_window: int
    ) -> float:
        """The gain of a window for a layer that was given other bits than planned, as its step shows.

        Both ends know the step of this round only, so the layer is taken to have got as much more or less in the
        others: ln D is about proportional to the bits.

        Arguments:
            kept: 1 − D of this round's coding.
            round_in_window: Which round, counted from 0.
            rounds_per_window: Of how many.
        """
        # Nothing was sent, and nothing can make up for it; or all of it was, and nothing has to
        if not self._has_gain or not 0 < kept < 1:
            return 1.0
        rates, _ = _plan(self, rounds_per_window)
        planned = self._distortions(rates)
        planned_here = planned[round_in_window]
        if not 0 < planned_here < 1:
            return 1.0

        # How many times its planned bits the layer got
        found_here = 1.0 - kept
        times_the_bits = math.log(found_here) / math.log(planned_here)
        distortions = [distortion**times_the_bits for distortion in planned]
        return window_gain(distortions)

    def _distortions(self, rates: Sequence[float | None]) -> list[float]:
        """D of each round at its rate; 1 where the codec does not know it."""
        distortions: list[float] = []
        for rate in rates:
            kept = self.kept(rate) or 0.0
            distortions.append(1.0 - kept)
        return distortions

    def _rates(
        self, profile: tuple[float, ...], rounds_per_window: int
    ) -> list[float | None]:
        # Synchronised once in the window: nothing to share out
        if rounds_per_window == 1:
            return [None]
        if len(profile) % rounds_per_window:
            raise InputError(
                f"profile has {len(profile)} shares, but the window has {rounds_per_window} rounds: "
                f"it must have one for each of them, or the same number for each"
            )
        together = len(profile) // rounds_per_window
        of_window = (self.rate or 0.0) * rounds_per_window
        rates: list[float | None] = []
        for first in range(0, len(profile), together):
            share = sum(profile[first : first + together])
            rate = of_window * share
            # A share of zero sends nothing; any other becomes a rate that there is
            if rate > 0:
                rate = min(max(rate, MIN_BITS), MAX_BITS)
            rates.append(rate)
        return rates


@lru_cache(maxsize=256)
def _plan(
    feedback: ErrorFeedback, rounds_per_window: int
) -> tuple[list[float | None], float]:
    """The rate of every round of a window, and its gain; asked for every group of every message."""
    rates: list[float | None] = [None] * rounds_per_window
    if feedback.profile is not None:
        rates = feedback._rates(feedback.profile, rounds_per_window)
    if not feedback._has_gain:
        return rates, 1.0
    gain = window_gain(feedback._distortions(rates))
    return rates, gain


def delivered(distortions: Sequence[float]) -> list[float]:
    """c_j = 1 − Π_{k ≥ j} D_k: which share of round j's update has arrived when the window ends."""
    shares: list[float] = []
    # From the last round back: what a round leaves out, the rounds after it may still deliver
    missing = 1.0
    for distortion in reversed(distortions):
        missing *= distortion
        shares.append(1.0 - missing)
    shares.reverse()
    return shares


def window_gain(distortions: Sequence[float]) -> float:
    """g = K/Σ_j c_j: by what the server multiplies, given D_k of every round of the window."""
    total = sum(delivered(distortions))
    if total <= 0:
        return 1.0
    return len(distortions) / total


def window_noise(distortions: Sequence[float]) -> float:
    """(1/K)·Σ_j [(c_j·g − 1)² + (c_j − c_j²)·g²]: noise per round with that gain, relative to ‖Δ‖² (uncorrelated Δ)."""
    gain = window_gain(distortions)
    total = 0.0
    for share in delivered(distortions):
        bias = share * gain - 1.0
        variance = share - share**2
        amplified = variance * gain**2
        total += bias**2 + amplified
    return total / len(distortions)
