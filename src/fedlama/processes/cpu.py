"""Which type of processor computes: another type gives other last bits, and another time."""

from __future__ import annotations

import platform
from contextlib import suppress
from pathlib import Path

import torch

from fedlama.base import printable

MAX_NAME = 80  # characters


def cpu_type(root: Path = Path("/")) -> str:
    """The processor's name and the instructions that torch uses on it, such as `AMD EPYC, AVX512`.

    Arguments:
        root: Where the kernel's files are found; tests have files of their own.
    """
    name = _name_in_kernel(root) or platform.processor() or platform.machine()
    in_one_line = " ".join(name.split())
    readable = printable(in_one_line, MAX_NAME)
    instructions = torch.backends.cpu.get_cpu_capability()
    if instructions == "DEFAULT":
        return readable
    return f"{readable}, {instructions}"


def _name_in_kernel(root: Path) -> str | None:
    """As Linux has it; other systems have no such file."""
    with suppress(OSError, UnicodeDecodeError):
        path = root / "proc/cpuinfo"
        text = path.read_text(encoding="utf-8")
        for line in text.splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return None
