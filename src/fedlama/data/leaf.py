"""LEAF's JSON (Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018), as its preprocess.sh writes it.

A folder with train/ and test/, each with one or more files of the form
{"users": ["f0001", …], "num_samples": [120, …], "user_data": {"f0001": {"x": [[…], …], "y": [4, …]}, …}}.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch

from fedlama.base import InputError, printable, read_regular, reason, shown
from fedlama.data.dataset import NO_CLIENT, Dataset
from fedlama.data.from_arrays import arrays

KEYS = ("users", "num_samples", "user_data")
FEMNIST_CLASSES = 62
MNIST_CLASSES = 10
SIDE = 28
LARGEST_LABEL = 1 << 31
# Bytes; preprocess.sh puts a hundred writers into a file, some hundred million bytes
MAX_FILE = 1 << 30
MAX_DEPTH = 3  # of a sample: channels, rows, columns
NUMBERS = {int, float}
NO_NUMBERS = "each x must be a list of numbers, all of one length (texts are not read)"


@dataclass(frozen=True)
class _Writer:
    """One user's samples, and the file they are from."""

    name: str
    file: Path
    x: np.ndarray
    y: np.ndarray


def is_leaf(folder: Path) -> bool:
    """Whether `folder` has the two folders that LEAF writes."""
    train = folder / "train"
    test = folder / "test"
    return train.is_dir() and test.is_dir()


def leaf_files(folder: Path) -> list[Path]:
    """What `read_leaf` reads, in its order."""
    files: list[Path] = []
    for split in ("train", "test"):
        found = (folder / split).glob("*.json")
        files += sorted(found)
    return files


def read_leaf(
    folder: Path, name: str | None = None, classes: int | None = None
) -> Dataset:
    """The data set in `folder`; each user of train/ is a client, in the order of their names.

    Samples of 784 numbers become images of 1×28×28. These are MNIST's or FEMNIST's, so they have 10 or 62 classes
    unless `classes` says otherwise; samples of other lengths have as many classes as there are labels.

    Arguments:
        folder: Where train/ and test/ are.
        name: What the data set is called; by default as the folder.
        classes: How many classes there are, if that is known.
    """
    train = _read_split(folder / "train")
    test = _read_split(folder / "test")
    _check_shapes(train + test)
    classes = classes or _classes(train + test)
    _check_labels(train + test, classes)
    names = sorted(writer.name for writer in train)
    x_train, y_train = _joined(train)
    x_test, y_test = _joined(test)
    data = arrays(
        x_train,
        y_train,
        x_test,
        y_test,
        clients=_owners(train, names),
        name=name or printable(folder.resolve().name),
    )
    return replace(
        data,
        classes=classes or data.classes,
        client_names=tuple(names),
        test_clients=torch.from_numpy(_owners(test, names)),
    )


def _read_split(folder: Path) -> list[_Writer]:
    files = sorted(folder.glob("*.json"))
    if not files:
        raise InputError(
            f"{printable(folder)} holds no .json file; LEAF's preprocess.sh writes them to train/ and test/"
        )
    writers: dict[str, _Writer] = {}
    for file in files:
        for writer in _read_file(file):
            before = writers.get(writer.name)
            if before is not None:
                raise InputError(
                    f"{printable(file)}: user {_shown(writer.name)} was in {printable(before.file.name)} already; "
                    f"keep the files of a single run of preprocess.sh in {printable(folder)}"
                )
            writers[writer.name] = writer
    return list(writers.values())


def _read_file(file: Path) -> list[_Writer]:
    content = _json(file)
    users, counts, user_data = _parts(file, content)
    writers: list[_Writer] = []
    for user, count in zip(users, counts, strict=True):
        entry = user_data.get(user)
        writer = _writer(file, user, count, entry)
        writers.append(writer)
    return writers


def _json(file: Path) -> Any:
    try:
        content = read_regular(file, MAX_FILE, "a LEAF file")
    except OSError as error:
        raise InputError(
            f"{printable(file)} is not JSON that can be read: {reason(error)}"
        ) from error

    try:
        return json.loads(content, parse_constant=_refuse_constant)
    except InputError as error:
        raise InputError(f"{printable(file)} {error}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise InputError(
            f"{printable(file)} is not JSON that can be read: {reason(error)}"
        ) from error


def _refuse_constant(constant: str) -> NoReturn:
    raise InputError(f"holds {constant}; samples and labels must be finite numbers")


def _parts(file: Path, content: Any) -> tuple[list[str], list[Any], dict[str, Any]]:
    where = printable(file)
    if not isinstance(content, dict) or not all(key in content for key in KEYS):
        raise InputError(f"{where} must hold an object with {', '.join(KEYS)}")

    users = content["users"]
    if not _is_list_of_names(users):
        raise InputError(f"{where}: users must be a list of one or more names")

    counts = content["num_samples"]
    if not isinstance(counts, list) or len(counts) != len(users):
        raise InputError(
            f"{where}: num_samples must be a list of {len(users)} numbers, one for each of users"
        )

    user_data = content["user_data"]
    if not isinstance(user_data, dict):
        raise InputError(
            f"{where}: user_data must be an object with an entry for each of users"
        )
    return users, counts, user_data


def _is_list_of_names(users: Any) -> bool:
    if not isinstance(users, list) or not users:
        return False
    kinds = set(map(type, users))
    return kinds == {str}


def _writer(file: Path, user: str, count: Any, entry: Any) -> _Writer:
    where = f"{printable(file)}: user {_shown(user)}"
    if not isinstance(entry, dict) or not all(
        isinstance(entry.get(key), list) for key in "xy"
    ):
        raise InputError(f"{where} must have lists x and y in user_data")

    x = entry["x"]
    y = entry["y"]
    if not y and not x:
        raise InputError(
            f"{where} has no samples; take such users out, with preprocess.sh -k 1 for example"
        )
    if not len(x) == len(y) == count:
        raise InputError(
            f"{where} has {len(x)} x and {len(y)} y, and num_samples says {shown(count, 20)}"
        )
    return _Writer(
        name=user,
        file=file,
        x=_samples(where, x),
        y=_labels(where, y),
    )


def _samples(where: str, x: list[Any]) -> np.ndarray:
    # Before numpy sees them: a text among many numbers would make it store every number as so long a text.
    if not all(_holds_numbers(sample, MAX_DEPTH) for sample in x):
        raise InputError(f"{where}: {NO_NUMBERS}")
    try:
        values = np.array(x)
    except ValueError as error:
        raise InputError(f"{where} has samples of different lengths") from error
    except OverflowError as error:
        raise InputError(
            f"{where} has a number in x that is too large for float32"
        ) from error
    if values.dtype.kind not in "if":  # a whole number that is no 64-bit number
        raise InputError(f"{where}: {NO_NUMBERS}")

    with np.errstate(over="ignore"):
        values = values.astype(np.float32)
    if not np.isfinite(values).all():
        raise InputError(f"{where} has a number in x that is too large for float32")

    # Images as a model takes them, with a channel.
    if values.shape[1:] == (SIDE * SIDE,):
        return values.reshape(-1, 1, SIDE, SIDE)
    if values.ndim == 3:
        return values[:, None]
    return values


def _holds_numbers(sample: Any, depth: int) -> bool:
    """Whether it is a list of one or more numbers, or of such lists, up to `depth` of them inside each other."""
    if not isinstance(sample, list) or not sample or not depth:
        return False
    kinds = set(map(type, sample))
    if kinds <= NUMBERS:
        return True
    return all(_holds_numbers(part, depth - 1) for part in sample)


def _labels(where: str, y: list[Any]) -> np.ndarray:
    for label in y:
        if type(label) not in NUMBERS or label != label // 1:
            raise InputError(f"{where}: y must be a list of whole numbers")
        if not 0 <= label < LARGEST_LABEL:
            raise InputError(
                f"{where}: a label in y is below 0 or far too large; labels are counted from 0"
            )
    return np.array(y, dtype=np.int64)


def _check_shapes(writers: list[_Writer]) -> None:
    first = writers[0]
    expected = first.x.shape[1:]
    for writer in writers:
        shape = writer.x.shape[1:]
        if shape != expected:
            raise InputError(
                f"{printable(writer.file)}: the samples of user {_shown(writer.name)} are of shape {list(shape)}, "
                f"those of {_shown(first.name)} in {printable(first.file)} of shape {list(expected)}"
            )


def _classes(writers: list[_Writer]) -> int | None:
    if writers[0].x.shape[1:] != (1, SIDE, SIDE):
        return None
    largest = 0
    for writer in writers:
        largest = max(largest, int(writer.y.max()))
    if largest < MNIST_CLASSES:
        return MNIST_CLASSES
    return FEMNIST_CLASSES


def _check_labels(writers: list[_Writer], classes: int | None) -> None:
    if not classes:
        return
    for writer in writers:
        largest = int(writer.y.max())
        if largest >= classes:
            raise InputError(
                f"{printable(writer.file)}: label {largest} of user {_shown(writer.name)} is outside 0 … {classes - 1}"
            )


def _owners(writers: list[_Writer], names: list[str]) -> np.ndarray:
    """For each sample the place of its writer's name among these, which are in order; −1 where it is not there."""
    owners: list[int] = []
    counts: list[int] = []
    for writer in writers:
        # A search by halves: there may be millions of names.
        place = bisect_left(names, writer.name)
        if place == len(names) or names[place] != writer.name:
            place = NO_CLIENT
        owners.append(place)
        counts.append(len(writer.y))
    return np.repeat(np.asarray(owners, np.int64), counts)


def _joined(writers: list[_Writer]) -> tuple[np.ndarray, np.ndarray]:
    samples = [writer.x for writer in writers]
    labels = [writer.y for writer in writers]
    return np.concatenate(samples), np.concatenate(labels)


def _shown(user: str) -> str:
    return shown(user, 40)
