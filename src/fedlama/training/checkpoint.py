"""What a run needs to go on, and when to save it.

At a cycle's end every layer has just been averaged and whoever was left out is back, so a run is its global row, its
policy state and its ledger; inside a window there is also what the local rule remembers of each client (momentum).
Draws need nothing: they are functions of the seed and the step. A checkpoint is one safetensors file with the plain
values as JSON in its header.
"""

from __future__ import annotations

import ctypes
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from multiprocessing import RawValue
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save

from fedlama.base import InputError
from fedlama.core import Ledger, PolicyState
from fedlama.training.faults import Discarded
from fedlama.training.records import Record

STATE_KEY = "fedlama"
LARGEST = 1 << 62  # of steps and bytes
PER_LAYER = ("intervals", "discrepancy", "synchronised_at", "sizes", "aggregations", "layer_uplink", "layer_downlink")


@dataclass(frozen=True)
class Checkpoint:
    """A run at a cycle's end, or where a round waits for new clients."""

    state: PolicyState
    ledger: Ledger
    averaged: tuple[int, ...]
    row: NDArray[np.float32]
    counters: NDArray[np.int64]
    memory_CMP: NDArray[np.float32]  # no clients at a window's end: nothing outlives it
    attempt: int = 0  # cohorts of this window that were given up
    discarded: Discarded | None = None  # what they leave to a round that is still to be repeated

    def encode(self) -> bytes:
        """As the content of a file."""
        plain = {"state": asdict(self.state), "ledger": asdict(self.ledger), "averaged": self.averaged}
        plain |= {"attempt": self.attempt, "discarded": asdict(self.discarded) if self.discarded else None}
        tensors = {"row": self.row, "counters": self.counters, "memory": self.memory_CMP}
        filled = {name: np.ascontiguousarray(value) for name, value in tensors.items() if value.size}
        return save(filled, metadata={STATE_KEY: json.dumps(plain, allow_nan=False)})

    @staticmethod
    def decode(content: bytes, *, width: int, counter_width: int, memory_shape: tuple[int, int]) -> Checkpoint:
        """From a file's content; anything that does not fit the run is refused."""
        try:
            plain = json.loads(_metadata(content)[STATE_KEY])
            _check_numbers(plain)
            tensors = {name: _array(entry) for name, entry in deserialize(content)}
            state = PolicyState.from_plain(plain["state"])
            ledger = Ledger.from_plain(plain["ledger"])
            attempt, discarded = int(plain["attempt"]), Discarded.from_plain(plain["discarded"])
            row = tensors["row"]
            counters = tensors.get("counters", np.zeros(0, np.int64))
            memory = tensors.get("memory", np.zeros((0, *memory_shape), np.float32))
        except (SafetensorError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InputError(f"it is not a checkpoint ({error})") from None
        fits = (
            row.shape == (width,)
            and counters.shape == (counter_width,)
            and memory.shape[1:] == memory_shape
            and (row.dtype, counters.dtype, memory.dtype) == (np.float32, np.int64, np.float32)
            and bool(np.isfinite(row).all())
        )
        if not fits:
            raise InputError("it does not fit the model")
        return Checkpoint(state, ledger, tuple(plain["averaged"]), row, counters, memory, attempt, discarded)


def _check_numbers(plain: dict[str, Any]) -> None:
    """Every value is a whole number or a list with one for each layer; only discrepancies are floats."""
    layers = len(plain["ledger"]["sizes"])
    for name, value in {**plain["state"], **plain["ledger"]}.items():
        values: list[Any] = value if isinstance(value, list) else [value]
        kinds = (int, float) if name == "discrepancy" else (int,)
        if isinstance(value, list) != (name in PER_LAYER) or (name in PER_LAYER and len(values) != layers):
            raise ValueError(f"{name} is not as long as there are layers")
        if not all(type(one) in kinds and 0 <= one < LARGEST for one in values):
            raise ValueError(f"{name} holds something else than numbers that are not negative")
    if not all(type(layer) is int and 0 <= layer < layers for layer in plain["averaged"]):
        raise ValueError("averaged names a layer that is not there")


def _metadata(content: bytes) -> dict[str, str]:
    length = int.from_bytes(content[:8], "little")
    if length > len(content) - 8:
        raise ValueError("its header is cut off")
    return json.loads(content[8 : 8 + length])["__metadata__"]


def _array(entry: dict[str, Any]) -> NDArray[Any]:
    dtype = {"F32": np.float32, "I64": np.int64}[entry["dtype"]]
    return np.frombuffer(entry["data"], dtype).reshape(entry["shape"]).copy()


class Control:
    """Asked at every cycle's end whether to save and whether to stop; the answer may be given from another process."""

    def __init__(self, save_every_seconds: float | None = None) -> None:
        self._every = save_every_seconds
        self._latest = time.monotonic()
        self.between_windows = False  # save only where no momentum outlives the cycle: it may not fit into memory
        self._stop = RawValue(ctypes.c_bool, False)  # in shared memory: forked workers see what the parent sets

    def request_stop(self) -> None:
        """Finish the cycle, save and stop."""
        self._stop.value = True

    def wishes(self) -> tuple[bool, bool]:
        """(save, stop), as this process sees it."""
        save = self._every is not None and time.monotonic() - self._latest >= self._every
        if save:
            self._latest = time.monotonic()
        return save or self._stop.value, self._stop.value


@dataclass
class Checkpointing:
    """What a caller of `simulate` who keeps checkpoints hands over, and where a resumed run starts.

    `on_checkpoint` gets a file's content; `resume` is such a content, and `earlier` the records before it.
    """

    control: Control
    on_checkpoint: Callable[[bytes, PolicyState], None]
    resume: bytes = b""
    earlier: list[Record] = field(default_factory=list)
