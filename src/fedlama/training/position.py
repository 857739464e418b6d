"""Position: where a run stands after a round, in every runtime."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from fedlama.core import Policy, PolicyState
from fedlama.server import ServerState
from fedlama.server.exclusions import Attempts, Exclusion, entries_of_all


@dataclass(frozen=True)
class Position:
    """Where a run stands after a round.

    Arguments:
        server: The server's state.
        counters: The whole-number buffers of the global model.
        attempt: How many cohorts of this window were given up.
        discarded: What attempts at this round leave behind; None where it is tried for the first time.
    """

    server: ServerState
    counters: Tensor
    attempt: int = 0
    discarded: Attempts | None = None

    @property
    def step(self) -> int:
        """Global steps taken so far."""
        return self.server.step

    @property
    def state(self) -> PolicyState:
        """Where the policy stands."""
        return self.server.policy

    @property
    def row(self) -> Tensor:
        """The global model."""
        return self.server.row

    def relative_cost(self, policy: Policy) -> float:
        """C so far (Eq. 5), relative to averaging everything every base interval.

        Arguments:
            policy: The run's.
        """
        ledger = self.server.ledger
        return ledger.relative_cost(self.step, policy.base_interval)

    def uplink_share(self, policy: Policy, clients: int) -> float:
        """Uplink bytes so far, divided by those of uncompressed FedAvg at the base interval.

        Arguments:
            policy: The run's.
            clients: How many train at a time.
        """
        ledger = self.server.ledger
        return ledger.uplink_share(self.step, policy.base_interval, clients=clients)

    def brings_clients(self, window_steps: int) -> bool:
        """Whether new clients come before the next round: at a window's start, or where the last ones were given up.

        Arguments:
            window_steps: How many steps a cohort stays.
        """
        at_window_start = self.step % window_steps == 0
        were_given_up = self.discarded is not None
        return at_window_start or were_given_up

    def closed(
        self, server: ServerState, counters: Tensor, *, window_ends: bool
    ) -> Position:
        """Where the run stands after the next round, if that counts.

        Arguments:
            server: The server's state then.
            counters: The whole-number buffers then.
            window_ends: Whether the cohort leaves; attempts are counted per window.
        """
        attempt = self.attempt
        if window_ends:
            attempt = 0
        return Position(server, counters, attempt)

    def given_up(
        self,
        server: ServerState,
        excluded: Sequence[Exclusion],
        present: Iterable[int],
    ) -> Position:
        """Where the run stands after an attempt at the next round that came to nothing.

        Arguments:
            server: The server's state then, as `Server.discard` gives it.
            excluded: Who was excluded in this attempt.
            present: The other clients of the cohort.
        """
        entries = entries_of_all(excluded, present, self.attempt)
        discarded = self._attempts_with(entries, server)
        return replace(
            self,
            server=server,
            attempt=self.attempt + 1,
            discarded=discarded,
        )

    def attempts_until(
        self, after: Position, excluded: Sequence[Exclusion]
    ) -> Attempts:
        """All attempts at a round that counts: those that came to nothing belong to it, also those before a resume.

        Arguments:
            after: Where the run stands after the last attempt, which began here.
            excluded: Who was excluded in that.
        """
        return self._attempts_with(excluded, after.server)

    def _attempts_with(
        self, entries: Sequence[Exclusion], after: ServerState
    ) -> Attempts:
        earlier = self.discarded or Attempts()
        return earlier.extended(
            entries,
            before=self.server.ledger,
            after=after.ledger,
        )

    def on_cpu(self) -> Position:
        """The same position as tensors in main memory."""
        slots: dict[str, Tensor] = {}
        for name, values in self.server.slots.items():
            slots[name] = _on_cpu(values)
        server = replace(
            self.server,
            row=_on_cpu(self.row),
            slots=slots,
        )
        return replace(
            self,
            server=server,
            counters=_on_cpu(self.counters),
        )

    def as_arrays(self) -> Position:
        """With numpy arrays in place of tensors: those travel between processes as plain bytes."""
        slots = {name: values.numpy() for name, values in self.server.slots.items()}
        server = replace(
            self.server,
            row=self.row.numpy(),
            slots=slots,
        )
        return replace(
            self,
            server=server,
            counters=self.counters.numpy(),
        )


def _on_cpu(values: Tensor | NDArray[Any]) -> Tensor:
    """Nothing is copied of what is in main memory already."""
    return torch.as_tensor(values).cpu()
