"""How much memory this machine has left for a run, and a sentence where it runs out all the same."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedlama.base import RunError

OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "Cannot allocate memory", "out of memory")


def available_memory(root: Path = Path("/")) -> int | None:
    """Bytes that this process and its workers can still get: of the machine, its container, and its own limits."""
    known = [_of_machine(root), _of_own_limit(root), *_of_groups(root)]
    return min((max(0, one) for one in known if one is not None), default=None)


def _of_machine(root: Path) -> int | None:
    for line in _lines(root / "proc/meminfo"):
        if line.startswith("MemAvailable:"):
            return 1024 * int(line.split()[1])
    return None


def _of_own_limit(root: Path) -> int | None:
    """`ulimit -v` holds for each process; the others fork from this one, so what it has used they have used."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return None
    pages = next(iter(_lines(root / "proc/self/statm")), "0").split()[0]
    return limit - int(pages) * resource.getpagesize()


def _of_groups(root: Path) -> Iterator[int]:
    """Control groups, of both versions: the one of this process and those above it."""
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield from _left(root / "sys/fs/cgroup", path, "memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            yield from _left(root / "sys/fs/cgroup/memory", path, *names)


def _left(mount: Path, path: str, limit: str, usage: str, reclaimable: str) -> Iterator[int]:
    folder = mount / path.strip("/")
    for one in (folder, *folder.parents):
        if not one.is_relative_to(mount):
            return
        most, used = (next(iter(_lines(one / name)), "") for name in (limit, usage))
        if most.isdecimal() and used.isdecimal():
            caches = [
                int(line.split()[1]) for line in _lines(one / "memory.stat") if line.startswith(f"{reclaimable} ")
            ]
            yield int(most) - int(used) + sum(caches)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []


@contextmanager
def telling_of_memory() -> Iterator[None]:
    """Inside, memory that runs out all the same ends the run with a sentence."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not any(words in str(error) for words in OUT_OF_MEMORY):
            raise
        raise RunError(
            "the memory did not suffice: lower participation.active or local.batch_size, choose a smaller model, or "
            "use fewer workers"
        ) from error
