"""A data set: training and test samples as tensors, and who owns the training samples if that is known."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedlama.base import InputError, random_key

AUGMENTATIONS = (None, "crop-flip")
MOST_UNSEEN_CLASSES = 1_000_000  # a vocabulary may be larger than a sample of it


@dataclass(frozen=True)
class Dataset:
    """Samples as they are stored; `inputs` turns them into what a model computes with.

    uint8 samples are divided by `scale` and standardised by `mean` and `std` (numbers, or one a channel); floats and
    whole numbers (tokens) are used as they are. `clients` holds an owner, counted from 0, for each training sample.
    `augment` is what happens to the samples of a training batch: nothing, or "crop-flip" (see `batches`).
    """

    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor
    clients: Tensor | None = None
    name: str = "arrays"
    classes: int | None = None
    scale: float = 255.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    augment: str | None = None

    def __post_init__(self) -> None:
        if self.augment not in AUGMENTATIONS:
            raise InputError(f"augment must be one of {', '.join(map(str, AUGMENTATIONS))}, not {self.augment!r}")
        if self.augment and self.x_train.dim() != 4:
            shape = tuple(self.x_train.shape[1:])
            raise InputError(f"augment = {self.augment!r} needs images of [channels, height, width], not {shape}")

    def inputs(self, samples: Tensor) -> Tensor:
        """Stored samples as a model's input."""
        if samples.dtype != torch.uint8:
            return samples
        mean = _broadcastable(tuple(self.mean), samples.dim(), samples.device)
        std = _broadcastable(tuple(self.std), samples.dim(), samples.device)
        return samples.float().div_(self.scale).sub_(mean).div_(std)

    def to(self, device: torch.device) -> Dataset:
        """The same data set on another device."""
        moved = {key: getattr(self, key).to(device) for key in ("x_train", "y_train", "x_test", "y_test")}
        return replace(self, **moved)

    def hold_out(self, share: float, seed: int) -> Dataset:
        """Tested on this share of the training samples, which are no longer trained on; the test samples are gone."""
        draws = np.random.Generator(np.random.Philox(key=random_key(seed, "validation")))
        order = torch.from_numpy(draws.permutation(len(self.x_train)))
        count = max(1, round(share * len(order)))
        if count >= len(order):
            raise InputError(
                f"{self.name} has {len(order)} training samples: holding {share:g} of them out leaves none"
            )
        held, kept = order[:count].sort().values, order[count:].sort().values
        return replace(
            self,
            x_train=self.x_train[kept],
            y_train=self.y_train[kept],
            x_test=self.x_train[held],
            y_test=self.y_train[held],
            clients=None if self.clients is None else self._renumbered(self.clients[kept]),
        )

    @staticmethod
    def _renumbered(clients: Tensor) -> Tensor:
        """Without gaps: a client that lost its only sample is gone."""
        return torch.unique(clients, return_inverse=True)[1]


@lru_cache(maxsize=64)
def _broadcastable(values: tuple[float, ...], dimensions: int, device: torch.device) -> Tensor:
    """One number, or one a channel, shaped to meet a batch; kept, because every batch of a run needs the same."""
    shape = (1, -1) + (1,) * (dimensions - 2) if len(values) > 1 else (-1,)
    return torch.tensor(values, dtype=torch.float32, device=device).view(shape)


def arrays(
    x_train: Any, y_train: Any, x_test: Any, y_test: Any, clients: Any = None, *, name: str = "arrays"
) -> Dataset:
    """A data set from numpy arrays or torch tensors.

    uint8 samples are taken as pixels and divided by 255; floats and whole numbers are used as they are. Whole-number
    targets are classes, counted from 0; floats are for losses of your own. `clients` is an id for each training sample.
    """
    x_train, x_test = _samples("x_train", x_train), _samples("x_test", x_test)
    y_train, y_test = _targets("y_train", y_train), _targets("y_test", y_test)
    _check_lengths(("x_train", x_train), ("y_train", y_train))
    _check_lengths(("x_test", x_test), ("y_test", y_test))
    _check_alike("x", x_train, x_test)
    _check_alike("y", y_train, y_test)
    owners = None if clients is None else _owners(clients, len(x_train))
    return Dataset(x_train, y_train, x_test, y_test, owners, name=name, classes=_count_classes(y_train, y_test))


def _as_tensor(name: str, values: Any) -> Tensor:
    if isinstance(values, Tensor):
        return values.detach().cpu().contiguous()
    array = np.ascontiguousarray(values)
    if array.dtype.kind not in "biuf":
        raise InputError(f"{name} must hold numbers, not {array.dtype}")
    if array.dtype in (np.uint16, np.uint32, np.uint64):
        array = array.astype(np.int64)
    if array.dtype.kind == "f" and array.dtype not in (np.float16, np.float32, np.float64):
        array = array.astype(np.float64)  # torch has no long double
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def _samples(name: str, values: Any) -> Tensor:
    tensor = _as_tensor(name, values)
    if tensor.dim() < 1 or not tensor.numel():
        raise InputError(f"{name} is empty (shape {tuple(tensor.shape)})")
    if tensor.dtype == torch.uint8:
        return tensor
    if not tensor.is_floating_point():
        return tensor.long()
    return _finite(name, tensor.float())


def _targets(name: str, values: Any) -> Tensor:
    tensor = _as_tensor(name, values)
    if tensor.dim() < 1:
        raise InputError(f"{name} must hold a target for each sample, not a single number")
    if not tensor.numel():
        raise InputError(f"{name} is empty (shape {tuple(tensor.shape)})")
    if tensor.is_floating_point():
        return _finite(name, tensor.float())
    tensor = tensor.long()
    if int(tensor.min()) < 0:
        raise InputError(f"{name} holds label {int(tensor.min())}; labels are counted from 0")
    return tensor


def _finite(name: str, tensor: Tensor) -> Tensor:
    bad = int((~tensor.isfinite()).sum())
    if bad:
        first = int((~tensor.isfinite()).reshape(len(tensor), -1).any(dim=1).nonzero()[0])
        raise InputError(f"{name} holds {bad} NaN or infinite values, the first in sample {first}")
    return tensor


def _check_lengths(first: tuple[str, Tensor], second: tuple[str, Tensor]) -> None:
    if len(first[1]) != len(second[1]):
        raise InputError(f"{first[0]} has {len(first[1])} samples and {second[0]} {len(second[1])}")


def _check_alike(name: str, train: Tensor, test: Tensor) -> None:
    if train.shape[1:] != test.shape[1:] or train.dtype != test.dtype:
        raise InputError(
            f"{name}_train and {name}_test differ: {train.dtype} of shape {tuple(train.shape[1:])} a sample "
            f"against {test.dtype} of {tuple(test.shape[1:])}"
        )


def _owners(clients: Any, samples: int) -> Tensor:
    ids = np.asarray(clients.cpu() if isinstance(clients, Tensor) else clients)
    if ids.shape != (samples,):
        raise InputError(f"clients must hold one id for each of the {samples} training samples, not shape {ids.shape}")
    if ids.dtype.kind == "f" and not np.isfinite(ids).all():
        raise InputError("clients holds NaN or infinite ids")
    return torch.from_numpy(np.unique(ids, return_inverse=True)[1].astype(np.int64))


def _count_classes(y_train: Tensor, y_test: Tensor) -> int | None:
    if y_train.is_floating_point():
        return None
    largest = int(max(y_train.max(), y_test.max()))
    if largest > y_train.numel() + MOST_UNSEEN_CLASSES:
        raise InputError(f"there is a label {largest}, far more than there are samples: labels are counted from 0")
    return largest + 1
