"""LEAF's JSON (Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018), as its preprocess.sh writes it.

A folder with train/ and test/, each with one or more files of the form
{"users": ["f0001", …], "num_samples": [120, …], "user_data": {"f0001": {"x": [[…], …], "y": [4, …]}, …}}.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from fedlama.base import InputError
from fedlama.data.dataset import Dataset, arrays

KEYS = ("users", "num_samples", "user_data")
FEMNIST_CLASSES = 62
MNIST_CLASSES = 10
SIDE = 28
LARGEST_LABEL = 1 << 31


@dataclass(frozen=True)
class _Writer:
    """One user's samples, and the file they are from."""

    name: str
    file: Path
    x: np.ndarray
    y: np.ndarray


def is_leaf(folder: Path) -> bool:
    """Whether `folder` has the two folders that LEAF writes."""
    return (folder / "train").is_dir() and (folder / "test").is_dir()


def leaf_files(folder: Path) -> list[Path]:
    """What `read_leaf` reads, in its order."""
    return [*sorted((folder / "train").glob("*.json")), *sorted((folder / "test").glob("*.json"))]


def read_leaf(folder: Path, name: str | None = None, classes: int | None = None) -> Dataset:
    """The data set in `folder`; each user of train/ is a client, in the order of their names.

    Samples of 784 numbers become images of 1×28×28. These are MNIST's or FEMNIST's, so they have 10 or 62 classes
    unless `classes` says otherwise; samples of other lengths have as many classes as there are labels.
    """
    train, test = _read_split(folder / "train"), _read_split(folder / "test")
    _check_shapes(train + test)
    classes = classes or _classes(train + test)
    _check_labels(train + test, classes)
    number = {user: index for index, user in enumerate(sorted(writer.name for writer in train))}
    owners = np.repeat([number[writer.name] for writer in train], [len(writer.y) for writer in train])
    data = arrays(*_joined(train), *_joined(test), owners, name=name or folder.resolve().name)
    return replace(data, classes=classes or data.classes)


def _read_split(folder: Path) -> list[_Writer]:
    files = sorted(folder.glob("*.json"))
    if not files:
        raise InputError(f"{folder} holds no .json file; LEAF's preprocess.sh writes them to train/ and test/")
    writers: list[_Writer] = []
    where: dict[str, Path] = {}
    for file in files:
        for writer in _read_file(file):
            if writer.name in where:
                raise InputError(
                    f"{file}: user {_shown(writer.name)} was in {where[writer.name].name} already; "
                    f"keep the files of a single run of preprocess.sh in {folder}"
                )
            where[writer.name] = file
            writers.append(writer)
    return writers


def _read_file(file: Path) -> list[_Writer]:
    try:
        content = json.loads(file.read_bytes(), parse_constant=_refuse_constant)
    except InputError as error:
        raise InputError(f"{file} {error}") from error
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"{file} is not JSON that can be read: {error}") from error
    users, counts, user_data = _parts(file, content)
    return [_writer(file, user, count, user_data.get(user)) for user, count in zip(users, counts, strict=True)]


def _refuse_constant(constant: str) -> NoReturn:
    raise InputError(f"holds {constant}; samples and labels must be finite numbers")


def _parts(file: Path, content: Any) -> tuple[list[str], list[Any], dict[str, Any]]:
    if not isinstance(content, dict) or not all(key in content for key in KEYS):
        raise InputError(f"{file} must hold an object with {', '.join(KEYS)}")
    users, counts, user_data = (content[key] for key in KEYS)
    if not isinstance(users, list) or not all(isinstance(user, str) for user in users) or not users:
        raise InputError(f"{file}: users must be a list of one or more names")
    if not isinstance(counts, list) or len(counts) != len(users):
        raise InputError(f"{file}: num_samples must be a list of {len(users)} numbers, one for each of users")
    if not isinstance(user_data, dict):
        raise InputError(f"{file}: user_data must be an object with an entry for each of users")
    return users, counts, user_data


def _writer(file: Path, user: str, count: Any, entry: Any) -> _Writer:
    where = f"{file}: user {_shown(user)}"
    if not isinstance(entry, dict) or not all(isinstance(entry.get(key), list) for key in "xy"):
        raise InputError(f"{where} must have lists x and y in user_data")
    x, y = entry["x"], entry["y"]
    if not y and not x:
        raise InputError(f"{where} has no samples; take such users out, with preprocess.sh -k 1 for example")
    if not len(x) == len(y) == count:
        raise InputError(f"{where} has {len(x)} x and {len(y)} y, and num_samples says {str(count)[:20]}")
    return _Writer(user, file, _samples(where, x), _labels(where, y))


def _samples(where: str, x: list[Any]) -> np.ndarray:
    try:
        values = np.array(x)
    except ValueError as error:
        raise InputError(f"{where} has samples of different lengths") from error
    if values.dtype.kind not in "if" or values.ndim < 2 or not values.size:
        raise InputError(f"{where}: each x must be a list of numbers, all of one length (texts are not read)")
    with np.errstate(over="ignore"):
        values = values.astype(np.float32)
    if not np.isfinite(values).all():
        raise InputError(f"{where} has a number in x that is too large for float32")
    if values.shape[1:] == (SIDE * SIDE,):
        return values.reshape(-1, 1, SIDE, SIDE)
    return values[:, None] if values.ndim == 3 else values


def _labels(where: str, y: list[Any]) -> np.ndarray:
    if not all(type(label) in (int, float) and label == label // 1 for label in y):
        raise InputError(f"{where}: y must be a list of whole numbers")
    if not all(0 <= label < LARGEST_LABEL for label in y):
        raise InputError(f"{where}: a label in y is below 0 or far too large; labels are counted from 0")
    return np.array(y, dtype=np.int64)


def _check_shapes(writers: list[_Writer]) -> None:
    first = writers[0]
    for writer in writers:
        if writer.x.shape[1:] != first.x.shape[1:]:
            raise InputError(
                f"{writer.file}: the samples of user {_shown(writer.name)} are of shape {list(writer.x.shape[1:])}, "
                f"those of {_shown(first.name)} in {first.file} of shape {list(first.x.shape[1:])}"
            )


def _classes(writers: list[_Writer]) -> int | None:
    if writers[0].x.shape[1:] != (1, SIDE, SIDE):
        return None
    return MNIST_CLASSES if max(writer.y.max() for writer in writers) < MNIST_CLASSES else FEMNIST_CLASSES


def _check_labels(writers: list[_Writer], classes: int | None) -> None:
    for writer in writers:
        largest = int(writer.y.max())
        if classes and largest >= classes:
            raise InputError(
                f"{writer.file}: label {largest} of user {_shown(writer.name)} is outside 0 … {classes - 1}"
            )


def _joined(writers: list[_Writer]) -> tuple[np.ndarray, np.ndarray]:
    return np.concatenate([writer.x for writer in writers]), np.concatenate([writer.y for writer in writers])


def _shown(user: str) -> str:
    return repr(user[:40])
