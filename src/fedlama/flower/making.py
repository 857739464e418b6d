"""The server and the codes of a run, made of what the strategy was given."""

from __future__ import annotations

from fedlama.compress import Channel
from fedlama.core import Layout
from fedlama.flower.cohorts import FlowerCohorts
from fedlama.flower.options import Options
from fedlama.flower.sending import SendingChannel
from fedlama.server import Server
from fedlama.training.coding import Uplink


def make_uplink(
    options: Options, layout: Layout, cohorts: FlowerCohorts
) -> Uplink | None:
    """What decodes replies; None where they are not coded.

    Arguments:
        options: What the strategy was given.
        layout: The model's.
        cohorts: Knows how long a window is.
    """
    codec = options.uplink
    if codec is None:
        return None
    channel = Channel(codec, layout, seed=options.seed, direction="uplink")
    base_interval = options.policy.base_interval
    return Uplink(
        channel,
        window_steps=cohorts.window_steps,
        base_interval=base_interval,
    )


def make_downlink(options: Options, layout: Layout) -> SendingChannel | None:
    """What codes the messages to clients that stay; None where they are not coded.

    Arguments:
        options: What the strategy was given.
        layout: The model's.
    """
    codec = options.downlink
    if codec is None:
        return None
    return SendingChannel(codec, layout, seed=options.seed, direction="downlink")


def make_server(
    options: Options, layout: Layout, *, uplink: Uplink | None, downlink: Channel | None
) -> Server:
    """What plans and closes rounds.

    Arguments:
        options: What the strategy was given.
        layout: The model's.
        uplink: The code of replies, if any.
        downlink: The code of messages to clients that stay, if any.
    """
    up: Channel | None = None
    if uplink is not None:
        up = uplink.channel
    return Server(
        layout,
        options.deciding_policy,
        rule=options.server,
        local=options.local,
        uplink=up,
        downlink=downlink,
    )
