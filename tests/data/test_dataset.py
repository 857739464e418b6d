"""`arrays` and `Dataset`: what is accepted, and what samples become."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedlama.base import InputError
from fedlama.data import Dataset, arrays, digits

X = np.arange(24, dtype=np.uint8).reshape(6, 2, 2)
Y = np.array([0, 1, 2, 0, 1, 2])


def test_arrays_from_numpy_and_torch_are_the_same():
    first = arrays(X, Y, X[:2], Y[:2], clients=["b", "a", "b", "a", "c", "c"])
    second = arrays(
        torch.from_numpy(X),
        torch.from_numpy(Y),
        torch.from_numpy(X[:2]),
        Y[:2].tolist(),
        [1, 0, 1, 0, 2, 2],
    )
    assert torch.equal(first.x_train, second.x_train)
    assert torch.equal(first.y_test, second.y_test)
    assert first.clients is not None
    assert second.clients is not None
    assert first.clients.tolist() == second.clients.tolist() == [1, 0, 1, 0, 2, 2]
    assert first.classes == 3


@pytest.mark.parametrize("dtype", [">f4", "<f8", np.longdouble, np.float16])
def test_every_float_becomes_float32(dtype):
    data = arrays(X.astype(dtype), Y, X[:2].astype(dtype), Y[:2])
    assert data.x_train.dtype == torch.float32
    assert torch.equal(data.x_train, torch.from_numpy(X).float())


@pytest.mark.parametrize("dtype", [">i4", np.uint16, np.uint64, np.int8])
def test_every_other_whole_number_becomes_int64(dtype):
    data = arrays(
        X.astype(dtype), Y.astype(dtype), X[:2].astype(dtype), Y[:2].astype(dtype)
    )
    assert data.x_train.dtype == data.y_train.dtype == torch.int64
    assert data.y_train.tolist() == Y.tolist()


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"x_train": X[:5]}, "x_train has 5 samples and y_train 6"),
        ({"x_train": X[:0], "y_train": Y[:0]}, "x_train is empty"),
        ({"x_test": X[:2].astype(float)}, "differ"),
        ({"x_train": np.full((6, 2, 2), np.nan)}, "NaN"),
        ({"x_train": [["a"]] * 6}, "numbers"),
        ({"y_train": Y - 1}, "label -1"),
        ({"y_train": torch.tensor(3)}, "a target for each sample"),
        (
            {"y_train": np.zeros((6, 0), int), "y_test": np.zeros((2, 0), int)},
            "y_train is empty",
        ),
        ({"clients": [1, 2]}, "one id for each of the 6"),
        ({"clients": [1.0, 2, 3, 4, 5, np.inf]}, "NaN or infinite"),
        ({"clients": [None] * 6}, "clients must hold numbers or texts, not None"),
        (
            {"clients": np.array(["a", 1, "b", 2, "c", 3], dtype=object)},
            "numbers or texts, not some of each",
        ),
    ],
)
def test_wrong_arrays(changes, word):
    given = {"x_train": X, "y_train": Y, "x_test": X[:2], "y_test": Y[:2]} | changes
    with pytest.raises(InputError, match=word):
        arrays(**given)


def test_pixels_are_scaled_and_standardised_by_channel():
    # One image, two channels of 1×2
    x = torch.tensor([[[[0, 255]], [[51, 102]]]], dtype=torch.uint8)
    data = Dataset(
        x, torch.tensor([0]), x, torch.tensor([0]), mean=(0.5, 0.2), std=(0.5, 0.1)
    )
    expected = torch.tensor([[[[-1.0, 1.0]], [[0.0, 2.0]]]])
    torch.testing.assert_close(data.inputs(x), expected)
    # The constants are kept, and not changed
    torch.testing.assert_close(data.inputs(x), expected)
    assert data.inputs(expected) is expected


def test_constants_do_not_mix_between_shapes_and_sets():
    flat = torch.tensor([[0, 255]], dtype=torch.uint8)
    one = Dataset(
        flat, flat[:, 0].long(), flat, flat[:, 0].long(), mean=(0.5,), std=(0.5,)
    )
    two = replace(one, mean=(0.5, 1.0), std=(0.5, 0.5))
    assert one.inputs(flat).tolist() == [[-1.0, 1.0]]
    assert two.inputs(flat).tolist() == [[-1.0, 0.0]]
    assert two.inputs(flat.view(1, 2, 1, 1)).flatten().tolist() == [-1.0, 0.0]


def test_moving_keeps_everything_else():
    data = replace(
        digits(), augment="crop-flip", clients=torch.zeros(1437, dtype=torch.int64)
    )
    moved = data.to(torch.device("cpu"))
    assert (moved.name, moved.scale, moved.mean, moved.augment) == (
        "digits",
        16.0,
        data.mean,
        "crop-flip",
    )
    assert moved.clients is data.clients


def test_augmentation_is_checked():
    with pytest.raises(
        InputError, match="augment must be one of None, crop-flip, not 'mixup'"
    ):
        replace(digits(), augment="mixup")
    flat = arrays(X.reshape(6, 4), Y, X[:2].reshape(2, 4), Y[:2])
    with pytest.raises(InputError, match="needs images"):
        replace(flat, augment="crop-flip")


def test_the_digits_are_what_they_were():
    data = digits()
    assert (len(data.x_train), len(data.x_test), data.classes) == (1437, 360, 10)
    assert data.y_train.bincount().tolist() == [
        136,
        154,
        151,
        135,
        143,
        143,
        151,
        153,
        138,
        133,
    ]
    assert int(data.x_train.sum()) == 449120
