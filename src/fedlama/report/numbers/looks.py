"""Which look a setting has in every picture: by what it is, and not by its place in a table.

A look is a place in the palette of `pictures/style.py`; beyond the palette lines differ in their dashes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count

from fedlama.report.numbers.reading import sends_plainly
from fedlama.run.config import Config
from fedlama.run.labels import FRUGAL

# FedAvg's interval as a multiple of τ′ → look; 4τ′ is the longest that the paper compares with
FEDAVG_LOOKS = {1: 0, 4: 1, 2: 4}
# FedLAMA's φ → look
FEDLAMA_LOOKS = {4: 2, 2: 5}
FRUGAL_LOOK = 3
# All others: first the colours that mean the least
REST = (3, 4, 5, 1, 2, 0)


def looks_of(settings: Sequence[tuple[str, Config]]) -> list[int]:
    """The look of each setting.

    Arguments:
        settings: their labels and configurations, in any order.
    """
    base_interval = _base_interval([config for _, config in settings])
    looks: dict[int, int] = {}  # by place among the settings
    # By label, so that the order of a table does not matter
    places = sorted(range(len(settings)), key=lambda place: settings[place][0])
    for place in places:
        label, config = settings[place]
        look = _own_look(label, config, base_interval)
        if look is not None and look not in looks.values():
            looks[place] = look

    free = _free_looks(looks.values())
    for place in places:
        if place not in looks:
            looks[place] = next(free)
    return [looks[place] for place in range(len(settings))]


def _base_interval(configs: Sequence[Config]) -> int | None:
    """τ′: FedLAMA's where there is one, as FedAvg may be compared at smaller intervals, too."""
    of_fedlama: list[int] = []
    of_fedavg: list[int] = []
    for config in configs:
        interval = config.policy.fedavg_interval
        if interval is not None:
            of_fedavg.append(interval)
        elif config.policy.kind == "fedlama":
            of_fedlama.append(config.policy.base_interval)
    return min(of_fedlama or of_fedavg, default=None)


def _own_look(label: str, config: Config, base_interval: int | None) -> int | None:
    """The look that is kept for such a setting; None for those that take what is left."""
    if label.startswith(FRUGAL):
        return FRUGAL_LOOK
    if base_interval is None or not sends_plainly(config):
        return None

    policy = config.policy
    interval = policy.fedavg_interval
    if interval is not None:
        multiple, remainder = divmod(interval, base_interval)
        return None if remainder else FEDAVG_LOOKS.get(multiple)
    if policy.kind == "fedlama" and policy.base_interval == base_interval:
        return FEDLAMA_LOOKS.get(policy.increase_factor)
    return None


def _free_looks(taken: Iterable[int]) -> Iterator[int]:
    used = set(taken)
    for look in REST:
        if look not in used:
            yield look
    yield from count(len(REST))
