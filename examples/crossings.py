"""Where δ crosses 1 − λ, decision by decision: Figure 1 of the paper over the time of a run.

    python examples/crossings.py runs/mine [PICTURE.svg]

Reads a run directory of FedLAMA. For every decision: after which step, at which of the layers by ascending discrepancy
the curves cross, δ there, and the share of the parameters that is averaged less often from then on. The picture has the
curves of four of them, evenly spaced from the first to the last.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from fedlama.base import InputError
from fedlama.core import adjust_intervals, crossing_curves
from fedlama.report.numbers.looks import looks_of
from fedlama.report.pictures.crossings import CURVES, axis_text
from fedlama.report.pictures.style import GRID, MUTED, colour, styled, svg
from fedlama.run.recorded import RecordedRun, read_run

PANELS = 4
COLUMNS = 2


@dataclass(frozen=True)
class Decision:
    step: int
    delta: list[float]
    kept: list[float]  # 1 − λ
    crossing: int  # the place of the last layer that is lengthened, from 1
    long_share: float

    @property
    def delta_there(self) -> float:
        return self.delta[self.crossing - 1]


def decisions_of(run: RecordedRun) -> list[Decision]:
    """One for every cycle after which all layers had been measured, from the first that FedLAMA may take."""
    assert run.summary is not None
    policy = run.tables["policy"]
    sizes = [layer.size for layer in run.summary.layers]
    adaptive = [layer.adaptive for layer in run.summary.layers]
    rule = policy.get("rule", "crossing")

    decisions: list[Decision] = []
    for record in run.records:
        discrepancy = [one for one in record.discrepancy if one is not None]
        is_whole = len(discrepancy) == len(sizes)
        ends_cycle = record.step % (policy["base_interval"] * policy["increase_factor"])
        is_early = record.round < policy.get("warmup_rounds", 0)
        if not is_whole or ends_cycle or is_early:
            continue
        intervals = adjust_intervals(
            discrepancy,
            sizes,
            base_interval=policy["base_interval"],
            increase_factor=policy["increase_factor"],
            adaptive=adaptive,
            rule=rule,
        )
        long = [interval > policy["base_interval"] for interval in intervals]
        long_size = sum(
            size for size, is_long in zip(sizes, long, strict=True) if is_long
        )
        delta, kept = crossing_curves(discrepancy, sizes, adaptive, rule)
        decision = Decision(record.step, delta, kept, sum(long), long_size / sum(sizes))
        decisions.append(decision)
    return decisions


@styled
def draw(decisions: list[Decision], run: RecordedRun) -> Figure:
    """Two rows of two, so that a narrow screen can show it; in the look of the report's own picture of one decision."""
    (look,) = looks_of([(run.label, run.config)])
    last = len(decisions) - 1
    chosen = sorted({round(last * part / (PANELS - 1)) for part in range(PANELS)})
    rows = -(-len(chosen) // COLUMNS)
    figure = Figure(figsize=(5.2, 1.3 + 2.5 * rows), layout="constrained")
    figure.suptitle(title_of(run), x=0.02, ha="left", fontsize=11, fontweight="bold")
    panels = figure.subplots(rows, COLUMNS, sharex=True, sharey=True, squeeze=False)
    for axes in panels.flat[len(chosen) :]:
        axes.set_visible(False)
    for axes, number in zip(panels.flat, chosen, strict=False):
        decision = decisions[number]
        places = range(1, len(decision.delta) + 1)
        axes.plot(
            places, decision.delta, "o-", markersize=3, color=colour(look), label="δ"
        )
        axes.plot(places, decision.kept, color=MUTED, label="1 − λ")
        axes.axvline(decision.crossing, color=MUTED, linewidth=1, linestyle=":")
        axes.set_title(f"after step {decision.step:,}", fontsize=10)
        axes.set_ylim(-0.03, 1.06)
        axes.grid(axis="y", color=GRID, linewidth=0.8)
    panels[0, 0].legend(frameon=False)
    figure.supylabel(CURVES, fontsize=10, color=MUTED)
    figure.supxlabel(axis_text(walked_of(run)), fontsize=10, color=MUTED)
    return figure


def walked_of(run: RecordedRun) -> str:
    """What the rule walks: where biases and norms are passed over, it is kernels."""
    assert run.summary is not None
    if all(layer.adaptive for layer in run.summary.layers):
        return "layers"
    return "kernels"


def title_of(run: RecordedRun) -> str:
    """What was trained on what, and by whom."""
    config = run.tables
    policy = config["policy"]
    interval = policy["base_interval"]
    factor = policy["increase_factor"]
    # A configuration by hand may leave these to their defaults.
    partition = config.get("partition", {})
    spread = partition.get("kind", "IID")
    if spread == "dirichlet":
        spread = f"Dirichlet α = {partition['alpha']:g}"
    elif spread == "iid":
        spread = "IID"
    what = [
        config["data"]["name"],
        config.get("model", {}).get("name", "the default model"),
        spread,
    ]
    steps = config["train"]["iterations"]
    how = [f"{steps:,} steps", f"seed {config['seed']}"]
    active = config.get("participation", {}).get("active")
    if active is not None and "clients" in partition:
        how.insert(0, f"{active} of {partition['clients']} clients")
    precision = config["train"].get("precision", "float32")
    if precision != "float32":
        how.append(precision)
    return (
        f"δ and 1 − λ of FedLAMA({interval}, {factor})\n"
        f"{', '.join(what)}\n"
        f"{', '.join(how)}"
    )


def main(folder: Path, picture: Path | None = None) -> None:
    try:
        run = read_run(folder)
    except InputError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    if not run.records or run.summary is None:
        print(
            f"{folder} has no rounds.jsonl: the records of its rounds were not kept, or it is no run directory",
            file=sys.stderr,
        )
        sys.exit(2)
    decisions = decisions_of(run)
    print("step   crosses at layer   δ there   parameters long")
    for decision in decisions:
        of_all = f"{decision.crossing} of {len(decision.delta)}"
        print(
            f"{decision.step:>5}   {of_all:>16}   {decision.delta_there:>7.2f}   {decision.long_share:>14.1%}"
        )
    if picture is not None:
        picture.write_text(svg(draw(decisions, run)), encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
