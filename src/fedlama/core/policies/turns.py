"""Layers of the same interval that take turns inside a cycle instead of being averaged in the same rounds.

Each is averaged a few base intervals earlier or later than a multiple of its interval: as often as without that, and at
the cycle's end with all others.
"""

from __future__ import annotations

from collections.abc import Sequence


def shifts_of(intervals: Sequence[int], base_interval: int) -> list[int]:
    """How many steps later than a multiple of its interval each layer is averaged, at most half an interval.

    Layers of the same interval take turns: the first is not shifted, the next is averaged one base interval later, the
    one after that earlier, and so on. Of three layers with three base intervals each:

    >>> shifts_of([6, 6, 6], base_interval=2)
    [0, 2, -2]

    Arguments:
        intervals: τ_l of every layer, in steps.
        base_interval: τ', which divides them.
    """
    layers_before: dict[int, int] = {}
    shifts: list[int] = []
    for interval in intervals:
        number = layers_before.get(interval, 0)
        layers_before[interval] = number + 1
        turns = interval // base_interval
        turn = number % turns
        # To both sides by turns, so that no layer is shifted by more than half an interval
        distance = (turn + 1) // 2
        is_later = turn % 2 == 1
        shift = -distance
        if is_later:
            shift = distance
        shifts.append(shift * base_interval)
    return shifts


def due_in_turns(
    into_cycle: int, intervals: Sequence[int], base_interval: int, cycle: int
) -> list[int]:
    """The layers that are averaged so many steps into a cycle; at its end those are all.

    The three layers of the example above in a cycle of 12 steps, after every base interval:

    >>> [due_in_turns(step, [6, 6, 6], 2, cycle=12) for step in (2, 4, 6, 8, 10, 12)]
    [[], [2], [0], [1], [], [0, 1, 2]]

    Arguments:
        into_cycle: How many steps.
        intervals: τ_l of every layer.
        base_interval: τ', which divides them.
        cycle: After how many steps everything is averaged.
    """
    if into_cycle == cycle:
        every_layer = range(len(intervals))
        return list(every_layer)
    shifts = shifts_of(intervals, base_interval)
    due: list[int] = []
    for layer, interval in enumerate(intervals):
        unshifted = into_cycle - shifts[layer]
        is_multiple = unshifted % interval == 0
        # The multiples 0 and `cycle` are the ends of cycles, where no layer is shifted.
        is_inside = interval <= unshifted <= cycle - interval
        if is_multiple and is_inside:
            due.append(layer)
    return due
