"""How many steps a client takes: as many as the schedule has, or a number of its own (system heterogeneity).

The schedule counts global steps. A client with a number of its own takes so many local steps for every base interval of
global steps, so that fast and slow clients meet at the same synchronisations.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from fedlama.base import InputError, check_whole, random_key, shown

StepsOption = int | str | Sequence[int] | None

_EPOCHS = re.compile(r"([0-9]+(?:\.[0-9]+)?) epochs?")
MAX_EPOCHS = 1000


def checked_steps(option: object) -> int | str | tuple[int, int] | None:
    """The `option` as it is kept, or one sentence on what it may be."""
    if option is None:
        return None
    if isinstance(option, str):
        found = _EPOCHS.fullmatch(option)
        if found is None or not 0 < float(found[1]) <= MAX_EPOCHS:
            raise InputError(
                f"steps must be like '2 epochs', a number or [least, most], not {shown(option)}"
            )
        return option
    if isinstance(option, list | tuple):
        if len(option) != 2:
            raise InputError(
                f"steps must be [least, most] to be drawn, not {shown(option)}"
            )
        for one in option:
            check_whole("a number of steps", one, minimum=1)
        if option[0] > option[1]:
            raise InputError(
                f"steps must be [least, most] to be drawn, not {shown(option)}"
            )
        return (int(option[0]), int(option[1]))
    check_whole("steps", option, minimum=1)
    assert isinstance(option, int)
    return option


def steps_per_interval(
    option: StepsOption,
    *,
    samples: int,
    batch_size: int,
    seed: int,
    window: int,
    client: int,
) -> int | None:
    """How many steps a client takes for every base interval of global steps; None for each of them.

    Arguments:
        option: What the local rule says: a number, "2 epochs", or (least, most) to be drawn.
        samples: How many the client has.
        batch_size: How many of them a step takes.
        seed: The run's.
        window: The number of the window: a client draws anew in each.
        client: The client's number.
    """
    if option is None:
        return None
    if isinstance(option, int):
        return option
    if isinstance(option, str):
        found = _EPOCHS.fullmatch(option)
        assert found, "it was checked when the rule was made"
        epochs = float(found[1])
        batches = math.ceil(epochs * samples / batch_size)
        return max(1, batches)
    least, most = option
    choices = most - least + 1
    drawn = random_key(seed, "steps", window, client) % choices
    return least + drawn


def steps_taken(per_interval: int | None, base_interval: int, steps: range) -> range:
    """The local steps of a client in these global steps; in a part of a base interval it may have none.

    Local step k is taken in global step ⌊k·τ'/per_interval⌋. So steps add up, however a run is split into rounds.

    Arguments:
        per_interval: How many steps the client takes for every base interval; None for each of them.
        base_interval: τ', in global steps.
        steps: The global steps.
    """
    if per_interval is None:
        return steps
    # Rounded up: local step k belongs to the global step in which it begins
    first = -(-steps.start * per_interval // base_interval)
    last = -(-steps.stop * per_interval // base_interval)
    return range(first, last)
