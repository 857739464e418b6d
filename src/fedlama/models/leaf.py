"""The CNN that LEAF (Caldas et al. 2018) trains on FEMNIST: most of its parameters are one fully connected kernel."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import max_pool2d, relu

SIDE = 28


def leaf_cnn(classes: int = 62) -> nn.Module:
    """conv5×5·32 – pool – conv5×5·64 – pool – fc 2048 – fc, for grey 28×28 images: 6,603,710 parameters.

    Arguments:
        classes: How many scores the network gives.
    """
    return LeafCNN(classes)


class LeafCNN(nn.Module):
    """Two convolutions that keep the resolution, each followed by a 2×2 pool, and two fully connected layers."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(
            1,
            32,
            kernel_size=5,
            padding=2,
        )
        self.conv2 = nn.Conv2d(
            32,
            64,
            kernel_size=5,
            padding=2,
        )
        # Two pools halve the side twice
        side = SIDE // 4
        features = 64 * side * side
        self.fc1 = nn.Linear(features, 2048)
        self.fc2 = nn.Linear(2048, classes)
        for before_relu in (self.conv1, self.conv2, self.fc1):
            nn.init.kaiming_normal_(
                before_relu.weight,
                nonlinearity="relu",
            )

    def forward(self, images: Tensor) -> Tensor:
        """A score for each class; images may come with or without their channel's axis."""
        # This view has the strides of a channels-last image, which for one channel .contiguous() would not give.
        x = images.reshape(len(images), SIDE, SIDE, 1)
        x = x.permute(0, 3, 1, 2)

        x = self.conv1(x)
        x = relu(x)
        x = max_pool2d(x, 2)

        x = self.conv2(x)
        x = relu(x)
        x = max_pool2d(x, 2)

        x = x.flatten(start_dim=1)
        x = self.fc1(x)
        x = relu(x)
        return self.fc2(x)
