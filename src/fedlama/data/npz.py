"""Arrays in an .npz file, in one of two layouts:

x_train, y_train, x_test, y_test, and if there are clients their ids in clients_train (or writer_train);
x, y, a boolean `test` that marks the test samples, and if there are clients their ids in clients (or writer).

Nothing is unpickled, and what a header claims is held against the file's length before memory is asked for.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import numpy as np

from fedlama.base import InputError
from fedlama.data.dataset import Dataset, arrays
from fedlama.data.unpacking import largest_unpacked

SPLIT_KEYS = ("x_train", "y_train", "x_test", "y_test")
JOINT_KEYS = ("x", "y", "test")
SPLIT_IDS = ("clients_train", "writer_train")
JOINT_IDS = ("clients", "writer")
NUMBERS_AND_TEXTS = "biufUS"


def read_npz(path: Path) -> Dataset:
    """The data set in `path`, named after it; uint8 samples of two dimensions get a channel."""
    stored = _read_members(path)
    try:
        data = _dataset(stored, path.stem)
        _check_test_labels(data)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    return data


def _check_test_labels(data: Dataset) -> None:
    """A file says nowhere how many classes there are, so they are those of its training samples."""
    if data.classes is not None and int(data.y_test.max()) > int(data.y_train.max()):
        raise InputError(
            f"the test samples hold label {int(data.y_test.max())}, outside the {int(data.y_train.max()) + 1} classes "
            f"of the training samples"
        )


def _dataset(stored: Mapping[str, np.ndarray], name: str) -> Dataset:
    if "x_train" in stored:
        ids = next((stored[key] for key in SPLIT_IDS if key in stored), None)
        x_train, y_train, x_test, y_test = (stored[key] for key in SPLIT_KEYS)
        return arrays(_with_channel(x_train), y_train, _with_channel(x_test), y_test, ids, name=name)
    x, y, test = _with_channel(stored["x"]), stored["y"], stored["test"]
    if test.dtype != np.bool_ or test.shape != (len(x),):
        raise InputError(f"test must hold True or False for each of the {len(x)} samples, not {_kind(test)}")
    ids = next((stored[key] for key in JOINT_IDS if key in stored), None)
    for key, values in (("y", y), ("the client ids", ids)):
        if values is not None and len(values) != len(x):
            raise InputError(f"x has {len(x)} samples and {key} {len(values)}")
    return arrays(x[~test], y[~test], x[test], y[test], None if ids is None else ids[~test], name=name)


def _with_channel(x: np.ndarray) -> np.ndarray:
    if x.dtype == np.uint8 and x.ndim == 4 and x.shape[3] in (1, 3, 4) and x.shape[1] not in (1, 3, 4):
        raise InputError(f"images of shape {list(x.shape[1:])} have their channels last: store x.transpose(0, 3, 1, 2)")
    return x[:, None] if x.dtype == np.uint8 and x.ndim == 3 else x


def _kind(array: np.ndarray) -> str:
    return f"{array.dtype} of shape {list(array.shape)}"


def _read_members(path: Path) -> dict[str, np.ndarray]:
    """The members of whichever layout the file has; others are not touched."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            keys = _wanted(path, list(members))
            return {key: _read_member(path, key, archive, members[key]) for key in keys}
    except InputError:
        raise
    except Exception as error:  # zipfile and numpy's header parser fail in many ways on a broken file
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise InputError(f"{path} is not an .npz file that can be read: {reason[:200]}") from error


def _wanted(path: Path, keys: list[str]) -> list[str]:
    for needed, ids, others in ((SPLIT_KEYS, SPLIT_IDS, JOINT_IDS), (JOINT_KEYS, JOINT_IDS, SPLIT_IDS)):
        if set(needed) <= set(keys):
            misplaced = [key for key in others if key in keys and not set(ids) & set(keys)]
            if misplaced:  # ids that are silently ignored would make another experiment
                raise InputError(f"{path} holds {misplaced[0]}; beside {', '.join(needed)} name it {ids[0]}")
            return [*needed, *[key for key in ids if key in keys][:1]]
    found = ", ".join(sorted(keys)[:20]) or "nothing"
    raise InputError(
        f"{path} holds {found[:400]}; needed are {', '.join(SPLIT_KEYS)} and optionally {' or '.join(SPLIT_IDS)}, "
        f"or {', '.join(JOINT_KEYS)} and optionally {' or '.join(JOINT_IDS)}"
    )


def _read_member(path: Path, key: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise InputError(f"{path}: {key} must be stored or deflated, as numpy's savez and savez_compressed do")
    stored = info.compress_type == zipfile.ZIP_STORED
    most = info.compress_size if stored else largest_unpacked(info.compress_size)
    if info.compress_size > path.stat().st_size or info.file_size > most:
        raise InputError(
            f"{path}: {key} claims {info.file_size:,} bytes, more than the file can hold or than {most:,}, to which "
            f"so little is unpacked; if it is right, store it with numpy's savez"
        )
    with archive.open(info) as stream:
        shape, by_columns, dtype = _read_header(path, key, stream)
        claimed, held = math.prod(shape) * dtype.itemsize, info.file_size - stream.tell()
        if claimed != held:
            raise InputError(
                f"{path}: the header of {key} claims {claimed:,} bytes ({dtype} of shape {list(shape)}), "
                f"and {held:,} are there"
            )
        content = bytearray(stream.read(claimed))  # zipfile stops at file_size and checks the sum
    if len(content) != claimed:
        raise InputError(f"{path}: {key} ends after {len(content):,} of {claimed:,} bytes")
    return np.frombuffer(content, dtype).reshape(shape, order="F" if by_columns else "C")


def _read_header(path: Path, key: str, stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(stream)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise InputError(f"{path}: {key} is in .npy format {version}; 1.0 and 2.0 are read")
    shape, by_columns, dtype = readers[version](stream)
    if dtype.hasobject or dtype.kind not in NUMBERS_AND_TEXTS:
        raise InputError(f"{path}: {key} holds {dtype} values; only numbers (and texts as client ids) are read")
    if min(shape, default=-1) < 0:
        raise InputError(f"{path}: {key} has shape {list(shape)}; its first dimension must count the samples")
    return shape, by_columns, dtype
