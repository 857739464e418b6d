"""The pictures of docs/theory.md: exact values beside the bound, the stray factor T, and the counterexample of §4."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedlama.core import (
    BoundTerms,
    FedAvg,
    FedLAMA,
    Policy,
    convergence_terms,
    largest_learning_rate,
)
from fedlama.report.pictures.style import GRID, INK, MUTED, PALETTE, styled

from .instances import draws_of
from .quadratics import ExactRun, Quadratics, exact_run

STEPS = 480
FIRST, SECOND, THIRD, FOURTH = PALETTE[:4]
DISSIMILARITY = 1.5  # β², relative to the smallest possible


def federation() -> Quadratics:
    """Eight clients, 10 numbers in three layers of 1, 3 and 6; L = 1, σ² = 0.1; the smallest layer drifts most."""
    draws = draws_of("pictures")
    sizes = (1, 3, 6)
    width = sum(sizes)
    basis, _ = np.linalg.qr(draws.normal(size=(9, width, width)))
    eigenvalues = draws.uniform(0.1, 1.0, size=(9, width))
    drawn = np.einsum("ipq,iq,irq->ipr", basis, eigenvalues, basis)
    hessians = 0.3 * drawn[0] + 0.7 * drawn[1:]
    hessians /= np.linalg.eigvalsh(hessians).max()
    scale = np.repeat([1.0, 0.5, 0.25], sizes)
    targets = 3 * scale * draws.normal(size=(8, width))
    covariance = 0.1 * np.diag(scale**2 / (scale**2).sum())
    return Quadratics(hessians, targets, np.stack([covariance] * 8), sizes)


class Comparison:
    """Exact average squared gradients and the bound's terms for one federation, over `STEPS` steps.

    It starts `distance` from the minimum of F in each number. From the minimum itself, the optimisation term is zero:
    what is left is what noise and differences between clients do.
    """

    def __init__(self, distance: float = 0.0) -> None:
        self.problem = federation()
        self.start = self.problem.optimum + distance
        self.dissimilarity = DISSIMILARITY * max(
            1.0, self.problem.smallest_dissimilarity
        )
        self.heterogeneity = self.problem.heterogeneity(self.dissimilarity)

    def limit(self, interval: int) -> float:
        return largest_learning_rate(
            smoothness=self.problem.smoothness,
            interval=interval,
            dissimilarity=self.dissimilarity,
        )

    def exact(self, policy: Policy, rate: float) -> float:
        """(1/T) Σ E‖∇F(u_t)‖² over the cycles of 480 steps."""
        cycles = STEPS // policy.longest_cycle
        told = exact_run(
            self.problem, policy, learning_rate=rate, start=self.start, cycles=cycles
        )
        return sum(told.squared_gradients[:-1]) / cycles

    def terms(self, interval: int, rate: float) -> BoundTerms:
        return convergence_terms(
            learning_rate=rate,
            smoothness=self.problem.smoothness,
            interval=interval,
            rounds=STEPS // interval,
            clients=self.problem.clients,
            initial_gap=self.problem.gap(self.start),
            gradient_variance=self.problem.gradient_variance,
            heterogeneity=self.heterogeneity,
            dissimilarity=self.dissimilarity,
        )


@styled
def bound_picture() -> Figure:
    """Three panels: over the learning rate, over FedAvg's interval, over FedLAMA's factor."""
    comparison = Comparison(distance=1.0)
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    figure.set_facecolor("white")
    over_rate, over_interval, over_factor = figure.subplots(1, 3)

    largest = comparison.limit(24)
    rates = np.geomspace(largest / 50, largest, 12)
    _draw_terms(over_rate, rates, [comparison.terms(24, rate) for rate in rates])
    _draw_exact(
        over_rate,
        rates,
        [comparison.exact(FedLAMA(6, 4), rate) for rate in rates],
        "FedLAMA(6, 4)",
        FIRST,
    )
    _draw_exact(
        over_rate,
        rates,
        [comparison.exact(FedAvg(24), rate) for rate in rates],
        "FedAvg(24)",
        SECOND,
    )
    _label(
        over_rate,
        "learning rate η, up to the theorem's limit",
        "over η, at τ = 24, from afar",
        log_x=True,
    )

    comparison = Comparison()
    rate = comparison.limit(48)
    intervals = [2, 4, 6, 8, 12, 16, 24, 48]
    _draw_terms(
        over_interval,
        intervals,
        [comparison.terms(interval, rate) for interval in intervals],
    )
    exact = [comparison.exact(FedAvg(interval), rate) for interval in intervals]
    _draw_exact(over_interval, intervals, exact, "FedAvg(τ)", SECOND)
    _label(
        over_interval,
        f"interval τ, at η = {rate:.4f}",
        "over τ, from the minimum",
        log_x=True,
    )

    factors = [1, 2, 4, 8]
    _draw_terms(
        over_factor, factors, [comparison.terms(6 * factor, rate) for factor in factors]
    )
    for name, make, colour in (
        ("FedLAMA(6, φ)", FedLAMA, FIRST),
        ("FedAvg(6φ)", None, SECOND),
    ):
        values = []
        for factor in factors:
            policy = make(6, factor) if make else FedAvg(6 * factor)
            values.append(comparison.exact(policy, rate))
        _draw_exact(over_factor, factors, values, name, colour)
    _label(
        over_factor,
        f"factor φ, at τ' = 6, η = {rate:.4f}",
        "over φ, from the minimum",
        log_x=True,
    )
    for panel, ticks in ((over_interval, intervals), (over_factor, factors)):
        panel.set_xticks(ticks, [str(tick) for tick in ticks])
        panel.minorticks_off()
    over_rate.set_ylabel("average squared gradient")
    handles, names = over_rate.get_legend_handles_labels()
    more, more_names = over_factor.get_legend_handles_labels()
    shown = dict(zip([*names, *more_names], [*handles, *more], strict=True))
    for repeated in ("FedLAMA(6, 4)", "FedAvg(24)"):
        shown.pop(repeated)
    shown = {
        name.replace("(6, φ)", ", exact").replace("(6φ)", ", exact"): line
        for name, line in shown.items()
    }
    figure.legend(
        list(shown.values()),
        list(shown),
        loc="outside lower center",
        ncols=4,
        frameon=False,
    )
    return figure


@styled
def errata_picture() -> Figure:
    """Left: the stray factor T. Right: the discrepancy of two coupled layers within a cycle."""
    figure = Figure(figsize=(11, 3.8), layout="constrained")
    figure.set_facecolor("white")
    left, right = figure.subplots(1, 2)
    _draw_stray_factor(left)
    _draw_counterexample(right)
    return figure


def _draw_stray_factor(panel: Axes) -> None:
    comparison = Comparison(distance=1.0)
    clients = comparison.problem.clients
    least = int(np.ceil(clients / comparison.limit(4) ** 2))
    cycles = np.unique(np.geomspace(least, 1000 * least, 25).astype(int))
    common = {
        "smoothness": comparison.problem.smoothness,
        "interval": 4,
        "clients": clients,
        "initial_gap": comparison.problem.gap(comparison.start),
        "gradient_variance": comparison.problem.gradient_variance,
        "heterogeneity": comparison.heterogeneity,
        "dissimilarity": comparison.dissimilarity,
    }
    corrected, printed = [], []
    for count in cycles:
        rate = (clients / count) ** 0.5
        corrected.append(
            convergence_terms(**common, learning_rate=rate, rounds=int(count)).total
        )
        printed.append(
            convergence_terms(
                **common, learning_rate=rate, rounds=int(count), as_printed=True
            ).total
        )
    short = [count for count in cycles if count <= 3000]
    exact = []
    for count in short:
        rate = (clients / count) ** 0.5
        told = exact_run(
            comparison.problem,
            FedLAMA(2, 2),
            learning_rate=rate,
            start=comparison.start,
            cycles=int(count),
        )
        exact.append(sum(told.squared_gradients[:-1]) / count)
    panel.plot(cycles, printed, color=FOURTH, label="bound as printed", linewidth=2)
    panel.plot(cycles, corrected, color=INK, label="bound", linewidth=2)
    panel.plot(
        short,
        exact,
        color=FIRST,
        label="exact, FedLAMA(2, 2)",
        marker="o",
        markersize=3,
    )
    _label(
        panel, "cycles T, with Remark 1's η = √(m/T)", "the stray factor T", log_x=True
    )
    panel.set_ylabel("average squared gradient")
    panel.legend(frameon=False)


def _draw_counterexample(panel: Axes) -> None:
    """Two numbers, coupled by ¾; pulls ± (1, 1); η = ¼; FedLAMA averages the first every 2 steps."""
    hessian = np.array([[1.0, 0.75], [0.75, 1.0]])
    target = np.linalg.solve(hessian, np.ones(2))
    problem = Quadratics(
        np.stack([hessian] * 2),
        np.stack([target, -target]),
        np.zeros((2, 2, 2)),
        (1, 1),
    )
    for name, average_first, colour in (
        ("FedLAMA(2, 4)", True, FIRST),
        ("FedAvg(8)", False, SECOND),
    ):
        run = ExactRun(problem, 0.25, np.zeros(2))
        steps, values = [0], [0.0]
        for step in range(1, 9):
            run.local_step()
            steps.append(step)
            values.append(
                sum(run.spread(layer).expectation for layer in problem.layers)
            )
            if average_first and step % 2 == 0 and step < 8:
                run.average({0: 1.0})
                steps.append(step)
                values.append(
                    sum(run.spread(layer).expectation for layer in problem.layers)
                )
        panel.plot(steps, values, color=colour, label=name, marker="o", markersize=4)
    panel.set_xlabel("step of the cycle")
    panel.set_ylabel("mean squared distance from the average")
    panel.set_title(
        "averaging one layer can drive the other apart", loc="left", fontsize=11
    )
    panel.set_xticks(range(0, 9, 2))
    panel.grid(color=GRID)
    panel.set_ylim(bottom=0)
    panel.legend(frameon=False)


def _draw_terms(
    panel: Axes, places: Sequence[float] | np.ndarray, terms: Sequence[BoundTerms]
) -> None:
    panel.plot(
        places, [one.total for one in terms], color=INK, linewidth=2, label="bound"
    )
    styles = {
        "optimisation": "solid",
        "noise": "dotted",
        "drift": "dashed",
        "heterogeneity": "dashdot",
    }
    for name, dash in styles.items():
        values = [getattr(one, name) for one in terms]
        if not any(values):
            continue
        panel.plot(
            places,
            values,
            color=MUTED,
            linewidth=1.2,
            linestyle=dash,
            label=f"its {name} term",
        )


def _draw_exact(
    panel: Axes,
    places: Sequence[float] | np.ndarray,
    values: Sequence[float],
    name: str,
    colour: str,
) -> None:
    panel.plot(places, values, color=colour, label=name, marker="o", markersize=4)


def _label(panel: Axes, x: str, title: str, *, log_x: bool) -> None:
    panel.set_yscale("log")
    if log_x:
        panel.set_xscale("log")
    panel.set_xlabel(x)
    panel.set_title(title, loc="left", fontsize=11)
    panel.grid(color=GRID)


def draw_all(folder: Path) -> list[Path]:
    """Write both pictures; returns where."""
    written = []
    for name, make in (
        ("theory-bound.png", bound_picture),
        ("theory-errata.png", errata_picture),
    ):
        path = folder / name
        make().savefig(path, dpi=110, metadata={"Software": None})
        written.append(path)
    return written
