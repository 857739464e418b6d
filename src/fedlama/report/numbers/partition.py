"""How a data set falls on clients: sizes, class balance and label entropy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedlama.data import Dataset, Shards


@dataclass(frozen=True)
class PartitionView:
    """`counts_CK` is how many samples of each class a client has; entropy is in bits."""

    name: str
    sizes: NDArray[np.int64]
    counts_CK: NDArray[np.int64]
    entropy: NDArray[np.float64]


def view_partition(data: Dataset, shards: Shards) -> PartitionView:
    """Count the classes of every client; data without class labels counts as one class.

    Arguments:
        data: what was divided.
        shards: which training sample each client has.
    """
    classes = 1
    labels = np.zeros(len(data.y_train), dtype=np.int64)
    if data.classes is not None and data.y_train.dim() == 1:
        classes = data.classes or 1
        labels = data.y_train.numpy()

    sizes = shards.sizes.numpy()
    clients = len(shards)
    owners = np.repeat(np.arange(clients), sizes)

    # One number for each pair of client and class, so that one count serves all of them.
    pairs = owners * classes + labels[shards.order.numpy()]
    counts = np.bincount(pairs, minlength=clients * classes)
    counts_CK = counts.reshape(clients, classes)
    return PartitionView(data.name, sizes, counts_CK, _entropy(counts_CK))


def _entropy(counts_CK: NDArray[np.int64]) -> NDArray[np.float64]:
    totals = counts_CK.sum(axis=1, keepdims=True)
    shares = counts_CK / totals
    # A class that a client does not have adds nothing: 0 · log 0 is 0.
    nothing = np.zeros_like(shares)
    bits = np.log2(shares, out=nothing, where=shares > 0)
    negative = (shares * bits).sum(axis=1)
    return np.abs(-negative)
