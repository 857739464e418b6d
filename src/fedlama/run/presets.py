"""Recommended combinations, as tables of a configuration: `preset = "frugal"` and `share = 0.01` at its top.

What the file sets itself stands. A table in which it makes a choice of its own (`policy.kind`, `uplink.codec`) is all
its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fedlama.base import InputError, check_number, check_whole, shown
from fedlama.compress.limits import MIN_BITS

DEFAULT_SHARE = 0.01
MIN_SHARE, MAX_SHARE = 0.004, 0.25
# Of 32 bits per number: the rest is for scales, biases and statistics, which are sent at a higher rate.
BITS_OF_KERNELS = 28
CHOOSING_KEYS = {"policy": "kind", "server": "rule", "uplink": "codec", "downlink": "codec"}

Tables = dict[str, Any]


def frugal(base_interval: int = 6, share: float = DEFAULT_SHARE) -> Tables:
    """FedAvg's uplink at a hundredth of its bytes: coded updates at a fraction of a bit, error feedback in a window."""
    check_whole("base_interval", base_interval, least=1)
    check_number("share", share, least=MIN_SHARE, most=MAX_SHARE)
    bits = max(MIN_BITS, BITS_OF_KERNELS * share)
    return {
        "policy": {"kind": "fedavg", "base_interval": base_interval},
        "server": {"rule": "mean"},
        "uplink": {"codec": "rotate", "bits": round(bits, 6), "error_feedback": "window"},
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
            raise InputError("share means nothing without a preset: write preset = 'frugal' beside it")
        return own
    if not isinstance(name, str) or name not in PRESETS:
        raise InputError(f"preset = {shown(name)}: must be one of {', '.join(PRESETS)}")
    options = {} if share is None else {"share": share}
    for table, values in PRESETS[name](**options).items():
        own[table] = _beside(table, values, own.get(table, {}))
    return own


def _beside(table: str, preset: Tables, own: Any) -> Any:
    """The preset's values where the file has none."""
    if not isinstance(own, Mapping) or CHOOSING_KEYS[table] in own:
        return own
    return {**preset, **own}
