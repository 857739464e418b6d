"""Samples for a trained module, prepared as in training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedlama.base import InputError, shown
from fedlama.data import Dataset, Preparation

PREDICTED_AT_ONCE = 256  # samples
PIXELS = range(256)


def as_trained(x: Any, preparation: Preparation) -> Tensor:
    """Samples in the type that the training samples had; what would mean something else is refused."""
    samples = _as_tensor(x)
    if samples.dim() < 1 or tuple(samples.shape[1:]) != preparation.sample_shape:
        raise InputError(
            f"samples must have shape (number of samples, {', '.join(map(str, preparation.sample_shape))}), as in "
            f"training, not {tuple(samples.shape)}"
        )
    if not len(samples):
        raise InputError("there is no sample to predict: x is empty")
    wanted = preparation.dtype
    if samples.dtype == wanted:
        return samples
    if wanted == torch.uint8:
        if not _are_pixels(samples):
            raise InputError(
                f"the model was trained on uint8 samples, which are scaled here: give them as they were, not as "
                f"{samples.dtype}"
            )
        return samples.to(wanted)
    if wanted.is_floating_point:
        return samples.to(wanted)
    if samples.is_floating_point():
        raise InputError(
            f"the model was trained on whole numbers, not on {samples.dtype}"
        )
    return samples.to(wanted)


def _are_pixels(samples: Tensor) -> bool:
    if samples.is_floating_point():
        return False
    least = int(samples.min())
    most = int(samples.max())
    return least in PIXELS and most in PIXELS


def _as_tensor(x: Any) -> Tensor:
    if isinstance(x, Tensor):
        return x.detach().cpu()
    if isinstance(x, Dataset):
        raise InputError(
            "predict takes samples, such as data.x_test, not a whole data set"
        )
    if isinstance(x, Path | str):
        raise InputError(f"predict takes samples, not {shown(x)}")
    try:
        return torch.from_numpy(np.array(x))
    except (TypeError, ValueError):
        raise InputError(
            f"predict takes samples as an array of numbers, not {shown(x)}"
        ) from None
