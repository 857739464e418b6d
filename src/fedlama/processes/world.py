"""The processes that share a simulation. Nothing else knows that there may be several.

Every collective is one that cannot depend on the number of processes: sums of numbers that add exactly (a value and
zeros, or multiples of one grid) and maxima.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor


class World:
    """One process, alone: every sum is complete already."""

    rank = 0
    size = 1
    shares_files = True  # whether all processes were forked from one, and see the same open files

    def sum_(self, values: Tensor) -> None:
        """Add `values` up over all processes, in place."""

    def max_(self, values: Tensor) -> None:
        """Take the maximum of `values` over all processes, in place."""

    def meet(self) -> None:
        """Return when every process has come here."""
        self.sum_(torch.zeros(1))

    def from_first(self, content: bytes) -> bytes:
        """What rank 0 has, everywhere."""
        length = torch.tensor([len(content) if self.rank == 0 else 0])
        self.sum_(length)
        sent = torch.zeros(int(length), dtype=torch.uint8)
        if self.rank == 0 and content:
            sent.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
        self.max_(sent)
        return sent.numpy().tobytes()

    def share(self, costs: Sequence[float], together: int = 1) -> list[int]:
        """Which of these jobs are this process's: the costliest first, each to whoever has least to do.

        Jobs are dealt `together` at a time where a process works on so many at once.
        """
        loads = [0.0] * self.size
        mine: list[int] = []
        dearest = sorted(range(len(costs)), key=lambda job: -costs[job])
        for start in range(0, len(dearest), together):
            jobs = dearest[start : start + together]
            idlest = loads.index(min(loads))
            loads[idlest] += sum(costs[job] for job in jobs)
            if idlest == self.rank:
                mine += jobs
        return sorted(mine)

    def device(self, name: str) -> torch.device:
        """Where this process computes: "auto" is a GPU where there is one."""
        if name == "auto":
            name = "cuda" if torch.cuda.is_available() else "cpu"
        if name == "cuda" and self.size > 1:
            name = f"cuda:{self.local_rank % torch.cuda.device_count()}"
        return torch.device(name)

    @property
    def local_rank(self) -> int:
        """The number of this process on its machine."""
        return self.rank


class Group(World):
    """One of several processes in a torch.distributed group."""

    shares_files = False

    def __init__(self, rank: int, size: int, local_rank: int | None = None) -> None:
        self.rank, self.size = rank, size
        self._local_rank = rank if local_rank is None else local_rank

    @property
    def local_rank(self) -> int:
        """The number of this process on its machine."""
        return self._local_rank

    def sum_(self, values: Tensor) -> None:
        """Add `values` up over all processes, in place."""
        dist.all_reduce(values)

    def max_(self, values: Tensor) -> None:
        """Take the maximum of `values` over all processes, in place."""
        dist.all_reduce(values, op=dist.ReduceOp.MAX)


def has_process_group() -> bool:
    """Whether the caller's program has made a process group of its own."""
    return dist.is_initialized()


def launched_by_torchrun(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether torchrun (or a launcher that sets the same variables) started this process as one of a group."""
    return "TORCHELASTIC_RUN_ID" in environment and int(environment.get("WORLD_SIZE", "1")) > 1


def torchrun_rank(environment: Mapping[str, str] = os.environ) -> int:
    """This process's rank under torchrun; 0 without it."""
    return int(environment["RANK"]) if launched_by_torchrun(environment) else 0


def torchrun_restarts(environment: Mapping[str, str] = os.environ) -> int:
    """How often torchrun has already restarted this group."""
    return int(environment.get("TORCHELASTIC_RESTART_COUNT", "0")) if launched_by_torchrun(environment) else 0


@contextmanager
def torchrun_world(backend: str) -> Iterator[World]:
    """The group that torchrun describes in the environment, or the one that the caller's program has already made."""
    made_here = not dist.is_initialized()
    if made_here:
        # A group that torchrun restarts meets in the same store as before; under another name it finds nothing stale
        meeting = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
        store = dist.PrefixStore(f"fedlama/{torchrun_restarts()}", meeting)
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        dist.init_process_group(backend, store=store, rank=rank, world_size=size)
    try:
        yield Group(dist.get_rank(), dist.get_world_size(), int(os.environ.get("LOCAL_RANK", "0")))
    finally:
        if made_here:
            dist.destroy_process_group()


@contextmanager
def local_world(rank: int, size: int, meeting_point: Path, backend: str) -> Iterator[World]:
    """Join `size` processes of this machine that meet at a file."""
    if sys.platform == "linux":  # the host's own name may not resolve to an address; loopback always does
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = dist.FileStore(str(meeting_point), size)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size)
    try:
        yield Group(rank, size)
    finally:
        dist.destroy_process_group()


def backend_for(device: str) -> str:
    """The collectives that suit a device."""
    wants_gpu = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
    return "nccl" if wants_gpu else "gloo"
