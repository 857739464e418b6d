"""How a data set falls on clients: sizes, class balance and label entropy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedlama.data import Dataset, Shards
from fedlama.data.shards import class_counts


@dataclass(frozen=True)
class PartitionView:
    """`counts_CK` is how many samples of each class a client has; entropy is in bits."""

    name: str
    sizes: NDArray[np.int64]
    counts_CK: NDArray[np.int64]
    entropy: NDArray[np.float64]
    clients: int  # how many there are; the rows may be those of the first


def view_partition(data: Dataset, shards: Shards) -> PartitionView:
    """Count the classes of every client; data without class labels counts as one class.

    Arguments:
        data: what was divided.
        shards: which training sample each client has.
    """
    return view_counts(data.name, class_counts(data, shards), len(shards))


def view_counts(name: str, counts_CK: NDArray[np.int64], clients: int) -> PartitionView:
    """The same of counts that are known already.

    Arguments:
        name: of the data.
        counts_CK: how many samples of each class each client has.
        clients: how many there are; counted may be the first of them only.
    """
    return PartitionView(
        name=name,
        sizes=counts_CK.sum(axis=1),
        counts_CK=counts_CK,
        entropy=_entropy(counts_CK),
        clients=clients,
    )


def _entropy(counts_CK: NDArray[np.int64]) -> NDArray[np.float64]:
    totals = counts_CK.sum(axis=1, keepdims=True)
    shares = counts_CK / totals
    # A class that a client does not have adds nothing: 0 · log 0 is 0.
    nothing = np.zeros_like(shares)
    bits = np.log2(shares, out=nothing, where=shares > 0)
    negative = (shares * bits).sum(axis=1)
    return np.abs(-negative)
