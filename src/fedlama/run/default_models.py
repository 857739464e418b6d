"""What suits what: the model a data set is trained with unless the configuration names another."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches

from torch import nn

from fedlama import models
from fedlama.base import InputError, shown
from fedlama.data import Dataset

Builder = Callable[[Dataset], nn.Module]


def _classes(data: Dataset) -> int:
    if data.classes is None:
        raise InputError(
            f"{data.name} has no class labels, so none of the named models fits: use fedlama.simulate"
        )
    return data.classes


def _channels(data: Dataset) -> int:
    shape = tuple(data.x_train.shape[1:])
    if data.x_train.dim() != 4:
        raise InputError(
            f"this model takes images, but a sample of {data.name} has shape {shape}"
        )
    return shape[0]


MODELS: dict[str, Builder] = {
    "resnet20": lambda data: models.resnet20(_classes(data), _channels(data)),
    "wide_resnet28_10": lambda data: models.wide_resnet28_10(
        _classes(data), _channels(data)
    ),
    "wide_resnet": lambda data: models.wide_resnet(_classes(data), _channels(data)),
    "leaf_cnn": lambda data: models.leaf_cnn(_classes(data)),
    "small_cnn": lambda data: models.small_cnn(
        _classes(data), _channels(data), data.x_train.shape[-1]
    ),
    "mlp": lambda data: models.mlp(_classes(data), inputs=data.x_train[0].numel()),
}


def default_model(data: Dataset) -> str:
    """The name of the model that suits this data: the paper's where it has one."""
    if data.name == "cifar100":
        return "wide_resnet28_10"

    shape = tuple(data.x_train.shape[1:])
    if shape == (3, 32, 32):
        return "resnet20"
    if shape == (1, 28, 28) and data.classes == 62:
        return "leaf_cnn"

    is_square_image = len(shape) == 3 and shape[-1] == shape[-2]
    if is_square_image:
        return "small_cnn"
    return "mlp"


def model_builder(name: str, data: Dataset) -> Callable[[], nn.Module]:
    """A callable without arguments that builds the named model for this data."""
    if name in MODELS:
        return lambda: MODELS[name](data)

    allowed = ", ".join(MODELS)
    hint = ""
    for near in get_close_matches(name, MODELS, n=1):
        hint = f"; did you mean {near!r}?"
    raise InputError(f"model.name = {shown(name)}: must be one of {allowed}{hint}")
