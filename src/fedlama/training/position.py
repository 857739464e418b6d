"""Position: where a run stands after a round, in every runtime."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedlama.core import Ledger, Message, Policy, PolicyState
from fedlama.server import ServerState
from fedlama.server.exclusions import Attempts, Exclusion, entries_of_all
from fedlama.training.participation import is_between_windows


@dataclass(frozen=True)
class Position:
    """Where a run stands after a round.

    Arguments:
        server_state: The server's state.
        counters: The whole-number buffers of the global model.
        attempt: How many cohorts of this window were given up.
        discarded: What attempts at this round leave behind; None where it is tried for the first time.
    """

    server_state: ServerState
    counters: Tensor
    attempt: int = 0
    discarded: Attempts | None = None

    @property
    def step(self) -> int:
        """Global steps taken so far."""
        return self.server_state.step

    @property
    def policy_state(self) -> PolicyState:
        """Where the policy stands."""
        return self.server_state.policy_state

    @property
    def row(self) -> Tensor:
        """The global model."""
        return self.server_state.row

    def relative_cost(self, policy: Policy) -> float:
        """C so far (Eq. 5), relative to averaging everything every base interval.

        Arguments:
            policy: The run's.
        """
        ledger = self.server_state.ledger
        return ledger.relative_cost(self.step, policy.base_interval)

    def uplink_share(self, policy: Policy, clients: int) -> float:
        """Uplink bytes so far, divided by those of uncompressed FedAvg at the base interval.

        Arguments:
            policy: The run's.
            clients: How many train at a time.
        """
        ledger = self.server_state.ledger
        return ledger.uplink_share(self.step, policy.base_interval, clients=clients)

    def brings_clients(self, window_steps: int) -> bool:
        """Whether new clients come before the next round: at a window's start, or where the last ones were given up.

        Arguments:
            window_steps: How many steps a cohort stays.
        """
        were_given_up = self.discarded is not None
        return were_given_up or is_between_windows(self.step, window_steps)

    def closed(
        self, server_state: ServerState, counters: Tensor, *, window_ends: bool
    ) -> Position:
        """Where the run stands after the next round, if that counts.

        Arguments:
            server_state: The server's state then.
            counters: The whole-number buffers then.
            window_ends: Whether the cohort leaves; attempts are counted per window.
        """
        attempt = self.attempt
        if window_ends:
            attempt = 0
        return Position(server_state, counters, attempt)

    def given_up(
        self,
        server_state: ServerState,
        excluded: Sequence[Exclusion],
        present: Iterable[int],
    ) -> Position:
        """Where the run stands after an attempt at the next round that came to nothing.

        Arguments:
            server_state: The server's state then, as `Server.discard` gives it.
            excluded: Who was excluded in this attempt.
            present: The other clients of the cohort.
        """
        entries = entries_of_all(excluded, present, self.attempt)
        discarded = self._attempts_with(entries, server_state)
        return replace(
            self,
            server_state=server_state,
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
        return self._attempts_with(excluded, after.server_state)

    def _attempts_with(
        self, entries: Sequence[Exclusion], after: ServerState
    ) -> Attempts:
        earlier = self.discarded or Attempts()
        return earlier.extended(
            entries,
            before=self.server_state.ledger,
            after=after.ledger,
        )

    def on_cpu(self) -> Position:
        """The same position as tensors in main memory."""
        slots: dict[str, Tensor] = {}
        for name, values in self.server_state.slots.items():
            slots[name] = values.cpu()
        server_state = replace(
            self.server_state,
            row=self.row.cpu(),
            slots=slots,
        )
        return replace(
            self,
            server_state=server_state,
            counters=self.counters.cpu(),
        )


@dataclass(frozen=True)
class PositionArrays:
    """A position with numpy's arrays in place of tensors: those travel between processes as plain bytes.

    Arguments:
        policy_state: Where the policy stands.
        ledger: Aggregations and bytes so far.
        broadcast: What a client that stays downloads next.
        row: The global model.
        slots: What rules and codecs keep on the server.
        counters: The whole-number buffers of the global model.
        attempt: How many cohorts of this window were given up.
        discarded: What attempts at this round leave behind.
    """

    policy_state: PolicyState
    ledger: Ledger
    broadcast: Message
    row: NDArray[np.float32]
    slots: Mapping[str, NDArray[np.float32]]
    counters: NDArray[np.int64]
    attempt: int
    discarded: Attempts | None

    @staticmethod
    def of(position: Position) -> PositionArrays:
        """Those of a position in main memory, without a copy.

        Arguments:
            position: Where a run stands.
        """
        server_state = position.server_state
        slots: dict[str, NDArray[np.float32]] = {}
        for name, values in server_state.slots.items():
            slots[name] = values.numpy()
        return PositionArrays(
            policy_state=server_state.policy_state,
            ledger=server_state.ledger,
            broadcast=server_state.broadcast,
            row=server_state.row.numpy(),
            slots=slots,
            counters=position.counters.numpy(),
            attempt=position.attempt,
            discarded=position.discarded,
        )

    def position(self) -> Position:
        """The position again."""
        slots: dict[str, Tensor] = {}
        for name, values in self.slots.items():
            slots[name] = torch.from_numpy(values)
        server_state = ServerState(
            policy_state=self.policy_state,
            ledger=self.ledger,
            row=torch.from_numpy(self.row),
            slots=slots,
            broadcast=self.broadcast,
        )
        return Position(
            server_state,
            torch.from_numpy(self.counters),
            self.attempt,
            self.discarded,
        )
