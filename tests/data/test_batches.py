"""Batches: a function of (seed, client, step), and an augmentation that a loop over images would give as well."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedlama.base import random_key
from fedlama.data import IID, Batches, Dataset, Natural, digits

SIZES = (10, 3, 7)


def owned(sizes=SIZES):
    """Sample i is the number i."""
    count = sum(sizes)
    x = torch.arange(count, dtype=torch.uint8).view(-1, 1)
    owners = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return Dataset(
        x,
        torch.arange(count) % 3,
        x[:1],
        torch.zeros(1, dtype=torch.int64),
        owners,
        scale=1.0,
    )


def batches_of(data, batch_size=4, seed=0):
    return Batches(data, Natural().assign(data, seed), batch_size, seed)


def seen(batches, client, steps):
    return [batches.indices(client, step).tolist() for step in steps]


def test_an_epoch_is_every_sample_once_and_ends_with_a_partial_batch():
    batches = batches_of(owned())
    for epoch in range(5):
        parts = seen(batches, 0, range(3 * epoch, 3 * epoch + 3))
        assert [len(part) for part in parts] == [4, 4, 2]
        assert sorted(index for part in parts for index in part) == list(range(10))


def test_epochs_differ():
    batches = batches_of(owned())
    assert seen(batches, 0, range(3)) != seen(batches, 0, range(3, 6))


def test_a_client_smaller_than_a_batch_gives_all_it_has_at_every_step():
    for part in seen(batches_of(owned()), 1, range(4)):
        assert sorted(part) == [10, 11, 12]


def test_inputs_and_targets_are_those_of_the_indices():
    data = owned()
    batches = batches_of(data)
    inputs, targets = batches.at(2, 5)
    indices = batches.indices(2, 5)
    assert inputs.flatten().tolist() == indices.tolist()
    assert targets.tolist() == data.y_train[indices].tolist()


def test_a_batch_depends_on_nothing_but_seed_client_and_step():
    in_turn = batches_of(owned())
    there = [
        [in_turn.indices(client, step).tolist() for client in range(3)]
        for step in range(12)
    ]
    other = batches_of(owned())
    back = [
        [other.indices(client, step).tolist() for client in (2, 1, 0)][::-1]
        for step in range(11, -1, -1)
    ][::-1]
    assert there == back
    assert there != [
        [batches_of(owned(), seed=1).indices(c, s).tolist() for c in range(3)]
        for s in range(12)
    ]


def test_another_clients_data_change_nothing():
    few, many = batches_of(owned((10, 3))), batches_of(owned((10, 3, 50, 20)))
    assert seen(few, 0, range(9)) == seen(many, 0, range(9))
    assert seen(few, 1, range(9)) == seen(many, 1, range(9))


def test_batches_are_fixed():
    """The same on every machine, and in every version: results are published with it."""
    assert seen(batches_of(owned()), 0, range(4)) == [
        [5, 6, 7, 4],
        [1, 9, 3, 2],
        [8, 0],
        [2, 7, 9, 0],
    ]


def images(count=40, channels=3, height=9, width=7, **options):
    x = torch.from_numpy(
        np.random.default_rng(0).integers(
            0, 256, (count, channels, height, width), dtype=np.uint8
        )
    )
    y = torch.zeros(count, dtype=torch.int64)
    return Dataset(
        x, y, x[:2], y[:2], **{"augment": "crop-flip", "scale": 1.0} | options
    )


def augmented(data, batch_size=8, seed=0, client=0, step=0):
    return Batches(data, IID(2).assign(data, 0), batch_size, seed).at(client, step)[0]


def naive(data, indices, seed, client, step):
    """Pad, crop, flip, image by image."""
    rng = np.random.Generator(
        np.random.Philox(key=random_key(seed, "augment", client, step))
    )
    top, left = rng.integers(0, 9, (2, len(indices)))
    mirrored = rng.integers(0, 2, len(indices))
    result = []
    for k, index in enumerate(indices):
        image = data.x_train[index].numpy()
        channels, height, width = image.shape
        padded = np.zeros((channels, height + 8, width + 8), dtype=np.uint8)
        padded[:, 4:-4, 4:-4] = image
        crop = padded[:, top[k] : top[k] + height, left[k] : left[k] + width]
        result.append(crop[:, :, ::-1] if mirrored[k] else crop)
    return torch.from_numpy(np.stack(result))


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (2, 9, 7)])
@pytest.mark.parametrize(("seed", "client", "step"), [(0, 0, 0), (0, 1, 5), (3, 1, 2)])
def test_augmentation_is_a_loop_over_images(shape, seed, client, step):
    data = images(40, *shape)
    batches = Batches(data, IID(2).assign(data, 0), 8, seed)
    expected = naive(data, batches.indices(client, step), seed, client, step)
    assert torch.equal(batches.at(client, step)[0], expected.float())


def test_augmentation_is_reproducible_and_differs_by_seed_client_and_step():
    data = replace(
        images(1),
        x_train=images(1).x_train.expand(40, -1, -1, -1),
        y_train=images().y_train,
    )
    first = augmented(data)  # all images are equal, so that only the draws can differ
    assert torch.equal(augmented(data), first)
    for changed in ({"seed": 1}, {"client": 1}, {"step": 1}):
        assert not torch.equal(augmented(data, **changed), first)


def test_all_shifts_and_both_sides_occur():
    """A single bright pixel in the middle shows where it went."""
    x = torch.zeros(2000, 1, 16, 16, dtype=torch.uint8)
    x[:, :, 8, 5] = 255
    y = torch.zeros(2000, dtype=torch.int64)
    data = Dataset(x, y, x[:1], y[:1], augment="crop-flip")
    inputs, _ = Batches(data, IID(1).assign(data, 0), 2000, 0).at(0, 0)
    rows, columns = inputs[:, 0].amax(2).argmax(1), inputs[:, 0].amax(1).argmax(1)
    assert sorted(set(rows.tolist())) == list(range(4, 13))
    # 1 … 9, and mirrored 6 … 14
    assert sorted(set(columns.tolist())) == list(range(1, 15))


def test_the_margin_is_black_before_standardisation():
    data = images(mean=(10.0,) * 3, std=(1.0,) * 3)
    assert float(augmented(data).min()) == -10.0


def test_without_augmentation_and_in_the_test_set_images_are_as_stored():
    data = images(augment=None)
    batches = Batches(data, IID(2).assign(data, 0), 8, 0)
    assert torch.equal(batches.at(0, 0)[0], data.x_train[batches.indices(0, 0)].float())
    assert torch.equal(images().inputs(images().x_test), data.x_test.float())


def test_the_digits_batches_are_what_they_were():
    inputs, targets = Batches(digits(), IID(4).assign(digits(), 0), 16, 0).at(1, 30)
    assert targets.tolist() == [9, 6, 2, 4, 6, 4, 7, 0, 3, 8, 2, 0, 6, 5, 4, 0]
    assert float(inputs.double().sum()) == pytest.approx(-5.712993402034044)


# Numbers: one batch at a time, a few, all
@pytest.mark.parametrize("gathered", [1, 200, 1 << 18])
@pytest.mark.parametrize("augment", [None, "crop-flip"])
def test_batches_of_several_steps_are_those_of_each_step(
    monkeypatch, gathered, augment
):
    monkeypatch.setattr("fedlama.data.batches.GATHERED", gathered)
    x = torch.arange(23 * 5).to(torch.uint8).view(23, 1, 1, 5)
    data = Dataset(
        x, torch.arange(23), x[:1], torch.arange(1), std=(3.0,), augment=augment
    )
    # 11 or 12 samples in batches of 5: the last ones are short
    shards, steps = IID(2).assign(data, 0), range(2, 12)
    for client in range(2):
        several = list(Batches(data, shards, 5, 0).of_steps(client, steps))
        assert len(several) == len(steps)
        for step, (inputs, targets) in zip(steps, several, strict=True):
            expected_inputs, expected_targets = Batches(data, shards, 5, 0).at(
                client, step
            )
            assert torch.equal(inputs, expected_inputs)
            assert torch.equal(targets, expected_targets)
            assert inputs.data_ptr() % 64 == 0
