"""The batch of a client at a global step: a function of (seed, client, step), whoever else trains."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedlama.core import random_key
from fedlama.data.dataset import Dataset
from fedlama.data.partition import Shards

MARGIN = 4  # pixels of black around an image that a crop may reach into: He et al. 2016, section 4.2


class Batches:
    """Batches drawn without replacement within a client's epoch; the last, partial batch of an epoch is used."""

    def __init__(self, data: Dataset, shards: Shards, batch_size: int, seed: int) -> None:
        self.data, self.shards, self.batch_size, self.seed = data, shards, batch_size, seed
        self._client = self._epoch = self._per_epoch = -1  # a client takes its steps of a round in a row: one is kept
        self._order = torch.empty(0, dtype=torch.int64)

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
            self._per_epoch = -(-len(self.shards.of(client)) // self.batch_size)
        epoch, position = divmod(step, self._per_epoch)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, self._shuffled(client, epoch)
        return self._order[position * self.batch_size : (position + 1) * self.batch_size]

    def _shuffled(self, client: int, epoch: int) -> Tensor:
        own = self.shards.of(client)
        generator = np.random.Generator(np.random.Philox(key=random_key(self.seed, "batches", client, epoch)))
        return own[torch.from_numpy(generator.permutation(len(own)))]


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
