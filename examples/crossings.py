"""Where δ crosses 1 − λ, decision by decision: Figure 1 of the paper over the time of a run.

    python examples/crossings.py runs/mine [PICTURE.svg]

Reads a run directory of FedLAMA. For every decision: after which step, at which of the layers by ascending discrepancy
the curves cross, δ there, and the share of the parameters that is averaged less often from then on. The picture has the
curves of four of them, evenly spaced from the first to the last.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure

from fedlama.base import InputError
from fedlama.core import adjust_intervals, crossing_curves
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


def draw(decisions: list[Decision], title: str) -> Figure:
    """Two rows of two, so that a narrow screen can show it."""
    last = len(decisions) - 1
    chosen = sorted({round(last * part / (PANELS - 1)) for part in range(PANELS)})
    rows = -(-len(chosen) // COLUMNS)
    figure = Figure(figsize=(5.2, 0.8 + 2.5 * rows), layout="constrained")
    figure.suptitle(title, x=0.02, ha="left", fontsize=11, fontweight="bold")
    panels = figure.subplots(rows, COLUMNS, sharex=True, sharey=True, squeeze=False)
    for axes in panels.flat[len(chosen) :]:
        axes.set_visible(False)
    for axes, number in zip(panels.flat, chosen, strict=False):
        decision = decisions[number]
        places = range(1, len(decision.delta) + 1)
        axes.plot(places, decision.delta, "o-", markersize=3, label="δ")
        axes.plot(places, decision.kept, color="gray", label="1 − λ")
        axes.axvline(decision.crossing, color="gray", linewidth=0.8, linestyle=":")
        axes.set_title(f"after step {decision.step:,}", fontsize=10)
    panels[0, 0].legend(frameon=False)
    figure.supxlabel("kernels, by ascending discrepancy", fontsize=10)
    return figure


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
        # Without dates and random names the same run gives the same file.
        with rc_context({"svg.hashsalt": "fedlama", "svg.fonttype": "none"}):
            figure = draw(decisions, title_of(run))
            figure.savefig(picture, metadata={"Date": None}, facecolor="white")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
