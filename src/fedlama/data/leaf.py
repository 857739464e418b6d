"""LEAF's JSON (Caldas et al., "LEAF: A Benchmark for Federated Settings", 2018), as its preprocess.sh writes it.

A folder with train/ and test/, each with one or more files of the form
{"users": ["f0001", …], "num_samples": [120, …], "user_data": {"f0001": {"x": [[…], …], "y": [4, …]}, …}}.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from fedlama.base import InputError, printable
from fedlama.data.dataset import NO_CLIENT, Dataset
from fedlama.data.from_arrays import arrays
from fedlama.data.leaf_file import SIDE, Writer, read_leaf_file, shown_user

FEMNIST_CLASSES = 62
MNIST_CLASSES = 10


def is_leaf(folder: Path) -> bool:
    """Whether `folder` has the two folders that LEAF writes."""
    train = folder / "train"
    test = folder / "test"
    return train.is_dir() and test.is_dir()


def leaf_files(folder: Path) -> list[Path]:
    """What `read_leaf` reads, in its order."""
    files: list[Path] = []
    for split in ("train", "test"):
        split_folder = folder / split
        found = split_folder.glob("*.json")
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
    everyone = train + test
    _check_shapes(everyone)
    classes = classes or _classes(everyone)
    _check_labels(everyone, classes)

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
    test_owners = _owners(test, names)
    return replace(
        data,
        classes=classes or data.classes,
        client_names=tuple(names),
        test_clients=torch.from_numpy(test_owners),
    )


def _read_split(folder: Path) -> list[Writer]:
    files = sorted(folder.glob("*.json"))
    if not files:
        raise InputError(
            f"{printable(folder)} holds no .json file; LEAF's preprocess.sh writes them to train/ and test/"
        )

    writers: dict[str, Writer] = {}
    for file in files:
        for writer in read_leaf_file(file):
            before = writers.get(writer.name)
            if before is not None:
                other_file = printable(before.file.name)
                raise InputError(
                    f"{printable(file)}: user {shown_user(writer.name)} was in {other_file} already; "
                    f"keep the files of a single run of preprocess.sh in {printable(folder)}"
                )
            writers[writer.name] = writer
    return list(writers.values())


def _check_shapes(writers: list[Writer]) -> None:
    first = writers[0]
    expected = first.x.shape[1:]
    for writer in writers:
        shape = writer.x.shape[1:]
        if shape != expected:
            raise InputError(
                f"{printable(writer.file)}: "
                f"the samples of user {shown_user(writer.name)} "
                f"are of shape {list(shape)}, "
                f"those of {shown_user(first.name)} "
                f"in {printable(first.file)} "
                f"of shape {list(expected)}"
            )


def _classes(writers: list[Writer]) -> int | None:
    if writers[0].x.shape[1:] != (1, SIDE, SIDE):
        return None

    largest = 0
    for writer in writers:
        own_largest = int(writer.y.max())
        largest = max(largest, own_largest)
    if largest < MNIST_CLASSES:
        return MNIST_CLASSES
    return FEMNIST_CLASSES


def _check_labels(writers: list[Writer], classes: int | None) -> None:
    if not classes:
        return
    last = classes - 1
    for writer in writers:
        largest = int(writer.y.max())
        if largest > last:
            raise InputError(
                f"{printable(writer.file)}: "
                f"label {largest} of user {shown_user(writer.name)} "
                f"is outside 0 … {last}"
            )


def _owners(writers: list[Writer], names: list[str]) -> np.ndarray:
    """For each sample the place of its writer's name among these, which are in order; −1 where it is not there."""
    owners: list[int] = []
    counts: list[int] = []
    for writer in writers:
        owner = _place_of(writer.name, names)
        owners.append(owner)
        counts.append(len(writer.y))

    owner_of_writer = np.asarray(owners, np.int64)
    return np.repeat(owner_of_writer, counts)


def _place_of(name: str, names: list[str]) -> int:
    # A search by halves: there may be millions of names.
    place = bisect_left(names, name)
    is_there = place < len(names) and names[place] == name
    if not is_there:
        return NO_CLIENT
    return place


def _joined(writers: list[Writer]) -> tuple[np.ndarray, np.ndarray]:
    samples = [writer.x for writer in writers]
    labels = [writer.y for writer in writers]
    return np.concatenate(samples), np.concatenate(labels)
