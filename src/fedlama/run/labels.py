"""What a run is called where nobody named it: by its preset, or by its policy and what else is not the paper's.

A run directory has the tables that a preset gave, and not its name. So a preset is recognised by its tables.
"""

from __future__ import annotations

from inspect import signature

from fedlama.base import InputError
from fedlama.run.codecs import UplinkSection
from fedlama.run.config import Config, comparable
from fedlama.run.presets import (
    DEFAULT_AVERAGED,
    DEFAULT_SHARE,
    LEAST_MESSAGE,
    frugal,
)
from fedlama.run.tables import PolicySection

FRUGAL = "frugal"
DEFAULT_INTERVAL: int = signature(frugal).parameters["base_interval"].default
# What a preset is known by. Another server's rule or a code of the downlink stands beside its name.
SECTIONS = {
    "policy": PolicySection,
    "uplink": UplinkSection,
}


def run_label(config: Config) -> str:
    """The preset, or the policy with the rules that are not the paper's and the codes.

    Arguments:
        config: Of the run, as the user wrote it or as its directory has it.
    """
    config = comparable(config)
    label = default_name(config)
    for section in (config.local, config.server):
        if section.chosen != section.default:
            label += f" + {section.short_label}"
    uplink = config.uplink.label
    is_preset = _preset_label(config) is not None
    # A preset's name says how it codes the uplink.
    if uplink and not is_preset:
        label += f" + {uplink}"
    downlink = config.downlink.label
    if downlink:
        label += f", downlink {downlink}"
    return label


def asked_share(config: Config) -> float | None:
    """Which share of FedAvg's uplink a run of a preset was to send at most; None for other runs.

    Arguments:
        config: Of the run.
    """
    options = _frugal_options(config)
    if options is None:
        return None
    share, _ = options
    return share


def default_name(config: Config) -> str:
    """The preset or the policy: what a study calls a setting that has no name.

    Arguments:
        config: Of the setting.
    """
    return _preset_label(config) or config.policy.label


def _preset_label(config: Config) -> str | None:
    """`frugal`, with what is not its default: interval, share, averaged; None for a run of no preset."""
    options = _frugal_options(config)
    if options is None:
        return None
    share, averaged = options
    label = FRUGAL
    interval = config.policy.steps_between_averages
    if interval != DEFAULT_INTERVAL:
        label += f"({interval})"
    if share != DEFAULT_SHARE:
        label += f", {100 * share:g} %"
    if averaged != DEFAULT_AVERAGED:
        label += f", averaged {averaged:g}"
    return label


def _frugal_options(config: Config) -> tuple[float, float] | None:
    """The share and `averaged` for which `frugal` gives exactly these tables; None where there are none."""
    if config.policy.kind != "budget" or config.uplink.codec != "fit":
        return None
    policy = config.policy.model_dump()
    uplink = config.uplink.model_dump()
    averaged = policy["share"]
    share = averaged * uplink["share"]
    if uplink["share"] == LEAST_MESSAGE:
        # Messages cannot be smaller: what is below is spent by sending layers less often.
        averaged = DEFAULT_AVERAGED
    # A product may miss the share that was written by its last bit.
    for candidate in (share, float(f"{share:.12g}")):
        if _is_frugal(config, policy["base_interval"], candidate, averaged):
            return candidate, averaged
    return None


def _is_frugal(
    config: Config, base_interval: int, share: float, averaged: float
) -> bool:
    try:
        tables = frugal(base_interval, share, averaged)
    except InputError:
        # No preset has such a budget
        return False
    if "averaged" not in config.uplink.model_dump():
        # Of an earlier version, or with a policy.share of the file's own: the same was asked for.
        tables["uplink"].pop("averaged", None)
    for name, section in SECTIONS.items():
        expected = section.model_validate(tables[name])
        own = getattr(config, name)
        if own.model_dump() != expected.model_dump():
            return False
    return True
