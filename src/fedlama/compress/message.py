"""What is known of a message: at its sender, at its receiver, and what each of its layers is charged.

byte 0          format
4 per layer     ‖Δ‖² of each due layer in layer order, float32
per group       its codec's side bytes: large tensors, the small group, the statistics
stream          all symbols of all groups, one rANS stream of whole words
last 4          CRC-32 over all of it and over what both ends know: codec, seed, direction, place and due layers
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from fedlama.base import InputError
from fedlama.compress.coded import Coded
from fedlama.compress.framing import SEAL, VERSION, Reader, check_version, sealed
from fedlama.compress.groups import STATISTICS_GROUP, TensorGroup
from fedlama.compress.numbers import NotCodableError
from fedlama.compress.streams import Run, estimated_length, to_stream
from fedlama.core import Message

NORM_BYTES = 4


@dataclass
class Decoded:
    """What a receiver knows of one message.

    Arguments:
        row: The decoded differences of the due layers and of the statistics.
        exact_sq: ‖Δ‖² of each due layer as it travelled.
        decoded_sq: ‖Δ̂‖² of each due layer as decoded.
        kept: Which part of a difference the code keeps on average, per layer; None where that depends on the numbers.
        charged: The message's length, shared out among its layers and the statistics.
    """

    row: Tensor
    exact_sq: dict[int, float]
    decoded_sq: dict[int, float]
    kept: dict[int, float | None]
    charged: Message


@dataclass
class CodedMessage(Decoded):
    """A coded message at its sender; its bytes are those that a simulator charges, within 8 of the real ones and 3 more
    per million numbers.

    Arguments:
        head: The bytes in front of the groups: format and norms.
        coded: The groups.
        context: What both ends know, for the checksum.
    """

    head: bytes
    coded: list[Coded]
    context: str

    @property
    def estimated_nbytes(self) -> int:
        """What is charged without running the entropy coder."""
        return self.charged.total

    @property
    def nbytes(self) -> int:
        """Bytes on the wire."""
        return len(self.to_bytes())

    def to_bytes(self) -> bytes:
        """The bytes of the message."""
        sides = [one.all_side() for one in self.coded]
        side = b"".join(sides)
        runs = all_runs(self.coded)
        stream = to_stream(runs)
        content = self.head + side + stream
        return sealed(content, self.context)


def as_sent(norms: Mapping[int, float]) -> dict[int, float]:
    """‖Δ‖² of each layer as a message holds it, or a refusal of numbers that no message can hold."""
    values = list(norms.values())
    # What is too large for float32 becomes infinite, and is refused below
    with np.errstate(over="ignore"):
        single = np.array(values, dtype=np.float32)
    are_finite = bool(np.isfinite(single).all())
    if not are_finite:
        raise NotCodableError("numbers that are not finite cannot be coded")
    return dict(zip(norms, single.tolist(), strict=True))


def head_of(norms: Mapping[int, float]) -> bytes:
    """The bytes in front of the groups."""
    values = list(norms.values())
    single = np.array(values, dtype="<f4")
    version = bytes((VERSION,))
    contents = single.tobytes()
    return version + contents


def read_head(reader: Reader, layers: int) -> list[float]:
    """‖Δ‖² of so many layers, from the front of a message."""
    version = reader.take(1)[0]
    check_version(version)
    content = reader.take(NORM_BYTES * layers)
    norms = np.frombuffer(content, dtype="<f4")
    usable = np.isfinite(norms) & (norms >= 0)
    if not bool(usable.all()):
        raise InputError("the norm of a layer must be finite and not negative")
    return norms.tolist()


def estimated_nbytes(head: bytes, coded: Sequence[Coded]) -> int:
    """The length of a message whose entropy coder has not run."""
    known = len(head) + SEAL
    information = 0.0
    for one in coded:
        side = one.all_side()
        known += len(side)
        information += one.bits()
    # One stream for all groups, which ends once
    stream = estimated_length(information)
    return known + stream


def all_runs(coded: Sequence[Coded]) -> list[Run]:
    """The runs of all groups, in the order of the stream."""
    runs: list[Run] = []
    for one in coded:
        runs.extend(one.all_runs())
    return runs


def shared_out(
    groups: Sequence[TensorGroup],
    coded: Sequence[Coded],
    layers: Sequence[int],
    total: int,
) -> Message:
    """Whole bytes per layer and for the statistics that add up to `total`.

    A group's bytes are shared by the sizes of its layers. What belongs to none (format, checksum, the end of the
    stream) and what rounding leaves goes to the last layer.
    """
    exact = dict.fromkeys(layers, float(NORM_BYTES))
    statistics = 0.0
    for group, one in zip(groups, coded, strict=True):
        side = len(one.all_side())
        nbytes = side + one.bits() / 8
        if group.number == STATISTICS_GROUP:
            statistics = nbytes
        for layer, size in group.sizes.items():
            exact[layer] += nbytes * size / group.size

    whole = _rounded(exact)
    statistics_bytes = round(statistics)
    if layers:
        charged = sum(whole.values()) + statistics_bytes
        last = layers[-1]
        whole[last] += total - charged
    return Message(whole, statistics_bytes)


def _rounded(exact: Mapping[int, float]) -> dict[int, int]:
    """Whole numbers that add up to the rounded sum, each within one of the exact number."""
    whole: dict[int, int] = {}
    running = 0.0
    charged = 0
    for layer, size in exact.items():
        # Rounded sums, not summed roundings: the error of one layer does not add to that of the next.
        running += size
        rounded = round(running)
        whole[layer] = rounded - charged
        charged = rounded
    return whole
