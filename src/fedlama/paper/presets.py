"""Recommended combinations as values: `fedlama.simulate(model, data, **fedlama.presets.frugal(), …)`."""

from __future__ import annotations

from typing import Any

from fedlama.run.choices import DEFAULT_BASE_INTERVAL
from fedlama.run.codecs import DownlinkSection, UplinkSection
from fedlama.run.presets import DEFAULT_AVERAGED, DEFAULT_SHARE
from fedlama.run.presets import frugal as frugal_tables
from fedlama.run.tables import PolicySection, ServerSection

__all__ = ["frugal"]


def frugal(
    base_interval: int = DEFAULT_BASE_INTERVAL,
    share: float = DEFAULT_SHARE,
    averaged: float = DEFAULT_AVERAGED,
) -> dict[str, Any]:
    """What was measured to come closest to FedAvg(base_interval) with a small share of its uplink.

    Arguments:
        base_interval: τ', how many steps lie between two averages.
        share: The share of FedAvg's uplink bytes to spend at most, from 0.00125 to 0.25. The rate follows from it and
            from the model. It holds for whole cycles of a run, and not for each message, whose length is a matter of
            chance; a run that ends inside a cycle sends all layers once more. There is a floor: no number is coded
            with less than 0.1 bits, and a message has its own size, so networks of a few thousand parameters take more.
            So do others near 0.00125, where layers are sent once per cycle, but biases and norms in every round:
            `small_cnn` sent 0.0014 and an MLP of 256 and 256 units 0.0016 on the digits. The conclusion of
            `fedlama run` says what was asked for where more was sent.
        averaged: How many of FedAvg's parameters are averaged in a round, from 0.25 to 1. In a deep network layers
            drift very differently: with 0.5, those that drift little are averaged less often, and the others get about
            twice the bits: BatchNorm's statistics, which travel in every round, are taken off. On ResNet20 that lost
            less, with half of the downlink. In a small network all of them are better averaged at every round,
            with 1. Whole layers have one, two or four base intervals, so
            fewer may be averaged than you ask for: with 0.9, `small_cnn` averages 0.75, because six sevenths of it are
            one layer.

    Returns:
        The arguments `policy`, `server`, `uplink` and `downlink` of `fedlama.simulate`. Clients need no memory. A
        cohort stays for four base intervals unless you say `window=`: a multiple of that, or, where all layers are
        averaged every time (`averaged = 1` and a share of 0.005 or more), of one.
    """
    tables = frugal_tables(base_interval, share, averaged)
    policy = PolicySection.model_validate(tables["policy"])
    server = ServerSection.model_validate(tables["server"])
    uplink = UplinkSection.model_validate(tables["uplink"])
    downlink = DownlinkSection.model_validate(tables["downlink"])

    return {
        "policy": policy.build(),
        "server": server.build(),
        "uplink": uplink.build(),
        "downlink": downlink.build(),
    }
