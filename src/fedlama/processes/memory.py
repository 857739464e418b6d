"""How much memory this machine has left for a run, and a clear error where it runs out all the same."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from fedlama.base import RunError

# A GPU's allocator has a type for it. That of the CPU, and CUDA outside of the allocator, raise a plain RuntimeError,
# which only its text tells from others.
CPU_OUT_OF_MEMORY = (
    "can't allocate memory",
    "not enough memory",
    "Cannot allocate memory",
    "out of memory",
)
# Names of file systems
IN_MEMORY = ("tmpfs", "ramfs")


def available_memory(root: Path = Path("/")) -> int | None:
    """Bytes that this process and its workers can still get: of the machine, its container, and its own limits.

    Arguments:
        root: where the kernel's files are found; tests have files of their own.

    Returns:
        The smallest that is known; None if none is.
    """
    known = list(_of_groups(root))
    for one in (_of_machine(root), _of_own_limit(root)):
        if one is not None:
            known.append(one)
    if not known:
        return None
    return max(0, min(known))


def is_in_memory(folder: str, root: Path = Path("/")) -> bool:
    """Whether files in this folder take memory, because its file system has no disk; False where nobody knows.

    Arguments:
        folder: The folder.
        root: where the kernel's files are found; tests have files of their own.
    """
    place = Path(folder).resolve()
    kind = ""
    nearest = Path()
    for line in _lines(root / "proc/mounts"):
        _, mounted, name, *_ = line.split()
        # Spaces and the like are written as octal numbers.
        mount = Path(mounted.encode().decode("unicode_escape"))
        # The innermost counts, and of several on one place the last.
        is_nearer = len(mount.parts) >= len(nearest.parts)
        if place.is_relative_to(mount) and is_nearer:
            nearest = mount
            kind = name
    return kind in IN_MEMORY


def _of_machine(root: Path) -> int | None:
    for line in _lines(root / "proc/meminfo"):
        if line.startswith("MemAvailable:"):
            kibibytes = line.split()[1]
            return 1024 * int(kibibytes)
    return None


def _of_own_limit(root: Path) -> int | None:
    """`ulimit -v` holds for each process; the others fork from this one, so what it has used they have used."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return None
    sizes = _first_line(root / "proc/self/statm").split()
    pages = 0
    if sizes:
        pages = int(sizes[0])
    used = pages * resource.getpagesize()
    return limit - used


def _of_groups(root: Path) -> Iterator[int]:
    """Control groups, of both versions: the one of this process and those above it."""
    mount = root / "sys/fs/cgroup"
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        # Only version 2 names no controllers
        if not controllers:
            yield from _left(
                mount,
                path,
                limit="memory.max",
                usage="memory.current",
                reclaimable="inactive_file",
            )
        elif "memory" in controllers.split(","):
            yield from _left(
                mount / "memory",
                path,
                limit="memory.limit_in_bytes",
                usage="memory.usage_in_bytes",
                reclaimable="total_inactive_file",
            )


def _left(
    mount: Path, path: str, limit: str, usage: str, reclaimable: str
) -> Iterator[int]:
    """What a control group and those above it have left; the kernel gives back what it merely caches."""
    folder = mount / path.strip("/")
    for group in (folder, *folder.parents):
        if not group.is_relative_to(mount):
            return
        allowed = _first_line(group / limit)
        used = _first_line(group / usage)
        # A group without a limit says "max"
        if not (allowed.isdecimal() and used.isdecimal()):
            continue
        cached = _statistic(group, reclaimable)
        yield int(allowed) - int(used) + cached


def _statistic(group: Path, name: str) -> int:
    """One line of a control group's memory.stat; 0 if it is not there."""
    for line in _lines(group / "memory.stat"):
        if line.startswith(f"{name} "):
            value = line.split()[1]
            return int(value)
    return 0


def _first_line(path: Path) -> str:
    lines = _lines(path)
    if lines:
        return lines[0]
    return ""


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return []
    return text.splitlines()


@contextmanager
def explain_out_of_memory() -> Iterator[None]:
    """Inside, memory that runs out all the same ends the run with a `RunError` that says what to change."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        raise RunError(
            "the memory did not suffice: lower participation.active or local.batch_size, choose a smaller model, or "
            "use fewer workers"
        ) from error


def _is_out_of_memory(error: Exception) -> bool:
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError):
        return True
    text = str(error)
    return any(words in text for words in CPU_OUT_OF_MEMORY)
