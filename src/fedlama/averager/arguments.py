"""What an averager was asked for: a policy and a code that ranks can follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

import torch

from fedlama.base import InputError, identity_of
from fedlama.compress import Channel, Codec
from fedlama.core import (
    FROZEN,
    FedAvg,
    FedLAMA,
    Layout,
    Policy,
    PolicyState,
    Variant,
    canonical,
)
from fedlama.core.policy_checks import check_policy
from fedlama.server import ServerRule


def policy_of(
    policy: Policy | None,
    base_interval: int | None,
    increase_factor: int | None,
    variant: Variant,
) -> Policy:
    """The policy that was asked for, in one of two ways."""
    if policy is None:
        if base_interval is None or increase_factor is None:
            raise InputError(
                "say how often to average: base_interval and increase_factor, or policy="
            )
        return FedLAMA(base_interval, increase_factor, variant)
    if base_interval is not None or increase_factor is not None:
        raise InputError(
            "base_interval and increase_factor belong to the policy: leave them out beside policy="
        )
    check_policy("policy", policy)
    if FROZEN in policy.uses:
        raise InputError(
            f"{policy} freezes layers, and an averager has no say in what is trained: choose another policy"
        )
    return policy


def channel_of(
    codec: Codec | None, layout: Layout, seed: int, dtype: torch.dtype
) -> Channel | None:
    """The code of what ranks send, if there is one."""
    if codec is None:
        return None
    channel = Channel(
        codec,
        layout,
        seed=seed,
        direction="uplink",
    )
    for slot in channel.slots:
        if slot.lifetime != "run":
            raise InputError(
                "ranks stay for the whole run, so write fedlama.compress.ErrorFeedback(codec, lifetime='run')"
            )
    if dtype != torch.float32:
        raise InputError(
            f"an uplink codes float32, and the module is {dtype}: build it with .float()"
        )
    return channel


def settings_of(
    policy: Policy, warmup_steps: int, server: ServerRule, channel: Channel | None
) -> dict[str, Any]:
    """What must be the same on all ranks and in a state that is loaded."""
    settings = _policy_settings(policy)
    settings["warmup_steps"] = warmup_steps
    settings["server"] = identity_of(server)
    settings["uplink"] = "none"
    if channel is not None:
        settings["uplink"] = identity_of(channel.codec)
        settings["seed"] = channel.seed
    return settings


def as_set_today(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a state that an earlier version may have saved: it called FedLAMA with factor 1 so.

    Arguments:
        settings: What `settings_of` gave, now or then.
    """
    today = dict(settings)
    policy = str(today.get("policy"))
    if policy.startswith("FedLAMA(") and today.get("increase_factor") == 1:
        same = FedAvg(today["base_interval"])
        today |= _policy_settings(same)
    return today


def _policy_settings(policy: Policy) -> dict[str, Any]:
    """What tells one policy from another; equal ones have the same."""
    own = canonical(policy)
    settings: dict[str, Any] = {}
    if is_dataclass(own) and not isinstance(own, type):
        # By name, so that a message can say which one differs
        settings = asdict(own)
    settings["policy"] = identity_of(own)
    return settings


def facts_of(
    layout: Layout, settings: Mapping[str, Any], policy: PolicyState, step: int
) -> str:
    """The model's layers, the settings and where the run stands, as text that is the same on all ranks."""
    layers: list[tuple[str, int, bool]] = []
    for layer in layout.layers:
        layers.append((layer.name, layer.size, layer.adaptive))
    facts = [
        repr(layers),
        repr(layout.statistics_size),
        repr(settings),
        repr(policy.intervals),
        str(policy.step),
        str(step),
    ]
    return "\n".join(facts)
