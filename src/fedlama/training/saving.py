"""Checkpoints of a run that goes on: what they hold, and going on from one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

from fedlama.core import RoundPlan
from fedlama.core.policy_checks import check_own
from fedlama.processes.world import World
from fedlama.rows import ClientStore
from fedlama.server import ServerState
from fedlama.training.checkpoint import Checkpoint, RowsByName
from fedlama.training.checkpointing import Control
from fedlama.training.cohorts import Cohorts
from fedlama.training.participation import is_between_windows
from fedlama.training.position import Position
from fedlama.training.seen_rows import Piece, SeenRows


class Saving:
    """Saves when it is time or when it is asked for.

    Arguments:
        cohorts: What is kept of clients.
        world: The processes that share the run.
        control: Says when to save and when to stop; None if nobody keeps checkpoints.
        emit: Takes a checkpoint, and after it the rows of clients seen in pieces.
    """

    def __init__(
        self,
        cohorts: Cohorts,
        world: World,
        control: Control | None,
        emit: Callable[[Checkpoint | Piece], None],
    ) -> None:
        self.cohorts = cohorts
        self.world = world
        self.control = control
        self.emit = emit

    def after_round(self, position: Position, plan: RoundPlan) -> bool:
        """Save if any process wishes it (gathering slots takes all of them); whether to stop here."""
        if self.control is None or not plan.ends_cycle:
            return False
        job = self.cohorts.job
        at_window_end = is_between_windows(position.step, job.window_steps)
        if self.control.between_windows and not at_window_end:
            return False

        # Their clocks differ, and a process that saved alone would wait for the others for ever
        wishes = torch.tensor(
            self.control.wishes(),
            dtype=torch.float64,
            device=position.row.device,
        )
        self.world.max_(wishes)
        save, stop = wishes.bool().tolist()
        is_last = position.step >= job.options.iterations
        if save and not is_last:
            self._save(position, inside_window=not at_window_end)
        return stop

    def given_up(self, position: Position) -> None:
        """Save where a run stops for want of clients: new ones will begin there, so nothing is kept of the last."""
        if self.control is not None:
            self._save(position, inside_window=False)

    def resumed(self, saved: Checkpoint, seen_rows: Iterable[SeenRows]) -> Position:
        """Where a run goes on.

        Arguments:
            saved: The checkpoint.
            seen_rows: The rows of clients seen that belong to it, at rank 0.
        """
        device = self.cohorts.binding.device
        row = torch.from_numpy(saved.row)
        counters = torch.from_numpy(saved.counters)
        server_state = ServerState(
            policy_state=saved.policy_state,
            ledger=saved.ledger,
            row=row.to(device),
            slots=_on_device(saved.server_slots, device),
            broadcast=saved.broadcast,
        )
        if saved.cohort_slots:
            cohort_slots = _on_device(saved.cohort_slots, device)
            self.cohorts.restore(cohort_slots)
        store = self.cohorts.store
        if store is not None:
            # Forked processes share the store: rank 0 fills it, and the others wait.
            if not self.world.shares_files:
                seen_rows = self._everywhere(iter(seen_rows), store)
            for some in seen_rows:
                store.restore(some.clients, some.rows)
            self.world.meet()
        return Position(
            server_state,
            counters.to(device),
            saved.attempt,
            saved.discarded,
        )

    def _everywhere(
        self, of_first: Iterator[SeenRows], store: ClientStore
    ) -> Iterator[SeenRows]:
        """What rank 0 has read, in every process.

        Arguments:
            of_first: The pieces that it reads; empty in the other processes.
            store: Where they will be kept, which knows the names of the rows.
        """
        nobody = SeenRows(np.zeros(0, np.int64), {})
        while True:
            own = next(of_first, nobody)
            numbers = self.world.from_first(own.clients.tobytes())
            # Rank 0 has no more
            if not numbers:
                return
            clients = np.frombuffer(numbers, np.int64)
            rows: dict[str, np.ndarray] = {}
            for name in store.names:
                content = b""
                if name in own.rows:
                    content = own.rows[name].tobytes()
                content = self.world.from_first(content)
                values = np.frombuffer(content, np.float32)
                rows[name] = values.reshape(len(clients), store.width)
            yield SeenRows(clients, rows)

    def _save(self, position: Position, *, inside_window: bool) -> None:
        check_own(self.cohorts.job.policy, position.policy_state.own, saved=True)
        here = position.on_cpu()
        cohort_slots: dict[str, np.ndarray] = {}
        if inside_window:
            cohort = self.cohorts.at(position)
            for name, values in self.cohorts.gather(cohort).items():
                cohort_slots[name] = values.cpu().numpy()
        store = self.cohorts.store
        if self.world.rank != 0:
            # One process is enough to read it.
            store = None
        seen = np.zeros(0, np.int64)
        seen_slots: tuple[str, ...] = ()
        if store is not None:
            seen = store.seen()
            seen_slots = store.names
        server_slots: dict[str, np.ndarray] = {}
        for name, values in here.server_state.slots.items():
            server_slots[name] = values.numpy().copy()

        checkpoint = Checkpoint(
            policy_state=here.policy_state,
            ledger=here.server_state.ledger,
            broadcast=here.server_state.broadcast,
            row=here.row.numpy().copy(),
            counters=here.counters.numpy().copy(),
            server_slots=server_slots,
            cohort_slots=cohort_slots,
            seen=seen,
            seen_slots=seen_slots,
            attempt=here.attempt,
            discarded=here.discarded,
        )
        self.emit(checkpoint)
        if store is not None:
            # Last and in pieces, because they may be more than memory holds.
            # Nobody writes to it meanwhile: a window ends with sums in which rank 0 takes part.
            for content in store.pieces(seen):
                self.emit(Piece(content))


def _on_device(rows: RowsByName, device: torch.device) -> dict[str, Tensor]:
    """Rows of a checkpoint as tensors where the run computes."""
    tensors: dict[str, Tensor] = {}
    for name, values in rows.items():
        in_memory = torch.from_numpy(values)
        tensors[name] = in_memory.to(device)
    return tensors
