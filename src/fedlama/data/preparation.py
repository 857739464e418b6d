"""How stored samples become a model's input: scaled, standardised, transformed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

Transform = Callable[[Tensor], Tensor]  # a batch of inputs → a batch of as many inputs


@dataclass(frozen=True)
class Preparation:
    """How stored samples become a model's input.

    Arguments:
        sample_shape: Of a stored sample.
        dtype: Of the stored samples; only uint8 is scaled and standardised.
        scale: What uint8 samples are divided by.
        mean: What is subtracted from them then: a number, or one per channel.
        std: What they are divided by in the end: a number, or one per channel.
        transform: What is done to inputs after that.
    """

    sample_shape: tuple[int, ...]
    dtype: torch.dtype
    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]
    transform: Transform | None = None

    def __call__(self, samples: Tensor) -> Tensor:
        """Samples of the stored type as inputs."""
        inputs = samples
        if samples.dtype == torch.uint8:
            inputs = self._standardised(samples)
        if self.transform is not None:
            inputs = self.transform(inputs)
        return inputs

    def _standardised(self, samples: Tensor) -> Tensor:
        dimensions = samples.dim()
        device = samples.device
        mean = _broadcastable(self.mean, dimensions, device)
        std = _broadcastable(self.std, dimensions, device)

        # In place: a batch of images is large.
        values = samples.float()
        values.div_(self.scale)
        values.sub_(mean)
        values.div_(std)
        return values


@lru_cache(maxsize=64)
def _broadcastable(
    values: tuple[float, ...], dimensions: int, device: torch.device
) -> Tensor:
    """One number, or one per channel, shaped to meet a batch; kept, because every batch of a run needs the same."""
    tensor = torch.tensor(
        values,
        dtype=torch.float32,
        device=device,
    )
    if len(values) == 1:
        return tensor
    pixels = (1,) * (dimensions - 2)
    return tensor.view(1, -1, *pixels)
