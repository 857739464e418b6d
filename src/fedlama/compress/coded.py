"""A tensor as a codec leaves it: bytes that stand for themselves, and symbols for the entropy coder."""

from __future__ import annotations

from dataclasses import dataclass, field

from fedlama.compress.streams import Run

Shape = tuple[int, ...]


@dataclass
class Coded:
    """A tensor as a codec leaves it.

    Arguments:
        side: Bytes that stand for themselves.
        runs: Symbols under tables, which the entropy coder makes bytes of.
        inner: What the next codec of a chain made.
    """

    side: bytes = b""
    runs: list[Run] = field(default_factory=list)
    inner: Coded | None = None

    def all_side(self) -> bytes:
        """The bytes of this and of the codecs after it."""
        if self.inner is None:
            return self.side
        after = self.inner.all_side()
        return self.side + after

    def all_runs(self) -> list[Run]:
        """The runs of this and of the codecs after it."""
        if self.inner is None:
            return self.runs
        after = self.inner.all_runs()
        return self.runs + after

    def bits(self) -> float:
        """Information in all runs, which the stream will need."""
        return sum(run.bits for run in self.all_runs())
