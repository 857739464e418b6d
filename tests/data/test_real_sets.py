"""The real sets, where they are: facts about them that hold whoever packed them."""

import numpy as np
import pytest
import torch

from fedlama.base import InputError
from fedlama.data import Dirichlet, Natural, load, locate


def real(name):
    try:
        locate(name)
    except InputError as error:
        pytest.skip(str(error))
    return load(name)


def assert_standardised(data, tolerance):
    """Mean and standard deviation are those of the training pixels."""
    for channel, (mean, std) in enumerate(zip(data.mean, data.std, strict=True)):
        values = torch.arange(256, dtype=torch.float64) / 255
        shares = (
            data.x_train[:, channel].flatten().bincount(minlength=256).double()
            / data.x_train[:, channel].numel()
        )
        measured = float((values * shares).sum())
        assert measured == pytest.approx(mean, abs=tolerance)
        assert float(((values - measured) ** 2 * shares).sum()) ** 0.5 == pytest.approx(
            std, abs=tolerance
        )


def test_cifar10():
    data = real("cifar10")
    assert data.x_train.shape == (50_000, 3, 32, 32)
    assert data.x_test.shape == (10_000, 3, 32, 32)
    assert data.y_train.bincount().tolist() == [5000] * 10
    assert data.y_test.bincount().tolist() == [1000] * 10
    # Frog, truck, truck, deer, automobile, automobile
    assert data.y_train[:6].tolist() == [6, 9, 9, 4, 1, 1]
    assert data.y_test[:6].tolist() == [3, 8, 8, 0, 6, 6]
    assert data.x_train[0, :, 0, 0].tolist() == [59, 62, 63]
    assert_standardised(data, 1e-4)


def test_cifar100_whole_or_half():
    data = real("cifar100")
    assert len(data.x_train) in (25_000, 50_000)
    assert data.y_train.bincount().tolist() == [len(data.x_train) // 100] * 100
    assert data.y_test.bincount().tolist() == [100] * 100
    assert_standardised(data, 2e-3)


def test_cifar10_among_the_papers_clients():
    data = real("cifar10")
    shards = Dirichlet(128, 0.1).assign(data, 0)
    assert int(shards.sizes.min()) >= 10
    assert int(shards.sizes.sum()) == 50_000


def test_fashion_mnist():
    data = real("fashion-mnist")
    assert data.x_train.shape == (60_000, 1, 28, 28)
    assert data.y_train.bincount().tolist() == [6000] * 10
    assert data.y_test[:6].tolist() == [9, 2, 1, 1, 6, 1]
    assert_standardised(data, 1e-4)


def test_mnist_by_writer():
    data = real("mnist_by_writer")
    assert data.name == "mnist_by_writer"
    assert data.x_train.shape == (60_000, 1, 28, 28)
    assert data.y_train[:6].tolist() == [5, 0, 4, 1, 9, 2]
    assert len(Natural().assign(data, 0)) == 539
    assert len(Natural(100).assign(data, 0)) == 100


def test_unipen62_by_writer():
    data = real("unipen62_by_writer")
    assert data.name == "unipen62_by_writer"
    assert len(data.x_train) + len(data.x_test) == 104_796
    assert data.classes == 62
    assert len(Natural().assign(data, 0)) == 317


def test_leaf_folder_holds_what_the_npz_does():
    """The LEAF folder is the first writers of UNIPEN-62, with white as 1."""
    leaf, npz = real("leaf-unipen62"), real("unipen62_by_writer")
    assert leaf.classes == 62
    assert leaf.clients is not None
    assert npz.clients is not None
    writers = int(leaf.clients.max()) + 1
    chosen = npz.clients < writers
    order = torch.from_numpy(np.argsort(npz.clients[chosen].numpy(), kind="stable"))
    assert torch.equal(leaf.y_train, npz.y_train[chosen][order])
    white_is_1 = 1 - npz.x_train[chosen][order].float() / 255
    assert float((leaf.x_train - white_is_1).abs().max()) < 6e-4
