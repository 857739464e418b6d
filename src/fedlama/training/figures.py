"""What is known of a coded message, as a row of numbers: so that all processes hear of it in one sum."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fedlama.compress import Decoded
from fedlama.core import Message


def figures_per_message(due: Sequence[int]) -> int:
    """How many numbers are known of each message: four of each due layer, and one of the statistics."""
    return 4 * len(due) + 1


def figures_of(message: Decoded, due: Sequence[int]) -> Tensor:
    """Bytes, exact and decoded norms, and what the code keeps, of each due layer; bytes of the statistics."""
    numbers: list[float] = []
    for layer in due:
        charged = message.charged.layers.get(layer, 0)
        numbers.append(charged)
    for layer in due:
        exact_sq = message.exact_sq[layer]
        numbers.append(exact_sq)
    for layer in due:
        decoded_sq = message.decoded_sq[layer]
        numbers.append(decoded_sq)
    for layer in due:
        kept = message.kept[layer]
        if kept is None:
            kept = math.nan
        numbers.append(kept)
    numbers.append(message.charged.statistics)
    return torch.tensor(numbers, dtype=torch.float64)


def message_of(numbers: Sequence[float], due: Sequence[int]) -> Decoded:
    """Back from `figures_of`, but for the row itself."""
    count = len(due)
    layer_bytes: dict[int, int] = {}
    exact_sq: dict[int, float] = {}
    decoded_sq: dict[int, float] = {}
    kept: dict[int, float | None] = {}
    for index, layer in enumerate(due):
        layer_bytes[layer] = round(numbers[index])
        exact_sq[layer] = numbers[count + index]
        decoded_sq[layer] = numbers[2 * count + index]
        share = numbers[3 * count + index]
        kept[layer] = share
        if math.isnan(share):
            kept[layer] = None
    statistics_bytes = round(numbers[4 * count])

    return Decoded(
        row=torch.empty(0),
        exact_sq=exact_sq,
        decoded_sq=decoded_sq,
        kept=kept,
        charged=Message(layer_bytes, statistics_bytes),
    )
