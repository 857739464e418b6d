"""A data set from arrays: what they hold is checked, and made into what torch computes with."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedlama.base import InputError
from fedlama.data.dataset import Dataset, Transform, places_of

MAX_UNSEEN_CLASSES = 1_000_000  # a vocabulary may be larger than a sample of it


def arrays(
    x_train: Any,
    y_train: Any,
    x_test: Any,
    y_test: Any,
    clients: Any = None,
    *,
    test_clients: Any = None,
    name: str = "arrays",
    transform: Transform | None = None,
    augment: str | Transform | None = None,
) -> Dataset:
    """A data set from numpy arrays or torch tensors.

    Arguments:
        x_train: Training samples, the first dimension counting them. uint8 samples are taken as pixels and divided by
            255; floats and whole numbers are used as they are.
        y_train: Their targets. Whole numbers are classes, counted from 0; floats are for losses of your own.
        x_test: Test samples, of the same shape and type; None where nothing is evaluated, as on a client of Flower's.
        y_test: Their targets, or None.
        clients: An id (a number or a text) for each training sample. Clients are numbered in the order of their ids, as
            texts or numbers sort, and keep them as their names.
        test_clients: Such an id for each test sample, where that is known: then a client can be evaluated on its own
            test samples.
        name: What messages and reports call the data.
        transform: A function of a batch of inputs, applied to all of them: in training, evaluation and prediction.
        augment: "crop-flip", or a function of a batch of inputs that is applied in training only.
    """
    x_train = _samples("x_train", x_train)
    y_train = _targets("y_train", y_train)
    if x_test is None and y_test is None:
        x_test = x_train[:0]
        y_test = y_train[:0]
    else:
        x_test = _samples("x_test", x_test)
        y_test = _targets("y_test", y_test)
    _check_lengths("train", x_train, y_train)
    _check_lengths("test", x_test, y_test)
    _check_alike("x", x_train, x_test)
    _check_alike("y", y_train, y_test)

    owners = None
    names = None
    test_owners = None
    if clients is not None:
        ids = _ids("clients", clients, len(x_train), "training")
        known, numbers = np.unique(ids, return_inverse=True)
        owners = torch.from_numpy(numbers.astype(np.int64))
        names = _names(known)
        if test_clients is not None:
            test_ids = _ids("test_clients", test_clients, len(x_test), "test")
            are_texts = known.dtype.kind in "US"
            test_are_texts = test_ids.dtype.kind in "US"
            if test_are_texts != are_texts:
                raise InputError(
                    "test_clients must hold ids like those in clients: numbers or texts"
                )
            test_owners = places_of(test_ids, known)
    elif test_clients is not None:
        raise InputError(
            "test_clients means nothing without clients: who owns the training samples"
        )
    return Dataset(
        x_train,
        y_train,
        x_test,
        y_test,
        clients=owners,
        name=name,
        classes=_count_classes(y_train, y_test),
        client_names=names,
        test_clients=test_owners,
        transform=transform,
        augment=augment,
    )


def _as_tensor(name: str, values: Any) -> Tensor:
    if isinstance(values, Tensor):
        return values.detach().cpu().contiguous()
    array = np.ascontiguousarray(values)
    kind = array.dtype.kind
    if kind not in "biuf":
        raise InputError(f"{name} must hold numbers, not {array.dtype}")

    # What torch does not know becomes what it knows.
    if kind == "u" and array.dtype != np.uint8:
        array = array.astype(np.int64)  # torch computes with no other unsigned numbers
    if kind == "f" and array.dtype.itemsize > 8:
        array = array.astype(np.float64)  # torch has no long double
    if not array.dtype.isnative:
        native = array.dtype.newbyteorder("=")
        array = array.astype(native)

    # torch warns of memory that it may not write to.
    if not array.flags.writeable:
        array = array.copy()
    return torch.from_numpy(array)


def _samples(name: str, values: Any) -> Tensor:
    """uint8 as it is, other whole numbers as int64, floats as float32."""
    tensor = _as_tensor(name, values)
    if tensor.dim() < 1 or not tensor.numel():
        shape = tuple(tensor.shape)
        raise InputError(f"{name} is empty (shape {shape})")

    if tensor.dtype == torch.uint8:
        return tensor
    if not tensor.is_floating_point():
        return tensor.long()
    return _finite(name, tensor.float())


def _targets(name: str, values: Any) -> Tensor:
    tensor = _as_tensor(name, values)
    if tensor.dim() < 1:
        raise InputError(
            f"{name} must hold a target for each sample, not a single number"
        )
    if not tensor.numel():
        shape = tuple(tensor.shape)
        raise InputError(f"{name} is empty (shape {shape})")
    if tensor.is_floating_point():
        return _finite(name, tensor.float())

    labels = tensor.long()
    smallest = int(labels.min())
    if smallest < 0:
        raise InputError(f"{name} holds label {smallest}; labels are counted from 0")
    return labels


def _finite(name: str, tensor: Tensor) -> Tensor:
    wrong = ~tensor.isfinite()
    count = int(wrong.sum())
    if not count:
        return tensor

    places = wrong.nonzero()
    first = int(places[0, 0])
    raise InputError(
        f"{name} holds {count} NaN or infinite values, the first in sample {first}"
    )


def _check_lengths(part: str, x: Tensor, y: Tensor) -> None:
    samples = len(x)
    targets = len(y)
    if samples != targets:
        raise InputError(f"x_{part} has {samples} samples and y_{part} {targets}")


def _check_alike(name: str, train: Tensor, test: Tensor) -> None:
    train_shape = tuple(train.shape[1:])
    test_shape = tuple(test.shape[1:])
    same_shape = train_shape == test_shape
    same_type = train.dtype == test.dtype
    if not same_shape or not same_type:
        raise InputError(
            f"{name}_train and {name}_test differ: "
            f"{train.dtype} of shape {train_shape} per sample "
            f"against {test.dtype} of {test_shape}"
        )


def _ids(name: str, clients: Any, samples: int, part: str) -> NDArray[Any]:
    if isinstance(clients, Tensor):
        clients = clients.cpu()
    ids = np.asarray(clients)
    if ids.shape != (samples,):
        raise InputError(
            f"{name} must hold one id for each of the {samples} {part} samples, not shape {ids.shape}"
        )

    kind = ids.dtype.kind
    if kind == "f" and not np.isfinite(ids).all():
        raise InputError(f"{name} holds NaN or infinite ids")
    if kind == "O":
        _check_sortable(name, ids)
    return ids


def _check_sortable(name: str, ids: NDArray[Any]) -> None:
    """Python's own objects may be anything: clients are numbered in the order of their ids."""
    for one in ids.tolist():
        if one is None:
            raise InputError(f"{name} must hold numbers or texts, not None")
    try:
        np.sort(ids)
    except TypeError:
        raise InputError(
            f"{name} must hold numbers or texts, not some of each"
        ) from None


def _names(ids: NDArray[Any]) -> tuple[str, ...] | None:
    """What clients with these ids are called; None where an id is the client's number."""
    kind = ids.dtype.kind
    if kind in "iu" and np.array_equal(ids, np.arange(len(ids))):
        return None

    names: list[str] = []
    for one in ids.tolist():
        if kind == "S":
            name = one.decode("utf-8", "backslashreplace")
        else:
            name = str(one)
        names.append(name)
    return tuple(names)


def _count_classes(y_train: Tensor, y_test: Tensor) -> int | None:
    if y_train.is_floating_point():
        return None
    largest = int(y_train.max())
    if len(y_test):
        largest = max(largest, int(y_test.max()))
    if largest > y_train.numel() + MAX_UNSEEN_CLASSES:
        raise InputError(
            f"there is a label {largest}, far more than there are samples: labels are counted from 0"
        )
    return largest + 1
