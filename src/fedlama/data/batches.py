"""The batch of a client at a global step: a function of (seed, client, step), whoever else trains."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from fedlama.base import InputError, random_key, shown
from fedlama.data.dataset import Dataset, Transform
from fedlama.data.shards import Shards

GATHERED = 1 << 18  # numbers of input that are prepared at a time
# Pixels of black around an image that a crop may reach into: He et al. 2016, section 4.2
MARGIN = 4
ALWAYS_PADDED_TO = 4096  # samples


class Batches:
    """Batches drawn without replacement within a client's epoch; the last, partial batch of an epoch is used.

    Arguments:
        data: Whose training samples the batches are made of.
        shards: Which of them each client has.
        batch_size: How many samples a batch has. One that is larger than every shard is as good as the largest shard.
        seed: Of the run; every draw is a function of it, of the client and of the step.
    """

    def __init__(
        self, data: Dataset, shards: Shards, batch_size: int, seed: int
    ) -> None:
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
        """Inputs and targets of `client` at global step `step`.

        Arguments:
            client: Its number.
            step: Counted from 0 over the whole run.
        """
        data = self.data
        indices = self.indices(client, step)
        indices = indices.to(data.x_train.device)
        samples = data.x_train[indices]
        targets = data.y_train[indices]

        # Cropping is done to samples as they are stored, a function of the user's own to inputs.
        key = random_key(self.seed, "augment", client, step)
        if data.augment == "crop-flip":
            samples = _crop_and_flip(samples, key)
        inputs = data.inputs(samples)
        if callable(data.augment):
            inputs = augmented(inputs, data.augment, key)
        return inputs, targets

    def of_steps(self, client: int, steps: range) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs and targets of `client` at consecutive `steps`, each as `at` gives them.

        Small batches are gathered and prepared several at a time: each call would take longer than its arithmetic.

        Arguments:
            client: Its number.
            steps: Global steps, one after the other.
        """
        data = self.data
        numbers_per_sample = data.x_train[0].numel()
        numbers_per_batch = self.batch_size * numbers_per_sample
        together = max(1, GATHERED // numbers_per_batch)
        if data.augment is not None or together == 1:
            for step in steps:
                yield self.at(client, step)
            return

        for start in range(0, len(steps), together):
            end = start + together
            some_steps = steps[start:end]
            batches = [self.indices(client, step) for step in some_steps]
            sizes = [len(batch) for batch in batches]
            indices = torch.cat(batches)
            indices = indices.to(data.x_train.device)

            inputs = data.inputs(data.x_train[indices])
            targets = data.y_train[indices]
            inputs_by_step = inputs.split(sizes)
            targets_by_step = targets.split(sizes)
            for some_inputs, some_targets in zip(
                inputs_by_step, targets_by_step, strict=True
            ):
                # In memory of its own, because the last bits of a sum can depend on where its numbers begin
                yield some_inputs.clone(), some_targets.clone()

    def indices(self, client: int, step: int) -> Tensor:
        """Which samples `client` sees at global step `step`.

        Arguments:
            client: Its number.
            step: Counted from 0 over the whole run.
        """
        if client != self._client:
            self._client = client
            self._epoch = -1
            self._per_epoch = self._batches_per_epoch(client)

        epoch, position = divmod(step, self._per_epoch)
        # A new order is drawn for each epoch.
        if epoch != self._epoch:
            own = self.shards.of(client).numpy()
            order = self._epoch_order(own, client, epoch)
            self._epoch = epoch
            self._order = torch.from_numpy(order)

        start = position * self.batch_size
        end = start + self.batch_size
        return self._order[start:end]

    def table(self, client: int, steps: range) -> NDArray[np.int64]:
        """The indices of `client` at consecutive `steps`, [steps, batch size]; a batch that is short ends with −1.

        Arguments:
            client: Its number.
            steps: Global steps, one after the other.
        """
        own = self.shards.of(client).numpy()
        per_epoch = self._batches_per_epoch(client)
        first_epoch = steps.start // per_epoch
        last_epoch = (steps.stop - 1) // per_epoch
        epochs = range(first_epoch, last_epoch + 1)

        # Whole epochs, each filled up to whole batches.
        padded = per_epoch * self.batch_size
        orders = np.full((len(epochs), padded), -1)
        for order, epoch in zip(orders, epochs, strict=True):
            order[: len(own)] = self._epoch_order(own, client, epoch)
        table = orders.reshape(-1, self.batch_size)

        # Of these, the steps that were asked for.
        first_step = first_epoch * per_epoch
        start = steps.start - first_step
        end = start + len(steps)
        return table[start:end]

    def _batches_per_epoch(self, client: int) -> int:
        """Rounded up: the last batch may be a part of one."""
        samples = self.shards.size_of(client)
        return -(-samples // self.batch_size)

    def _epoch_order(
        self, own: NDArray[np.int64], client: int, epoch: int
    ) -> NDArray[np.int64]:
        """A client's own samples in the order of one of its epochs."""
        key = random_key(self.seed, "batches", client, epoch)
        generator = self._draws.from_key(key)
        permutation = generator.permutation(len(own))
        return own[permutation]


class _Draws:
    """One generator that starts anew from any key: making a generator takes four times as long as using it."""

    def __init__(self) -> None:
        philox = np.random.Philox(key=0)
        self._state = philox.state
        self._generator = np.random.Generator(philox)

    def from_key(self, key: int) -> np.random.Generator:
        """The draws of Philox(key=key); valid until the next call."""
        # Philox keeps the 128 bits of its key in two words.
        low = key % 2**64
        high = key >> 64
        words = self._state["state"]["key"]
        words[:] = low, high
        self._generator.bit_generator.state = self._state
        return self._generator


def augmented(inputs: Tensor, augment: Transform, key: int) -> Tensor:
    """A batch as the user's own function changes it; torch's generators are as they were afterwards.

    Arguments:
        inputs: A batch, ready for a model.
        augment: The function.
        key: Decides what it draws from torch's generators.
    """
    on_gpu = inputs.device.type == "cuda"
    devices = []
    if on_gpu:
        devices = [inputs.device]

    seed = key % 2**63
    with torch.random.fork_rng(devices=devices):
        torch.default_generator.manual_seed(seed)
        if on_gpu:
            torch.cuda.manual_seed(seed)
        changed = augment(inputs)

    if not isinstance(changed, Tensor) or len(changed) != len(inputs):
        raise InputError(
            f"augment must return a tensor with as many samples as it was given, not {shown(changed)}"
        )
    return changed


def _crop_and_flip(images: Tensor, key: int) -> Tensor:
    """Every image cropped at random from itself with a black margin, then mirrored or not: one gather for all.

    It works on the pixels as stored, so that the margin is black whatever the standardisation.
    """
    batch, channels, height, width = images.shape
    philox = np.random.Philox(key=key)
    draws = np.random.Generator(philox)
    largest_shift = 2 * MARGIN
    top_B1, left_B1 = draws.integers(0, largest_shift + 1, (2, batch, 1))
    mirrored_B1 = draws.integers(0, 2, (batch, 1))

    # Which pixel of the padded image each pixel of the new one is.
    down = np.arange(height)
    across = np.arange(width)
    mirrored_across = across[::-1]
    rows_BH = top_B1 + down
    columns_BW = left_B1 + np.where(mirrored_B1, mirrored_across, across)

    # A gather counts pixels row after row.
    padded_width = width + largest_shift
    starts_BH = rows_BH * padded_width
    starts_BH1 = starts_BH[:, :, None]
    columns_B1W = columns_BW[:, None, :]
    source_BHW = starts_BH1 + columns_B1W

    # The channels of an image are cropped alike.
    source = torch.from_numpy(source_BHW)
    source = source.view(batch, 1, height * width)
    source = source.to(images.device)
    source = source.expand(-1, channels, -1)

    margins = (MARGIN, MARGIN, MARGIN, MARGIN)
    padded = functional.pad(images, margins)
    flat = padded.flatten(2)
    cropped = flat.gather(2, source)
    return cropped.view(images.shape)
