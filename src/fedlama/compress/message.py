"""Messages: the due layers of one client, coded, with the exact norms that the discrepancy needs.

A simulator, an averager and a deployment use the same `Channel`. `simulate` codes and decodes without running the
entropy coder and tells what the bytes would be; `pack` and `unpack` make real bytes and give the same numbers, bit
for bit.

    byte 0          format
    4 per layer     ‖Δ‖² of each due layer in layer order, float32
    per group       its codec's side bytes: large tensors, the small group, the statistics
    stream          all symbols of all groups, one rANS stream of whole words
    last 4          CRC-32 over all of it and over what both ends know: codec, seed, direction, place and due layers
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from fedlama.base import InputError, check_whole, random_key, shown
from fedlama.compress.codec import SEAL, VERSION, Codec, Coded, Reader, check_finite, check_version, sealed, unsealed
from fedlama.compress.discrepancy import coherent_spread, corrected_spread, measured_echo
from fedlama.compress.groups import STATISTICS_GROUP, Group, Grouping
from fedlama.compress.statistics import Statistics
from fedlama.compress.streams import Run, estimated_length, read_stream, to_stream
from fedlama.compress.water import shared_step_rates
from fedlama.core import Layout, Message
from fedlama.rows import Slot

DIRECTIONS = ("uplink", "downlink")
NORM_BYTES = 4
STATIONARY = 64  # rounds after which a residual that is never dropped has reached its size


@dataclass(frozen=True)
class Place:
    """Where a message belongs; every random draw in it follows from here, and nothing of it is sent.

    Arguments:
        round: Its number in the run.
        client: Its number in the run; 0 for the server's own messages.
        round_in_window: Counted from 0; error feedback with a profile or a gain has to know it.
        rounds_per_window: How many rounds there are.
        layer_rounds: The same pair for layers that are not due in every round of the window.
    """

    round: int
    client: int
    round_in_window: int = 0
    rounds_per_window: int = 1
    layer_rounds: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_whole("round", self.round, minimum=0)
        check_whole("client", self.client, minimum=0)
        for position, count in ((self.round_in_window, self.rounds_per_window), *self.layer_rounds.values()):
            check_whole("rounds_per_window", count, minimum=1)
            check_whole("round_in_window", position, minimum=0)
            if position >= count:
                raise InputError(f"round_in_window must be below {count}, not {position}")

    def of_layer(self, layer: int) -> tuple[int, int]:
        """Which of how many synchronisations of this layer in the window."""
        return self.layer_rounds.get(layer, (self.round_in_window, self.rounds_per_window))


@dataclass
class Decoded:
    """What a receiver knows of one message.

    `row` holds the decoded differences of the due layers and the statistics. `exact_sq` is ‖Δ‖² of each due layer as it
    travelled, `decoded_sq` that of the decoded difference, `kept` which part of a difference the code keeps on average
    (None where that depends on the numbers). `charged` is the message's length, shared out
    among its layers and the statistics.
    """

    row: Tensor
    exact_sq: dict[int, float]
    decoded_sq: dict[int, float]
    kept: dict[int, float | None]
    charged: Message


@dataclass
class CodedMessage(Decoded):
    """A coded message at its sender; its bytes are those that a simulator charges, within 8 of the real ones."""

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
        side = b"".join(one.all_side() for one in self.coded)
        return sealed(self.head + side + to_stream(_all_runs(self.coded)), self.context)


class Channel:
    """One direction of a federation's traffic under one codec.

    Arguments:
        codec: Codes the large tensors; what it prescribes for small ones codes the rest.
        layout: The model's.
        seed: The run's.
        direction: "uplink" or "downlink": the draws of the two differ.
    """

    def __init__(self, codec: Codec, layout: Layout, *, seed: int, direction: str = "uplink") -> None:
        if not isinstance(codec, Codec):
            raise InputError(f"{direction} must be a codec of fedlama.compress, not {shown(codec)}")
        if direction not in DIRECTIONS:
            raise InputError(f"direction must be one of {', '.join(DIRECTIONS)}, not {shown(direction)}")
        codec = codec.fitted(layout)
        self.codec = codec
        self.layout = layout
        self.seed = seed
        self.direction = direction
        self._small_codec = codec.for_small_tensors()
        self._statistics = Statistics(layout)
        self._grouping = Grouping(layout, self._statistics)
        self._groups = lru_cache(maxsize=64)(self._find_groups)

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The rows that a sender keeps: the codec's, named after the direction."""
        return tuple(replace(slot, name=f"{self.direction} {slot.name}") for slot in self.codec.slots)

    def simulate(
        self,
        difference: Tensor,
        due: Sequence[int],
        place: Place,
        *,
        anchor: Tensor | None = None,
        own: Mapping[str, Tensor] | None = None,
        warm: Tensor | None = None,
        out: Tensor | None = None,
    ) -> CodedMessage:
        """Code and decode one sender's difference without running the entropy coder.

        `difference` is x − anchor, a row of the layout; `due` are the numbers of the layers in the message. `anchor` is
        the last synchronised row (needed where the model has BatchNorm's statistics). `own` are the sender's slots by
        the names in `slots`, rows of the same width whose coded parts are updated in place. `warm` is the server's last
        change, a row. The decoded differences are written to `out` if given, which may be `difference` itself;
        otherwise to a row of zeros.
        """
        if difference.device.type != "cpu":
            return self._simulate_elsewhere(difference, due, place, anchor, own, warm, out)
        groups = self._groups(tuple(due))
        exact_sq = self._squares(difference, groups)
        row = torch.zeros_like(difference) if out is None else out
        slots = self._own(own)

        targets: list[Tensor] = []
        for group in groups:
            values = self._codable(group, difference, anchor)
            targets.append(self._codec(group).target(values, _part(slots, group)))
        rates = self._rates(groups, targets, place)

        coded, decoded = self._there_and_back(groups, targets, rates, place, warm)
        for group, target, values in zip(groups, targets, decoded, strict=True):
            self._remember(group, target, values, slots)
            self._write(group, values, row, anchor, place)

        single = {layer: np.float32(square) for layer, square in exact_sq.items()}
        if not all(np.isfinite(square) for square in single.values()):
            raise InputError("numbers that are not finite cannot be coded")
        head = bytes((VERSION,)) + b"".join(square.astype("<f4").tobytes() for square in single.values())
        length = len(head) + SEAL + sum(len(one.all_side()) for one in coded)
        length += estimated_length(sum(one.bits() for one in coded))
        return CodedMessage(
            row=row,
            exact_sq={layer: float(square) for layer, square in single.items()},
            decoded_sq=self._squares(row, groups),
            kept=self._kept(groups, coded),
            charged=_shared_out(groups, coded, list(exact_sq), length),
            head=head,
            coded=coded,
            context=self._context(due, place),
        )

    def _there_and_back(
        self,
        groups: Sequence[Group],
        targets: Sequence[Tensor],
        rates: Sequence[float | None],
        place: Place,
        warm: Tensor | None,
    ) -> tuple[list[Coded], list[Tensor]]:
        """Every group coded, and what its receiver rebuilds; those of one codec together, which is faster."""
        large = sum(group.is_large for group in groups)  # they come first
        coded: list[Coded] = []
        decoded: list[Tensor] = []
        for part in (slice(0, large), slice(large, len(groups))):
            if not groups[part]:
                continue
            codec = self._codec(groups[part][0])
            keys = [self._key(group, place) for group in groups[part]]
            starts: list[Tensor | None] = [None] * len(keys)
            if warm is not None and part.start == 0:
                starts = [group.read(warm) for group in groups[part]]
            here = codec.code_all(targets[part], keys=keys, bits=rates[part], warm=starts)
            coded += here
            decoded += codec.rebuild_all(here, [group.shape for group in groups[part]], keys=keys)
        return coded, decoded

    def settle(self, difference: Tensor, due: Sequence[int], own: Mapping[str, Tensor]) -> None:
        """Add to a difference all that earlier messages left out, in place: for receivers that are sent it uncoded.

        Nothing is left over afterwards. `due` are the layers that are sent, `own` the sender's slots by the names in
        `slots`. Statistics keep their difference: they are estimated anew in every round, and nothing of them is owed.
        """
        slots = self._own(own)
        if slots is None:
            return
        for part in self.layout.slices_of(sorted(set(due))):
            here = {name: values[part] for name, values in slots.items()}
            target = self.codec.target(difference[part], here)
            self.codec.remember(target, target, here)
            difference[part] = target
        for part in self.layout.statistics:
            here = {name: values[part] for name, values in slots.items()}
            self.codec.remember(difference[part], difference[part], here)

    def _simulate_elsewhere(
        self,
        difference: Tensor,
        due: Sequence[int],
        place: Place,
        anchor: Tensor | None,
        own: Mapping[str, Tensor] | None,
        warm: Tensor | None,
        out: Tensor | None,
    ) -> CodedMessage:
        """Rows of another device are coded on the CPU, like all others, so that the bits do not depend on it."""
        copies = {name: values.cpu() for name, values in (own or {}).items()}
        message = self.simulate(
            difference.cpu(),
            due,
            place,
            anchor=None if anchor is None else anchor.cpu(),
            own=None if own is None else copies,
            warm=None if warm is None else warm.cpu(),
        )
        for name, values in (own or {}).items():
            values.copy_(copies[name])
        decoded = message.row
        message.row = torch.zeros_like(difference) if out is None else out
        for part in (*self.layout.slices_of(sorted(set(due))), *(self.layout.statistics if due else ())):
            message.row[part] = decoded[part].to(difference.device)
        return message

    def pack(
        self,
        difference: Tensor,
        due: Sequence[int],
        place: Place,
        *,
        anchor: Tensor | None = None,
        own: Mapping[str, Tensor] | None = None,
        warm: Tensor | None = None,
    ) -> bytes:
        """The real bytes of one sender's difference; arguments as for `simulate`."""
        return self.simulate(difference, due, place, anchor=anchor, own=own, warm=warm).to_bytes()

    def unpack(
        self,
        content: bytes,
        due: Sequence[int],
        place: Place,
        *,
        anchor: Tensor | None = None,
        out: Tensor | None = None,
    ) -> Decoded:
        """Decode a message of these layers, or refuse it; `anchor` must be the sender's, bit for bit."""
        groups = self._groups(tuple(due))
        reader = Reader(unsealed(bytes(content), self._context(due, place)))
        check_version(reader.take(1)[0])
        layers = sorted(set(due))
        norms = np.frombuffer(reader.take(NORM_BYTES * len(layers)), dtype="<f4")
        if not bool((np.isfinite(norms) & (norms >= 0)).all()):
            raise InputError("the norm of a layer must be finite and not negative")
        coded: list[Coded] = []
        for group in groups:
            coded.append(self._codec(group).expect(reader, group.shape))
        read_stream(reader.rest(), _all_runs(coded))

        # Everything is decoded before anything is written, so that a refused message leaves the row as it was.
        decoded: list[Tensor] = []
        for group, one in zip(groups, coded, strict=True):
            values = self._codec(group).rebuild(one, group.shape, key=self._key(group, place))
            check_finite(values)
            decoded.append(values)
        row = torch.zeros(self.layout.width) if out is None else out
        for group, values in zip(groups, decoded, strict=True):
            self._write(group, values, row, anchor, place)
        return Decoded(
            row=row,
            exact_sq={layer: float(square) for layer, square in zip(layers, norms, strict=True)},
            decoded_sq=self._squares(row, groups),
            kept=self._kept(groups, coded),
            charged=_shared_out(groups, coded, layers, len(content)),
        )

    def spread(
        self, weights: Sequence[float], messages: Sequence[Decoded], mean_sq: Mapping[int, float], place: Place
    ) -> dict[int, float]:
        """Σ w_i‖x_i − u‖² of each layer as it would be without the code (`discrepancy.py`).

        `weights` of the senders add up to one, `messages` are theirs, `mean_sq` is ‖Σ w_iΔ̂_i‖² of each due layer.
        """
        result: dict[int, float] = {}
        for layer, square in mean_sq.items():
            exact = [message.exact_sq[layer] for message in messages]
            decoded = [message.decoded_sq[layer] for message in messages]
            kept = self._mean_kept(layer, weights, messages)
            if kept is None:
                result[layer] = coherent_spread(weights, exact, decoded, square)
                continue
            _, gain = self.codec.for_round(*place.of_layer(layer))
            echo = 1.0
            if self.codec.slots:
                sent = _weighted(weights, exact)
                arrived = _weighted(weights, decoded) / gain**2
                echo = measured_echo(kept, self._earlier_distortions(kept, *place.of_layer(layer)), sent, arrived)
            result[layer], _ = corrected_spread(weights, exact, decoded, square, kept=kept * gain, echo=echo)
        return result

    def _mean_kept(self, layer: int, weights: Sequence[float], messages: Sequence[Decoded]) -> float | None:
        total = 0.0
        for weight, message in zip(weights, messages, strict=True):
            kept = message.kept[layer]
            if kept is None:
                return None
            total += weight * kept
        return total

    def _earlier_distortions(self, kept: float, round_in_window: int, rounds_per_window: int) -> list[float]:
        """D of the rounds that the residual has seen, as planned."""
        if self.codec.slots[0].lifetime == "run":
            return [1.0 - kept] * STATIONARY
        result: list[float] = []
        for earlier in range(round_in_window):
            rate, _ = self.codec.for_round(earlier, rounds_per_window)
            planned = None
            if rate is not None:
                planned = self.codec.kept(rate)
            result.append(1.0 - (kept if planned is None else planned))
        return result

    def _find_groups(self, due: tuple[int, ...]) -> tuple[Group, ...]:
        for layer in due:
            if not 0 <= layer < len(self.layout.layers):
                raise InputError(f"there is no layer {layer}: the model has {len(self.layout.layers)}")
        return self._grouping.of(due, statistics=bool(due))

    def _codec(self, group: Group) -> Codec:
        if group.is_large:
            return self.codec
        return self._small_codec

    def _codable(self, group: Group, difference: Tensor, anchor: Tensor | None) -> Tensor:
        if group.number == STATISTICS_GROUP:
            values = self._statistics.to_codable(difference, anchor)
        else:
            values = group.read(difference)
        check_finite(values)
        return values

    def _write(self, group: Group, decoded: Tensor, row: Tensor, anchor: Tensor | None, place: Place) -> None:
        """What the server gets, times the gain, into the row."""
        gain = self._gain(self._codec(group), *self._turn(group, place))
        if gain != 1.0:
            decoded = decoded * gain
        if group.number == STATISTICS_GROUP:
            decoded = self._statistics.from_codable(decoded, anchor)
        group.write(row, decoded)

    def _turn(self, group: Group, place: Place) -> tuple[int, int]:
        if group.is_large:
            (layer,) = group.sizes
            return place.of_layer(layer)
        return place.round_in_window, place.rounds_per_window

    def _gain(self, codec: Codec, round_in_window: int, rounds_per_window: int) -> float:
        _, gain = codec.for_round(round_in_window, rounds_per_window)
        return gain

    def _rates(self, groups: Sequence[Group], targets: Sequence[Tensor], place: Place) -> list[float | None]:
        """The rate of each group, None for the codec's own."""
        rates: list[float | None] = []
        for group in groups:
            rate, _ = self._codec(group).for_round(*self._turn(group, place))
            rates.append(rate)
        if self.codec.sharing != "water":
            return rates
        own_rate = self.codec.rate or 0.0
        large = [number for number, group in enumerate(groups) if group.is_large]
        sizes = [groups[number].size for number in large]
        sigmas: list[float] = []
        budget = 0.0
        for number, size in zip(large, sizes, strict=True):
            sigmas.append(float(torch.linalg.vector_norm(targets[number])) / math.sqrt(size))
            planned = rates[number]
            budget += size * (own_rate if planned is None else planned)
        if budget <= 0:
            return rates
        poured = shared_step_rates(sigmas, sizes, budget / sum(sizes), may_skip=bool(self.codec.slots))
        for number, rate in zip(large, poured, strict=True):
            rates[number] = rate
        return rates

    def _own(self, own: Mapping[str, Tensor] | None) -> dict[str, Tensor] | None:
        """The sender's rows under the codec's own names."""
        if not self.codec.slots or own is None:
            return None
        rows: dict[str, Tensor] = {}
        for slot, named in zip(self.codec.slots, self.slots, strict=True):
            if named.name not in own:
                raise InputError(f"the slot {named.name!r} is missing")
            rows[slot.name] = own[named.name]
        return rows

    def _remember(self, group: Group, target: Tensor, decoded: Tensor, slots: dict[str, Tensor] | None) -> None:
        part = _part(slots, group)
        if slots is None or part is None:
            return
        self._codec(group).remember(target, decoded, part)
        if not isinstance(group.where, slice):  # a copy, not a view
            for name, values in part.items():
                group.write(slots[name], values)

    def _squares(self, row: Tensor, groups: Sequence[Group]) -> dict[int, float]:
        """‖·‖² of each due layer in layer order, in float64."""
        squares: dict[int, float] = {}
        for group in groups:
            if not group.sizes:
                continue
            values = group.read(row).reshape(-1).double()
            if group.is_large:
                (layer,) = group.sizes
                squares[layer] = squares.get(layer, 0.0) + float(torch.dot(values, values))
                continue
            # One call for all small layers, of which there are many with few numbers each.
            starts = np.cumsum([0, *group.sizes.values()])[:-1]
            sums = np.add.reduceat(values.square().numpy(), starts)
            for layer, square in zip(group.sizes, sums.tolist(), strict=True):
                squares[layer] = squares.get(layer, 0.0) + square
        return dict(sorted(squares.items()))

    def _kept(self, groups: Sequence[Group], coded: Sequence[Coded]) -> dict[int, float | None]:
        """The mean over each layer's numbers."""
        sums: dict[int, float | None] = {}
        for group, one in zip(groups, coded, strict=True):
            share = self._codec(group).kept_of(one)
            for layer, size in group.sizes.items():
                before = sums.get(layer, 0.0)
                if share is None or before is None:
                    sums[layer] = None
                else:
                    sums[layer] = before + share * size / self.layout.layers[layer].size
        return sums

    def _key(self, group: Group, place: Place) -> int:
        return random_key(self.seed, f"{self.direction} codec", place.round, place.client, group.number)

    def _context(self, due: Sequence[int], place: Place) -> str:
        layers = ",".join(str(layer) for layer in sorted(set(due)))
        where = f"{place.round}/{place.client}/{place.round_in_window}/{place.rounds_per_window}"
        return f"{self.codec!r}/{self.seed}/{self.direction}/{where}/{layers}/{self.layout.sizes}"


def _weighted(weights: Sequence[float], values: Sequence[float]) -> float:
    return math.fsum(weight * value for weight, value in zip(weights, values, strict=True))


def _all_runs(coded: Sequence[Coded]) -> list[Run]:
    runs: list[Run] = []
    for one in coded:
        runs.extend(one.all_runs())
    return runs


def _part(slots: Mapping[str, Tensor] | None, group: Group) -> dict[str, Tensor] | None:
    if slots is None:
        return None
    return {name: group.read(row) for name, row in slots.items()}


def _shared_out(groups: Sequence[Group], coded: Sequence[Coded], layers: Sequence[int], total: int) -> Message:
    """Whole bytes per layer and for the statistics that add up to `total`.

    A group's bytes are shared by the sizes of its layers. What belongs to none (format, checksum, the end of the
    stream) and what rounding leaves goes to the last layer.
    """
    exact = dict.fromkeys(layers, float(NORM_BYTES))
    statistics = 0.0
    for group, one in zip(groups, coded, strict=True):
        weight = len(one.all_side()) + one.bits() / 8
        if group.number == STATISTICS_GROUP:
            statistics = weight
        for layer, size in group.sizes.items():
            exact[layer] += weight * size / group.size
    whole: dict[int, int] = {}
    running = 0.0
    charged = 0
    for layer, size in exact.items():
        running += size
        whole[layer] = round(running) - charged
        charged += whole[layer]
    statistics_bytes = round(statistics)
    if layers:
        whole[layers[-1]] += total - charged - statistics_bytes
    return Message(whole, statistics_bytes)
