"""ResNet20 (He et al. 2016) and Wide-ResNet28-10 (Zagoruyko and Komodakis 2016) as the FedLAMA paper trained them.

Both are one network of three stages for small images; they differ in the number of blocks, in width and in dropout.
Against torchvision's ResNets: a 3×3 first convolution without pooling, three stages instead of four, a convolution on
the shortcut of *every* stage's first block, and γ = 0 at each block's second BatchNorm, so that a new block only passes
its shortcut on. Against the original Wide-ResNet: the activation follows the sum instead of preceding the convolution.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from fedlama.base import InputError, check_whole

MAX_DEPTH = 10_000
MAX_WIDTH = 1_000


def resnet20(classes: int = 10, channels: int = 3) -> nn.Module:
    """Three stages of three blocks, 16, 32 and 64 channels wide: 272,762 parameters for 10 classes.

    Arguments:
        classes: How many scores the network gives.
        channels: Of the images: 3 for colour, 1 for grey.
    """
    return ResNet(
        classes,
        channels,
        blocks=3,
        width=1,
        dropout=0.0,
    )


def wide_resnet28_10(classes: int = 100, channels: int = 3) -> nn.Module:
    """Three stages of four blocks, 160, 320 and 640 channels wide: 36,539,124 parameters for 100 classes.

    Arguments:
        classes: How many scores the network gives.
        channels: Of the images: 3 for colour, 1 for grey.
    """
    return wide_resnet(
        classes,
        channels,
        depth=28,
        width=10,
    )


def wide_resnet(
    classes: int = 100,
    channels: int = 3,
    *,
    depth: int = 16,
    width: int = 2,
    dropout: float = 0.3,
) -> nn.Module:
    """A Wide-ResNet of any size; by default a small one for CPUs: two blocks per stage, 32, 64 and 128 channels wide.

    Arguments:
        classes: How many scores the network gives.
        channels: Of the images: 3 for colour, 1 for grey.
        depth: How many convolutions there are on the way: 6·n + 4 for n blocks per stage.
        width: How many times wider the stages are than 16, 32 and 64 channels.
        dropout: The share of activations that are left out inside a block while training.
    """
    check_whole("depth", depth, minimum=10, maximum=MAX_DEPTH)
    check_whole("width", width, minimum=1, maximum=MAX_WIDTH)
    blocks, left_over = divmod(depth - 4, 6)
    if left_over:
        raise InputError(
            f"depth must be 10, 16, 22, 28 or another 6·n + 4, not {depth}"
        )
    return ResNet(
        classes,
        channels,
        blocks=blocks,
        width=width,
        dropout=dropout,
    )


class ResNet(nn.Module):
    """conv0, three stages of `blocks` blocks that are 16, 32 and 64 times `width` wide, the mean over pixels, fc."""

    def __init__(
        self, classes: int, channels: int, blocks: int, width: int, dropout: float
    ) -> None:
        super().__init__()
        narrow = 16 * width
        middle = 32 * width
        wide = 64 * width
        self.conv0 = nn.Conv2d(
            channels,
            16,
            kernel_size=3,
            padding=1,
            bias=False,
        )
        self.bn0 = nn.BatchNorm2d(16)
        self.stage1 = _stage(
            16,
            narrow,
            blocks,
            stride=1,
            dropout=dropout,
        )
        self.stage2 = _stage(
            narrow,
            middle,
            blocks,
            stride=2,
            dropout=dropout,
        )
        self.stage3 = _stage(
            middle,
            wide,
            blocks,
            stride=2,
            dropout=dropout,
        )
        self.fc = nn.Linear(wide, classes)
        _initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        """A score for each class."""
        # The order that a CPU's convolutions like.
        x = images.contiguous(memory_format=torch.channels_last)
        x = self.conv0(x)
        x = self.bn0(x)
        x = relu(x, inplace=True)
        x = self.stage1(x)
        x = self.stage2(x)
        x = self.stage3(x)
        x = x.mean(dim=(2, 3))
        return self.fc(x)


class Block(nn.Module):
    """Two 3×3 convolutions beside a shortcut, which is the identity or, if the block `projects`, a 1×1 convolution."""

    def __init__(
        self, before: int, after: int, stride: int, dropout: float, projects: bool
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(
            before,
            after,
            kernel_size=3,
            stride=stride,
            padding=1,
            bias=False,
        )
        self.bn1 = nn.BatchNorm2d(after)
        self.dropout = nn.Dropout(dropout)
        self.conv2 = nn.Conv2d(
            after,
            after,
            kernel_size=3,
            padding=1,
            bias=False,
        )
        self.bn2 = nn.BatchNorm2d(after)
        self.shortcut = nn.Identity()
        self.bn_shortcut = nn.Identity()
        if projects:
            self.shortcut = nn.Conv2d(
                before,
                after,
                kernel_size=1,
                stride=stride,
                bias=False,
            )
            self.bn_shortcut = nn.BatchNorm2d(after)

    def forward(self, x: Tensor) -> Tensor:
        """The activated sum of both ways."""
        residual = self.conv1(x)
        residual = self.bn1(residual)
        # In place: BatchNorm's gradient does not need its output.
        residual = relu(residual, inplace=True)
        residual = self.dropout(residual)
        residual = self.conv2(residual)
        residual = self.bn2(residual)

        shortcut = self.shortcut(x)
        shortcut = self.bn_shortcut(shortcut)
        return relu(residual + shortcut, inplace=True)


def _stage(
    before: int, after: int, blocks: int, stride: int, dropout: float
) -> nn.Sequential:
    """The first block changes the resolution and the width, and has a convolution on its shortcut to do so."""
    named: OrderedDict[str, nn.Module] = OrderedDict()
    named["block0"] = Block(
        before,
        after,
        stride,
        dropout,
        projects=True,
    )
    for number in range(1, blocks):
        named[f"block{number}"] = Block(
            after,
            after,
            stride=1,
            dropout=dropout,
            projects=False,
        )
    return nn.Sequential(named)


def _initialise(model: nn.Module) -> None:
    """He normal convolutions and γ = 0 at each block's second BatchNorm; the rest starts as torch has it."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(
                module.weight,
                nonlinearity="relu",
            )
        elif isinstance(module, Block):
            nn.init.zeros_(module.bn2.weight)
