"""Flower's records of arrays ↔ modules: the server has names and numbers, and needs layers."""

from __future__ import annotations

from collections.abc import Callable

import torch
from flwr.app import ArrayRecord
from torch import nn

from fedlama.base import InputError
from fedlama.training.modules import build, torch_settings


def initial_arrays(model: Callable[[], nn.Module], seed: int = 0) -> ArrayRecord:
    """The first weights of a run, as `simulate` would draw them.

    Arguments:
        model: A function without arguments that builds the module.
        seed: The run's.
    """
    with torch_settings(uses_gpu=False):
        module = build(model, seed)
    return arrays_of(module)


def arrays_of(module: nn.Module) -> ArrayRecord:
    """The state of a module, by the names that its state_dict has."""
    state: dict[str, torch.Tensor] = {}
    for name, tensor in module.state_dict().items():
        detached = tensor.detach()
        state[name] = detached.clone()
    return ArrayRecord(state)


def module_of(arrays: ArrayRecord) -> nn.Module:
    """A module that holds these arrays and computes nothing: enough to know its layers.

    A record does not say what is a parameter. Whole numbers and what BatchNorm calls its statistics are taken for
    buffers, all else for trainable parameters.
    """
    root = nn.Module()
    for name, tensor in tensors_of(arrays).items():
        *path, last = name.split(".")
        owner = root
        for part in path:
            if part not in owner._modules:
                owner.add_module(part, nn.Module())
            owner = owner.get_submodule(part)

        is_statistic = last in ("running_mean", "running_var")
        if tensor.is_floating_point() and not is_statistic:
            parameter = nn.Parameter(tensor)
            owner.register_parameter(last, parameter)
        else:
            owner.register_buffer(last, tensor)
    return root


def tensors_of(arrays: ArrayRecord) -> dict[str, torch.Tensor]:
    """The record's arrays as tensors of their own."""
    if not arrays:
        raise InputError(
            "initial_arrays is empty: pass ArrayRecord(model.state_dict())"
        )

    tensors: dict[str, torch.Tensor] = {}
    for name, array in arrays.items():
        # A copy: the record's own bytes may not be written to.
        numbers = array.numpy().copy()
        tensors[name] = torch.from_numpy(numbers)
    return tensors
