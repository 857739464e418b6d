"""The parts of a round: marks for torch's profiler, and a log of how long each took.

`torch.profiler` shows them as fedlama.train, fedlama.encode, fedlama.aggregate, fedlama.spread and fedlama.evaluate.
The logger `fedlama.phases` reports the same at level DEBUG; each log record has the attributes `phase`, `seconds` and
`cpu_seconds`, the processor's time of this process, which other programs do not lengthen.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from torch.profiler import record_function

logger = logging.getLogger("fedlama.phases")


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Mark what happens inside as this part of a round."""
    started = time.perf_counter()
    cpu_started = time.process_time()
    with record_function(f"fedlama.{name}"):
        yield
    if logger.isEnabledFor(logging.DEBUG):
        seconds = time.perf_counter() - started
        cpu_seconds = time.process_time() - cpu_started
        attributes = {"phase": name, "seconds": seconds, "cpu_seconds": cpu_seconds}
        logger.debug("%s took %.6f s", name, seconds, extra=attributes)
