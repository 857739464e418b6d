"""What one rank needs to go on: made into plain values, and taken back only where it fits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from torch import Tensor

from fedlama.averager.arguments import as_set_today
from fedlama.base import InputError, printable, shown
from fedlama.core import Ledger, PolicyState
from fedlama.core.saved import check_saved
from fedlama.local import MODEL
from fedlama.server import ServerState

# Names of rows begin with one of these, but for the anchor's
SERVER = "server/"
OWN = "own/"


@dataclass(frozen=True, kw_only=True)
class AveragerState:
    """Where an averager stands on one rank.

    Arguments:
        settings: What must be the same on all ranks, and in a state that is loaded.
        step: How often `average_parameters` was called.
        policy_state: Where the policy stands.
        ledger: Aggregations and bytes so far.
        overhead_bytes: What was handed over beside the layers.
        rows: The anchor, and what rules and codecs keep; empty where the module is all that there is.
        capacity: How long a coded message of all layers would be, by the latest one.
    """

    settings: dict[str, Any]
    step: int
    policy_state: PolicyState
    ledger: Ledger
    overhead_bytes: int
    rows: dict[str, Tensor]
    capacity: int = 0

    def of_server(self, server_state: ServerState, row: Tensor) -> ServerState:
        """Where the server goes on from here.

        Arguments:
            server_state: Where it stands now; its slots are those that were saved.
            row: The last synchronised model.
        """
        slots: dict[str, Tensor] = {}
        for name in server_state.slots:
            slots[name] = self.rows[SERVER + name]
        return replace(
            server_state,
            policy_state=self.policy_state,
            ledger=self.ledger,
            row=row,
            slots=slots,
        )

    def to_plain(self) -> dict[str, Any]:
        """Plain values, and copies of the rows where there are some."""
        plain: dict[str, Any] = {
            "settings": self.settings,
            "step": self.step,
            "state": asdict(self.policy_state),
            "ledger": asdict(self.ledger),
            "overhead_bytes": self.overhead_bytes,
        }
        if self.rows:
            # Copies, since a state that was saved must not change with the training that goes on.
            copies: dict[str, Tensor] = {}
            for name, row in self.rows.items():
                copies[name] = row.clone()
            plain["rows"] = copies
            plain["capacity"] = self.capacity
        return plain

    @staticmethod
    def from_plain(saved: Mapping[str, Any], here: AveragerState) -> AveragerState:
        """Back from `to_plain`; InputError where it does not fit.

        Arguments:
            saved: What `to_plain` gave, now or in another process.
            here: The state of the averager that is to go on from it.
        """
        try:
            check_saved(saved["state"], saved["ledger"])
            state = AveragerState(
                settings=as_set_today(saved["settings"]),
                step=int(saved["step"]),
                policy_state=PolicyState.from_plain(saved["state"]),
                ledger=Ledger.from_plain(saved["ledger"]),
                overhead_bytes=int(saved["overhead_bytes"]),
                rows={},
                capacity=int(saved.get("capacity", 0)),
            )
        except (
            KeyError,
            TypeError,
            ValueError,
            AttributeError,
            OverflowError,
        ) as error:
            raise InputError(
                f"this is not a state of a LayerwiseModelAverager ({printable(repr(error))})"
            ) from None
        _check_fits(state, here)
        return replace(state, rows=_checked_rows(saved.get("rows"), here.rows))


def kept_rows(
    server_state: ServerState, residuals: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The rows that a state names: the last synchronised model, the server's slots, and this rank's residuals.

    Arguments:
        server_state: Where the server stands.
        residuals: What this rank's code left out, by the name of its slot.
    """
    rows = {MODEL: server_state.row}
    for name, row in server_state.slots.items():
        rows[SERVER + name] = row
    for name, row in residuals.items():
        rows[OWN + name] = row
    return rows


def _check_fits(state: AveragerState, here: AveragerState) -> None:
    sizes = here.ledger.sizes
    intervals = state.policy_state.intervals
    if state.ledger.sizes != sizes or len(intervals) != len(sizes):
        raise InputError("this state is of another model: its layers have other sizes")
    counts = (state.step, state.overhead_bytes, state.capacity)
    if min(counts) < 0 or min(intervals) < 1:
        raise InputError(
            "this is not a state of a LayerwiseModelAverager: it counts below zero"
        )
    for name, value in here.settings.items():
        before = state.settings.get(name)
        if before != value:
            raise InputError(
                f"this state was saved with {name} = {shown(before)}, not {shown(value)}"
            )


def _checked_rows(saved: Any, here: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The rows of a state, as many, as long and as finite as this averager needs them."""
    if not here:
        return {}
    if not isinstance(saved, Mapping) or sorted(saved) != sorted(here):
        raise InputError(
            "this state has other rows than this averager keeps: its rule or codec was another one"
        )
    rows: dict[str, Tensor] = {}
    for name, like in here.items():
        row = saved[name]
        if not _fits(row, like):
            raise InputError(
                f"the row {shown(name)} of this state does not fit the module"
            )
        # Cloned, since `to` gives the same tensor where nothing has to be converted.
        rows[name] = row.to(like).clone()
    return rows


def _fits(row: object, like: Tensor) -> bool:
    if not isinstance(row, Tensor) or row.shape != like.shape:
        return False
    finite = row.isfinite()
    return bool(finite.all())
