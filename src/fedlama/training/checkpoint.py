"""What a run needs to go on, and when to save it.

At a cycle's end every layer has just been averaged and whoever was excluded is back, so a run is its server's state,
what rules and codecs keep of clients, and who was given up in this window. Draws need nothing: they are functions of
the seed and the step. A checkpoint is one safetensors file with the plain values as JSON in its header. Slots are saved
and restored by their names alone.
"""

from __future__ import annotations

import ctypes
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from multiprocessing import RawValue
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save

from fedlama.base import InputError, reason
from fedlama.core import Ledger, Message, PolicyState
from fedlama.core.saved import check_saved
from fedlama.training.checkpoint_file import (
    arrays_of,
    message_of,
    metadata_of,
    rows_at,
    whole,
)
from fedlama.training.faults import Discarded
from fedlama.training.records import Record

STATE_KEY = "fedlama"

# Where a slot's rows are in the file: of the server, of the cohort inside a window, and of all clients seen
SERVER = "server/"
COHORT = "cohort/"
SEEN = "seen/"

Rows = Mapping[str, NDArray[np.float32]]

# Raises InputError for the content of a checkpoint that a run cannot go on from; the round that it is of
Check = Callable[[bytes], int]


@dataclass(frozen=True, kw_only=True)
class Shapes:
    """What a checkpoint must fit.

    Arguments:
        width: How many numbers a row has.
        counter_width: How many numbers the whole-number buffers have.
        server_slots: The names of the server's slots.
        cohort_slots: The names of the slots of the clients in a window.
        seen_slots: The names of slots of lifetime "run".
        cohort: How many clients train at a time.
        clients: How many there are.
    """

    width: int
    counter_width: int
    server_slots: tuple[str, ...] = ()
    cohort_slots: tuple[str, ...] = ()
    seen_slots: tuple[str, ...] = ()
    cohort: int = 0
    clients: int = 0


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A run at a cycle's end, or where a round waits for new clients.

    Arguments:
        state: Where the policy stands.
        ledger: Aggregations and bytes so far.
        broadcast: What a client that stays downloads next.
        row: The global model.
        counters: Its whole-number buffers.
        server_slots: What rules and codecs keep on the server.
        cohort_slots: What they keep of the clients of a window; none at a window's end.
        seen: Clients with state that outlives a window, in ascending order.
        seen_slots: That state, [seen, width] for each name.
        attempt: How many cohorts of this window were given up.
        discarded: What those leave to a round that is still to be repeated.
    """

    state: PolicyState
    ledger: Ledger
    broadcast: Message
    row: NDArray[np.float32]
    counters: NDArray[np.int64]
    server_slots: Rows = field(default_factory=dict[str, NDArray[np.float32]])
    cohort_slots: Rows = field(default_factory=dict[str, NDArray[np.float32]])
    seen: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    seen_slots: Rows = field(default_factory=dict[str, NDArray[np.float32]])
    attempt: int = 0
    discarded: Discarded | None = None

    def encode(self) -> bytes:
        """As the content of a file."""
        broadcast: dict[str, int] = {}
        for layer, weight in self.broadcast.layers.items():
            broadcast[str(layer)] = weight
        plain: dict[str, Any] = {
            "state": asdict(self.state),
            "ledger": asdict(self.ledger),
            "broadcast": {
                "layers": broadcast,
                "statistics": self.broadcast.statistics,
            },
            "attempt": self.attempt,
            "discarded": None,
        }
        if self.discarded is not None:
            plain["discarded"] = asdict(self.discarded)
        metadata = {STATE_KEY: json.dumps(plain, allow_nan=False)}

        filled: dict[str, NDArray[Any]] = {}
        for name, values in self._tensors().items():
            if values.size:
                filled[name] = np.ascontiguousarray(values)
        return save(filled, metadata)

    def _tensors(self) -> dict[str, NDArray[Any]]:
        """All rows by the names that they have in the file."""
        tensors: dict[str, NDArray[Any]] = {
            "row": self.row,
            "counters": self.counters,
            "seen": self.seen,
        }
        slots = {
            SERVER: self.server_slots,
            COHORT: self.cohort_slots,
            SEEN: self.seen_slots,
        }
        for place, rows in slots.items():
            for name, values in rows.items():
                tensors[place + name] = values
        return tensors

    @staticmethod
    def decode(content: bytes, shapes: Shapes) -> Checkpoint:
        """From a file's content; anything that does not fit the run is refused."""
        try:
            plain = json.loads(metadata_of(content)[STATE_KEY])
            check_saved(plain["state"], plain["ledger"])
            tensors = arrays_of(content)
            checkpoint = Checkpoint(
                state=PolicyState.from_plain(plain["state"]),
                ledger=Ledger.from_plain(plain["ledger"]),
                broadcast=message_of(
                    plain["broadcast"],
                    layers=len(plain["ledger"]["sizes"]),
                ),
                row=tensors["row"],
                counters=tensors.get("counters", np.zeros(0, np.int64)),
                server_slots=rows_at(SERVER, tensors),
                cohort_slots=rows_at(COHORT, tensors),
                seen=tensors.get("seen", np.zeros(0, np.int64)),
                seen_slots=rows_at(SEEN, tensors),
                attempt=whole(plain["attempt"]),
                discarded=Discarded.from_plain(plain["discarded"]),
            )
        except (
            SafetensorError,
            ArithmeticError,
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            RecursionError,
        ) as error:
            raise InputError(f"it is not a checkpoint ({reason(error)})") from None
        if not _fits(checkpoint, shapes):
            raise InputError("it does not fit the model")
        return checkpoint


def _fits(saved: Checkpoint, shapes: Shapes) -> bool:
    """Whether every tensor has the shape and type that the run needs, and holds numbers."""
    width = shapes.width
    if not _is_finite(saved.row, (width,)):
        return False
    counters = saved.counters
    if counters.shape != (shapes.counter_width,) or counters.dtype != np.int64:
        return False
    if not _holds(saved.server_slots, shapes.server_slots, (width,)):
        return False
    if saved.cohort_slots:
        of_cohort = (shapes.cohort, width)
        if not _holds(saved.cohort_slots, shapes.cohort_slots, of_cohort):
            return False
    if not _are_clients(saved.seen, shapes.clients):
        return False
    seen = len(saved.seen)
    if not seen:
        return True
    return _holds(saved.seen_slots, shapes.seen_slots, (seen, width))


def _are_clients(numbers: NDArray[Any], clients: int) -> bool:
    """Whether these are numbers of clients, in ascending order."""
    if numbers.dtype != np.int64 or numbers.ndim != 1:
        return False
    if not len(numbers):
        return True
    gaps = np.diff(numbers)
    is_ascending = bool((gaps > 0).all())
    lowest = numbers[0]
    highest = numbers[-1]
    return is_ascending and lowest >= 0 and highest < clients


def _holds(rows: Rows, names: tuple[str, ...], shape: tuple[int, ...]) -> bool:
    """Whether there are rows of this shape, all finite, for each of these names and no other."""
    if sorted(rows) != sorted(names):
        return False
    return all(_is_finite(values, shape) for values in rows.values())


def _is_finite(values: NDArray[Any], shape: tuple[int, ...]) -> bool:
    if values.shape != shape:
        return False
    if values.dtype != np.float32:
        return False
    return bool(np.isfinite(values).all())


class Control:
    """Asked at every cycle's end whether to save and whether to stop; the answer may be given from another process.

    Arguments:
        save_every_seconds: How often to save (default: only when the run is stopped).
    """

    def __init__(self, save_every_seconds: float | None = None) -> None:
        self._every = save_every_seconds
        self._latest = time.monotonic()
        # Save only where no slots of a cohort are to be kept: they may not fit into memory
        self.between_windows = False
        # In shared memory: forked workers see what the parent sets
        self._stop = RawValue(ctypes.c_bool, False)

    def request_stop(self) -> None:
        """Finish the cycle, save and stop."""
        self._stop.value = True

    def wishes(self) -> tuple[bool, bool]:
        """(save, stop), as this process sees it."""
        stop = self._stop.value
        save = stop
        if self._every is not None:
            now = time.monotonic()
            seconds_since_last = now - self._latest
            if seconds_since_last >= self._every:
                self._latest = now
                save = True
        return save, stop


@dataclass
class Checkpointing:
    """What a caller of `simulate` who keeps checkpoints hands over, and where a resumed run starts.

    Arguments:
        control: Says when to save and when to stop.
        on_checkpoint: Called with a file's content, and with where the policy stood.
        resume: Such a content, to go on from; empty to start anew.
        earlier: The records before it.
        find: In place of both, for a caller with several to choose from: it is handed a check, which raises InputError
            for a content that the run cannot go on from, and returns the newest content that passes, or none, with its
            records.
    """

    control: Control
    on_checkpoint: Callable[[bytes, PolicyState], None]
    resume: bytes = b""
    earlier: list[Record] = field(default_factory=list)
    find: Callable[[Check], tuple[bytes, list[Record]]] | None = None
