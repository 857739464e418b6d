"""The models that come with fedlama; any other nn.Module works as well."""

from fedlama.models.leaf import leaf_cnn
from fedlama.models.resnet import resnet20, wide_resnet, wide_resnet28_10
from fedlama.models.small import mlp, small_cnn

__all__ = [
    "leaf_cnn",
    "mlp",
    "resnet20",
    "small_cnn",
    "wide_resnet",
    "wide_resnet28_10",
]
