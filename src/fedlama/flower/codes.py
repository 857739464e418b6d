"""Codecs, places of coded messages and local rules as JSON can hold them.

Clients learn from their task how to code, and the server learns from clients how they train.
"""

from __future__ import annotations

from dataclasses import asdict, fields, is_dataclass
from typing import Any, Literal

from fedlama import compress
from fedlama.base import InputError, shown
from fedlama.compress import Channel, Codec, MessagePlace
from fedlama.core import Layout
from fedlama.local import LocalRule


def place_to_plain(place: MessagePlace) -> dict[str, Any]:
    """As JSON can hold it.

    Arguments:
        place: Where a message belongs.
    """
    plain = asdict(place)
    # As a list, because JSON makes a text of a dictionary's key.
    layer_rounds: list[list[int]] = []
    for layer, turn in place.layer_rounds.items():
        layer_rounds.append([layer, *turn])
    plain["layer_rounds"] = layer_rounds
    return plain


def place_from_plain(plain: dict[str, Any]) -> MessagePlace:
    """Back from `place_to_plain`.

    Arguments:
        plain: What it gave.
    """
    layer_rounds: dict[int, tuple[int, int]] = {}
    for layer, number, count in plain["layer_rounds"]:
        layer_rounds[layer] = (number, count)

    values = dict(plain)
    values["layer_rounds"] = layer_rounds
    return MessagePlace(**values)


def codec_to_plain(codec: Codec) -> dict[str, Any]:
    """A codec's name and its options, of which some may be codecs.

    Arguments:
        codec: One of `fedlama.compress`.
    """
    kind = type(codec)
    name = kind.__name__
    known = getattr(compress, name, None)
    if not is_dataclass(codec) or known is not kind:
        raise InputError(
            f"clients know the codecs of fedlama.compress only, not {codec!r}"
        )

    options: dict[str, Any] = {}
    for option in fields(codec):
        value = getattr(codec, option.name)
        if isinstance(value, Codec):
            value = codec_to_plain(value)
        options[option.name] = value
    return {"codec": name, "options": options}


def codec_from_plain(plain: dict[str, Any]) -> Codec:
    """Back from `codec_to_plain`; nothing but codecs of `fedlama.compress` is ever made.

    Arguments:
        plain: What it gave.
    """
    name = plain["codec"]
    kind = None
    if name in compress.__all__:
        kind = getattr(compress, name)
    if not isinstance(kind, type) or not issubclass(kind, Codec):
        raise InputError(
            f"there is no codec {shown(name)} in fedlama.compress: install the server's fedlama"
        )

    options: dict[str, Any] = {}
    for option, value in plain["options"].items():
        options[option] = value
        if isinstance(value, dict):
            options[option] = codec_from_plain(value)
        elif isinstance(value, list):
            # JSON has no tuples.
            options[option] = tuple(value)
    return kind(**options)


def channel_of(
    plain: dict[str, Any] | None,
    layout: Layout,
    seed: int,
    direction: Literal["uplink", "downlink"],
) -> Channel | None:
    """The channel of a codec that a task describes; None where it describes none.

    Arguments:
        plain: The codec, from `codec_to_plain`.
        layout: The model's.
        seed: The run's.
        direction: Which way messages go.
    """
    if plain is None:
        return None
    codec = codec_from_plain(plain)
    return Channel(codec, layout, seed=seed, direction=direction)


def rule_to_plain(rule: LocalRule) -> dict[str, Any]:
    """A local rule's class and its options, with those of the SGD that it goes around; empty for one of another kind.

    What a configuration calls the class is for the server to say: clients do without what reads configurations.

    Arguments:
        rule: A local rule.
    """
    if not is_dataclass(rule):
        return {}
    plain: dict[str, Any] = {}
    for option in fields(rule):
        value = getattr(rule, option.name)
        if isinstance(value, LocalRule):
            inner = rule_to_plain(value)
            plain.update(inner)
        elif value is not None:
            plain[option.name] = value

    # Last, over the name of the SGD inside.
    plain["rule"] = type(rule).__name__
    return plain
