"""What Algorithm 2 is given, checked: settings that mean something, numbers for every layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

from fedlama.base.checks import MAX_SIZE, check_choice, check_whole
from fedlama.base.errors import InputError

Variant = Literal["crossing", "released", "printed", "accelerate"]
VARIANTS: tuple[Variant, ...] = get_args(Variant)


def check_intervals(base_interval: int, increase_factor: int, variant: str) -> None:
    """Raise InputError, in one sentence, for settings that mean nothing.

    Arguments:
        base_interval: τ', in steps.
        increase_factor: φ.
        variant: Of Algorithm 2, which a user calls `rule`.
    """
    check_whole("base_interval", base_interval, minimum=1)
    check_whole("increase_factor", increase_factor, minimum=1)
    check_variant(variant)
    if variant == "accelerate" and base_interval % increase_factor:
        raise InputError(
            f"rule 'accelerate' shortens intervals to base_interval / increase_factor, "
            f"so increase_factor ({increase_factor}) must divide base_interval ({base_interval})"
        )


def check_variant(variant: str) -> None:
    """Raise InputError for a variant of Algorithm 2 that there is not.

    Arguments:
        variant: Its name.
    """
    check_choice("rule", variant, VARIANTS)


def check_layers(
    discrepancy: Sequence[float],
    sizes: Sequence[int],
    adaptive: Sequence[bool],
    current: Sequence[int] | None,
) -> None:
    """Raise InputError unless there is one sensible number of each kind for every layer.

    Arguments:
        discrepancy: d_l of Eq. 2.
        sizes: How many parameters each layer has; as many entries as there are layers.
        adaptive: Which layers may be given another interval.
        current: The intervals so far, if they are given.
    """
    count = len(sizes)
    lengths = {"discrepancy": len(discrepancy), "adaptive": len(adaptive)}
    if current is not None:
        lengths["current"] = len(current)
    for name, length in lengths.items():
        if length != count:
            raise InputError(f"{name} has {length} entries for {count} layers")
    for layer in range(count):
        d = discrepancy[layer]
        if not math.isfinite(d) or d < 0:
            raise InputError(
                f"discrepancy must be finite and not negative, but layer {layer} has {d}"
            )
        check_whole(
            f"the size of layer {layer}",
            sizes[layer],
            minimum=1,
            maximum=MAX_SIZE,
        )
    if current is None:
        return
    for layer, interval in enumerate(current):
        check_whole(
            f"the current interval of layer {layer}",
            interval,
            minimum=1,
            maximum=MAX_SIZE,
        )
