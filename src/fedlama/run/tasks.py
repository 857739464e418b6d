"""What is learnt: data of the user's own, the model, the loss and the metric that a configuration names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from fedlama.base import InputError, shown
from fedlama.data import Dataset, arrays
from fedlama.run.config import Config
from fedlama.run.default_models import model_builder
from fedlama.run.references import Reference, is_reference
from fedlama.training import Metric
from fedlama.training.arguments import task_of
from fedlama.training.evaluation import Loss

# x_train, y_train, x_test, y_test and, if there are clients, their ids
PARTS_OF_ARRAYS = (4, 5)


def own_data(reference: Reference, options: dict[str, Any] | None) -> Dataset:
    """The data set that a function of the user's own loads, or the arrays that one is made of."""
    loaded = reference.call(options=options)
    if isinstance(loaded, Dataset):
        return loaded
    if isinstance(loaded, tuple) and len(loaded) in PARTS_OF_ARRAYS:
        try:
            return arrays(*loaded, name=reference.name)
        except InputError as error:
            raise reference.wrong(str(error)) from None
    raise reference.wrong(
        f"must return what fedlama.data.arrays(…) makes, or its arguments as a tuple, not {shown(loaded)}"
    )


def own_function(key: str, text: str | None) -> Callable[..., Any] | None:
    """A function of tensors that a configuration refers to; of a class such as torch.nn:MSELoss, one made of it."""
    if text is None:
        return None
    reference = Reference(key, text)
    found = reference.load()
    if not isinstance(found, type):
        return found

    made = reference.call()
    if not callable(made):
        raise reference.wrong(
            f"makes {shown(made)}, which cannot be called with outputs and targets"
        )
    return made


def metric_of(config: Config, data: Dataset, loss: Loss | None) -> Metric | None:
    """What the model is judged by, with the name and the direction that the configuration gives it."""
    train = config.train
    function = own_function("train.metric", train.metric)
    if function is not None:
        name = train.metric_name or ""
        return Metric(function, name, train.higher_is_better)
    if train.metric_name is not None or train.higher_is_better is not None:
        raise InputError(
            "train.metric_name and train.higher_is_better mean nothing without train.metric"
        )
    if loss is None and data.y_train.is_floating_point():
        raise InputError(
            "the targets are not whole numbers, so there is no default loss: set train.loss to a function of outputs "
            'and targets, such as "torch.nn.functional:mse_loss"'
        )

    _, metric = task_of(data, loss, None)
    return metric


def model_of(config: Config, name: str, data: Dataset) -> Callable[[], nn.Module]:
    """A function without arguments that builds the model of this name, or the user's own.

    Arguments:
        config: Has the options of the user's own model.
        name: Of the model, or where its function is: `module:name`.
        data: What it is to be trained on.
    """
    if ":" not in name:
        return model_builder(name, data)
    if not is_reference(name):
        raise InputError(
            f"model.name = {shown(name)}: must be the name of a model, or module:name of your own"
        )
    reference = Reference("model.name", name)
    # Wrong input shows before anything is spent.
    reference.load()

    def build() -> nn.Module:
        module = reference.call(data, options=config.model.options)
        if not isinstance(module, nn.Module):
            found = shown(module)
            raise reference.wrong(f"must return an nn.Module, not {found}")
        return module

    return build
