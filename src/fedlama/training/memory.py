"""Whether a run will fit into memory: what it will ask for, what there is, and a refusal with the numbers.

The estimate counts what grows with the model and the clients. Activations come on top: they depend on the module's
insides, and they are those of one batch per process.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from fedlama.base import InputError
from fedlama.core import Layout
from fedlama.data import Dataset
from fedlama.processes.memory import available_memory
from fedlama.rows import Slot
from fedlama.training.trainers import block_of
from fedlama.training.values import Job

FLOAT32 = 4  # bytes


@dataclass(frozen=True)
class Demand:
    """What of a run is on this machine.

    Arguments:
        clients: How many clients' rows are here.
        processes: In how many processes.
        width: Numbers per row.
        parameter_width: How many of them are parameters.
        slots: What is kept for each client.
        data_bytes: What samples and targets take.
        prepared_bytes: What stacked execution takes in each process to keep the samples as floats.
        block: Rows of a stack that is not full.
        saved_clients: Clients whose slots a checkpoint holds inside a window.
        seen_clients: Clients whose slots of lifetime "run" a checkpoint holds.
        server_slots: Rows that the server keeps beside the model.
    """

    clients: int
    processes: int
    width: int
    parameter_width: int
    slots: tuple[Slot, ...]
    data_bytes: int
    prepared_bytes: int = 0
    block: int = 0
    saved_clients: int = 0
    seen_clients: int = 0
    server_slots: int = 0

    def parts(self) -> dict[str, int]:
        """What the memory is for → bytes."""
        row = FLOAT32 * self.width
        kept = len(self.slots) * row
        blocks = self.block * (row + kept)
        # The global row and what the server keeps, before and after a round
        global_rows = 2 * (1 + self.server_slots) * row
        # The mean; gradients and the mask of kernels
        averaging = global_rows + row + 3 * FLOAT32 * self.parameter_width
        # Gathered in every process; then sent, received and encoded
        checkpoint = (self.processes + 3) * (self.saved_clients * kept)
        # Of clients that are away, read from the disk once, then sent, received and encoded
        outliving = sum(slot.lifetime == "run" for slot in self.slots)
        checkpoint += 4 * self.seen_clients * outliving * row
        names = ", ".join(slot.name for slot in self.slots)
        amounts = {
            f"{self.clients:,} rows of {_count(self.width)} numbers": self.clients
            * row,
            f"their {names}": self.clients * kept,
            "gradients and averaging": self.processes * (averaging + blocks),
            "checkpoints": checkpoint,
            "data": self.data_bytes + self.processes * self.prepared_bytes,
        }
        return {name: amount for name, amount in amounts.items() if amount}

    def total(self) -> int:
        """Bytes of all parts."""
        return sum(self.parts().values())


def demand_of(
    job: Job, layout: Layout, *, workers: int, stacked: bool, saves: bool
) -> Demand:
    """What this run needs here, of `workers` processes or of those that torchrun started on this machine."""
    here, everywhere = local_processes(workers)
    clients = job.participation.count(len(job.shards))
    demand = Demand(
        clients=-(-clients * here // everywhere),
        processes=here,
        width=layout.width,
        parameter_width=layout.parameter_width,
        slots=job.client_slots,
        data_bytes=data_bytes(job.data),
        server_slots=len(job.make_server(layout).slots),
    )
    if stacked:
        samples_as_floats = FLOAT32 * job.data.x_train.numel()
        demand = replace(
            demand, prepared_bytes=samples_as_floats, block=block_of(layout)
        )
    if saves:
        demand = replace(demand, seen_clients=_seen_clients(job, clients))
        # Cycles end inside a window, and there a run is saved
        if job.window_steps > job.policy.longest_cycle:
            demand = replace(demand, saved_clients=clients)
    return demand


def _seen_clients(job: Job, active: int) -> int:
    """At most so many clients will have been seen when the run ends."""
    windows = -(-job.iterations // job.window_steps)
    return min(len(job.shards), windows * active)


def local_processes(
    workers: int, environment: Mapping[str, str] = os.environ
) -> tuple[int, int]:
    """Processes of the run on this machine, and altogether."""
    everywhere = 1
    if "TORCHELASTIC_RUN_ID" in environment:
        everywhere = int(environment.get("WORLD_SIZE", "1"))
    if everywhere == 1:
        return workers, workers
    here = int(environment.get("LOCAL_WORLD_SIZE", everywhere))
    return here, everywhere


def data_bytes(data: Dataset) -> int:
    """What the samples and targets take, which are loaded already."""
    training = data.x_train.nbytes + data.y_train.nbytes
    testing = data.x_test.nbytes + data.y_test.nbytes
    return training + testing


def fits(demand: Demand, available: int | None = None) -> bool:
    """Whether there is as much memory, or nobody knows how much there is."""
    here = available
    if here is None:
        here = available_memory()
    # The data is loaded already
    return here is None or demand.total() <= here + demand.data_bytes


def check_memory(demand: Demand, available: int | None = None) -> None:
    """Refuse a run that will not fit, with the numbers and what to change."""
    here = available
    if here is None:
        here = available_memory()
    if here is None or fits(demand, here):
        return
    parts = ", ".join(
        f"{name} {human(amount)}" for name, amount in demand.parts().items()
    )
    savings = "".join(f"{slot.without}, " for slot in demand.slots if slot.without)
    raise InputError(
        f"the run needs about {human(demand.total())} of memory: {parts}; {human(here + demand.data_bytes)} are "
        f"available: lower participation.active, {savings}choose a smaller model, or use more machines with "
        f"torchrun"
    )


def human(amount: float) -> str:
    """Bytes for people."""
    if amount >= 1e8:
        return f"{amount / 1e9:.1f} GB"
    return f"{amount / 1e6:.1f} MB"


def _count(number: int) -> str:
    if number >= 1e6:
        return f"{number / 1e6:.1f} M"
    return f"{number:,}"
