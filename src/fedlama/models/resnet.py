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

from fedlama.base import InputError


def resnet20(classes: int = 10, channels: int = 3) -> nn.Module:
    """Three stages of three blocks, 16, 32 and 64 channels wide: 272,762 parameters for 10 classes."""
    return ResNet(classes, channels, blocks=3, width=1, dropout=0.0)


def wide_resnet28_10(classes: int = 100, channels: int = 3) -> nn.Module:
    """Three stages of four blocks, 160, 320 and 640 channels wide: 36,539,124 parameters for 100 classes."""
    return wide_resnet(classes, channels, depth=28, width=10)


def wide_resnet(
    classes: int = 100, channels: int = 3, *, depth: int = 16, width: int = 2, dropout: float = 0.3
) -> nn.Module:
    """A Wide-ResNet of any size; by default a small one for CPUs: two blocks a stage, 32, 64 and 128 channels wide."""
    blocks, left_over = divmod(depth - 4, 6)
    if blocks < 1 or left_over:
        raise InputError(f"depth must be 10, 16, 22, 28 or another 6·n + 4, not {depth}")
    if width < 1:
        raise InputError(f"width must be at least 1, not {width}")
    return ResNet(classes, channels, blocks, width, dropout)


class ResNet(nn.Module):
    """conv0, three stages of `blocks` blocks that are 16, 32 and 64 times `width` wide, the mean over pixels, fc."""

    def __init__(self, classes: int, channels: int, blocks: int, width: int, dropout: float) -> None:
        super().__init__()
        self.conv0 = nn.Conv2d(channels, 16, 3, padding=1, bias=False)
        self.bn0 = nn.BatchNorm2d(16)
        self.stage1 = _stage(16, 16 * width, blocks, stride=1, dropout=dropout)
        self.stage2 = _stage(16 * width, 32 * width, blocks, stride=2, dropout=dropout)
        self.stage3 = _stage(32 * width, 64 * width, blocks, stride=2, dropout=dropout)
        self.fc = nn.Linear(64 * width, classes)
        _initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        """A score for each class."""
        images = images.contiguous(memory_format=torch.channels_last)  # the order that a CPU's convolutions like
        x = relu(self.bn0(self.conv0(images)), inplace=True)
        x = self.stage3(self.stage2(self.stage1(x)))
        return self.fc(x.mean(dim=(2, 3)))


class Block(nn.Module):
    """Two 3×3 convolutions beside a shortcut, which is the identity or, if the block `projects`, a 1×1 convolution."""

    def __init__(self, before: int, after: int, stride: int, dropout: float, projects: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.dropout = nn.Dropout(dropout)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.shortcut = nn.Conv2d(before, after, 1, stride, bias=False) if projects else nn.Identity()
        self.bn_shortcut = nn.BatchNorm2d(after) if projects else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """The activated sum of both ways."""
        residual = self.dropout(relu(self.bn1(self.conv1(x)), inplace=True))  # BatchNorm's gradient needs no output
        residual = self.bn2(self.conv2(residual))
        return relu(residual + self.bn_shortcut(self.shortcut(x)), inplace=True)


def _stage(before: int, after: int, blocks: int, stride: int, dropout: float) -> nn.Sequential:
    """The first block changes the resolution and the width, and has a convolution on its shortcut to do so."""
    first = Block(before, after, stride, dropout, projects=True)
    others = [Block(after, after, 1, dropout, projects=False) for _ in range(blocks - 1)]
    return nn.Sequential(OrderedDict((f"block{number}", block) for number, block in enumerate([first, *others])))


def _initialise(model: nn.Module) -> None:
    """He normal convolutions and γ = 0 at each block's second BatchNorm; the rest starts as torch has it."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
        elif isinstance(module, Block):
            nn.init.zeros_(module.bn2.weight)
