"""The network replay as a reader meets it: assumptions, a table, sentences and a chart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from fedlama.report.charts import Chart, decades, log_axis, series_list
from fedlama.report.comparison import Comparison
from fedlama.report.formats import UNKNOWN, count_text, human_bytes, joined, percent
from fedlama.report.network import Payoff, Replay, bandwidths, payoff, slowest_of
from fedlama.report.style import GRID, MUTED, PALETTE, colour, dashes, styled
from fedlama.report.units import bandwidth_text, duration_text

DAY = 86400
# Times that have a name, in seconds.
TIMES = [
    *(factor * 10.0**power for power in range(-4, 1) for factor in (1, 2, 5)),
    *(10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 18000.0, 36000.0),
    *(factor * 10.0**power * DAY for power in range(6) for factor in (1, 2, 5)),
]


def target_text(played: Replay, comparison: Comparison) -> str:
    """The target as a score: `90.6 %`, `a loss of 0.31`."""
    return percent(played.target, 1) if comparison.metric == "accuracy" else f"a loss of {played.target:.3f}"


def assumptions(played: Replay, comparison: Comparison) -> list[str]:
    """What the replay takes for granted."""
    network, target = played.network, target_text(played, comparison)
    up, down = bandwidth_text(network.uplink), bandwidth_text(network.downlink)
    whose = "the best that every setting reaches" if played.chosen else "as asked for"
    trip, step = duration_text(network.latency), duration_text(network.step_time)
    return [
        f"Every client sends at {up} and receives at {down}.",
        f"A round costs one round trip of {trip}, a local step {step}.",
        *_stragglers(played),
        f"The target is {target}, {whose}: the first evaluation at which the mean over seeds has it.",
    ]


def _stragglers(played: Replay) -> list[str]:
    sigma, sizes = played.network.straggling, sorted({demand.clients for demand in played.demands if demand})
    if not sigma:
        return ["All clients are equally fast."]
    factors = " or ".join(f"{slowest_of(size, sigma):.2f} times the median for {size} clients" for size in sizes)
    waits = f", on average {factors}" if sizes else ""
    return [f"Clients differ by a log-normal factor with σ = {sigma:g}; a round waits for the slowest{waits}."]


def payoff_sentences(played: Replay, comparison: Comparison) -> list[str]:
    """For every setting that adapts, the bandwidth below which it pays off against each FedAvg setting."""
    target = target_text(played, comparison)
    pairs = list(zip(comparison.settings, played.demands, strict=True))
    said = [f"{setting.label} never reaches {target}." for setting, demand in pairs if demand is None]
    for ours, our_demand in pairs:
        for theirs, their_demand in pairs:
            if ours.adapts and not theirs.adapts and our_demand and their_demand:
                found = payoff(our_demand, their_demand, played.network)
                said.append(f"{ours.label} {_pays_off(found, theirs.label, target)}.")
    return [*said, *_reached_at_once(played, comparison)]


def _reached_at_once(played: Replay, comparison: Comparison) -> list[str]:
    """Nobody looked earlier, so these times may be too long, and what is said of them with it."""
    pairs = zip(comparison.settings, played.demands, strict=True)
    early = [setting.label for setting, demand in pairs if demand and demand.step == setting.curve.steps[0]]
    target = target_text(played, comparison)
    return [f"{joined(early)} had {target} at the first evaluation already and may have been faster."] if early else []


def _pays_off(found: Payoff, other: str, target: str) -> str:
    if found.where == "equal":
        return f"takes exactly as long as {other} to {target}, at every bandwidth"
    if found.where == "always":
        return f"pays off against {other} at every bandwidth"
    if found.uplink is None:
        return f"never pays off against {other}: at every bandwidth it is no sooner at {target}"
    slower = "slower" if found.where == "below" else "faster"
    return f"pays off against {other} where the uplink is {slower} than {bandwidth_text(found.uplink)}"


def network_rows(played: Replay, comparison: Comparison) -> list[dict[str, Any]]:
    """The table: what each setting needs to the target, and how long that takes on this network."""
    return [
        {
            "label": setting.label,
            "colour": index % len(PALETTE),
            "numbers": [UNKNOWN] * 5
            if demand is None
            else [
                duration_text(demand.seconds(played.network)),
                str(demand.step),
                count_text(demand.rounds),
                human_bytes(demand.uplink_bytes),
                human_bytes(demand.downlink_bytes),
            ],
        }
        for index, (setting, demand) in enumerate(zip(comparison.settings, played.demands, strict=True))
    ]


def network_chart(played: Replay, comparison: Comparison) -> Chart | None:
    """Time to the target over the uplink's bandwidth; None where no setting reaches it."""
    network = played.network
    ratio = network.downlink / network.uplink
    rows = [
        [setting.label, uplink, uplink * ratio, demand.seconds(network, uplink)]
        for setting, demand in zip(comparison.settings, played.demands, strict=True)
        if demand is not None
        for uplink in bandwidths()
    ]
    if not rows:
        return None
    mark = (
        {"mark": {"x": network.uplink, "name": bandwidth_text(network.uplink)}} if 1e6 <= network.uplink <= 1e9 else {}
    )
    reached = [demand is not None for demand in played.demands]
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
            "x": log_axis("uplink of every client", "bandwidth", 1e6, 1e9, decades((1,))),
            "y": _time_axis([row[3] for row in rows]),
            "series": [one for one, there in zip(series_list(comparison), reached, strict=True) if there],
            **mark,
        },
        figure=network_figure(played),
    )


def _time_axis(times: Sequence[float]) -> dict[str, Any]:
    """From a round time below the shortest to one above the longest."""
    low = max((step for step in TIMES if step <= min(times)), default=min(times))
    high = min((step for step in TIMES if step >= max(times)), default=max(times))
    return log_axis("", "seconds", low, max(high, low * 1.001), TIMES)


@styled
def network_figure(played: Replay) -> Figure:
    """The still picture."""
    figure = Figure(figsize=(8.0, 3.4), layout="constrained")
    axes = figure.subplots()
    places = bandwidths()
    for index, demand in enumerate(played.demands):
        if demand is not None:
            times = [demand.seconds(played.network, uplink) for uplink in places]
            axes.plot(places, times, color=colour(index), linestyle=dashes(index), linewidth=1.8)
    axes.axvline(played.network.uplink, color=MUTED, linestyle="dashed", linewidth=1)
    axes.set(xscale="log", yscale="log", xlim=(1e6, 1e9), xlabel="uplink of every client", ylabel="time to the target")
    for part, text in ((axes.xaxis, bandwidth_text), (axes.yaxis, duration_text)):
        part.set_major_formatter(FuncFormatter(lambda value, _, text=text: text(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: duration_text(value)))
    axes.tick_params(axis="y", which="minor", labelsize=8)
    axes.grid(axis="both", color=GRID, linewidth=0.8)
    return figure
