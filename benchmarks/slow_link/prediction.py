"""What the network replay predicts of runs on slow links, with a fixed time per round that is fitted to them."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.slow_link.runs import Run
from fedlama.report.numbers.network import Network


def predict(runs: Sequence[Run]) -> dict[float, float]:
    """Predict every run; the fixed time per round, by rate, fitted to all runs of that rate.

    Arguments:
        runs: They; their predictions are written into them.
    """
    overheads: dict[float, float] = {}
    for rate in dict.fromkeys(run.rate for run in runs):
        of_rate = [run for run in runs if run.rate == rate]
        overhead = fitted(of_rate)
        overheads[rate] = overhead
        for run in of_rate:
            _predict_run(run, overhead)
            others = [other for other in of_rate if other is not run]
            run.predicted_by_others = None
            if others:
                network = _network(rate, fitted(others))
                run.predicted_by_others = run.demand().seconds(network)
    return overheads


def fitted(runs: Sequence[Run]) -> float:
    """The fixed time per round whose largest relative error is the smallest.

    Arguments:
        runs: Runs of one rate.
    """
    # A run's relative error grows along a line with the overhead. The largest of all errors is the smallest where one
    # run is as far above what was measured as another is below it, or, with a single run, where its error is zero.
    candidates = [0.0]
    for one in runs:
        for other in runs:
            missing = _missing_share(one) + _missing_share(other)
            slope = one.rounds / one.seconds + other.rounds / other.seconds
            candidate = max(0.0, missing / slope)
            candidates.append(candidate)
    return min(candidates, key=lambda overhead: largest_error(runs, overhead))


def largest_error(runs: Sequence[Run], overhead: float) -> float:
    """The largest relative error of these runs' predictions.

    Arguments:
        runs: Runs of one rate.
        overhead: The fixed time per round.
    """
    errors: list[float] = []
    for run in runs:
        network = _network(run.rate, overhead)
        predicted = run.demand().seconds(network)
        error = abs(predicted / run.seconds - 1)
        errors.append(error)
    return max(errors)


def _missing_share(run: Run) -> float:
    """Which share of a run's seconds its bytes alone do not explain."""
    moving = run.demand().seconds(_network(run.rate, 0.0))
    return 1 - moving / run.seconds


def _predict_run(run: Run, overhead: float) -> None:
    network = _network(run.rate, overhead)
    run.predicted = run.demand().seconds(network)
    run.predicted_target = None
    if run.target_rounds is None:
        return
    until_target = run.demand_until(run.target_rounds)
    if until_target is not None:
        run.predicted_target = until_target.seconds(network)


def _network(rate: float, overhead: float) -> Network:
    # The overhead holds all that bytes do not take: process starts, steps, the server's work and the latency.
    return Network(
        uplink=rate, downlink=rate, latency=0.0, step_time=0.0, round_overhead=overhead
    )
