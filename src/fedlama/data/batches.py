"""The batch of a client at a global step: a function of (seed, client, step), whoever else trains."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from fedlama.base import random_key
from fedlama.data.dataset import Dataset
from fedlama.data.partition import Shards

MARGIN = 4  # pixels of black around an image that a crop may reach into: He et al. 2016, section 4.2
ALWAYS_PADDED_TO = 4096  # samples


class Batches:
    """Batches drawn without replacement within a client's epoch; the last, partial batch of an epoch is used.

    Arguments:
        data: Whose training samples the batches are made of.
        shards: Which of them each client has.
        batch_size: How many samples a batch has. One that is larger than every shard is as good as the largest shard.
        seed: Of the run; every draw is a function of it, of the client and of the step.
    """

    def __init__(self, data: Dataset, shards: Shards, batch_size: int, seed: int) -> None:
        self.data = data
        self.shards = shards
        # Stacked clients are padded to the size of a batch, so it must not be far beyond what any client has. Small
        # ones are left alone: the last bits of a stacked sum depend on the padding.
        largest = int(shards.sizes.max())
        self.batch_size = min(batch_size, max(largest, ALWAYS_PADDED_TO))
        self.seed = seed
        # A client takes its steps of a round one after the other, so the order of one epoch is kept.
        self._client = -1
        self._epoch = -1
        self._per_epoch = -1
        self._order = torch.empty(0, dtype=torch.int64)
        self._draws = _Draws()

    def at(self, client: int, step: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets of `client` at global step `step`."""
        indices = self.indices(client, step)
        indices = indices.to(self.data.x_train.device)
        samples = self.data.x_train[indices]
        targets = self.data.y_train[indices]
        if self.data.augment == "crop-flip":
            key = random_key(self.seed, "augment", client, step)
            samples = _crop_and_flip(samples, key)
        return self.data.inputs(samples), targets

    def indices(self, client: int, step: int) -> Tensor:
        """Which samples those are."""
        if client != self._client:
            self._client = client
            self._epoch = -1
            self._per_epoch = self._batches_per_epoch(client)
        epoch, position = divmod(step, self._per_epoch)
        if epoch != self._epoch:
            own = self.shards.of(client).numpy()
            order = self._epoch_order(own, client, epoch)
            self._epoch = epoch
            self._order = torch.from_numpy(order)
        start = position * self.batch_size
        return self._order[start : start + self.batch_size]

    def table(self, client: int, steps: range) -> NDArray[np.int64]:
        """The indices of consecutive steps, [steps, batch size]; a batch that is short ends with −1."""
        own = self.shards.of(client).numpy()
        per_epoch = self._batches_per_epoch(client)
        first_epoch = steps.start // per_epoch
        last_epoch = (steps.stop - 1) // per_epoch
        rows: list[NDArray[np.int64]] = []
        for epoch in range(first_epoch, last_epoch + 1):
            order = self._epoch_order(own, client, epoch)
            row = np.full(per_epoch * self.batch_size, -1)
            row[: len(order)] = order
            rows.append(row)
        batches = np.concatenate(rows).reshape(-1, self.batch_size)
        start = steps.start - first_epoch * per_epoch
        return batches[start : start + len(steps)]

    def _batches_per_epoch(self, client: int) -> int:
        """Rounded up: the last batch may be a part of one."""
        return -(-self.shards.size_of(client) // self.batch_size)

    def _epoch_order(self, own: NDArray[np.int64], client: int, epoch: int) -> NDArray[np.int64]:
        """A client's own samples in the order of one of its epochs."""
        key = random_key(self.seed, "batches", client, epoch)
        permutation = self._draws.from_key(key).permutation(len(own))
        return own[permutation]


class _Draws:
    """One generator that starts anew from any key: making a generator takes four times as long as using it."""

    def __init__(self) -> None:
        philox = np.random.Philox(key=0)
        self._state = philox.state
        self._generator = np.random.Generator(philox)

    def from_key(self, key: int) -> np.random.Generator:
        """The draws of Philox(key=key); valid until the next call."""
        low = key % 2**64
        high = key >> 64
        self._state["state"]["key"][:] = low, high
        self._generator.bit_generator.state = self._state
        return self._generator


def _crop_and_flip(images: Tensor, key: int) -> Tensor:
    """Every image cropped at random from itself with a black margin, then mirrored or not: one gather for all.

    It works on the pixels as stored, so that the margin is black whatever the standardisation.
    """
    batch, channels, height, width = images.shape
    draws = np.random.Generator(np.random.Philox(key=key))
    top, left = draws.integers(0, 2 * MARGIN + 1, (2, batch, 1))
    mirrored = draws.integers(0, 2, (batch, 1))

    # Which pixel of the padded image each pixel of the new one is.
    across = np.arange(width)
    rows_BH = top + np.arange(height)
    columns_BW = left + np.where(mirrored, across[::-1], across)
    padded_width = width + 2 * MARGIN
    source_BHW = rows_BH[:, :, None] * padded_width + columns_BW[:, None, :]

    source = torch.from_numpy(source_BHW)
    source = source.view(batch, 1, height * width)
    source = source.to(images.device)
    source = source.expand(-1, channels, -1)
    padded = functional.pad(images, (MARGIN, MARGIN, MARGIN, MARGIN))
    cropped = padded.flatten(2).gather(2, source)
    return cropped.view(images.shape)
