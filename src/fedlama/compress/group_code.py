"""The groups of a message, coded and decoded: large tensors by the codec, others by its choice for small ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from torch import Tensor

from fedlama.base import random_key
from fedlama.compress.codec import Codec
from fedlama.compress.coded import Coded
from fedlama.compress.framing import Reader
from fedlama.compress.groups import TensorGroup
from fedlama.compress.numbers import check_finite
from fedlama.compress.place import MessagePlace
from fedlama.compress.water import pour
from fedlama.core import Layout


class GroupCode:
    """What becomes of the groups of a message at its sender and at its receiver.

    Arguments:
        codec: Codes the large tensors.
        layout: The model's.
        seed: The run's.
        direction: "uplink" or "downlink"; the draws of the two differ.
    """

    def __init__(
        self, codec: Codec, layout: Layout, *, seed: int, direction: str
    ) -> None:
        self._large_codec = codec
        self._small_codec = codec.for_small_tensors()
        self._layout = layout
        self._seed = seed
        self._purpose = f"{direction} codec"

    def targets(
        self,
        groups: Sequence[TensorGroup],
        difference: Tensor,
        anchor: Tensor | None,
        slots: Mapping[str, Tensor] | None,
    ) -> list[Tensor]:
        """What is coded of each group: the difference, and what earlier messages left out."""
        targets: list[Tensor] = []
        for group in groups:
            values = group.to_codable(difference, anchor)
            # The norms of the layers are finite, so only statistics may not be
            if not group.sizes:
                check_finite(values)
            codec = self.codec_of(group)
            own = _part(slots, group)
            target = codec.target(values, own)
            targets.append(target)
        return targets

    def rates(
        self,
        groups: Sequence[TensorGroup],
        targets: Sequence[Tensor],
        place: MessagePlace,
    ) -> list[float | None]:
        """The rate of each group, None for the codec's own."""
        rates: list[float | None] = []
        for group in groups:
            codec = self.codec_of(group)
            number, count = _round_of_window(group, place)
            rate, _ = codec.for_round(number, count)
            rates.append(rate)
        if self._large_codec.sharing == "water":
            pour(groups, targets, rates, self._large_codec)
        return rates

    def code(
        self,
        groups: Sequence[TensorGroup],
        targets: Sequence[Tensor],
        rates: Sequence[float | None],
        place: MessagePlace,
        warm: Tensor | None,
    ) -> list[Coded]:
        """Every group coded; those of one codec together, which is faster."""
        coded: list[Coded] = []
        for part in _by_codec(groups):
            members = groups[part]
            codec = self.codec_of(members[0])
            starts: list[Tensor | None] = [None] * len(members)
            if warm is not None and members[0].is_large:
                starts = [group.read(warm) for group in members]
            keys = self._keys(members, place)
            coded += codec.code_all(
                targets[part],
                keys=keys,
                bits=rates[part],
                warm=starts,
            )
        return coded

    def expect(self, groups: Sequence[TensorGroup], reader: Reader) -> list[Coded]:
        """Which runs of symbols belong to every group, as its side bytes say."""
        coded: list[Coded] = []
        for group in groups:
            codec = self.codec_of(group)
            expected = codec.expect(reader, group.shape)
            coded.append(expected)
        return coded

    def rebuild(
        self, groups: Sequence[TensorGroup], coded: Sequence[Coded], place: MessagePlace
    ) -> list[Tensor]:
        """What a receiver makes of every group."""
        decoded: list[Tensor] = []
        for part in _by_codec(groups):
            members = groups[part]
            codec = self.codec_of(members[0])
            shapes = [group.shape for group in members]
            keys = self._keys(members, place)
            decoded += codec.rebuild_all(coded[part], shapes, keys=keys)
        return decoded

    def received(
        self,
        group: TensorGroup,
        coded: Coded,
        decoded: Tensor,
        anchor: Tensor | None,
        place: MessagePlace,
    ) -> Tensor:
        """What the server makes of a decoded group: differences, times the gain."""
        kept = self.codec_of(group).kept_of(coded)
        gain = self._gain(group, place, kept)
        # Most codecs have none: spare them a pass over the numbers
        if gain != 1.0:
            decoded = decoded * gain
        return group.from_codable(decoded, anchor)

    def read(
        self,
        groups: Sequence[TensorGroup],
        coded: Sequence[Coded],
        anchor: Tensor | None,
        place: MessagePlace,
    ) -> list[Tensor]:
        """What the server makes of every group of a message that may be forged: finite differences, or a refusal."""
        values = self.rebuild(groups, coded, place)
        for index, group in enumerate(groups):
            one = coded[index]
            # Last of all: a gain or a unit may make finite numbers infinite
            values[index] = self.received(group, one, values[index], anchor, place)
            check_finite(values[index])
        return values

    def remember(
        self,
        group: TensorGroup,
        target: Tensor,
        decoded: Tensor,
        slots: Mapping[str, Tensor] | None,
    ) -> None:
        """Update what the sender keeps for this group, in place."""
        part = _part(slots, group)
        if slots is None or part is None:
            return
        codec = self.codec_of(group)
        codec.remember(target, decoded, part)
        if isinstance(group.where, slice):
            # The part is a view: the slots are updated already
            return
        for name, values in part.items():
            group.write(slots[name], values)

    def kept(
        self, groups: Sequence[TensorGroup], coded: Sequence[Coded]
    ) -> dict[int, float | None]:
        """Which part of a difference the code keeps: the mean over each layer's numbers."""
        sums: dict[int, float | None] = {}
        for group, one in zip(groups, coded, strict=True):
            # Of this message, not of the codec's own rate: bits may have been shared out anew
            codec = self.codec_of(group)
            share = codec.kept_of(one)
            for layer, size in group.sizes.items():
                before = sums.get(layer, 0.0)
                # One unknown part makes the mean unknown
                if share is None or before is None:
                    sums[layer] = None
                    continue
                layer_size = self._layout.layers[layer].size
                sums[layer] = before + share * size / layer_size
        return sums

    def gains(
        self,
        groups: Sequence[TensorGroup],
        place: MessagePlace,
        kept: Mapping[int, float | None],
    ) -> dict[int, float]:
        """By what the server has multiplied each layer, of which the code kept so much: the mean over its numbers."""
        # A layer may have a part in several groups: the gain of each, and how many of its numbers are there
        parts: defaultdict[int, list[tuple[float, int]]] = defaultdict(list)
        for group in groups:
            for layer, size in group.sizes.items():
                kept_of_layer = kept[layer]
                gain = self._gain(group, place, kept_of_layer)
                part = (gain, size)
                parts[layer].append(part)

        means: dict[int, float] = {}
        for layer, parts_of_layer in parts.items():
            means[layer] = _mean_gain(parts_of_layer)
        return means

    def _gain(
        self, group: TensorGroup, place: MessagePlace, kept: float | None
    ) -> float:
        """By what the server multiplies this group: small ones have a codec and rounds of their own."""
        codec = self.codec_of(group)
        number, count = _round_of_window(group, place)
        _, planned = codec.for_round(number, count)
        is_poured = group.is_large and codec.sharing == "water"
        # Where bits were shared out anew, the plan is not what the layer got
        if is_poured and kept is not None:
            return codec.gain_where(kept, number, count)
        return planned

    def main_codecs(self, groups: Sequence[TensorGroup]) -> dict[int, Codec]:
        """What codes each layer, or the larger part of it."""
        result: dict[int, Codec] = {}
        largest: dict[int, int] = {}
        for group in groups:
            for layer, size in group.sizes.items():
                if size > largest.get(layer, 0):
                    largest[layer] = size
                    result[layer] = self.codec_of(group)
        return result

    def codec_of(self, group: TensorGroup) -> Codec:
        """What codes this group."""
        if group.is_large:
            return self._large_codec
        return self._small_codec

    def _keys(self, groups: Sequence[TensorGroup], place: MessagePlace) -> list[int]:
        keys: list[int] = []
        for group in groups:
            key = random_key(
                self._seed,
                self._purpose,
                place.round,
                place.client,
                group.number,
            )
            keys.append(key)
        return keys


def _by_codec(groups: Sequence[TensorGroup]) -> list[slice]:
    """The large groups, which come first, and the others; without those of which there are none."""
    large = sum(group.is_large for group in groups)
    parts: list[slice] = []
    if large:
        parts.append(slice(0, large))
    if large < len(groups):
        parts.append(slice(large, len(groups)))
    return parts


def _round_of_window(group: TensorGroup, place: MessagePlace) -> tuple[int, int]:
    """Which of how many rounds of the window it is, for this group."""
    if group.is_large:
        (layer,) = group.sizes
        return place.of_layer(layer)
    return place.of_window


def _mean_gain(parts: Sequence[tuple[float, int]]) -> float:
    """The mean of gains over the numbers that each is of."""
    different = {gain for gain, _ in parts}
    # Most layers have one gain, and a mean of equal gains would only round it
    if len(different) == 1:
        return different.pop()
    total = sum(gain * size for gain, size in parts)
    numbers = sum(size for _, size in parts)
    return total / numbers


def _part(
    slots: Mapping[str, Tensor] | None, group: TensorGroup
) -> dict[str, Tensor] | None:
    if slots is None:
        return None
    return {name: group.read(row) for name, row in slots.items()}
