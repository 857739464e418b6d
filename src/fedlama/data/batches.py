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


class Batches:
    """Batches drawn without replacement within a client's epoch; the last, partial batch of an epoch is used."""

    def __init__(self, data: Dataset, shards: Shards, batch_size: int, seed: int) -> None:
        self.data, self.shards, self.batch_size, self.seed = data, shards, batch_size, seed
        self._client = self._epoch = self._per_epoch = -1  # a client takes its steps of a round in a row: one is kept
        self._order = torch.empty(0, dtype=torch.int64)
        self._draws = _Draws()

    def at(self, client: int, step: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets of `client` at global step `step`."""
        indices = self.indices(client, step).to(self.data.x_train.device)
        samples = self.data.x_train[indices]
        if self.data.augment == "crop-flip":
            samples = _crop_and_flip(samples, random_key(self.seed, "augment", client, step))
        return self.data.inputs(samples), self.data.y_train[indices]

    def indices(self, client: int, step: int) -> Tensor:
        """Which samples those are."""
        if client != self._client:
            self._client, self._epoch = client, -1
            self._per_epoch = -(-self.shards.size_of(client) // self.batch_size)
        epoch, position = divmod(step, self._per_epoch)
        if epoch != self._epoch:
            own = self.shards.of(client).numpy()
            self._epoch, self._order = epoch, torch.from_numpy(own[self._permutation(client, epoch, len(own))])
        return self._order[position * self.batch_size : (position + 1) * self.batch_size]

    def table(self, client: int, steps: range) -> NDArray[np.int64]:
        """The indices of consecutive steps, [steps, batch size]; a batch that is short ends with −1."""
        own = self.shards.of(client).numpy()
        per_epoch = -(-len(own) // self.batch_size)
        first = steps.start // per_epoch
        epochs = range(first, (steps.stop - 1) // per_epoch + 1)
        padded = np.full((len(epochs), per_epoch * self.batch_size), -1)
        for row, epoch in zip(padded, epochs, strict=True):
            row[: len(own)] = own[self._permutation(client, epoch, len(own))]
        start = steps.start - first * per_epoch
        return padded.reshape(-1, self.batch_size)[start : start + len(steps)]

    def _permutation(self, client: int, epoch: int, size: int) -> NDArray[np.int64]:
        return self._draws.from_key(random_key(self.seed, "batches", client, epoch)).permutation(size)


class _Draws:
    """One generator that starts anew from any key: making a generator takes four times as long as using it."""

    def __init__(self) -> None:
        philox = np.random.Philox(key=0)
        self._state, self._generator = philox.state, np.random.Generator(philox)

    def from_key(self, key: int) -> np.random.Generator:
        """The draws of Philox(key=key); valid until the next call."""
        self._state["state"]["key"][:] = key % 2**64, key >> 64
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
    across = np.arange(width)
    rows_BH = top + np.arange(height)
    columns_BW = left + np.where(mirrored, across[::-1], across)
    source = torch.from_numpy(rows_BH[:, :, None] * (width + 2 * MARGIN) + columns_BW[:, None, :])
    source = source.view(batch, 1, height * width).to(images.device).expand(-1, channels, -1)
    padded = functional.pad(images, (MARGIN, MARGIN, MARGIN, MARGIN))
    return padded.flatten(2).gather(2, source).view(images.shape)
