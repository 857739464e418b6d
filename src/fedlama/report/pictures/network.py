"""Time to the target over the uplink's bandwidth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from fedlama.report.numbers.comparison import RunComparison
from fedlama.report.numbers.network import Network, Replay, bandwidths, fastest_bands
from fedlama.report.pictures.charts import Chart, decades, log_axis, series_list
from fedlama.report.pictures.style import (
    GRID,
    MUTED,
    colour,
    colour_number,
    dashes,
    styled,
)
from fedlama.report.words.network import target_text
from fedlama.report.words.units import bandwidth_text, duration_text

SLOWEST = 1e6
FASTEST = 1e9
BAND_HEIGHT = 0.03  # of the strip that names the fastest, in parts of the panel
DAY = 86400
# Times that have a name, in seconds.
TIMES = [
    *(factor * 10.0**power for power in range(-4, 1) for factor in (1, 2, 5)),
    *(
        10.0,
        20.0,
        30.0,
        60.0,
        120.0,
        300.0,
        600.0,
        1200.0,
        1800.0,
        3600.0,
        7200.0,
        18000.0,
        36000.0,
    ),
    *(factor * 10.0**power * DAY for power in range(6) for factor in (1, 2, 5)),
]


def network_chart(played: Replay, comparison: RunComparison) -> Chart | None:
    """Time to the target over the uplink's bandwidth; None where no setting reaches it.

    Arguments:
        played: the replay.
        comparison: the settings that were replayed.
    """
    network = played.network
    ratio = network.downlink / network.uplink
    every_series = series_list(comparison)

    rows: list[list[Any]] = []
    series: list[dict[str, Any]] = []
    for index, demand in enumerate(played.demands):
        if demand is None:
            continue
        series.append(every_series[index])
        label = comparison.settings[index].label
        for uplink in bandwidths(SLOWEST, FASTEST):
            rows.append(
                [label, uplink, uplink * ratio, demand.seconds(network, uplink)]
            )
    if not rows:
        return None

    return Chart(
        id="network",
        title=f"Time to {target_text(played, comparison)} over the uplink's bandwidth",
        columns=["setting", "uplink in bit/s", "downlink in bit/s", "seconds"],
        formats=["text", "bandwidth", "bandwidth", "seconds"],
        rows=rows,
        drawing={
            "kind": "lines",
            "height": 340,
            "at": {"x": 1, "y": 3},
            "tip": [3],
            "x": log_axis(
                "uplink of every client", "bandwidth", SLOWEST, FASTEST, decades((1,))
            ),
            "y": _time_axis([row[3] for row in rows]),
            "series": series,
            "bands": _bands(played, comparison),
            **_mark(network),
        },
        figure=network_figure(played, comparison),
    )


def _bands(played: Replay, comparison: RunComparison) -> list[dict[str, Any]]:
    """A strip along the axis in the colour of the fastest setting there."""
    bands: list[dict[str, Any]] = []
    for band in fastest_bands(played, SLOWEST, FASTEST):
        drawn = {
            "name": comparison.settings[band.index].label,
            "low": band.low,
            "high": band.high,
            "colour": colour_number(comparison.settings[band.index].look),
        }
        bands.append(drawn)
    return bands


def _mark(network: Network) -> dict[str, Any]:
    """The bandwidth that was asked for, if the axis has it."""
    uplink = network.uplink
    if not SLOWEST <= uplink <= FASTEST:
        return {}
    mark = {"x": uplink, "name": bandwidth_text(uplink)}
    return {"mark": mark}


def _time_axis(times: Sequence[float]) -> dict[str, Any]:
    """From a round time below the shortest to one above the longest."""
    shortest = min(times)
    longest = max(times)
    low = shortest
    high = longest
    for time in TIMES:
        if time <= shortest:
            low = time
    for time in reversed(TIMES):
        if time >= longest:
            high = time

    # An axis needs some length, also where all times are one.
    high = max(high, low * 1.001)
    return log_axis("", "seconds", low, high, TIMES)


@styled
def network_figure(played: Replay, comparison: RunComparison) -> Figure:
    """The still picture.

    Arguments:
        played: the replay.
        comparison: the settings that were replayed.
    """
    looks = [setting.look for setting in comparison.settings]
    figure = Figure(figsize=(8.0, 3.4), layout="constrained")
    axes = figure.subplots()

    places = bandwidths(SLOWEST, FASTEST)
    for index, demand in enumerate(played.demands):
        if demand is None:
            continue
        times = [demand.seconds(played.network, uplink) for uplink in places]
        axes.plot(
            places,
            times,
            color=colour(looks[index]),
            linestyle=dashes(looks[index]),
            linewidth=1.8,
        )
    for band in fastest_bands(played, SLOWEST, FASTEST):
        own = colour(looks[band.index])
        axes.axvspan(band.low, band.high, ymax=BAND_HEIGHT, color=own, linewidth=0)
    axes.axvline(played.network.uplink, color=MUTED, linestyle="dashed", linewidth=1)

    axes.set(
        xscale="log",
        yscale="log",
        xlim=(SLOWEST, FASTEST),
        xlabel="uplink of every client",
        ylabel="time to the target",
    )
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: bandwidth_text(value))
    )
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: duration_text(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: duration_text(value)))
    axes.tick_params(axis="y", which="minor", labelsize=8)
    axes.grid(axis="both", color=GRID, linewidth=0.8)
    return figure
