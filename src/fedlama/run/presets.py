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
    _check_averaged(averaged)
    often = min(averaged, share / LEAST_MESSAGE)
    message = share / often
    if message > MAX_SHARE:
        raise InputError(
            f"averaged = {averaged:g} gives a message {1 / averaged:.4g} times the bits, {100 * message:.4g} % of "
            f"float32's for share = {share:g}; at most {100 * MAX_SHARE:g} % is possible: lower share or raise averaged"
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


def _check_averaged(averaged: Any) -> None:
    check_number("averaged", averaged, minimum=1 / ROUNDS_PER_CYCLE, maximum=1)


PRESETS: Mapping[str, Callable[..., Tables]] = {"frugal": frugal}
# Of the presets, at the top of a file
CHECKS: Mapping[str, Callable[[Any], None]] = {
    "share": _check_share,
    "averaged": _check_averaged,
}
PRESET = "preset"  # the key that names one
OPTIONS = tuple(CHECKS)
# What the options decide together: table, key, and the option that it is about more than about the other one
DECIDED = (
    ("uplink", "share", "share"),
    ("uplink", "averaged", "averaged"),
    ("policy", "share", "averaged"),
)
# Takes a preset and its options out again: --set preset=none
NO_PRESET = "none"


def with_preset(tables: Mapping[str, Any]) -> Tables:
    """The tables of a configuration with those of the preset that it names, if it names one."""
    own = dict(tables)
    name = own.pop(PRESET, None)
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
        # Without effect, as --set preset=none asks for; a value that no preset takes is a mistake all the same.
        for option, value in options.items():
            CHECKS[option](value)
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
    if not _makes_a_choice("policy", tables.get("policy")):
        _check_policy_share(own["policy"])
    return own


def _check_options_count(given: Tables, own: Tables, preset: Tables) -> None:
    """Refuse an option that what the file chooses itself leaves without its effect, or with half of it."""
    if not given:
        return
    first = next(iter(given))
    if _makes_a_choice("uplink", own.get("uplink")):
        raise _without_effect(first, given, "uplink", CHOOSING_KEYS["uplink"])
    if _makes_a_choice("policy", own.get("policy")):
        _check_goes_with(own["policy"]["kind"], given, preset)
        return
    for table, key, option in DECIDED:
        values = own.get(table)
        if isinstance(values, Mapping) and key in values:
            blamed = first
            if option in given:
                blamed = option
            raise _without_effect(blamed, given, table, key)


def _check_goes_with(kind: Any, given: Tables, preset: Tables) -> None:
    """Refuse an option beside a policy of the file's own, unless that averages everything every time, as it assumes."""
    averages_less = preset["policy"]["share"] < 1
    if averages_less:
        option = "share"
        if given.get("averaged", DEFAULT_AVERAGED) < 1:
            option = "averaged"
        raise _without_effect(option, given, "policy", CHOOSING_KEYS["policy"])
    if kind != "fedavg":
        option = next(iter(given))
        raise InputError(
            f"{option} = {shown(given[option])} is for the preset's own [policy] or fedavg, and with policy.kind = "
            f"{shown(kind)} another share would be sent: leave out one of the two (the share of a message is "
            f"uplink.share)"
        )


def _without_effect(option: str, given: Tables, table: str, key: str) -> InputError:
    return InputError(
        f"{option} = {shown(given[option])} is for the preset's own [{table}], and {table}.{key} chooses another: "
        f"leave out one of the two"
    )


def _check_policy_share(policy: Any) -> None:
    """Who writes the preset's share below [policy] has asked for something else there, and hardly ever for that."""
    if not isinstance(policy, Mapping) or policy.get("kind") != "budget":
        return
    share = policy.get("share")
    interval = policy.get("base_interval")
    cycle = policy.get("cycle")
    # What is no number is said of each key by itself, where the table is read
    if not isinstance(interval, int) or not isinstance(cycle, int) or cycle < 1:
        return
    if not isinstance(share, int | float):
        return
    smallest = interval / cycle
    if share < smallest:
        raise InputError(
            f"policy.share = {shown(share)} must be at least base_interval / cycle = {smallest:g}: it is the share of "
            f"the layers that are averaged. The preset's share of FedAvg's uplink belongs at the top of the file, "
            f"before the first table"
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
