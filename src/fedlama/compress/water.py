"""Reverse water-filling: one absolute step for all groups of a message (T. Cover and J. Thomas, "Elements of
Information Theory", 2nd edition, section 10.3.3).

The total error Σ n_g·σ_g²·D(R_g) at a given number of bits is least if every group has the same error per number,
which an entropy coder gets from the same step δ for all. Groups that moved further get more bits, R_g = H(δ/σ_g).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedlama.compress.codec import Codec
from fedlama.compress.groups import TensorGroup
from fedlama.compress.limits import MAX_BITS, MIN_BITS
from fedlama.compress.normal import entropy_of_steps, index_for, step_of

HALVINGS = 50


def pour(
    groups: Sequence[TensorGroup],
    targets: Sequence[Tensor],
    rates: list[float | None],
    codec: Codec,
) -> None:
    """Share the bits of the large groups of a message among them, in place.

    Arguments:
        groups: Of the message.
        targets: What is coded of each.
        rates: The planned rate of each, None for the codec's own.
        codec: Codes the large ones.
    """
    large = [number for number, group in enumerate(groups) if group.is_large]
    sizes: list[int] = []
    sigmas: list[float] = []
    budget = 0.0
    for number in large:
        size = groups[number].size
        norm = torch.linalg.vector_norm(targets[number])
        sigma = float(norm) / math.sqrt(size)
        planned = rates[number]
        if planned is None:
            planned = codec.rate or 0.0
        sizes.append(size)
        sigmas.append(sigma)
        budget += size * planned
    if budget <= 0:
        return

    # As many bits in all as without sharing them anew
    mean_rate = budget / sum(sizes)
    # What is skipped now is sent later, but never if the residual is dropped when the window ends
    may_skip = any(slot.lifetime == "run" for slot in codec.slots)
    poured = shared_step_rates(sigmas, sizes, mean_rate, may_skip=may_skip)
    for number, rate in zip(large, poured, strict=True):
        rates[number] = rate


def shared_step_rates(
    sigmas: Sequence[float], sizes: Sequence[int], bits: float, *, may_skip: bool
) -> list[float]:
    """The rate of every group, such that all have about one step and the mean over all numbers is `bits`.

    `sigmas` are the groups' root mean squares, `sizes` their numbers. Rates stay within 0.1 … 8 bits; with `may_skip`
    (a sender that keeps what it does not send) a group that would get less than 0.1 gets nothing.
    """
    spread = np.asarray(sigmas, dtype=np.float64)
    counts = np.asarray(sizes, dtype=np.float64)
    moved = spread > 0
    if not moved.any():
        return [bits] * len(sizes)
    budget = bits * counts.sum()

    # The logarithm of the step: at the low end every group has 8 bits, at the high end none has any.
    finest = spread[moved].min() * step_of(index_for(MAX_BITS))
    coarsest = spread[moved].max() * step_of(index_for(MIN_BITS))
    low = float(np.log(finest)) - 1.0
    high = float(np.log(coarsest)) + 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        step = np.exp(middle)
        rates = _rates(step, spread, may_skip)
        needed = rates @ counts
        if needed > budget:
            low = middle
        else:
            high = middle
    # The high end is the one that stays within the budget
    step = np.exp(high)
    rates = _rates(step, spread, may_skip)
    return rates.tolist()


def _rates(step: float, sigmas: np.ndarray, may_skip: bool) -> np.ndarray:
    moved = sigmas > 0
    divisors = np.where(moved, sigmas, 1.0)
    rates = entropy_of_steps(step / divisors)
    rates = np.clip(rates, 0.0, MAX_BITS)
    # There is no rate between nothing and the least
    least = MIN_BITS
    if may_skip:
        least = 0.0
    rates = np.where(rates < MIN_BITS, least, rates)
    return np.where(moved, rates, 0.0)
