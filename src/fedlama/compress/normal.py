"""The normal law behind a uniform quantiser: what a step costs in bits, and what it leaves of a vector.

After a random rotation the coordinates of any vector are close to normal. Divided by a step Δ (in units of their
standard deviation) and rounded, they take the value j with probability

    P_0 = 1 − 2Q(Δ/2),   P_j = Q((|j| − ½)Δ) − Q((|j| + ½)Δ),   Q the tail of the normal law.

Both ends compute the same table from the index of the step, so no histogram travels. An index k stands for the step
2^(5/2 − k/4096), which is fine enough that every rate is met to a thousandth.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache

import numpy as np
import torch
from torch import Tensor

from fedlama.compress.streams import Table

INDICES_PER_OCTAVE = 4096
LARGEST_EXPONENT = 2.5  # of the step: 0.06 bits
KNOTS_PER_OCTAVE = 64
OCTAVES = 8.75  # from 2^2.5 down to 2^−6.25: 8.3 bits
MAX_INDEX = int(OCTAVES * INDICES_PER_OCTAVE)
# Standard deviations that the table covers; what lies beyond is clipped, and the scale makes up for it
REACH = 8.0


def step_of(index: int) -> float:
    """Δ of an index, in standard deviations."""
    return 2.0 ** (LARGEST_EXPONENT - index / INDICES_PER_OCTAVE)


def largest_symbol(index: int) -> int:
    """Symbols are whole numbers from −J to J."""
    step = step_of(index)
    return _largest_at(step)


@lru_cache(maxsize=1024)
def index_for(bits: float) -> int:
    """The step whose symbols have an entropy of `bits` (H(Δ) = R), for a rate within the limits."""
    knots, entropies = _entropy_curve()
    # The curve rises, so its two axes can change places
    between_knots = float(np.interp(bits, entropies, knots))
    index = round(between_knots)
    return min(max(index, 0), MAX_INDEX)


def entropy_of_steps(steps: np.ndarray) -> np.ndarray:
    """H(Δ) of these steps, in bits; beyond the largest step it falls off to zero."""
    knots, entropies = _entropy_curve()
    exponents = np.log2(steps)
    # `step_of` the other way round; an index need not be whole here
    indices = (LARGEST_EXPONENT - exponents) * INDICES_PER_OCTAVE
    return np.interp(indices, knots, entropies, left=0.0)


def mean_symbol(bits: float) -> float:
    """The mean of |j| at a rate.

    Arguments:
        bits: Per number.
    """
    index = index_for(bits)
    step = step_of(index)
    probabilities = _probabilities(step)
    largest = len(probabilities) // 2
    symbols = np.arange(-largest, largest + 1)
    magnitudes = np.abs(symbols)
    mean = magnitudes @ probabilities.numpy()
    return float(mean)


def distortion(bits: float) -> float:
    """D: the share of a vector's energy that its best reconstruction at this rate lacks (v = D/(1 − D) if unbiased)."""
    index = index_for(bits)
    return distortion_at(index)


@lru_cache(maxsize=1024)
def distortion_at(index: int) -> float:
    """D at a step."""
    step = step_of(index)
    probabilities = _probabilities(step)
    largest = len(probabilities) // 2
    symbols = torch.arange(-largest, largest + 2, dtype=torch.float64)
    values = step * symbols[:-1]

    # φ at the edges of the cells
    edges = step * (symbols - 0.5)
    exponents = -0.5 * edges.square()
    density = torch.exp(exponents)
    density /= math.sqrt(2 * math.pi)

    # ⟨y, q⟩ and ‖q‖² per coordinate; ∫ y φ(y) dy over a cell is the difference of φ at its edges
    first_moments = density[:-1] - density[1:]
    product = torch.dot(values, first_moments)
    squares = values.square()
    square = torch.dot(probabilities, squares)
    # ⟨y, c·q⟩ at the least-squares scale c = ⟨y, q⟩/‖q‖², where ‖y‖² is 1
    kept = product.square() / square
    return float(1 - kept)


@lru_cache(maxsize=1024)
def table(index: int) -> Table:
    """The symbols' table at a step."""
    step = step_of(index)
    probabilities = _probabilities(step)
    largest = len(probabilities) // 2
    return Table.of(probabilities.numpy(), lowest=-largest)


def _probabilities(step: float) -> Tensor:
    """P_j for j from −J to J."""
    largest = _largest_at(step)
    # The upper edges of the cells of 0, 1, …, J, and Q there
    numbers = torch.arange(largest + 1, dtype=torch.float64)
    edges = step * (numbers + 0.5)
    scaled = edges / math.sqrt(2.0)
    tails = 0.5 * torch.erfc(scaled)

    # The law is symmetric: only one side is computed
    centre = 1 - 2 * tails[:1]
    positive = tails[:-1] - tails[1:]
    negative = positive.flip(0)
    return torch.cat((negative, centre, positive))


def _largest_at(step: float) -> int:
    """J at a step."""
    return math.ceil(REACH / step) + 1


@cache
def _entropy_curve() -> tuple[np.ndarray, np.ndarray]:
    """Indices and the entropy of their steps, both rising."""
    count = int(OCTAVES * KNOTS_PER_OCTAVE) + 1
    spacing = INDICES_PER_OCTAVE // KNOTS_PER_OCTAVE
    knots = np.arange(count) * spacing
    entropies = np.empty(count)
    for place, index in enumerate(knots):
        step = step_of(int(index))
        probabilities = _probabilities(step)
        # −p·ln p, and 0 at p = 0, where a logarithm would not be finite
        terms = torch.special.entr(probabilities)
        nats = float(terms.sum())
        entropies[place] = nats / math.log(2)
    return knots, entropies
