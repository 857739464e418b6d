"""What a run needs to go on.

At a cycle's end every layer has just been averaged and whoever was excluded is back, so a run is its server's state,
what rules and codecs keep of clients, and who was given up in this window. Draws need nothing: they are functions of
the seed and the step. A checkpoint is one safetensors file with the plain values as JSON in its header. Slots are saved
and restored by their names alone. The rows of clients seen may be more than memory holds: they come last in the file,
and go there and back in pieces (`training/seen_rows.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedlama.base import InputError
from fedlama.core import Ledger, Message, PolicyState
from fedlama.core.saved import check_saved
from fedlama.server.exclusions import Attempts
from fedlama.training.checkpoint_file import (
    CheckpointSource,
    Form,
    TensorFile,
    form_of,
    header_of,
    message_of,
    opened,
    whole,
)

STATE_KEY = "fedlama"

# Where a slot's rows are in the file: of the server, of the cohort inside a window, and of the clients seen, whose
# numbers have the name CLIENTS
SERVER = "server/"
COHORT = "cohort/"
SEEN = "seen/"
CLIENTS = "seen"

RowsByName = Mapping[str, NDArray[np.float32]]


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
        policy_state: Where the policy stands.
        ledger: Aggregations and bytes so far.
        broadcast: What a client that stays downloads next.
        row: The global model.
        counters: Its whole-number buffers.
        server_slots: What rules and codecs keep on the server.
        cohort_slots: What they keep of the clients of a window; none at a window's end.
        seen: Clients with state that outlives a window, in ascending order.
        seen_slots: The names of that state, in the order in which its rows follow.
        attempt: How many cohorts of this window were given up.
        discarded: What those leave to a round that is still to be repeated.
    """

    policy_state: PolicyState
    ledger: Ledger
    broadcast: Message
    row: NDArray[np.float32]
    counters: NDArray[np.int64]
    server_slots: RowsByName = field(default_factory=dict[str, NDArray[np.float32]])
    cohort_slots: RowsByName = field(default_factory=dict[str, NDArray[np.float32]])
    seen: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    seen_slots: tuple[str, ...] = ()
    attempt: int = 0
    discarded: Attempts | None = None

    def encode(self) -> bytes:
        """The content of a file, up to the rows of clients seen: those follow, [seen, width] for each name."""
        plain = json.dumps(self._plain(), allow_nan=False)
        forms: dict[str, Form] = {}
        contents: list[bytes] = []
        for name, values in self._tensors().items():
            if not values.size:
                continue
            forms[name] = form_of(values)
            content = values.tobytes()
            contents.append(content)
        forms.update(self._seen_forms())
        header = header_of(forms, {STATE_KEY: plain})
        return b"".join([header, *contents])

    @property
    def bytes_to_follow(self) -> int:
        """How many bytes the rows of clients seen take."""
        return sum(form.nbytes for form in self._seen_forms().values())

    def _plain(self) -> dict[str, Any]:
        """All but the tensors, as JSON has it."""
        broadcast: dict[str, int] = {}
        for layer, nbytes in self.broadcast.layers.items():
            broadcast[str(layer)] = nbytes
        plain: dict[str, Any] = {
            "state": asdict(self.policy_state),
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
        return plain

    def _tensors(self) -> dict[str, NDArray[Any]]:
        """All tensors but the rows of clients seen, by the names that they have in the file."""
        # Numbers of eight bytes first: after those of four they might not lie at multiples of eight.
        tensors: dict[str, NDArray[Any]] = {
            "counters": self.counters,
            CLIENTS: self.seen,
            "row": self.row,
        }
        slots = {
            SERVER: self.server_slots,
            COHORT: self.cohort_slots,
        }
        for prefix, rows in slots.items():
            for name, values in rows.items():
                tensors[prefix + name] = values
        return tensors

    def _seen_forms(self) -> dict[str, Form]:
        """What kind of tensors the rows of clients seen are, by their names in the file."""
        if not len(self.seen):
            return {}
        shape = (len(self.seen), len(self.row))
        form = Form("F32", shape)
        names = [SEEN + slot for slot in self.seen_slots]
        return dict.fromkeys(names, form)

    @staticmethod
    def decode(source: CheckpointSource, shapes: Shapes) -> Checkpoint:
        """From a file or its content, without the rows of clients seen; what does not fit the run is refused.

        Arguments:
            source: The content, or the file that has it.
            shapes: What it must fit.
        """
        with opened(source) as file:
            plain = json.loads(file.texts[STATE_KEY])
            check_saved(plain["state"], plain["ledger"])
            # Before anything is read that could be large
            _check_forms(file.forms, shapes)
            checkpoint = Checkpoint(
                policy_state=PolicyState.from_plain(plain["state"]),
                ledger=Ledger.from_plain(plain["ledger"]),
                broadcast=message_of(
                    plain["broadcast"],
                    layers=len(plain["ledger"]["sizes"]),
                ),
                row=file.array("row"),
                counters=_whole_numbers("counters", file),
                server_slots=_rows_under(SERVER, file),
                cohort_slots=_rows_under(COHORT, file),
                seen=_whole_numbers(CLIENTS, file),
                seen_slots=shapes.seen_slots,
                attempt=whole(plain["attempt"]),
                discarded=Attempts.from_plain(plain["discarded"]),
            )
        if not _holds_numbers(checkpoint, shapes):
            raise InputError("it does not fit the model")
        return checkpoint


def _whole_numbers(name: str, file: TensorFile) -> NDArray[np.int64]:
    """A tensor that is left out of the file where it is empty."""
    if name not in file.forms:
        return np.zeros(0, np.int64)
    return file.array(name)


def _rows_under(prefix: str, file: TensorFile) -> dict[str, NDArray[np.float32]]:
    """The tensors whose names in the file begin with a prefix, by what follows it."""
    rows: dict[str, NDArray[np.float32]] = {}
    for name in file.forms:
        if not name.startswith(prefix):
            continue
        slot = name.removeprefix(prefix)
        rows[slot] = file.array(name)
    return rows


def _check_forms(forms: Mapping[str, Form], shapes: Shapes) -> None:
    """Refuse a file unless its tensors are those that the run would have saved."""
    one_row = Form("F32", (shapes.width,))
    expected = {"row": one_row}
    if shapes.counter_width:
        expected["counters"] = Form("I64", (shapes.counter_width,))
    for slot in shapes.server_slots:
        expected[SERVER + slot] = one_row

    is_inside_window = any(name.startswith(COHORT) for name in forms)
    if is_inside_window:
        of_cohort = Form("F32", (shapes.cohort, shapes.width))
        for slot in shapes.cohort_slots:
            expected[COHORT + slot] = of_cohort

    if CLIENTS in forms:
        (seen,) = forms[CLIENTS].shape
        if not 0 < seen <= shapes.clients:
            raise InputError("it does not fit the model")
        expected[CLIENTS] = Form("I64", (seen,))
        of_seen = Form("F32", (seen, shapes.width))
        for slot in shapes.seen_slots:
            expected[SEEN + slot] = of_seen
    if dict(forms) != expected:
        raise InputError("it does not fit the model")


def _holds_numbers(saved: Checkpoint, shapes: Shapes) -> bool:
    """Whether all numbers are finite, and those of clients are of clients that there are."""
    tensors = [
        saved.row,
        *saved.server_slots.values(),
        *saved.cohort_slots.values(),
    ]
    for values in tensors:
        if not np.isfinite(values).all():
            return False
    return _are_clients(saved.seen, shapes.clients)


def _are_clients(numbers: NDArray[np.int64], clients: int) -> bool:
    """Whether these are numbers of clients, in ascending order."""
    if not len(numbers):
        return True
    gaps = np.diff(numbers)
    is_ascending = bool((gaps > 0).all())
    lowest = numbers[0]
    highest = numbers[-1]
    return is_ascending and lowest >= 0 and highest < clients
