"""CIFAR-10 and CIFAR-100 as published (A. Krizhevsky, 2009): the Python archive, or the folder it unpacks to.

The files inside are Python 2 pickles, and a pickle can call anything. So Python's unpickler is not used at all: the
opcodes are walked here, and a call becomes a note (`_Call`) that is read as an array or refused. Archives are read in
place; nothing from them is written to disk.
"""

from __future__ import annotations

import gzip
import io
import math
import pickletools
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from fedlama.core import InputError
from fedlama.data.dataset import Dataset, arrays

LARGEST_FILE = 256 << 20  # bytes; the largest official one, CIFAR-100's train, has 155 million
LARGEST_ARCHIVE = 512 << 20  # unpacked; the official ones have 186 million
MOST_MEMBERS = 100
MOST_OPCODES = 2_000_000  # CIFAR-100's train has some 300,000
PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class Cifar:
    """What differs between the two sets."""

    name: str
    folder: str
    archive: str
    train: tuple[str, ...]
    test: str
    labels: str
    classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]


CIFAR10 = Cifar(
    name="cifar10",
    folder="cifar-10-batches-py",
    archive="cifar-10-python.tar.gz",
    train=tuple(f"data_batch_{k}" for k in range(1, 6)),
    test="test_batch",
    labels="labels",
    classes=10,
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
)
CIFAR100 = Cifar(
    name="cifar100",
    folder="cifar-100-python",
    archive="cifar-100-python.tar.gz",
    train=("train",),
    test="test",
    labels="fine_labels",
    classes=100,
    mean=(0.5071, 0.4866, 0.4409),
    std=(0.2673, 0.2564, 0.2762),
)


def read_cifar(kind: Cifar, path: Path) -> Dataset:
    """The data set in `path`, an unpacked folder or a `.tar.gz`; images are cropped and flipped in training."""
    files = _from_folder(kind, path) if path.is_dir() else _from_archive(kind, path)
    parts = {file: _images_and_labels(kind, where, content) for file, where, content in files}
    missing = [file for file in (*kind.train, kind.test) if file not in parts]
    if missing:
        raise InputError(f"{path} is incomplete: {', '.join(missing)} is missing from {kind.folder}")
    images, labels = zip(*(parts[file] for file in kind.train), strict=True)
    data = arrays(np.concatenate(images), np.concatenate(labels), *parts[kind.test], name=kind.name)
    return replace(data, classes=kind.classes, mean=kind.mean, std=kind.std, augment="crop-flip")


def _from_folder(kind: Cifar, folder: Path) -> Iterator[tuple[str, str, bytes]]:
    for file in (*kind.train, kind.test):
        path = folder / file
        if not path.is_file():
            continue
        if path.stat().st_size > LARGEST_FILE:
            raise InputError(f"{path} has {path.stat().st_size:,} bytes; an official file has at most 155 million")
        try:
            yield file, str(path), path.read_bytes()
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}") from error


def _from_archive(kind: Cifar, path: Path) -> Iterator[tuple[str, str, bytes]]:
    """The wanted members; a name that is absolute or climbs with `..` is never one of them, so it is passed over."""
    wanted = {PurePosixPath(kind.folder, file): file for file in (*kind.train, kind.test)}
    try:
        with gzip.open(path) as unpacked:
            bounded: Any = _Bounded(unpacked, path)  # Any: tarfile asks for a whole file and only reads
            with tarfile.open(fileobj=bounded, mode="r|") as archive:
                for number, member in enumerate(archive):
                    if number >= MOST_MEMBERS:
                        raise InputError(f"{path} has over {MOST_MEMBERS} members; {kind.archive} has 9 or fewer")
                    if file := wanted.get(PurePosixPath(member.name)):
                        yield file, f"{path}: {member.name}", _content(archive, member, path)
            while bounded.read(1 << 20):  # to the end, where gzip's checksum is
                pass
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise InputError(f"{path} is not a complete .tar.gz archive ({error}); fetch it again") from error


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> bytes:
    if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.issparse():
        raise InputError(f"{path}: {member.name} is a link or a special file; only plain files are read")
    if member.size > LARGEST_FILE:
        raise InputError(
            f"{path}: {member.name} claims {member.size:,} bytes; an official file has at most 155 million"
        )
    stream = archive.extractfile(member)
    assert stream is not None, "a plain file has content"
    return stream.read()


class _Bounded:
    """A stream that refuses to unpack more than an official archive could hold."""

    def __init__(self, stream: io.BufferedIOBase, path: Path) -> None:
        self._stream, self._path, self._left = stream, path, LARGEST_ARCHIVE

    def read(self, count: int) -> bytes:
        content = self._stream.read(min(count, self._left + 1))
        self._left -= len(content)
        if self._left < 0:
            raise InputError(f"{self._path} unpacks to over {LARGEST_ARCHIVE:,} bytes; an official archive does not")
        return content


def _images_and_labels(kind: Cifar, where: str, content: bytes) -> tuple[np.ndarray, np.ndarray]:
    try:
        stored = _unpickle(content)
        images, labels = _array(stored["data"]), stored[kind.labels]
        labels = _array(labels).tolist() if isinstance(labels, _Call) else labels
    except Exception as error:  # a broken pickle can fail in any way there is
        reason = (
            str(error)[:200] if isinstance(error, _NotArraysError) else "it is broken, or lacks 'data' or its labels"
        )
        raise InputError(f"{where} is not an official {kind.name} file: {reason}") from error
    if images.dtype != np.uint8 or images.ndim != 2 or images.shape[1] != PIXELS or not len(images):
        found = f"{images.dtype} of shape {list(images.shape)}"
        raise InputError(f"{where}: 'data' must be uint8 of shape [n, {PIXELS}], not {found}")
    if not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise InputError(f"{where}: '{kind.labels}' must be a list of whole numbers")
    if len(labels) != len(images):
        raise InputError(f"{where} holds {len(images)} images and {len(labels)} labels")
    for sample, label in enumerate(labels):
        if not 0 <= label < kind.classes:
            raise InputError(f"{where}: label {label} of sample {sample} is outside 0 … {kind.classes - 1}")
    return images.reshape(-1, 3, 32, 32), np.array(labels, dtype=np.int64)


class _NotArraysError(Exception):
    """The pickle holds something other than numbers, texts, lists, dictionaries and arrays."""


@dataclass(eq=False)
class _Call:
    """A call that the pickle asks for, and the state it wants the result to have. It is never made."""

    function: str
    arguments: tuple[Any, ...]
    state: Any = None


_NAMES = {
    "numpy.core.multiarray _reconstruct": "_reconstruct",
    "numpy._core.multiarray _reconstruct": "_reconstruct",  # numpy 2
    "numpy ndarray": "ndarray",
    "numpy dtype": "dtype",
    "_codecs encode": "encode",  # how Python 3 writes bytes in protocol 2
}
_TEXTS = {"BINSTRING", "SHORT_BINSTRING", "BINUNICODE", "SHORT_BINUNICODE", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"}
_VALUES = {"BININT", "BININT1", "BININT2", "LONG1"} | _TEXTS
_WHOLE_NUMBERS = {f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}


def _unpickle(content: bytes) -> dict[str, Any]:
    """The dictionary that the pickle describes, its calls left as `_Call`s."""
    machine = _Machine()
    for count, (opcode, argument, _) in enumerate(pickletools.genops(content)):
        if count > MOST_OPCODES:
            raise _NotArraysError(f"it has over {MOST_OPCODES:,} parts")
        if opcode.name != "STOP":
            machine.step(opcode.name, argument)
    if not isinstance(machine.stack[-1], dict):
        raise _NotArraysError(f"it holds a {type(machine.stack[-1]).__name__}, not a dictionary")
    return machine.stack[-1]


class _Machine:
    """The part of the pickle machine (protocols 2 to 4) that numbers, texts, lists, dictionaries and arrays need."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}

    def step(self, opcode: str, argument: Any) -> None:
        """Do what one opcode says; one that is not needed for arrays is refused."""
        stack, memo = self.stack, self._memo
        match opcode:
            case _ if opcode in _VALUES:
                stack.append(argument)
            case _ if opcode in _CONSTANTS:
                stack.append(_CONSTANTS[opcode])
            case "BINPUT" | "LONG_BINPUT" | "MEMOIZE":
                memo[len(memo) if opcode == "MEMOIZE" else argument] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(memo[argument])
            case "MARK":
                self._marks.append(len(stack))
            case "PROTO" | "FRAME":
                pass
            case _:
                self._combine(opcode, argument)

    def _combine(self, opcode: str, argument: Any) -> None:
        stack = self.stack
        match opcode:
            case "TUPLE":
                stack.append(self._pop_to_mark())
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                stack.append(self._pop(int(opcode[-1])))
            case "EMPTY_LIST" | "EMPTY_DICT":
                stack.append([] if opcode == "EMPTY_LIST" else {})
            case "APPEND" | "APPENDS":
                values = self._pop(1) if opcode == "APPEND" else self._pop_to_mark()
                stack[-1].extend(values)
            case "SETITEM" | "SETITEMS":  # keys are texts: a deep tuple of tuples would take for ever to hash
                items = self._pop(2) if opcode == "SETITEM" else self._pop_to_mark()
                stack[-1].update(zip(map(_text, items[::2]), items[1::2], strict=True))
            case "GLOBAL" | "STACK_GLOBAL":
                stack.append(_admitted(argument if opcode == "GLOBAL" else " ".join(map(_text, self._pop(2)))))
            case "REDUCE":
                function, arguments = self._pop(2)
                stack.append(_Call(function, arguments))
            case "BUILD":
                (state,) = self._pop(1)
                stack[-1].state = state
            case _:
                raise _NotArraysError(f"it uses {opcode}, and only arrays are admitted")

    def _pop(self, count: int) -> tuple[Any, ...]:
        start = len(self.stack) - count
        values = tuple(self.stack[start:])
        del self.stack[start:]
        return values

    def _pop_to_mark(self) -> tuple[Any, ...]:
        return self._pop(len(self.stack) - self._marks.pop())


def _admitted(name: str) -> str:
    if name not in _NAMES:
        raise _NotArraysError(f"it asks for {name.replace(' ', '.')!r}, and only arrays are admitted")
    return _NAMES[name]


def _text(value: Any) -> str:
    if not isinstance(value, str | bytes):
        raise _NotArraysError(f"it holds a {type(value).__name__} where a text belongs")
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _array(call: _Call) -> np.ndarray:
    """The array that a call of `_reconstruct`, with its state, stands for."""
    if call.function != "_reconstruct" or call.arguments[0] != "ndarray":
        raise _NotArraysError(f"it holds a {call.function} where an array belongs")
    _, shape, dtype, by_columns, content = call.state
    kind = _dtype(dtype)
    values = np.frombuffer(_content_of(content), kind)
    if len(shape) > 2 or math.prod(shape) != len(values) or min(shape, default=0) < 0:
        raise _NotArraysError(f"its array claims shape {list(shape)} and holds {len(values):,} numbers")
    return values.reshape(shape, order="F" if by_columns else "C")


def _dtype(call: _Call) -> np.dtype[Any]:
    kind, order = _text(call.arguments[0]), _text(call.state[1])
    if call.function != "dtype" or kind not in _WHOLE_NUMBERS:
        raise _NotArraysError(f"its array is of type {kind!r}, and only whole numbers are admitted")
    return np.dtype(order + kind)


def _content_of(value: Any) -> bytes:
    """Python 2 wrote texts, Python 3 writes bytes, or in protocol 2 a text to be encoded."""
    if isinstance(value, _Call) and value.function == "encode" and value.arguments[1] == "latin1":
        return _content_of(value.arguments[0])
    if not isinstance(value, str | bytes):
        raise _NotArraysError("its array has no content")
    return value.encode("latin-1") if isinstance(value, str) else value
