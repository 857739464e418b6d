"""Small models for small images."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn


def small_cnn(classes: int = 10, channels: int = 1, side: int = 8) -> nn.Module:
    """conv16 – conv32 – pool – fc64 – fc for square images; from 16×16 pixels on, a pool behind the first layer too.

    Arguments:
        classes: How many scores the network gives.
        channels: Of the images: 3 for colour, 1 for grey.
        side: Height and width of the images.
    """
    first_pool: nn.Module = nn.Identity()
    pooled_side = side // 2
    if side >= 16:
        first_pool = nn.MaxPool2d(2)
        pooled_side = side // 4
    features = 32 * pooled_side * pooled_side
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(channels, 16, 3, padding=1),
            relu1=nn.ReLU(),
            pool1=first_pool,
            conv2=nn.Conv2d(16, 32, 3, padding=1),
            relu2=nn.ReLU(),
            pool2=nn.MaxPool2d(2),
            flatten=nn.Flatten(),
            fc1=nn.Linear(features, 64),
            relu3=nn.ReLU(),
            fc2=nn.Linear(64, classes),
        )
    )


def mlp(
    classes: int = 10, inputs: int = 64, hidden: tuple[int, ...] = (128, 128)
) -> nn.Module:
    """Fully connected layers with ReLU between them.

    Arguments:
        classes: How many scores the network gives.
        inputs: How many numbers a sample has.
        hidden: How many units each layer between has.
    """
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    layers["flatten"] = nn.Flatten()
    before = inputs
    number = 1
    for width in hidden:
        linear = nn.Linear(before, width)
        layers[f"fc{number}"] = linear
        layers[f"relu{number}"] = nn.ReLU()
        before = width
        number += 1
    last = nn.Linear(before, classes)
    layers[f"fc{number}"] = last
    return nn.Sequential(layers)
