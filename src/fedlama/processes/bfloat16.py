"""Whether this processor runs the bfloat16 instructions that it announces.

A virtual machine may announce AMX and trap its first instruction: the process ends with SIGILL, without a message. No
flag of the kernel or of torch tells these machines from others, so a small product is tried in a process of its own.
"""

from __future__ import annotations

import functools
import signal
import subprocess
import sys

import torch

from fedlama.base import InputError
from fedlama.processes.devices import is_on_gpu

# The variable of oneDNN, torch's library for CPUs, that limits the instructions it uses, and its value without AMX.
# It is read at the first product, so a process that has computed is too late to set it.
LIMIT = "ONEDNN_MAX_CPU_ISA"
WITHOUT_AMX = "AVX512_CORE_BF16"

PRODUCT = "import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); print(a @ a)"
MAX_SECONDS = 60  # of the trial, which takes two on an idle machine


def check_bfloat16(device: str) -> None:
    """Raise InputError where local steps in bfloat16 would end the process.

    Arguments:
        device: Where they are to be computed: "auto", "cpu" or "cuda".
    """
    if is_on_gpu(device) or bfloat16_runs():
        return
    raise InputError(
        "precision bfloat16: this processor announces AMX instructions and does not run them; "
        f"set the environment variable {LIMIT}={WITHOUT_AMX}, or use float32"
    )


@functools.cache
def bfloat16_runs() -> bool:
    """Whether a product in bfloat16 survives in a new process on this CPU."""
    if not _announces_amx():
        return True
    try:
        trial = subprocess.run(
            [sys.executable, "-c", PRODUCT],
            capture_output=True,
            timeout=MAX_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        # No answer is no reason to refuse: most processors that announce AMX have it.
        return True
    return trial.returncode != -signal.SIGILL


def _announces_amx() -> bool:
    return bool(torch.cpu.get_capabilities().get("amx_bf16", False))
