"""The embedded data: 1,797 handwritten digits of 8×8 pixels.

The test part of "Optical Recognition of Handwritten Digits" (E. Alpaydin and C. Kaynak, UCI Machine Learning
Repository, 1998, CC BY 4.0; https://doi.org/10.24432/C50P49), here split into 1,437 training and 360 test samples.
"""

from __future__ import annotations

from importlib import resources

import numpy as np
import torch

from fedlama.data.dataset import Dataset

TEST_SAMPLES = 360


def digits() -> Dataset:
    """The embedded digits, pixels 0 … 16 in one channel of 8×8."""
    file = resources.files("fedlama.data").joinpath("digits.npz")
    with file.open("rb") as stream, np.load(stream) as stored:
        x = torch.from_numpy(stored["x"])
        y = torch.from_numpy(stored["y"]).long()
    # The file is in the order of its writers: every fifth sample is held out, so that both parts have all of them.
    test = torch.zeros(len(y), dtype=torch.bool)
    test[::5] = True
    assert int(test.sum()) == TEST_SAMPLES
    return Dataset(
        x_train=x[~test],
        y_train=y[~test],
        x_test=x[test],
        y_test=y[test],
        name="digits",
        classes=10,
        scale=16.0,
        mean=(0.3052,),
        std=(0.3763,),
    )
