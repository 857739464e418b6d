"""`Rotate` at the rate that makes a whole message a given share of float32, whatever the model.

There is no paper behind it: it is this package's own reckoning, around the code that `rotate.py` cites.

A rate per number says little of a message: scales, norms, biases and BatchNorm's statistics take room, in small
networks most of it. Here the message is given, and what the kernels may take of it follows from the model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from fedlama.base import Limits, check_options
from fedlama.compress.forwarding import Forwarding
from fedlama.compress.framing import SEAL
from fedlama.compress.groups import STATISTICS_GROUP, MessageGroups
from fedlama.compress.limits import DEFAULT_SMALL_BITS, MAX_BITS, MIN_BITS
from fedlama.compress.normal import mean_symbol
from fedlama.compress.rotate import Rotate
from fedlama.compress.statistics import Statistics
from fedlama.compress.uniform import LEAST_CODES
from fedlama.core import BYTES_PER_NUMBER, Layout

FRAME_BYTES = 1 + SEAL + 8  # format, checksum, and what the stream's end takes at most
NORM = 4  # bytes per layer
SIDE = 6  # bytes per group: step and scale
PADDED_TO = 64  # numbers: the shortest block of a rotation
SMALL_SHARE = 0.1  # of a message at most, for all small tensors and statistics
# Chance lets lengths vary at a given rate, by a per cent or so for one message
MARGIN = 0.99
STEP_OF_RATES = 0.01  # bits


@dataclass(frozen=True)
class Fit(Forwarding):
    """`Rotate` with bits for each model such that a message with all of its layers is a share of its float32 bytes.

    At most a tenth of the message, and at most 2.5 bits per number, is for small tensors and statistics; the kernels
    have the rest. A network without a tensor of 1,024 numbers has no kernels in this sense: its small tensors have all
    of it. Rates stay between 0.1 and 8 bits, so a network of a few thousand numbers may take more than its share. A
    tensor that is coded alone, outside a message, has 32 · `share` bits per number.

    A policy that averages only some layers in a round makes messages shorter, but not what travels with each of them:
    BatchNorm's statistics and the frame. With `averaged`, messages are `share · averaged` of the model's float32 bytes
    in the mean, those counted, if the policy keeps to that part of the layers' bytes. One per cent of the budget is
    kept back, because the length of a message is a matter of chance: one may be a little longer than its share, many
    together are not.

    Arguments:
        share: Of a message of float32 numbers with all layers, such as 0.01.
        averaged: Which part of the layers' bytes a message has in the mean, above 0 and at most 1, such as the share of
            a `Budget` (default: all of them).
    """

    share: Annotated[float, Limits(above=0, maximum=0.25)]
    averaged: Annotated[float, Limits(above=0, maximum=1)] | None = None

    def __post_init__(self) -> None:
        check_options(self)
        object.__setattr__(self, "share", float(self.share))
        if self.averaged is not None:
            object.__setattr__(self, "averaged", float(self.averaged))

    def fitted(self, layout: Layout) -> Rotate:
        """The code for one model."""
        statistics = Statistics(layout)
        message_groups = MessageGroups(layout, statistics)
        layers = range(len(layout.layers))
        groups = message_groups.of(layers, statistics=True)
        numbers = 0
        in_kernels = 0
        in_others = 0
        largest_other = 0
        every_time = FRAME_BYTES
        in_statistics = 0
        for group in groups:
            numbers += group.size
            if group.is_large:
                in_kernels += group.size
                continue
            # A rotation fills up its blocks, and what they are filled with is coded, too
            blocks = math.ceil(group.size / PADDED_TO)
            padded = blocks * PADDED_TO
            in_others += padded
            largest_other = max(largest_other, padded)
            if group.number == STATISTICS_GROUP:
                every_time += SIDE
                in_statistics = padded

        if not numbers:
            return Rotate(MIN_BITS)

        # In bits, of which the kernels get what the rest of the message leaves
        budget = MARGIN * 8 * self.share * BYTES_PER_NUMBER * numbers
        overhead = FRAME_BYTES + NORM * len(layers) + SIDE * len(groups)
        left = budget - 8 * overhead
        # A part of the layers travels, but all of this: as often as 1 / averaged whole messages have it
        more_often = 0.0
        if self.averaged is not None:
            more_often = 1 / self.averaged - 1
        if not in_kernels:
            left -= more_often * 8 * every_time
            coded = in_others + more_often * in_statistics
            least = _least_steady_bits(largest_other)
            return Rotate(MIN_BITS, small_bits=_allowed(max(left / coded, least)))

        small_bits = DEFAULT_SMALL_BITS
        if in_others:
            affordable = SMALL_SHARE * budget / in_others
            small_bits = _allowed(min(small_bits, affordable))
        left -= small_bits * in_others
        left -= more_often * (8 * every_time + small_bits * in_statistics)
        bits = _allowed(left / in_kernels)
        return Rotate(bits, small_bits=small_bits)

    @cached_property
    def inner(self) -> Rotate:
        """The code of a tensor outside a message."""
        bits = 8 * BYTES_PER_NUMBER * self.share
        return Rotate(_allowed(bits))

    def under_feedback(self) -> Rotate:
        """As `Rotate`."""
        return self.inner.under_feedback()

    def for_small_tensors(self) -> Rotate:
        """As `Rotate`."""
        return self.inner.for_small_tensors()


def _least_steady_bits(numbers: int) -> float:
    """The lowest rate at which so many numbers have twice the codes that a tensor needs at least.

    Below it chance decides whether the step is halved, which costs more bytes than a higher rate.

    Arguments:
        numbers: Of the tensor, with what fills up its blocks.
    """
    bits = MIN_BITS
    while bits < MAX_BITS and numbers * mean_symbol(bits) < 2 * LEAST_CODES:
        bits += STEP_OF_RATES
    return bits


def _allowed(bits: float) -> float:
    """A rate that there is, in as many digits as a configuration has."""
    within = min(max(bits, MIN_BITS), MAX_BITS)
    return round(within, 4)
