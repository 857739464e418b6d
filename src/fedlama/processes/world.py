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

from fedlama.base import RunError
from fedlama.processes.devices import is_on_gpu
from fedlama.processes.hosts import HostPlace, silence_allowed, watched


class World:
    """One process, alone: every sum is complete already."""

    rank = 0
    size = 1
    # Whether all processes were forked from one, and see the same open files
    shares_files = True

    def sum_(self, values: Tensor) -> None:
        """Add `values` up over all processes, in place."""

    def max_(self, values: Tensor) -> None:
        """Take the maximum of `values` over all processes, in place."""

    def meet(self) -> None:
        """Return when every process has come here."""
        # No sum is complete before everyone has taken part
        self.sum_(torch.zeros(1))

    def from_first(self, content: bytes) -> bytes:
        """What rank 0 has, everywhere."""
        length = torch.zeros(1, dtype=torch.int64)
        if self.rank == 0:
            length[0] = len(content)
        self.sum_(length)

        sent = torch.zeros(int(length), dtype=torch.uint8)
        if self.rank == 0 and content:
            # A bytearray, because torch warns of memory that cannot be written to
            writable = bytearray(content)
            own = torch.frombuffer(writable, dtype=torch.uint8)
            sent.copy_(own)
        # The others have zeros
        self.max_(sent)
        return sent.numpy().tobytes()

    def share(self, costs: Sequence[float], together: int = 1) -> list[int]:
        """Which of these jobs are this process's: the costliest first, each to the process with the least to do.

        Arguments:
            costs: of each job.
            together: how many jobs a process works on at once; they are dealt so many at a time.
        """
        jobs = range(len(costs))
        costliest_first = sorted(jobs, key=lambda job: -costs[job])
        loads = [0.0] * self.size
        mine: list[int] = []
        for start in range(0, len(costs), together):
            some_jobs = costliest_first[start : start + together]
            cost = sum(costs[job] for job in some_jobs)
            lightest = min(loads)
            # The first of several: all processes must come to the same
            least_loaded = loads.index(lightest)
            loads[least_loaded] += cost
            if least_loaded == self.rank:
                mine += some_jobs
        return sorted(mine)

    def device(self, name: str) -> torch.device:
        """Where this process computes: "auto" is a GPU where there is one."""
        if not is_on_gpu(name):
            if name == "auto":
                name = "cpu"
            return torch.device(name)
        names_one = name != "auto" and torch.device(name).index is not None
        if names_one:
            return torch.device(name)
        if self.size == 1:
            return torch.device("cuda")
        # A launcher may show each of its processes one GPU only: then that is number 0 in all of them
        number = self.local_rank % torch.cuda.device_count()
        return torch.device("cuda", number)

    @property
    def local_rank(self) -> int:
        """The number of this process on its machine."""
        return self.rank


class LostConnectionError(RuntimeError):
    """A collective came to nothing because another process ended or was cut off."""


class DistributedWorld(World):
    """One of several processes in a torch.distributed group."""

    shares_files = False

    def __init__(self, rank: int, size: int, local_rank: int | None = None) -> None:
        self.rank = rank
        self.size = size
        if local_rank is None:
            local_rank = rank
        self._local_rank = local_rank

    @property
    def local_rank(self) -> int:
        """The number of this process on its machine."""
        return self._local_rank

    def sum_(self, values: Tensor) -> None:
        """Add `values` up over all processes, in place."""
        with _collective():
            dist.all_reduce(values)

    def max_(self, values: Tensor) -> None:
        """Take the maximum of `values` over all processes, in place."""
        with _collective():
            dist.all_reduce(values, op=dist.ReduceOp.MAX)


@contextmanager
def _collective() -> Iterator[None]:
    """Give a lost connection a type: torch has some for that, but gloo's errors have none.

    Only here is a text about gloo gloo's own: elsewhere it may be of a module of the user's.
    """
    try:
        yield
    except RuntimeError as error:
        text = str(error)
        if not isinstance(error, dist.DistError) and "gloo" not in text:
            raise
        raise LostConnectionError(text) from error


def has_process_group() -> bool:
    """Whether the caller's program has made a process group of its own."""
    return dist.is_initialized()


def launched_by_torchrun(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether torchrun (or a launcher that sets the same variables) started this process as one of a group."""
    processes = int(environment.get("WORLD_SIZE", "1"))
    has_run_id = "TORCHELASTIC_RUN_ID" in environment
    return has_run_id and processes > 1


def torchrun_rank(environment: Mapping[str, str] = os.environ) -> int:
    """This process's rank under torchrun; 0 without it."""
    if not launched_by_torchrun(environment):
        return 0
    return int(environment["RANK"])


def torchrun_restarts(environment: Mapping[str, str] = os.environ) -> int:
    """How often torchrun has already restarted this group."""
    if not launched_by_torchrun(environment):
        return 0
    return int(environment.get("TORCHELASTIC_RESTART_COUNT", "0"))


@contextmanager
def torchrun_world(backend: str) -> Iterator[World]:
    """The group that torchrun describes in the environment, or the one that the caller's program has already made."""
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if dist.is_initialized():
        yield DistributedWorld(dist.get_rank(), dist.get_world_size(), local_rank)
        return
    rank = int(os.environ["RANK"])
    size = int(os.environ["WORLD_SIZE"])
    silence = silence_allowed()
    dist.init_process_group(backend, store=_meeting_point(), rank=rank, world_size=size)
    try:
        with watched(_meeting_point, HostPlace.from_environment(), silence):
            yield DistributedWorld(rank, size, local_rank)
    except (LostConnectionError, dist.DistError) as error:
        raise RunError(
            f"rank {rank} of {size} lost its connection to another process, which ended or was cut off: the run stops "
            f"here; with --resume it goes on from its last checkpoint"
        ) from error
    finally:
        dist.destroy_process_group()


def _meeting_point() -> dist.Store:
    """A connection to the store at which torchrun's processes met."""
    address = os.environ["MASTER_ADDR"]
    port = int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(address, port, is_master=False)
    # A group that torchrun restarts meets in the same store as before; under another name it finds nothing stale
    restarts = torchrun_restarts()
    return dist.PrefixStore(f"fedlama/{restarts}", store)


@contextmanager
def local_world(
    rank: int, size: int, meeting_point: Path, backend: str
) -> Iterator[World]:
    """Join `size` processes of this machine that meet at a file."""
    # The host's own name may not resolve to an address; loopback always does
    if sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = dist.FileStore(str(meeting_point), size)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size)
    try:
        yield DistributedWorld(rank, size)
    finally:
        dist.destroy_process_group()
