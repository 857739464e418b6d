"""The user's module among torch's global state: its first weights, its own draws, threads and generators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from fedlama.base import InputError, random_key


def build(model: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Call the user's builder once, with its random initial weights a function of the seed."""
    check_builder(model)
    key = random_key(seed, "model")
    seed_module_draws(key, torch.device("cpu"))
    return built(model).train()


def built(model: Callable[[], nn.Module]) -> nn.Module:
    """What the user's builder returns, which must be a module."""
    module = model()
    if not isinstance(module, nn.Module):
        kind = type(module).__name__
        raise InputError(f"model() must build an nn.Module, but it returned {kind}")
    return module


def check_builder(model: Callable[[], nn.Module]) -> None:
    """Raise InputError for what does not build modules, such as a module itself."""
    if isinstance(model, nn.Module) or not callable(model):
        raise InputError(
            "model must be a function without arguments that builds an nn.Module: write lambda: MyNet()"
        )


def seed_module_draws(key: int, device: torch.device) -> None:
    """Seed the generators that a module's own draws (dropout) come from."""
    # Torch takes a signed number of 64 bits
    seed = key % 2**63
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


@contextmanager
def torch_settings(uses_gpu: bool) -> Iterator[None]:
    """One thread, so that sums do not depend on the machine; the caller's threads and generators come back."""
    threads = torch.get_num_threads()
    # Looking at a GPU's generator starts CUDA, and processes forked after that could not use it
    devices = []
    if uses_gpu:
        devices = [torch.cuda.current_device()]
    with torch.random.fork_rng(devices=devices), torch.enable_grad():
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def is_about_single_samples(error: ValueError) -> bool:
    """Whether this is what torch's BatchNorm raises for one value per channel, whose mean says nothing.

    Arguments:
        error: From a forward pass; torch has no class of its own for it, so its text must do.
    """
    return "more than 1 value per channel" in str(error)
