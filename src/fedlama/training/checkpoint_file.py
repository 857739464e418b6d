"""A checkpoint's file in parts: its header written before the rest, its tensors read back one by one.

A safetensors file begins with the length of its header. The header is JSON: some texts, and for each tensor its type,
its shape and its place. The numbers follow without a gap. So what is large is written and read in pieces, and all
lengths are known before memory is asked for. What a run does not write is refused, whatever else it is.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase, BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedlama.base import InputError, open_regular, reason
from fedlama.core import Message
from fedlama.core.saved import MAX_COUNT

# As safetensors names them; a checkpoint has no others
DTYPES: dict[str, type[np.float32 | np.int64]] = {
    "F32": np.float32,
    "I64": np.int64,
}
NAMES = {np.dtype(dtype): name for name, dtype in DTYPES.items()}
METADATA = "__metadata__"  # the place of texts in the header
LENGTH_BYTES = 8  # with which a safetensors file begins
MAX_HEADER = 64 << 20
MAX_DIMENSIONS = 2  # clients and numbers

# A checkpoint's content, or the file that has it
CheckpointSource = bytes | Path


@dataclass(frozen=True)
class Form:
    """What kind of tensor it is.

    Arguments:
        dtype: The type of its numbers, as safetensors names it.
        shape: How many there are in each dimension.
    """

    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """How many bytes it has in the file."""
        numbers = math.prod(self.shape)
        dtype = np.dtype(DTYPES[self.dtype])
        return numbers * dtype.itemsize

    def with_rows(self, count: int) -> Form:
        """Such a table with so many rows."""
        _, width = self.shape
        return Form(self.dtype, (count, width))


def form_of(values: NDArray[Any]) -> Form:
    """What kind of tensor an array becomes."""
    return Form(NAMES[values.dtype], values.shape)


def header_of(forms: Mapping[str, Form], texts: Mapping[str, str]) -> bytes:
    """What a file begins with.

    Arguments:
        forms: Its tensors by name, in the order in which they follow.
        texts: What it says beside them.
    """
    header: dict[str, Any] = {METADATA: dict(texts)}
    start = 0
    for name, form in forms.items():
        end = start + form.nbytes
        header[name] = {
            "dtype": form.dtype,
            "shape": form.shape,
            "data_offsets": [start, end],
        }
        start = end
    content = json.dumps(header).encode()
    # Numbers that lie at multiples of eight bytes can be used where they lie.
    padding = -len(content) % LENGTH_BYTES
    content += b" " * padding
    length = len(content).to_bytes(LENGTH_BYTES, "little")
    return length + content


class TensorFile:
    """A safetensors file, open; only its header is in memory.

    Arguments:
        file: At any place.
    """

    def __init__(self, file: BufferedIOBase) -> None:
        self._file = file
        size = file.seek(0, os.SEEK_END)
        header_length = self._header_length()
        self._data_start = LENGTH_BYTES + header_length
        if header_length > MAX_HEADER or self._data_start > size:
            raise ValueError("its header is cut off")

        content = self._read(LENGTH_BYTES, header_length)
        header = json.loads(content)
        self.texts: dict[str, str] = header.pop(METADATA)
        self.forms: dict[str, Form] = {}
        self._starts: dict[str, int] = {}
        for name, entry in header.items():
            form = _form(entry)
            start, end = entry["data_offsets"]
            length = whole(end) - whole(start)
            if length != form.nbytes:
                raise ValueError("a tensor has another length than its shape says")
            self.forms[name] = form
            self._starts[name] = start
        self._check_lengths(size)

    def _header_length(self) -> int:
        """How many bytes the header has, as the first ones say."""
        prefix = self._read(0, LENGTH_BYTES)
        return int.from_bytes(prefix, "little")

    def array(self, name: str) -> NDArray[Any]:
        """A whole tensor."""
        form = self.forms[name]
        return self._array(form, self._starts[name])

    def rows(self, name: str, first: int, count: int) -> NDArray[Any]:
        """Some of the rows of a tensor.

        Arguments:
            name: Which tensor.
            first: The number of the first of the rows.
            count: How many.
        """
        table = self.forms[name]
        wanted = table.with_rows(count)
        before = table.with_rows(first)
        start = self._starts[name] + before.nbytes
        return self._array(wanted, start)

    def _check_lengths(self, size: int) -> None:
        """Every byte of the file belongs to one tensor."""
        expected = 0
        for name in sorted(self._starts, key=self._starts.__getitem__):
            if self._starts[name] != expected:
                raise ValueError("its tensors overlap, or leave gaps")
            expected += self.forms[name].nbytes
        if self._data_start + expected != size:
            raise ValueError("it is shorter or longer than its header says")

    def _array(self, form: Form, start: int) -> NDArray[Any]:
        content = self._read(self._data_start + start, form.nbytes)
        flat = np.frombuffer(content, DTYPES[form.dtype])
        return flat.reshape(form.shape)

    def _read(self, start: int, count: int) -> bytearray:
        # Arrays in it can be written to, and are not copied for that.
        content = bytearray(count)
        self._file.seek(start)
        found = self._file.readinto(content)
        if found != count:
            raise ValueError("it is cut off")
        return content


def _form(entry: Mapping[str, Any]) -> Form:
    dtype = entry["dtype"]
    if dtype not in DTYPES:
        raise ValueError("a tensor is of a type that checkpoints do not have")
    if len(entry["shape"]) > MAX_DIMENSIONS:
        raise ValueError("a tensor has more dimensions than those of checkpoints")
    shape: list[int] = []
    for length in entry["shape"]:
        if not 0 <= whole(length) < MAX_COUNT:
            raise ValueError("a shape holds something else than lengths")
        shape.append(length)
    return Form(dtype, tuple(shape))


@contextmanager
def opened(source: CheckpointSource) -> Iterator[TensorFile]:
    """A checkpoint's file, to be read in parts; InputError for one that is none, also for what is found inside."""
    try:
        with _binary(source) as file:
            yield TensorFile(file)
    except InputError:
        raise
    except (
        OSError,
        ArithmeticError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        raise InputError(f"it is not a checkpoint ({reason(error)})") from None


def _binary(source: CheckpointSource) -> BufferedIOBase:
    if isinstance(source, Path):
        return open_regular(source)
    return BytesIO(source)


def message_of(plain: Mapping[str, Any], layers: int) -> Message:
    """What a client downloads, from plain values.

    Arguments:
        plain: As JSON has it.
        layers: How many layers the model has.
    """
    layer_bytes: dict[int, int] = {}
    for name, value in plain["layers"].items():
        layer = int(name)
        if not 0 <= layer < layers:
            raise ValueError("broadcast names a layer that is not there")
        layer_bytes[layer] = _bytes(value)
    statistics_bytes = _bytes(plain["statistics"])
    return Message(layer_bytes, statistics_bytes)


def _bytes(value: object) -> int:
    count = whole(value)
    if not 0 <= count < MAX_COUNT:
        raise ValueError(
            "broadcast holds something else than numbers that are not negative"
        )
    return count


def whole(value: object) -> int:
    """A whole number; True is none, nor is 1.0."""
    if type(value) is not int:
        raise ValueError("a count is not a whole number")
    return value
