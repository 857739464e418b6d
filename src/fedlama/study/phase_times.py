"""How long the parts of a round take, from the log that the training loop writes of them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from fedlama.training.phases import logger as phases


@contextmanager
def timed_phases(*, on_gpu: bool = False) -> Iterator[dict[str, float]]:
    """How long the latest of each part of a round took, by its name.

    Counted is the processor's time, so that what else the machine does makes no difference. A processor may rest while
    a GPU works, so there it is the time that passed.

    Arguments:
        on_gpu: Whether a GPU computes.
    """
    clock = "cpu_seconds"
    if on_gpu:
        clock = "seconds"
    seconds: dict[str, float] = {}

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            taken = vars(record)
            seconds[taken["phase"]] = taken[clock]

    listener = Listener(logging.DEBUG)
    level = phases.level
    phases.addHandler(listener)
    phases.setLevel(logging.DEBUG)
    try:
        yield seconds
    finally:
        phases.setLevel(level)
        phases.removeHandler(listener)
