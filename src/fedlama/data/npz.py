"""Arrays in an .npz file, in one of two layouts:

x_train, y_train, x_test, y_test, and if there are clients their ids in clients_train (or writer_train);
x, y, a boolean `test` that marks the test samples, and if there are clients their ids in clients (or writer).

Nothing is unpickled, and what a header claims is held against the file's length before memory is asked for.
"""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from fedlama.base import InputError, open_regular, printable, reason, shown
from fedlama.data.dataset import Dataset
from fedlama.data.from_arrays import arrays
from fedlama.data.unpacking import largest_unpacked

NUMBERS_AND_TEXTS = "biufUS"
CHANNELS = (1, 3, 4)
SHOWN_KEYS = 20


@dataclass(frozen=True)
class _Layout:
    """The arrays that must be there, and the names under which client ids may be."""

    needed: tuple[str, ...]
    ids: tuple[str, ...]
    test_ids: tuple[str, ...] = ()


SPLIT = _Layout(
    ("x_train", "y_train", "x_test", "y_test"),
    ids=("clients_train", "writer_train"),
    test_ids=("clients_test", "writer_test"),
)
JOINT = _Layout(("x", "y", "test"), ids=("clients", "writer"))


def read_npz(path: Path) -> Dataset:
    """The data set in `path`, named after it; uint8 samples of two dimensions get a channel."""
    stored = _read_members(path)
    try:
        data = _dataset(stored, printable(path.stem))
        _check_test_labels(data)
    except InputError as error:
        raise InputError(f"{printable(path)}: {error}") from error
    return data


def _check_test_labels(data: Dataset) -> None:
    """A file says nowhere how many classes there are, so they are those of its training samples."""
    if data.classes is None:
        return
    largest_in_test = int(data.y_test.max())
    largest_in_training = int(data.y_train.max())
    if largest_in_test > largest_in_training:
        raise InputError(
            f"the test samples hold label {largest_in_test}, outside the {largest_in_training + 1} classes "
            f"of the training samples"
        )


def _dataset(stored: Mapping[str, np.ndarray], name: str) -> Dataset:
    if "x_train" in stored:
        return arrays(
            _with_channel(stored["x_train"]),
            stored["y_train"],
            _with_channel(stored["x_test"]),
            stored["y_test"],
            clients=_ids(stored, SPLIT.ids),
            test_clients=_ids(stored, SPLIT.test_ids),
            name=name,
        )

    x = _with_channel(stored["x"])
    y = stored["y"]
    test = stored["test"]
    samples = len(x)
    if test.dtype != np.bool_ or test.shape != (samples,):
        shape = list(test.shape)
        kind = f"{test.dtype} of shape {shown(shape)}"
        raise InputError(
            f"test must hold True or False for each of the {samples} samples, not {kind}"
        )
    if len(y) != samples:
        raise InputError(f"x has {samples} samples and y {len(y)}")

    ids = _ids(stored, JOINT.ids)
    test_ids = None
    if ids is not None:
        if len(ids) != samples:
            raise InputError(f"x has {samples} samples and the client ids {len(ids)}")
        test_ids = ids[test]
        ids = ids[~test]
    return arrays(
        x[~test],
        y[~test],
        x[test],
        y[test],
        clients=ids,
        test_clients=test_ids,
        name=name,
    )


def _ids(stored: Mapping[str, np.ndarray], keys: tuple[str, ...]) -> np.ndarray | None:
    for key in keys:
        if key in stored:
            return stored[key]
    return None


def _with_channel(x: np.ndarray) -> np.ndarray:
    if x.dtype != np.uint8:
        return x
    if x.ndim == 4 and x.shape[3] in CHANNELS and x.shape[1] not in CHANNELS:
        shape = list(x.shape[1:])
        raise InputError(
            f"images of shape {shown(shape)} have their channels last: "
            f"store x.transpose(0, 3, 1, 2)"
        )
    if x.ndim == 3:
        return x[:, None]
    return x


def _read_members(path: Path) -> dict[str, np.ndarray]:
    """The members of whichever layout the file has; others are not touched."""
    stored: dict[str, np.ndarray] = {}
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            length = os.fstat(file.fileno()).st_size
            members: dict[str, zipfile.ZipInfo] = {}
            for info in archive.infolist():
                key = info.filename.removesuffix(".npy")
                members[key] = info

            for key in _wanted(path, list(members)):
                where = f"{printable(path)}: {key}"
                info = members[key]
                stored[key] = _read_member(where, archive, info, length)
    except InputError:
        raise
    except Exception as error:
        # Zipfile and numpy's header parser fail in many ways on a broken file.
        raise InputError(
            f"{printable(path)} is not an .npz file that can be read: {reason(error)}"
        ) from error
    return stored


def _wanted(path: Path, keys: list[str]) -> list[str]:
    """The names of the layout that the file has, with those of its client ids if it has some."""
    for layout, other in ((SPLIT, JOINT), (JOINT, SPLIT)):
        if not set(layout.needed) <= set(keys):
            continue

        ids = _first_of(layout.ids, keys)
        misplaced = _first_of(other.ids, keys)
        # Ids that are silently ignored would make another experiment.
        if misplaced and not ids:
            needed = ", ".join(layout.needed)
            raise InputError(
                f"{printable(path)} holds {misplaced[0]}; "
                f"beside {needed} name it {layout.ids[0]}"
            )

        # Owners of test samples mean nothing without clients.
        test_ids: list[str] = []
        if ids:
            test_ids = _first_of(layout.test_ids, keys)
        return [*layout.needed, *ids, *test_ids]

    found = sorted(keys)
    listed = ", ".join(found[:SHOWN_KEYS])
    held = printable(listed) or "nothing"
    raise InputError(
        f"{printable(path)} holds {held}; "
        f"needed are {_described(SPLIT)}, or {_described(JOINT)}"
    )


def _first_of(names: tuple[str, ...], keys: list[str]) -> list[str]:
    """The first of these names that is a key, as a list of one; none if there is none."""
    for name in names:
        if name in keys:
            return [name]
    return []


def _described(layout: _Layout) -> str:
    needed = ", ".join(layout.needed)
    ids = " or ".join(layout.ids)
    return f"{needed} and optionally {ids}"


def _read_member(
    where: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo, length: int
) -> np.ndarray:
    """One array of a file of `length` bytes; messages call it `where`."""
    _check_size(where, info, length)
    with archive.open(info) as stream:
        shape, by_columns, dtype = _read_header(where, stream)
        values_claimed = math.prod(shape)
        claimed = values_claimed * dtype.itemsize
        held = info.file_size - stream.tell()
        if claimed != held:
            raise InputError(
                f"{where}: its header claims {shown(claimed)} bytes "
                f"({dtype} of shape {shown(list(shape))}), "
                f"and {held:,} are there"
            )

        # Zipfile stops at file_size and checks the sum
        content = bytearray(stream.read(claimed))

    arrived = len(content)
    if arrived != claimed:
        raise InputError(f"{where} ends after {arrived:,} of {claimed:,} bytes")
    values = np.frombuffer(content, dtype)
    if by_columns:
        return values.reshape(shape, order="F")
    return values.reshape(shape)


def _check_size(where: str, info: zipfile.ZipInfo, length: int) -> None:
    """What the member claims to unpack to must be possible, and in proportion to what it is packed in."""
    if info.compress_type == zipfile.ZIP_STORED:
        maximum = info.compress_size
    elif info.compress_type == zipfile.ZIP_DEFLATED:
        maximum = largest_unpacked(info.compress_size)
    else:
        raise InputError(
            f"{where} must be stored or deflated, as numpy's savez and savez_compressed do"
        )
    if info.compress_size > length or info.file_size > maximum:
        raise InputError(
            f"{where} claims {info.file_size:,} bytes, more than the file can hold or than {maximum:,}, to which "
            f"so little is unpacked; if it is right, store it with numpy's savez"
        )


def _read_header(
    where: str, stream: IO[bytes]
) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, by_columns, dtype = np.lib.format.read_array_header_1_0(stream)
    elif version == (2, 0):
        shape, by_columns, dtype = np.lib.format.read_array_header_2_0(stream)
    else:
        raise InputError(f"{where} is in .npy format {version}; 1.0 and 2.0 are read")

    if dtype.hasobject or dtype.kind not in NUMBERS_AND_TEXTS:
        kind = printable(str(dtype), 60)
        raise InputError(
            f"{where} holds {kind} values; only numbers (and texts as client ids) are read"
        )

    # A single number has no dimension, and a forged header may have one below zero.
    smallest = min(shape, default=-1)
    if smallest < 0:
        lengths = list(shape)
        raise InputError(
            f"{where} has shape {shown(lengths)}; "
            f"its first dimension must count the samples"
        )
    return shape, by_columns, dtype
