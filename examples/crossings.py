"""Where δ crosses 1 − λ, decision by decision: Figure 1 of the paper over the time of a run.

    python examples/crossings.py runs/mine [PICTURE.svg]

Reads a run directory of FedLAMA. For every decision: after which step, at which of the layers by ascending discrepancy
the curves cross, δ there, and the share of the parameters that is averaged less often from then on. The picture has the
curves of four of them, evenly spaced from the first to the last.
"""

import json
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure

from fedlama.core import adjust_intervals, crossing_curves

PANELS = 4


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


def decisions_of(folder: Path) -> list[Decision]:
    """One for every cycle after which all layers had been measured, from the first that FedLAMA may take."""
    config = tomllib.loads((folder / "config.toml").read_text(encoding="utf-8"))
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    policy = config["policy"]
    sizes = [layer["size"] for layer in summary["layers"]]
    adaptive = [layer["adaptive"] for layer in summary["layers"]]
    rule = policy.get("rule", "crossing")

    decisions: list[Decision] = []
    for line in (folder / "rounds.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        is_whole = len(record["due"]) == len(sizes)
        ends_cycle = record["step"] % (
            policy["base_interval"] * policy["increase_factor"]
        )
        is_early = record["round"] < policy.get("warmup_rounds", 0)
        if not is_whole or ends_cycle or is_early:
            continue
        discrepancy = record["discrepancy"]
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
        decision = Decision(
            record["step"], delta, kept, sum(long), long_size / sum(sizes)
        )
        decisions.append(decision)
    return decisions


def draw(decisions: list[Decision]) -> Figure:
    last = len(decisions) - 1
    chosen = sorted({round(last * part / (PANELS - 1)) for part in range(PANELS)})
    figure = Figure(figsize=(3.1 * len(chosen), 3.0), layout="constrained")
    panels = figure.subplots(1, len(chosen), sharey=True, squeeze=False)[0]
    for axes, number in zip(panels, chosen, strict=True):
        decision = decisions[number]
        places = range(1, len(decision.delta) + 1)
        axes.plot(places, decision.delta, "o-", markersize=3, label="δ")
        axes.plot(places, decision.kept, color="gray", label="1 − λ")
        axes.axvline(decision.crossing, color="gray", linewidth=0.8, linestyle=":")
        axes.set_title(f"after step {decision.step:,}", fontsize=10)
        axes.set_xlabel("layers, by ascending d")
    panels[0].legend(frameon=False)
    return figure


def main(folder: Path, picture: Path | None = None) -> None:
    decisions = decisions_of(folder)
    print("step   crosses at layer   δ there   parameters long")
    for decision in decisions:
        of_all = f"{decision.crossing} of {len(decision.delta)}"
        print(
            f"{decision.step:>5}   {of_all:>16}   {decision.delta_there:>7.2f}   {decision.long_share:>14.1%}"
        )
    if picture is not None:
        # Without dates and random names the same run gives the same file.
        with rc_context({"svg.hashsalt": "fedlama"}):
            draw(decisions).savefig(picture, metadata={"Date": None})


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
