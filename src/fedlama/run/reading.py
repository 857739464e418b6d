"""Records and summaries back from disk: files come from anywhere, and are checked before anybody computes with them.

What is allowed stands with the dataclasses in `training/records.py`.
"""

from __future__ import annotations

import gzip
import io
import math
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from fedlama.base import InputError, open_regular, read_regular, reason
from fedlama.training.records import Record, Summary, Timing

T = TypeVar("T")

RECORD_TYPE = TypeAdapter(Record)
TIMING_TYPE = TypeAdapter(Timing)
SUMMARY_TYPE = TypeAdapter(Summary)

MAX_FILE = 4 << 30  # bytes: a million rounds of a hundred layers
# Of packed records: a small file may claim to be a thousand times as large
MAX_UNPACKED = 256 << 20
BLOCK = 1 << 16


def read_summary(path: Path) -> Summary | None:
    """The summary in a file; None if there is no such file."""
    if not path.exists():
        return None
    content = _content(path)
    return _parsed(SUMMARY_TYPE, content, str(path))


def read_records(path: Path) -> Iterator[Record]:
    """The records of `rounds.jsonl`, one after the other up to the first that is broken, which raises InputError."""
    return _read_lines(path, RECORD_TYPE)


def read_packed_records(path: Path) -> Iterator[Record]:
    """The same of `rounds.jsonl.gz`, which published runs have in place of it."""
    content = _unpacked(path)
    return _parsed_lines(content, path, RECORD_TYPE)


def read_timings(path: Path) -> Iterator[Timing]:
    """The lines of `timings.jsonl`, one after the other up to the first that is broken, which raises InputError."""
    return _read_lines(path, TIMING_TYPE)


def timings_up_to(path: Path, round_: int) -> bytes:
    """The lines of `timings.jsonl` up to a round, without those that cannot be read: no result depends on them."""
    kept = b""
    complete_lines = _content(path).split(b"\n")[:-1]
    for line in complete_lines:
        with suppress(InputError):
            timing = _parsed(TIMING_TYPE, line, str(path))
            if timing.round <= round_:
                kept += line + b"\n"
    return kept


def last_seconds(path: Path) -> float:
    """The seconds in the last line of `timings.jsonl`; 0 where there is none."""
    seconds = 0.0
    for timing in read_timings(path):
        # One from elsewhere may have any number
        if math.isfinite(timing.seconds):
            seconds = timing.seconds
    return seconds


def _read_lines(path: Path, kind: TypeAdapter[T]) -> Iterator[T]:
    return _parsed_lines(_content(path), path, kind)


def _parsed_lines(content: bytes, path: Path, kind: TypeAdapter[T]) -> Iterator[T]:
    """Complete lines only: a run that is going, or was killed, may have half a line at its end."""
    # One after the other: a list of all would be eight times as large as a file of line breaks.
    for number, line in enumerate(io.BytesIO(content), start=1):
        if not line.endswith(b"\n"):
            return
        where = f"{path}: line {number}"
        yield _parsed(kind, line, where)


def _content(path: Path) -> bytes:
    """What a file of a run holds; nothing where there is none."""
    try:
        return read_regular(path, MAX_FILE, "a file of a run's records")
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({reason(error)})") from None


def _unpacked(path: Path) -> bytes:
    """What a packed file holds; nothing where there is none."""
    try:
        with open_regular(path) as packed, gzip.open(packed) as unpacked:
            content = _read_some(unpacked)
    except FileNotFoundError:
        return b""
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be unpacked ({reason(error)})") from None
    if len(content) > MAX_UNPACKED:
        raise InputError(
            f"{path}: unpacked it has more than {MAX_UNPACKED:,} bytes; that is not one run's records"
        )
    return content


def _read_some(unpacked: gzip.GzipFile) -> bytes:
    """All of it, or a little more than is admitted; in blocks: asked for much, it takes the memory for it at once."""
    content = bytearray()
    while len(content) <= MAX_UNPACKED:
        block = unpacked.read(BLOCK)
        if not block:
            break
        content += block
    return bytes(content)


def _parsed(kind: TypeAdapter[T], content: bytes, where: str) -> T:
    """JSON as a dataclass; what it is not is said in a sentence that names the first field that is wrong."""
    try:
        return kind.validate_json(content)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]

    said = first["msg"]
    if first["type"] == "json_invalid":
        raise InputError(f"{where} is not JSON ({said})")
    field = ".".join(map(str, first["loc"]))
    raise InputError(f"{where} is not one of a run: {field or 'it'}: {said}")
