"""What is wrong with the arguments of a simulation, said before anything is spent."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import torch
from torch import Tensor, nn

from fedlama.base import InputError, check_made, check_whole, reason, shown
from fedlama.compress import Codec
from fedlama.core import Policy
from fedlama.core.policy_checks import check_policy
from fedlama.data import Dataset, Partition, Shards, Transform
from fedlama.local import LocalRule
from fedlama.local.rule import check_local_rule
from fedlama.server import ServerRule
from fedlama.server.rule import check_server_rule
from fedlama.training.evaluation import DEFAULT_METRIC, Loss, Metric, MetricFunction
from fedlama.training.faults import Faults
from fedlama.training.modules import is_about_single_samples

# What torch and Python raise where shapes or types do not fit
MISFITS = (RuntimeError, ValueError, TypeError, IndexError, AttributeError)


def check_kinds(
    data: Dataset,
    policy: Policy,
    local: LocalRule,
    server: ServerRule | None,
    partition: Partition | None,
    uplink: Codec | None,
    downlink: Codec | None,
) -> None:
    """Everything was made with what makes it."""
    if partition is not None:
        check_made(
            "partition",
            partition,
            Partition,
            "fedlama.IID(…) or fedlama.Dirichlet(…)",
        )
    check_made("data", data, Dataset, "fedlama.data.arrays(…) or fedlama.data.load(…)")
    if not len(data.x_test):
        raise InputError(
            "data has no test samples, on which the model is evaluated: pass x_test and y_test to fedlama.data.arrays"
        )
    check_policy("policy", policy)
    check_local_rule("local", local)
    if server is not None:
        check_server_rule("server", server)
    check_codecs(uplink=uplink, downlink=downlink)


def check_codecs(**codecs: Codec | None) -> None:
    """Each is a codec, or none."""
    for name, codec in codecs.items():
        if codec is not None:
            example = "one of fedlama.compress, such as fedlama.compress.Rotate(1.6)"
            check_made(name, codec, Codec, example)


def check_numbers(**values: int | None) -> None:
    """Each is a whole number from 1."""
    for name, value in values.items():
        if value is not None:
            check_whole(name, value, minimum=1)


def check_faults(faults: Faults | None, active: int) -> None:
    """What faults ask for can be met."""
    if faults is None:
        return
    if not isinstance(faults, Faults):
        raise InputError(
            f"faults must be made with fedlama.Faults(…), not {type(faults).__name__}"
        )
    faults.tolerance.check_can_be_met(active, option="faults.min_clients")


def task_of(
    data: Dataset, loss: Loss | None, metric: MetricFunction | Metric | None
) -> tuple[Loss, Metric | None]:
    """Classification unless the user says otherwise."""
    classifies = not data.y_train.is_floating_point()
    if loss is None and not classifies:
        raise InputError(
            "the targets are not whole numbers, so there is no default loss: "
            "pass loss= (such as torch.nn.functional.mse_loss) and, if you like, metric="
        )
    has_one_class_per_sample = classifies and data.y_train.dim() == 1
    if metric is None and has_one_class_per_sample:
        metric = DEFAULT_METRIC
    if metric is not None and not isinstance(metric, Metric):
        metric = Metric(metric)
    return loss or nn.functional.cross_entropy, metric


def check_preparation(data: Dataset) -> None:
    """The user's own functions of a batch of inputs do what they should with two samples."""
    augment = data.augment
    if data.transform is None and not callable(augment):
        return
    untransformed = replace(data, transform=None)
    inputs = untransformed.inputs(data.x_train[:2])
    if data.transform is not None:
        inputs = _changed("transform", data.transform, inputs)
    if callable(augment):
        _changed("augment", augment, inputs)


def _changed(name: str, function: Transform, inputs: Tensor) -> Tensor:
    try:
        changed = function(inputs)
    except Exception as error:
        shape = tuple(inputs.shape)
        raise InputError(
            f"{name} failed on a batch of shape {shape}: {reason(error)}"
        ) from error
    if not isinstance(changed, Tensor) or len(changed) != len(inputs):
        raise InputError(
            f"{name} must return a tensor with as many samples as it was given, not {shown(changed)}"
        )
    return changed


@torch.no_grad()
def check_outputs(
    module: nn.Module, data: Dataset, loss: Loss, metric: Metric | None
) -> None:
    """One forward pass before anything is spent: shapes that do not fit are the user's input, not our failure."""
    outputs = _outputs_of_two(module, data)
    uses_default_loss = loss is nn.functional.cross_entropy
    if uses_default_loss and isinstance(outputs, Tensor) and outputs.dim() >= 2:
        _check_labels(data, classes=outputs.shape[1])

    targets = data.y_train[:2]
    loss_value = _measured(loss, outputs, targets)
    metric_value = None
    if metric is not None:
        metric_value = _measured(metric.function, outputs, targets)
    _check_loss(loss_value)
    if metric is not None:
        _check_metric(metric_value)


def _outputs_of_two(module: nn.Module, data: Dataset) -> object:
    """What the module makes of two samples; a user's module may return anything."""
    module.eval()
    try:
        inputs = data.inputs(data.x_train[:2])
        return module(inputs)
    except MISFITS as error:
        shape = tuple(data.x_train.shape[1:])
        raise InputError(
            f"the model does not take {data.name}'s samples of shape {shape}: {error}"
        ) from error
    finally:
        module.train()


def _measured(
    measure: Callable[..., object], outputs: object, targets: Tensor
) -> object:
    """The value of a loss or metric, which may return anything, too."""
    try:
        return measure(outputs, targets)
    except MISFITS as error:
        shape = type(outputs).__name__
        if isinstance(outputs, Tensor):
            shape = str(tuple(outputs.shape))
        raise InputError(
            f"the loss or metric does not take the model's output ({shape}) with targets of shape "
            f"{tuple(targets.shape)}: {reason(error)}"
        ) from error


def _check_loss(value: object) -> None:
    """It is what a gradient can be computed of; whether it still hangs together with the model shows in training."""
    if not isinstance(value, Tensor):
        raise InputError(
            f"the loss must be a tensor with one number, not {shown(value)}"
        )
    if value.numel() != 1:
        raise InputError(
            f"the loss must be one number, not a tensor of shape {tuple(value.shape)}"
        )
    if not value.is_floating_point():
        raise InputError(
            f"the loss must be a floating-point number, not {value.dtype}: it has no gradient"
        )


def _check_metric(value: object) -> None:
    if isinstance(value, Tensor):
        if value.numel() != 1:
            raise InputError(
                f"the metric must be one number, not a tensor of shape {tuple(value.shape)}"
            )
        if value.is_complex():
            raise InputError(f"the metric must be a real number, not {value.dtype}")
    elif not isinstance(value, numbers.Real):
        raise InputError(f"the metric must be a number, not {shown(value)}")


@torch.no_grad()
def check_single_samples(
    module: nn.Module, data: Dataset, shards: Shards, batch_size: int
) -> None:
    """BatchNorm cannot train on one value per channel, and the last batch of an epoch may hold a single sample."""
    parts = list(module.modules())
    if not any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in parts):
        return
    left_over = shards.sizes % batch_size
    single = (left_over == 1).nonzero()
    if not len(single):
        return
    one_sample = data.inputs(data.x_train[:1])
    try:
        # A copy, because the forward pass writes to the statistics
        deepcopy(module)(one_sample)
    except ValueError as error:
        if not is_about_single_samples(error):
            raise
        client = int(single[0])
        samples = int(shards.sizes[client])
        raise InputError(
            f"{shards.name_of(client)} has {samples} samples, so batches of {batch_size} leave one "
            f"over, and this model's BatchNorm cannot train on a single sample: choose another local.batch_size"
        ) from None


def _check_labels(data: Dataset, classes: int) -> None:
    by_name = {
        "y_train": data.y_train,
        "y_test": data.y_test,
    }
    for name, targets in by_name.items():
        largest = int(targets.max())
        if largest >= classes:
            raise InputError(
                f"{data.name}'s {name} holds label {largest}, outside the model's {classes} classes "
                f"(labels are counted from 0)"
            )
