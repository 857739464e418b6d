"""A fuzzer that keeps what reaches new lines of the package, and a failing input under its own name."""

import random
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import fedlama

from .guard import MEMORY_FLOOR, PAGE_FLOOR, ForbiddenError, guarded
from .mutations import change
from .readers import READERS
from .samples import SAMPLES, name_of

CORPUS = Path(__file__).parent / "corpus"
PACKAGE = str(Path(fedlama.__file__).parent)
# Seconds of computing: a reader that takes so long for some kilobytes can be made to hang
SLOW = 5.0
# Every message that names a file passes it on
HOSTILE_NAME = "in\n\n\n\x1b[31m\x07\r\u2028\u202e"


class FoundError(Exception):
    """A reader did with an input what no reader may do."""


def attempt(reader: str, content: bytes) -> None:
    """Give a reader one input; what it must not do is raised as FoundError."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        place = Path(folder) / HOSTILE_NAME
        place.mkdir()
        draws = reader.startswith("drawn")
        floor = PAGE_FLOOR if draws else MEMORY_FLOOR
        started = time.process_time()
        try:
            with guarded(place, len(content), floor):
                READERS[reader](content, place)
        except (Exception, ForbiddenError) as error:
            raise FoundError(
                f"{reader}: {type(error).__name__}: {str(error)[:200]}"
            ) from error
        took = time.process_time() - started
        # To draw a page takes seconds whatever is in the file; the guard ends what takes much longer.
        if took > SLOW and not draws:
            raise FoundError(f"{reader}: takes {took:.0f} seconds")


def kept(reader: str) -> list[bytes]:
    """The right files, and what the corpus has of this reader."""
    return [
        *SAMPLES[reader],
        *(path.read_bytes() for path in sorted((CORPUS / reader).glob("*"))),
    ]


@dataclass
class Campaign:
    """One reader's inputs so far, and the lines of the package that they reached."""

    reader: str
    seed: int
    inputs: list[bytes] = field(default_factory=list)
    reached: set[tuple[str, int]] = field(default_factory=set)
    tried: int = 0
    found: dict[str, bytes] = field(default_factory=dict)  # one a kind of failure

    def run(self, seconds: float | None = None, count: int | None = None) -> None:
        """Until the time is up or so many inputs were tried."""
        draw = random.Random(f"{self.reader} {self.seed}")
        self.inputs = kept(self.reader)
        _warm_up(self.reader)
        for content in self.inputs:
            self.try_one(content)
        end = time.monotonic() + seconds if seconds is not None else float("inf")
        while time.monotonic() < end and (count is None or self.tried < count):
            content = change(self.reader, draw, draw.choice(self.inputs), self.inputs)
            if self.try_one(content):
                self.inputs.append(content)

    def try_one(self, content: bytes) -> bool:
        """Whether it reached a line that none before it did."""
        before = len(self.reached)
        self.tried += 1
        sys.settrace(self._trace)
        try:
            attempt(self.reader, content)
        except FoundError as error:
            self.found.setdefault(_kind(error), content)
        finally:
            sys.settrace(None)
        return len(self.reached) > before

    def _trace(self, frame, event, argument):
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        self.reached.add((frame.f_code.co_filename, frame.f_lineno))
        return self._trace

    def keep_found(self, corpus: Path = CORPUS) -> list[Path]:
        """Failing inputs, for the corpus: from now on they are tests."""
        paths = [
            corpus / self.reader / f"found-{name_of(content)}"
            for content in self.found.values()
        ]
        for path, content in zip(paths, self.found.values(), strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return paths


def _warm_up(reader: str) -> None:
    """Libraries that are imported when they are first needed compile code of their own, which is no find."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder, suppress(Exception):
        READERS[reader](SAMPLES[reader][0], Path(folder))


def _kind(error: FoundError) -> str:
    """The same failure at the same place is one find."""
    cause, place = error.__cause__, ""
    step = cause.__traceback__ if cause else None
    while step:
        if step.tb_frame.f_code.co_filename.startswith(PACKAGE):
            place = f"{Path(step.tb_frame.f_code.co_filename).name}:{step.tb_lineno}"
        step = step.tb_next
    name = type(cause).__name__ if cause else "slow"
    return f"{name} ({place})" if place else str(error).splitlines()[0][:160]
