"""Recommended combinations, as tables of a configuration: `preset = "frugal"` and its options at the top of the file.

What the file sets itself stands. A table in which it makes a choice of its own (`policy.kind`, `uplink.codec`) is all
its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fedlama.base import InputError, check_number, check_whole, shown
from fedlama.run.choices import DEFAULT_BASE_INTERVAL

DEFAULT_SHARE = 0.01
MIN_SHARE = 0.00125
MAX_SHARE = 0.25
DEFAULT_AVERAGED = 1.0
# Of float32, about 0.15 bits per number: below that, layers are sent less often instead
LEAST_MESSAGE = 0.005
ROUNDS_PER_CYCLE = 4  # and with it per window, if nobody asks for another
CHOOSING_KEYS = {
    "policy": "kind",
    "server": "rule",
    "uplink": "codec",
    "downlink": "codec",
}

Tables = dict[str, Any]


def frugal(
    base_interval: int = DEFAULT_BASE_INTERVAL,
    share: float = DEFAULT_SHARE,
    averaged: float = DEFAULT_AVERAGED,
) -> Tables:
    """Updates coded without a bias at a fraction of a bit per number, of every layer or of those that are due.

    Arguments:
        base_interval: τ', how many steps lie between two averages.
        share: Of FedAvg's uplink bytes.
        averaged: Of FedAvg's parameters per round, how many are averaged: where it is less than 1, layers that drift
            little are averaged less often, and the bits that they save go to the others.
    """
    check_whole("base_interval", base_interval, minimum=1)
    _check_share(share)
    check_number("averaged", averaged, minimum=1 / ROUNDS_PER_CYCLE, maximum=1)
    often = min(averaged, share / LEAST_MESSAGE)
    message = share / often
    if message > MAX_SHARE:
        raise InputError(
            f"share = {share:g} of FedAvg's uplink for averaged = {averaged:g} of its parameters needs no such code: "
            f"share / averaged must be at most {MAX_SHARE:g}"
        )
    uplink: Tables = {"codec": "fit", "share": message}
    if often < 1:
        # What travels with every message, whichever layers are in it, is within the share
        uplink["averaged"] = often
    return {
        "policy": {
            "kind": "budget",
            "base_interval": base_interval,
            "cycle": ROUNDS_PER_CYCLE * base_interval,
            "share": often,
        },
        "server": {"rule": "mean"},
        "uplink": uplink,
        "downlink": {"codec": "none"},
    }


def _check_share(share: Any) -> None:
    try:
        check_number("share", share, minimum=MIN_SHARE, maximum=MAX_SHARE)
    except InputError as error:
        # Who writes 1 or "1%" means per cent
        raise InputError(f"{error}; 0.01 is one per cent") from None


PRESETS: Mapping[str, Callable[..., Tables]] = {"frugal": frugal}
OPTIONS = ("share", "averaged")  # of the presets, at the top of a file
# Takes a preset and its options out again: --set preset=none
NO_PRESET = "none"


def with_preset(tables: Mapping[str, Any]) -> Tables:
    """The tables of a configuration with those of the preset that it names, if it names one."""
    own = dict(tables)
    name = own.pop("preset", None)
    options: Tables = {}
    for option in OPTIONS:
        if option in own:
            options[option] = own.pop(option)
    if name is None:
        for option in options:
            raise InputError(
                f"{option} means nothing without a preset: write preset = 'frugal' beside it"
            )
        return own
    if name == NO_PRESET:
        return own
    if not isinstance(name, str) or name not in PRESETS:
        allowed = ", ".join([*PRESETS, NO_PRESET])
        raise InputError(f"preset = {shown(name)}: must be one of {allowed}")

    given = dict(options)
    policy = own.get("policy")
    if isinstance(policy, Mapping) and "base_interval" in policy:
        options["base_interval"] = policy["base_interval"]
    preset = PRESETS[name](**options)
    _check_options_count(given, own, preset)
    for table, values in preset.items():
        own[table] = _beside(table, values, own.get(table, {}))
    return own


def _check_options_count(given: Tables, own: Tables, preset: Tables) -> None:
    """Refuse an option that what the file chooses itself leaves without its effect, or with half of it."""
    needed: list[str] = []
    if given:
        needed.append("uplink")
    averages_less = preset["policy"]["share"] < 1
    if averages_less:
        needed.append("policy")
    for table in needed:
        key = CHOOSING_KEYS[table]
        if given and _makes_a_choice(table, own.get(table)):
            option = next(iter(given))
            raise InputError(
                f"{option} = {shown(given[option])} is for the preset's own [{table}], and {table}.{key} chooses "
                f"another: leave out one of the two"
            )


def _beside(table: str, preset: Tables, own: Any) -> Any:
    """The preset's values where the file has none."""
    if not isinstance(own, Mapping):
        return own
    if _makes_a_choice(table, own):
        return own
    return {**preset, **own}


def _makes_a_choice(table: str, own: Any) -> bool:
    return isinstance(own, Mapping) and CHOOSING_KEYS[table] in own
