"""Which samples each client has.

`Shards` are one permutation of the sample indices and one offset per client, so that a population of a million clients
costs nothing more.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedlama.base import InputError, printable
from fedlama.data.dataset import Dataset

MAX_NAME = 60  # characters of a client's name in a message


@dataclass(frozen=True)
class Shards:
    """Which samples each client has: client i owns order[offsets[i] : offsets[i + 1]].

    Arguments:
        order: All sample indices, those of the first client first.
        offsets: Where each client's begin, and where the last one's end.
        names: What each client is called, where the data has a name for it.
    """

    order: Tensor
    offsets: Tensor
    names: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> Tensor:
        """How many samples each client has."""
        starts = self.offsets[:-1]
        ends = self.offsets[1:]
        return ends - starts

    def name_of(self, client: int) -> str:
        """What messages call a client: by the data's own name for it, beside its number.

        Arguments:
            client: Its number.

        >>> Shards(torch.arange(2), torch.arange(3), ("hospital-1", "hospital-10")).name_of(1)
        'client 1 (hospital-10)'
        """
        if self.names is None:
            return f"client {client}"
        name = printable(self.names[client], MAX_NAME)
        return f"client {client} ({name})"

    def size_of(self, client: int) -> int:
        """How many samples one client has.

        Arguments:
            client: Its number.
        """
        start = self.offsets[client]
        end = self.offsets[client + 1]
        return int(end - start)

    def of(self, client: int) -> Tensor:
        """The sample indices of one client.

        Arguments:
            client: Its number.
        """
        start = int(self.offsets[client])
        end = int(self.offsets[client + 1])
        return self.order[start:end]

    def content_hash(self) -> str:
        """One SHA-256 over which client has which samples."""
        digest = hashlib.sha256()
        for part in (self.offsets, self.order):
            numbers = part.contiguous().numpy()
            digest.update(numbers.tobytes())
        return digest.hexdigest()

    def assign(self, data: Dataset, seed: int) -> Shards:
        """Itself: shards that were dealt before are a partition, too, of the `data` that they were dealt from.

        Nothing is drawn, so `seed` does not matter.
        """
        dealt = len(self.order)
        samples = len(data.x_train)
        if dealt != samples:
            raise InputError(
                f"partition: these shards deal {dealt} samples, but the data has {samples}"
            )
        return self

    @staticmethod
    def by_owner(
        owners: NDArray[np.int64], clients: int, names: tuple[str, ...] | None = None
    ) -> Shards:
        """From an owner for each sample.

        Arguments:
            owners: For each sample a client, from 0 to `clients` − 1.
            clients: How many there are; each must own a sample.
            names: What they are called, if they have names.
        """
        sizes = np.bincount(owners, minlength=clients)

        # A client without samples could not take a step.
        empty = np.flatnonzero(sizes == 0)
        if len(empty):
            raise InputError(
                f"client {empty[0]} has no samples ({len(empty)} of {clients} clients are empty): "
                f"there are {len(owners)} training samples, so set partition.clients lower"
            )

        order = np.argsort(owners, kind="stable")
        ends = np.cumsum(sizes)
        offsets = np.concatenate([[0], ends])
        return Shards(
            order=torch.from_numpy(order),
            offsets=torch.from_numpy(offsets),
            names=names,
        )


def class_counts(
    data: Dataset, shards: Shards, clients: int | None = None
) -> NDArray[np.int64]:
    """How many samples of each class each client has; data without class labels counts as one class.

    Arguments:
        data: What was divided.
        shards: Which training sample each client has.
        clients: How many of the clients are counted, from the first (default: all).
    """
    classes = 1
    labels = np.zeros(len(data.y_train), dtype=np.int64)
    if data.classes is not None and data.y_train.dim() == 1:
        classes = data.classes or 1
        labels = data.y_train.numpy()

    counted = len(shards)
    if clients is not None:
        counted = min(clients, counted)

    # The order begins with the samples of the first client: as many as the clients have are theirs.
    numbers = np.arange(counted)
    sizes = shards.sizes[:counted]
    owners = np.repeat(numbers, sizes.numpy())
    samples = len(owners)
    order = shards.order[:samples].numpy()

    # One number for each pair of client and class, so that one count serves all of them.
    pairs = owners * classes + labels[order]
    counts = np.bincount(pairs, minlength=counted * classes)
    return counts.reshape(counted, classes)
