"""Whether a run will fit into memory: what it will ask for, what there is, and a refusal with the numbers.

The estimate counts what grows with the model and the clients. Activations come on top: they depend on the module's
insides, and they are those of one batch per process.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from fedlama.base import InputError
from fedlama.core import BYTES_PER_NUMBER, Layout
from fedlama.data import Dataset
from fedlama.processes.memory import available_memory, is_in_memory
from fedlama.processes.world import launched_by_torchrun
from fedlama.rows import Slot
from fedlama.rows.store import PIECE_BYTES, default_folder
from fedlama.training.job import Job
from fedlama.training.trainers import block_of

AWAY = "slots of clients that are away, in a folder for temporary files that is itself in memory"


@dataclass(frozen=True)
class MemoryDemand:
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
        seen_clients: Clients whose slots of lifetime "run" a checkpoint holds; they are never in memory all at once.
        server_slots: Rows that the server keeps beside the model.
        stored_clients: Clients whose slots of lifetime "run" are kept in a folder that is itself in memory; of
            processes that share no files each keeps all of them.
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
    stored_clients: int = 0

    def parts(self) -> dict[str, int]:
        """What the memory is for → bytes."""
        rows_text = f"{self.clients:,} rows of {_count(self.width)} numbers"
        slot_names = ", ".join(slot.name for slot in self.slots)
        slots_text = f"their {slot_names}"
        at_work = self._at_work()
        prepared_bytes = self.processes * self.prepared_bytes
        amounts = {
            rows_text: self.clients * self._row_bytes,
            slots_text: self.clients * self._kept_bytes,
            "gradients and averaging": self.processes * at_work,
            "checkpoints": self._checkpoints(),
            AWAY: self.stored_clients * self._outliving_bytes,
            "data": self.data_bytes + prepared_bytes,
        }
        # What a run does not need is not worth a word
        return {name: amount for name, amount in amounts.items() if amount}

    @property
    def _row_bytes(self) -> int:
        return BYTES_PER_NUMBER * self.width

    @property
    def _kept_bytes(self) -> int:
        """What is kept for one client."""
        return len(self.slots) * self._row_bytes

    @property
    def _outliving_bytes(self) -> int:
        """What is kept for a client while it is away."""
        outliving = 0
        for slot in self.slots:
            if slot.lifetime == "run":
                outliving += 1
        return outliving * self._row_bytes

    def _at_work(self) -> int:
        """Bytes that a process computes in, whatever clients it has."""
        row = self._row_bytes
        # The global row and what the server keeps, before and after a round
        global_rows = 2 * (1 + self.server_slots) * row
        mean = row
        # Gradients and the mask of kernels
        of_parameters = 3 * BYTES_PER_NUMBER * self.parameter_width
        padded_stack = self.block * (row + self._kept_bytes)
        return global_rows + mean + of_parameters + padded_stack

    def _checkpoints(self) -> int:
        """Bytes that saving takes, in all processes together."""
        # Gathered in every process; then sent, received and encoded
        copies = self.processes + 3
        of_cohort = copies * self.saved_clients * self._kept_bytes

        # A piece of what is kept of clients that are away: read from the disk, packed, received and unpacked
        client_bytes = self._outliving_bytes
        piece = max(PIECE_BYTES, client_bytes)
        of_seen = 4 * min(piece, self.seen_clients * client_bytes)
        return of_cohort + of_seen

    def total(self) -> int:
        """Bytes of all parts."""
        amounts = self.parts().values()
        return sum(amounts)


def demand_of(
    job: Job, layout: Layout, *, workers: int, stacked: bool, saves: bool
) -> MemoryDemand:
    """What this run needs here, of `workers` processes or of those that torchrun started on this machine."""
    here, everywhere = local_processes(workers)
    clients = job.cohort_size
    server = job.make_server(layout)
    demand = MemoryDemand(
        clients=_rounded_up(clients * here, everywhere),
        processes=here,
        width=layout.width,
        parameter_width=layout.parameter_width,
        slots=job.client_slots,
        data_bytes=data_bytes(job.data),
        server_slots=len(server.slots),
    )
    if stacked:
        samples_as_floats = BYTES_PER_NUMBER * job.data.x_train.numel()
        demand = replace(
            demand,
            prepared_bytes=samples_as_floats,
            block=block_of(layout),
        )
    seen = _seen_clients(job, clients)
    if job.outliving_slots and is_in_memory(default_folder()):
        # Processes that torchrun started may be on several machines, and share no files.
        stores = 1
        if launched_by_torchrun():
            stores = here
        demand = replace(demand, stored_clients=stores * seen)
    if saves:
        demand = replace(demand, seen_clients=seen)
        # Cycles end inside a window, and there a run is saved
        if job.window_steps > job.policy.longest_cycle:
            demand = replace(demand, saved_clients=clients)
    return demand


def _seen_clients(job: Job, active: int) -> int:
    """At most so many clients will have been seen when the run ends."""
    windows = _rounded_up(job.options.iterations, job.window_steps)
    # If no client were drawn twice
    drawn = windows * active
    return min(len(job.shards), drawn)


def _rounded_up(amount: int, by: int) -> int:
    """The quotient of whole numbers."""
    return -(-amount // by)


def local_processes(
    workers: int, environment: Mapping[str, str] = os.environ
) -> tuple[int, int]:
    """Processes of the run on this machine, and altogether."""
    # Other launchers set the size, too, for groups of their own
    if not launched_by_torchrun(environment):
        return workers, workers
    everywhere = int(environment["WORLD_SIZE"])
    here = int(environment.get("LOCAL_WORLD_SIZE", everywhere))
    return here, everywhere


def data_bytes(data: Dataset) -> int:
    """What the samples and targets take, which are loaded already."""
    tensors = (
        data.x_train,
        data.y_train,
        data.x_test,
        data.y_test,
    )
    return sum(tensor.nbytes for tensor in tensors)


def fits(demand: MemoryDemand, available: int | None = None) -> bool:
    """Whether there is as much memory, or nobody knows how much there is."""
    here = available
    if here is None:
        here = available_memory()
    if here is None:
        return True
    # The data is loaded already
    return demand.total() <= here + demand.data_bytes


def check_memory(demand: MemoryDemand, available: int | None = None) -> None:
    """Refuse a run that will not fit, with the numbers and what to change."""
    here = available
    if here is None:
        here = available_memory()
    if here is None or fits(demand, here):
        return

    needed = human(demand.total())
    usable = human(here + demand.data_bytes)
    parts: list[str] = []
    for name, amount in demand.parts().items():
        parts.append(f"{name} {human(amount)}")
    savings = "".join(f"{slot.without}, " for slot in demand.slots if slot.without)
    if demand.stored_clients:
        savings += "let TMPDIR name a folder on a disk, "
    raise InputError(
        f"the run needs about {needed} of memory: {', '.join(parts)}; {usable} are "
        f"available: lower participation.active, {savings}choose a smaller model, or use more machines with "
        f"torchrun"
    )


def human(amount: float) -> str:
    """Bytes for people."""
    if amount >= 1e8:
        gigabytes = amount / 1e9
        return f"{gigabytes:.1f} GB"
    megabytes = amount / 1e6
    return f"{megabytes:.1f} MB"


def _count(number: int) -> str:
    if number >= 1e6:
        millions = number / 1e6
        return f"{millions:.1f} M"
    return f"{number:,}"
