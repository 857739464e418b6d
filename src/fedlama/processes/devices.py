"""Where a run computes, and how many processes may share that: decided without starting CUDA.

A process that is forked after CUDA was started cannot use a GPU. So whoever may still fork asks only how many GPUs
there are, and never `torch.cuda.is_available`, which asks CUDA itself. `torch.cuda.device_count` asks the driver's
management library (NVML), and CUDA only where that does not answer.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext

import torch

from fedlama.base import InputError, shown

KINDS = ("cpu", "cuda")


def check_device(name: str) -> None:
    """Raise InputError unless the device is one that torch knows and finds, and that a run can compute on."""
    if not isinstance(name, str):
        raise InputError(f"device must be auto, cpu or cuda, not {shown(name)}")
    if name == "auto":
        return
    try:
        device = torch.device(name)
    except (RuntimeError, ValueError, OverflowError):
        raise InputError(
            f"device {shown(name)} is not one that torch knows: use auto, cpu or cuda"
        ) from None
    if device.type not in KINDS:
        raise InputError(
            f"device {shown(name)}: fedlama computes on a CPU or with CUDA; use auto, cpu or cuda"
        )
    if device.type == "cpu":
        return
    # Counted as above, not by torch.cuda.is_available: worker processes may still be forked
    count = torch.cuda.device_count()
    if count == 0:
        raise InputError(
            f"device {shown(name)}: torch finds no CUDA device on this machine; use auto or cpu"
        )
    if device.index is not None and device.index >= count:
        raise InputError(
            f"device {shown(name)}: this machine has {count} CUDA devices, counted from 0"
        )


def is_on_gpu(device: str) -> bool:
    """Whether a run with this device computes on GPUs: "auto" does where there are any."""
    if device == "auto":
        return torch.cuda.device_count() > 0
    return torch.device(device).type == "cuda"


def max_workers(device: str) -> int | None:
    """How many processes may share a run on this device: one per GPU; on CPUs there is no limit."""
    if not is_on_gpu(device):
        return None
    names_one = device != "auto" and torch.device(device).index is not None
    if names_one:
        return 1
    return torch.cuda.device_count()


def default_workers(device: str) -> int:
    """How many processes share a run on this device unless the user says: one per GPU, otherwise one per core."""
    check_device(device)
    return max_workers(device) or available_cores()


def available_cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        cores = os.sched_getaffinity(0)
        return len(cores)
    return os.cpu_count() or 1


def check_workers(device: str, workers: int) -> None:
    """Refuse worker processes that could not use the device.

    Arguments:
        device: as the user gave it, such as "auto" or "cuda".
        workers: how many processes are to be forked; one alone is this process, and anything suits it.
    """
    allowed = max_workers(device)
    if allowed is None or workers == 1:
        return
    if workers > allowed:
        raise InputError(
            f"workers = {workers}, but device {shown(device)} is {_gpus(allowed)} here, "
            f"and two processes cannot share one: use at most {allowed}, or device 'cpu'"
        )
    if torch.cuda.is_initialized():
        raise InputError(
            f"this program has already used CUDA, and processes that are forked from it now could not: use workers = 1 "
            f"or device 'cpu', start it with torchrun, or call fedlama before anything else uses a GPU (workers = "
            f"{workers}, device {shown(device)})"
        )


def _gpus(count: int) -> str:
    if count == 1:
        return "one GPU"
    return f"{count} GPUs"


def backend_for(device: str) -> str:
    """The collectives of torch that suit a device: NCCL takes tensors on GPUs only, so gloo adds the others."""
    if is_on_gpu(device):
        return "cpu:gloo,cuda:nccl"
    return "gloo"


def as_current(device: torch.device) -> AbstractContextManager[object]:
    """Inside, a GPU is the one that torch means where none is named: a module's own draws come from its generator."""
    if device.type == "cuda":
        return torch.cuda.device(device)
    return nullcontext()
