"""The models that come with fedlama; any other nn.Module works as well."""

from fedlama.models.small import mlp, small_cnn

__all__ = ["mlp", "small_cnn"]
