"""Recommended combinations, as tables of a configuration: `preset = "frugal"` and `share = 0.01` at its top.

What the file sets itself stands. A table in which it makes a choice of its own (`policy.kind`, `uplink.codec`) is all
its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fedlama.base import InputError, check_number, check_whole, shown

DEFAULT_SHARE = 0.01
MIN_SHARE, MAX_SHARE = 0.00125, 0.25
# Of float32, about 0.15 bits per number: below that, layers are sent less often instead
LEAST_MESSAGE = 0.005
ROUNDS = 4  # of a cycle, and with it of a window, if nobody asks for another
CHOOSING_KEYS = {
    "policy": "kind",
    "server": "rule",
    "uplink": "codec",
    "downlink": "codec",
}

Tables = dict[str, Any]


def frugal(base_interval: int = 6, share: float = DEFAULT_SHARE) -> Tables:
    """Every layer at the base interval as in FedAvg, coded without a bias at a fraction of a bit per number."""
    check_whole("base_interval", base_interval, minimum=1)
    check_number("share", share, minimum=MIN_SHARE, maximum=MAX_SHARE)
    often = min(1.0, share / LEAST_MESSAGE)
    message = max(share, LEAST_MESSAGE)
    return {
        "policy": {
            "kind": "budget",
            "base_interval": base_interval,
            "cycle": ROUNDS * base_interval,
            "share": often,
        },
        "server": {"rule": "mean"},
        "uplink": {"codec": "fit", "share": message},
        "downlink": {"codec": "none"},
    }


PRESETS: Mapping[str, Callable[..., Tables]] = {"frugal": frugal}


def with_preset(tables: Mapping[str, Any]) -> Tables:
    """The tables of a configuration with those of the preset that it names, if it names one."""
    own = dict(tables)
    name = own.pop("preset", None)
    share = own.pop("share", None)
    if name is None:
        if share is not None:
            raise InputError(
                "share means nothing without a preset: write preset = 'frugal' beside it"
            )
        return own
    if not isinstance(name, str) or name not in PRESETS:
        allowed = ", ".join(PRESETS)
        raise InputError(f"preset = {shown(name)}: must be one of {allowed}")

    options: Tables = {}
    if share is not None:
        options["share"] = share
    policy = own.get("policy")
    if isinstance(policy, Mapping) and "base_interval" in policy:
        options["base_interval"] = policy["base_interval"]

    preset = PRESETS[name](**options)
    for table, values in preset.items():
        given = own.get(table, {})
        own[table] = _beside(table, values, given)
    return own


def _beside(table: str, preset: Tables, own: Any) -> Any:
    """The preset's values where the file has none."""
    if not isinstance(own, Mapping):
        return own
    makes_a_choice = CHOOSING_KEYS[table] in own
    if makes_a_choice:
        return own
    return {**preset, **own}
