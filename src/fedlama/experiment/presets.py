"""What suits what: the model a data set is trained with unless the configuration names another."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches

from torch import nn

from fedlama import models
from fedlama.core import InputError
from fedlama.data import Dataset

Builder = Callable[[Dataset], nn.Module]


def _classes(data: Dataset) -> int:
    if data.classes is None:
        raise InputError(f"{data.name} has no class labels, so none of the named models fits: use fedlama.simulate")
    return data.classes


MODELS: dict[str, Builder] = {
    "small_cnn": lambda data: models.small_cnn(_classes(data), data.x_train.shape[1], data.x_train.shape[-1]),
    "mlp": lambda data: models.mlp(_classes(data), inputs=data.x_train[0].numel()),
}
DEFAULTS = {"digits": "small_cnn"}


def default_model(data: Dataset) -> str:
    """The name of the model that suits this data."""
    if data.name in DEFAULTS:
        return DEFAULTS[data.name]
    return "small_cnn" if data.x_train.dim() == 4 else "mlp"


def model_builder(name: str, data: Dataset) -> Callable[[], nn.Module]:
    """A callable without arguments that builds the named model for this data."""
    if name not in MODELS:
        near = get_close_matches(name, MODELS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise InputError(f"model.name = {name!r}: must be one of {', '.join(MODELS)}{hint}")
    return lambda: MODELS[name](data)
