"""The clients of a window: who they are, and the rows that this process holds for its share of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedlama.local import steps_per_interval, steps_taken
from fedlama.processes.world import World
from fedlama.rows import Binding, ClientStore, Slot
from fedlama.training.job import Job
from fedlama.training.position import Position


@dataclass(kw_only=True)
class Cohort:
    """The clients of one window.

    A client that is absent stays in its place with weight zero, and its row is the server's: zero times a finite number
    adds nothing, so averages and distances need no second code path. (Zero times NaN would be NaN.)

    Arguments:
        clients: Who they are, by number.
        counts: What each weighs, before the weights are made to add up to one.
        mine: This process's share of them, as indices into `clients`.
        rows: Their models, [mine, width].
        slots: What rules and codecs keep for each of them, [mine, width] for each name.
        counters: Their whole-number buffers, [mine, counters].
        paces: How many steps each client takes per base interval; None for each of them.
        entered: The global step before which the cohort came.
        absent: Indices of those who take no part before the next cycle.
    """

    clients: list[int]
    counts: list[int]
    mine: list[int]
    rows: Tensor
    slots: dict[str, Tensor]
    counters: Tensor
    paces: list[int | None]
    entered: int
    absent: set[int] = field(default_factory=set[int])

    def weights(self) -> list[float]:
        """Those of an average over the clients that are present; the others weigh nothing."""
        counts = list(self.counts)
        for index in self.absent:
            counts[index] = 0
        total = sum(counts)
        # Nobody is left: then nothing will be averaged
        if not total:
            return [0.0] * len(counts)
        return [count / total for count in counts]

    @property
    def present(self) -> int:
        """How many clients are present."""
        return len(self.clients) - len(self.absent)

    def present_here(self) -> list[int]:
        """Which of this process's rows are of clients that are present."""
        row_indices: list[int] = []
        for row_index, index in enumerate(self.mine):
            if index not in self.absent:
                row_indices.append(row_index)
        return row_indices

    def local_steps(self, steps: range, base_interval: int) -> list[range]:
        """The steps that each client of this process takes itself in these global ones."""
        local_steps: list[range] = []
        for index in self.mine:
            own_steps = steps_taken(
                self.paces[index],
                base_interval,
                steps,
            )
            local_steps.append(own_steps)
        return local_steps

    def trained_parts(self, block: int) -> Iterator[slice]:
        """Which of this process's rows to train: all in one go, or without the absent where clients go one by one.

        In a stack the absent are trained along: it is always as high, and a row does not feel its neighbours.
        """
        start = 0
        end = len(self.mine)
        for row_index, index in enumerate(self.mine):
            left_out = block == 1 and index in self.absent
            if not left_out:
                continue
            # What lies between the last absent client and this one
            if start < row_index:
                yield slice(start, row_index)
            start = row_index + 1
        if start < end:
            yield slice(start, end)


class Cohorts:
    """Draws cohorts, and keeps what outlives them.

    Arguments:
        job: The run.
        binding: The module at work in this process.
        world: The processes that share the run.
        slots: What rules and codecs keep for each client.
        store: Where slots of lifetime "run" are kept between two windows of a client.
        block: How many clients a process trains at a time.
    """

    def __init__(
        self,
        job: Job,
        binding: Binding,
        world: World,
        *,
        slots: tuple[Slot, ...],
        store: ClientStore | None,
        block: int,
    ) -> None:
        self.job = job
        self.binding = binding
        self.world = world
        self.slots = slots
        self.store = store
        self.block = block
        self._current: Cohort | None = None
        self._restored: Mapping[str, Tensor] | None = None

    def restore(self, slots: Mapping[str, Tensor]) -> None:
        """The next cohort is one that a checkpoint interrupted, with these slots, [clients, width] for each name."""
        self._restored = slots

    def enters(self, position: Position) -> bool:
        """Whether new clients come before the next round."""
        return position.brings_clients(self.job.window_steps)

    def at(self, position: Position) -> Cohort:
        """The clients of the next round."""
        if self._current is None or self.enters(position):
            self._current = self._enter(position)
        return self._current

    def leave(self, cohort: Cohort) -> None:
        """At a window's end: keep the slots that outlive it."""
        if self.store is None:
            return
        if self.world.shares_files:
            for row_index, index in enumerate(cohort.mine):
                kept = self._kept(cohort.slots, row_index)
                self.store.save(cohort.clients[index], kept)
        else:
            # Every process has a store of its own, and any of them may train this client next.
            everywhere = self.gather(cohort)
            for index, client in enumerate(cohort.clients):
                kept = self._kept(everywhere, index)
                self.store.save(client, kept)

        # Another process may train this client next, so it must not read before all have written.
        self.world.meet()

    def _kept(self, slots: Mapping[str, Tensor], row_index: int) -> dict[str, Tensor]:
        """A client's rows of the slots that outlive a window."""
        assert self.store is not None
        rows: dict[str, Tensor] = {}
        for name in self.store.names:
            of_all = slots[name]
            rows[name] = of_all[row_index]
        return rows

    def reset_absent(self, cohort: Cohort, position: Position) -> None:
        """Who is absent comes back as if new: with the server's row and what was kept of it before this window."""
        for row_index, index in enumerate(cohort.mine):
            if index not in cohort.absent:
                continue
            cohort.rows[row_index] = position.row
            cohort.counters[row_index] = position.counters
            self._start_slots(cohort, row_index)

    def gather(self, cohort: Cohort) -> dict[str, Tensor]:
        """The slots of all clients of the cohort, [clients, width] for each name, in every process."""
        clients = len(cohort.clients)
        gathered: dict[str, Tensor] = {}
        for name, here in cohort.slots.items():
            _, width = here.shape
            everywhere = here.new_zeros(clients, width)
            everywhere[cohort.mine] = here
            self.world.sum_(everywhere)
            gathered[name] = everywhere
        return gathered

    def _enter(self, position: Position) -> Cohort:
        """Draw the clients of a window and set their rows to the global row."""
        job = self.job
        window = position.step // job.window_steps
        clients = job.participation.cohort(
            len(job.shards),
            job.options.seed,
            window,
            position.attempt,
        )
        samples = [job.shards.size_of(client) for client in clients]
        counts = [1] * len(clients)
        if job.options.weights == "samples":
            counts = samples
        # A step takes as long as its batch is large.
        costs = [min(count, job.local.batch_size) for count in samples]
        mine = self.world.share(costs, together=self.block)

        rows, slots, counters = self._storage(len(mine))
        rows.copy_(position.row)
        counters.copy_(position.counters)
        cohort = Cohort(
            clients=clients,
            counts=counts,
            mine=mine,
            rows=rows,
            slots=slots,
            counters=counters,
            paces=self._paces(clients, samples, window),
            entered=position.step,
        )
        for row_index in range(len(mine)):
            self._start_slots(cohort, row_index)
        if self._restored is not None:
            # This cohort did not come anew: it had begun its window before the run was interrupted
            for name, values in self._restored.items():
                cohort.slots[name].copy_(values[mine])
            self._restored = None
        return cohort

    def _paces(
        self, clients: list[int], samples: list[int], window: int
    ) -> list[int | None]:
        local = self.job.local
        paces: list[int | None] = []
        for client, count in zip(clients, samples, strict=True):
            pace = steps_per_interval(
                local.steps,
                samples=count,
                batch_size=local.batch_size,
                seed=self.job.options.seed,
                window=window,
                client=client,
            )
            paces.append(pace)
        return paces

    def _start_slots(self, cohort: Cohort, row_index: int) -> None:
        """What a client has as it enters: zeros, and what was kept of it."""
        for values in cohort.slots.values():
            values[row_index] = 0
        if self.store is None:
            return
        index = cohort.mine[row_index]
        client = cohort.clients[index]
        kept = self._kept(cohort.slots, row_index)
        self.store.load(client, kept)

    def _storage(self, size: int) -> tuple[Tensor, dict[str, Tensor], Tensor]:
        """Tensors for the rows of so many clients: those of the cohort before where they fit."""
        # The rows are most of what a run needs: two cohorts at a time might not fit into memory
        last = self._current
        if last is not None and len(last.mine) == size:
            return last.rows, last.slots, last.counters

        binding = self.binding
        rows = binding.new_rows(size)
        slots: dict[str, Tensor] = {}
        for slot in self.slots:
            slots[slot.name] = binding.new_rows(size)
        counters = torch.empty(
            size,
            binding.counter_width,
            dtype=torch.int64,
            device=binding.device,
        )
        return rows, slots, counters
