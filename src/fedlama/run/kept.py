"""What was built of configurations, kept for whoever asks for the same again: of the last few data sets only."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Generic, TypeVar

from fedlama.run.config import Config

T = TypeVar("T")

# A data set may be most of a machine's memory.
MAX_DATA_SETS = 4
# Who has which sample is a number per sample.
MAX_RUNS = 64


class Kept(Generic[T]):
    """By configuration. With a data set goes all that was built with it."""

    def __init__(self) -> None:
        # By data set, the one that was asked for last at the end, and there by configuration
        self._of_data: dict[str, dict[str, T]] = {}

    def get(self, config: Config, build: Callable[[Config], T]) -> T:
        """What is kept of a configuration, or what is built of it now.

        Arguments:
            config: The configuration.
            build: What builds it, where nothing is kept.
        """
        runs = self._runs_with(config)
        key = config.model_dump_json()
        if key not in runs:
            if len(runs) >= MAX_RUNS:
                runs.clear()
            runs[key] = build(config)
        return runs[key]

    def clear(self) -> None:
        """Keep nothing."""
        self._of_data.clear()

    @property
    def count(self) -> int:
        """Of how many configurations something is kept."""
        return sum(len(runs) for runs in self._of_data.values())

    def _runs_with(self, config: Config) -> dict[str, T]:
        """What is kept of this data set, which becomes the one that was asked for last."""
        key = _data_key(config)
        runs = self._of_data.pop(key, {})
        if len(self._of_data) >= MAX_DATA_SETS:
            oldest = next(iter(self._of_data))
            del self._of_data[oldest]
        self._of_data[key] = runs
        return runs


def _data_key(config: Config) -> str:
    """Which samples there are; what a part is held out of is another set, which the seed decides."""
    data = config.data
    parts = [data.name, data.options]
    if data.validation:
        parts += [data.validation, config.seed]
    return json.dumps(parts)
