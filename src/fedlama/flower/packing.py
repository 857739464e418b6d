"""Numbers as the bytes of a message, and back.

A message holds the float32 numbers of its layers and of the statistics one behind the other, or a coded message of
`fedlama.compress`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedlama.base import InputError, printable, shown
from fedlama.core import BYTES_PER_NUMBER
from fedlama.rows import pack, unpack

PLAIN = "fedlama.float32"
CODED = "fedlama.coded"
MAX_KIND = 40  # characters of a kind in an error
SLACK = 4096  # bytes that a coded message may be longer than plain numbers


class NotFiniteError(InputError):
    """An update holds NaN or infinity."""


@dataclass(frozen=True)
class Packed:
    """The numbers of a message.

    Arguments:
        kind: What the bytes are: `PLAIN` or `CODED`; of a client's reply it may be anything.
        content: The bytes.
    """

    kind: str = PLAIN
    content: bytes = b""


def pack_plain(row: Tensor, slices: Sequence[slice]) -> Packed:
    """These slices as float32 numbers.

    Arguments:
        row: The numbers.
        slices: Which of them, one behind the other.
    """
    packed = pack(row, slices)
    numbers = packed.detach().cpu().numpy()
    # Little-endian, whatever this machine is.
    content = numbers.astype("<f4").tobytes()
    return Packed(PLAIN, content)


def pack_rule_rows(rows: Sequence[Tensor], slices: Sequence[slice]) -> bytes:
    """These slices of several rows of a local rule, one row behind the other.

    Arguments:
        rows: The rule's rows.
        slices: Which numbers of each.
    """
    content = b""
    for row in rows:
        packed = pack_plain(row, slices)
        content += packed.content
    return content


def read_plain(packed: Packed, row: Tensor, slices: Sequence[slice]) -> None:
    """Write plain numbers into a row; a wrong length or NaN leaves the row as it was.

    Arguments:
        packed: What was sent.
        row: Where its numbers go.
        slices: Which of the row they are.
    """
    numbers = plain_numbers(packed, size_of(slices))
    unpack(numbers, row, slices)


def read_rule_rows(
    content: bytes, rows: Sequence[Tensor], slices: Sequence[slice]
) -> None:
    """Back from `pack_rule_rows`.

    Arguments:
        content: What was sent.
        rows: The rule's rows, which are written to.
        slices: Which numbers of each.
    """
    size = size_of(slices)
    total = len(rows) * size
    packed = Packed(PLAIN, content)
    numbers = plain_numbers(packed, total)

    of_rows = numbers.split(size)
    for row, values in zip(rows, of_rows, strict=True):
        unpack(values, row, slices)


def plain_numbers(packed: Packed, size: int) -> Tensor:
    """The numbers of a message, as many as were due and all finite.

    Arguments:
        packed: What was sent.
        size: How many numbers were due.
    """
    # The header may lie about shape and type, so only what the bytes are is believed.
    length = len(packed.content)
    due = BYTES_PER_NUMBER * size
    if packed.kind != PLAIN or length != due:
        kind = printable(packed.kind, MAX_KIND)
        raise InputError(
            f"wrong shape: {length} bytes of {kind} where {size} numbers were due"
        )

    # A copy, because torch warns of memory that it may not write to.
    content = bytearray(packed.content)
    numbers = torch.frombuffer(content, dtype=torch.float32)
    finite = numbers.isfinite().all()
    if not bool(finite):
        raise NotFiniteError("not finite")
    return numbers


def check_coded(packed: Packed, size: int) -> None:
    """Refuse what cannot be a coded message of so many numbers, before anything is decoded.

    Arguments:
        packed: What was sent.
        size: How many numbers were due.
    """
    if packed.kind == PLAIN:
        # A client whose numbers no code can hold sends them as they are, and is refused by their name.
        plain_numbers(packed, size)
        raise InputError("plain numbers where a coded message was due")
    if packed.kind != CODED:
        raise InputError(
            f"wrong type: {shown(packed.kind)} where a coded message was due"
        )

    # No code makes numbers much longer than they are.
    length = len(packed.content)
    longest = BYTES_PER_NUMBER * size + SLACK
    if length > longest:
        raise InputError(f"wrong shape: {length} coded bytes for {size} numbers")


def size_of(slices: Sequence[slice]) -> int:
    """How many numbers these slices hold.

    Arguments:
        slices: With a start and a stop.
    """
    size = 0
    for part in slices:
        size += part.stop - part.start
    return size
