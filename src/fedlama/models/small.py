"""Small models for small images."""

from __future__ import annotations

from collections import OrderedDict
from itertools import pairwise

from torch import nn


def small_cnn(classes: int = 10, channels: int = 1, side: int = 8) -> nn.Module:
    """conv16 – conv32 – pool – fc64 – fc for square images; from 16×16 pixels on, a pool behind the first layer too."""
    large = side >= 16
    features = 32 * (side // (4 if large else 2)) ** 2
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(channels, 16, 3, padding=1),
            relu1=nn.ReLU(),
            pool1=nn.MaxPool2d(2) if large else nn.Identity(),
            conv2=nn.Conv2d(16, 32, 3, padding=1),
            relu2=nn.ReLU(),
            pool2=nn.MaxPool2d(2),
            flatten=nn.Flatten(),
            fc1=nn.Linear(features, 64),
            relu3=nn.ReLU(),
            fc2=nn.Linear(64, classes),
        )
    )


def mlp(classes: int = 10, inputs: int = 64, hidden: tuple[int, ...] = (128, 128)) -> nn.Module:
    """Fully connected layers with ReLU between them."""
    widths = (inputs, *hidden, classes)
    layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
    for number, (before, after) in enumerate(pairwise(widths), start=1):
        layers[f"fc{number}"] = nn.Linear(before, after)
        if number < len(widths) - 1:
            layers[f"relu{number}"] = nn.ReLU()
    return nn.Sequential(layers)
