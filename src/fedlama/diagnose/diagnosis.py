"""`diagnose`: the first cycles, a few gradients, a few Hessian-vector products, and what follows from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from torch import nn

from fedlama.compress import Codec
from fedlama.core import (
    BoundTerms,
    Budget,
    FedAvg,
    FedLAMA,
    Layout,
    Policy,
    Rule,
    adjust_intervals,
    convergence_terms,
    crossing_curves,
    largest_learning_rate,
    linear_speedup_rounds,
)
from fedlama.data import Batches, Dataset, Natural, Partition, Shards
from fedlama.diagnose.curvature import NoCurvatureError, smoothness
from fedlama.diagnose.gradients import GradientMoments, dissimilarity, gradient_moments
from fedlama.diagnose.layers import LayerProfile, Prediction, predict, spread_of_roots
from fedlama.diagnose.probe import Probe
from fedlama.local import SGD, LocalRule
from fedlama.rows import Grouping, describe
from fedlama.training import Participation, Record, simulate
from fedlama.training.arguments import task_of
from fedlama.training.evaluation import Loss
from fedlama.training.modules import build, torch_settings

MAX_CLIENTS = 8  # that are looked at
MAX_CLIENT_STEPS = 400  # of the first cycles, over all clients
MAX_CYCLES = 4  # the first is special: some layers hardly move before others have
CURVATURE_CLIENTS = 3
GRADIENT_VARIANCE = "gradient variance"  # its name where it is left out
TEST_SAMPLES = 64  # the first cycles' accuracy is not what they are for
FACTORS = (2, 4, 8)
BUDGET_SHARE = 0.4  # of FedAvg(τ')'s bytes, about what FedLAMA with factor 4 often costs
WORTH_WHILE = 0.95  # of a FedAvg's discrepancy at equal bytes: above it, layer-wise intervals gain next to nothing
TOLERABLE = 2.0  # times the discrepancy of FedAvg(τ')

Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class Constants:
    """The constants of Theorem 5.3, estimated at the first weights and after the first cycles.

    Arguments:
        smoothness: L, the larger of both points; None where it could not be estimated.
        gradient_variance: σ² of a stochastic gradient, the mean over clients, the larger of both points.
        largest_variance: the same of the noisiest client.
        dissimilarity: β².
        heterogeneity: κ².
        initial_gap: F(u_0), which is not below F(u_0) − F* where losses are not negative.
    """

    smoothness: float | None
    gradient_variance: float
    largest_variance: float
    dissimilarity: float
    heterogeneity: float
    initial_gap: float


@dataclass(frozen=True)
class Theory:
    """What the theorem says with these constants.

    Arguments:
        limit: its largest learning rate.
        at_limit: its four terms at that rate.
        at_configured: the same formulas at the configured rate; beyond the limit they are no bound.
        speedup_cycles: Remark 1's horizon, in cycles; None where gap and noise are both zero.
    """

    limit: float
    at_limit: BoundTerms
    at_configured: BoundTerms
    speedup_cycles: int | None


@dataclass(frozen=True)
class Diagnosis:
    """All that was found; `omitted` names what was left out, and why.

    Arguments:
        learning_rate: as configured.
        momentum: of the clients' SGD; the theorem knows none, and compares with η/(1 − momentum).
        base_interval: τ'.
        increase_factor: φ.
        iterations: steps of the whole run.
        clients: m, how many are active at a time.
        probed: the clients that were looked at.
        constants: L, σ², β², κ² and the initial gap.
        theory: limit and terms; None without L.
        cycles: how many were run.
        layers: d_l of every layer in the first cycle, and its interval after the first adjustment.
        crossing: the curves δ_l and 1 − λ_l that the first adjustment walks along.
        later_layers: the same as `layers` in the last cycle that was run; predictions follow from it.
        root_spread: the coefficient of variation of √d_l, weighted by size, in the last cycle.
        predictions: what each policy would send.
        recommendation: one sentence.
        omitted: name of an estimate → why it is missing.
    """

    learning_rate: float
    momentum: float
    base_interval: int
    increase_factor: int
    iterations: int
    clients: int
    probed: list[int]
    constants: Constants
    theory: Theory | None
    cycles: int
    layers: list[LayerProfile]
    crossing: tuple[list[float], list[float]]
    later_layers: list[LayerProfile]
    root_spread: float
    predictions: list[Prediction]
    recommendation: str
    omitted: dict[str, str] = field(default_factory=dict)

    @property
    def interval(self) -> int:
        """τ = φτ', the longest interval."""
        return self.base_interval * self.increase_factor

    @property
    def effective_rate(self) -> float:
        """η/(1 − momentum): how far a steady gradient moves the model per step."""
        return self.learning_rate / (1 - self.momentum)

    @property
    def best_gain(self) -> float:
        """1/(1 + CV²): no intervals have less of a FedAvg's discrepancy at equal bytes."""
        return 1 / (1 + self.root_spread**2)

    def to_plain(self) -> dict[str, Any]:
        """Plain values for JSON."""
        values = asdict(self)
        delta, kept = self.crossing
        values["crossing"] = {"delta": delta, "one_minus_lambda": kept}
        values["interval"] = self.interval
        values["effective_rate"] = self.effective_rate
        values["best_gain"] = self.best_gain
        return values


def diagnose(
    model: Callable[[], nn.Module],
    data: Dataset,
    *,
    base_interval: int,
    increase_factor: int,
    local: LocalRule,
    iterations: int,
    rule: Rule = "crossing",
    warmup_rounds: int = 0,
    partition: Partition | Shards | None = None,
    participation: Participation | None = None,
    seed: int = 0,
    layers: Grouping = "tensor",
    adaptive: Sequence[str] | None = None,
    loss: Loss | None = None,
    workers: int = 1,
    coded: Mapping[str, tuple[Policy, Codec]] | None = None,
    progress: Progress | None = None,
) -> Diagnosis:
    """Estimate the theorem's constants for this federation and predict what policies would send.

    Arguments:
        model: builds the module, as for `simulate`.
        data: what it is trained on.
        base_interval: τ'.
        increase_factor: φ; with 1 the profile is that of FedAvg's first round.
        local: what clients do with a gradient; the theorem knows plain SGD only.
        iterations: steps of the whole run that is planned.
        rule: which layers are made long: "crossing", "released" or "printed".
        warmup_rounds: rounds before which no interval is adjusted.
        partition: deals the samples to clients (default: the data's own client ids).
        participation: how many are active (default: all).
        seed: of everything random.
        layers: "tensor" or "module", as for `simulate`.
        adaptive: patterns of layers that may be adapted, as for `simulate`.
        loss: default cross-entropy.
        workers: processes for the first cycles.
        coded: combinations of a policy and a codec whose bytes are predicted, too, by their names.
        progress: called with the share that is done and what is being done.
    """
    note = progress or (lambda share, what: None)
    participation = participation or Participation()
    shards = partition
    if not isinstance(shards, Shards):
        shards = (partition or Natural()).assign(data, seed)
    active = participation.count(len(shards))
    loss, _ = task_of(data, loss, None)
    policy = FedLAMA(base_interval, increase_factor, rule)
    steps = base_interval * increase_factor
    looked_at = max(2, min(active, MAX_CLIENTS, MAX_CLIENT_STEPS // steps))
    looked_at = min(looked_at, len(shards))
    probed = Participation(looked_at).cohort(len(shards), seed, 0)

    cycles = max(1, min(MAX_CYCLES, MAX_CLIENT_STEPS // (steps * looked_at)))

    note(0.0, "first cycles")
    first = simulate(
        model,
        replace(data, x_test=data.x_test[:TEST_SAMPLES], y_test=data.y_test[:TEST_SAMPLES]),
        policy=policy,
        local=local,
        partition=shards,
        participation=Participation(looked_at),
        iterations=steps * cycles,
        seed=seed,
        workers=min(workers, looked_at),
        layers=layers,
        adaptive=adaptive,
        loss=loss,
        on_record=lambda record: note(0.4 * record.step / (steps * cycles), "first cycles"),
    )
    with torch_settings(uses_gpu=False):
        start = build(model, seed)
    layout = describe(start, layers, adaptive)
    batches = Batches(data, shards, local.batch_size, seed)
    points, curvature, omitted = _look_at_both_ends(start, first.model, batches, loss, seed, probed, note)
    constants = _constants(points, curvature)
    sgd = getattr(local, "base", local)  # FedProx and the like are built on one
    assert isinstance(sgd, SGD), "every local rule takes its steps with an SGD"
    effective_rate = sgd.learning_rate / (1 - sgd.momentum)
    theory = _theory(constants, effective_rate, steps, iterations, active)
    if all(shards.size_of(client) == 1 for client in probed):
        omitted[GRADIENT_VARIANCE] = "a client with one sample draws it every time, so noise cannot be seen"
    if theory is None and "smoothness" in omitted:
        omitted["theory"] = "the limit and the terms need L"
    first_cycle = _discrepancy(first.records, steps)
    last_cycle = _discrepancy(first.records, steps * cycles)
    later = _profiles(base_interval, increase_factor, rule, layout, last_cycle)
    policies: list[Policy] = [FedAvg(base_interval)]
    for factor in FACTORS:
        policies.append(FedLAMA(base_interval, factor, rule, warmup_rounds))
    policies.append(Budget(base_interval, base_interval * FACTORS[-1], BUDGET_SHARE))
    predictions: list[Prediction] = []
    for one in policies:
        prediction, _ = predict(one, layout, last_cycle, iterations)
        predictions.append(prediction)
    for name, (one, codec) in (coded or {}).items():
        prediction, _ = predict(one, layout, last_cycle, iterations, codec=codec, name=name)
        predictions.append(prediction)
    note(1.0, "done")
    return Diagnosis(
        learning_rate=sgd.learning_rate,
        momentum=sgd.momentum,
        base_interval=base_interval,
        increase_factor=increase_factor,
        iterations=iterations,
        clients=active,
        probed=probed,
        constants=constants,
        theory=theory,
        cycles=cycles,
        layers=_profiles(base_interval, increase_factor, rule, layout, first_cycle),
        crossing=crossing_curves(first_cycle, layout.sizes, layout.adaptive, rule),
        later_layers=later,
        root_spread=spread_of_roots(later),
        predictions=predictions,
        recommendation=recommend(predictions, spread_of_roots(later), base_interval),
        omitted=omitted,
    )


def _discrepancy(records: Sequence[Record], step: int) -> list[float]:
    """d_l of all layers at a step that ended a cycle."""
    (record,) = [record for record in records if record.step == step]
    return [value or 0.0 for value in record.discrepancy]


def _look_at_both_ends(
    start: nn.Module,
    end: nn.Module,
    batches: Batches,
    loss: Loss,
    seed: int,
    probed: Sequence[int],
    note: Progress,
) -> tuple[list[GradientMoments], float | None, dict[str, str]]:
    """Gradients and curvature at the first weights and after the first cycles."""
    points: list[GradientMoments] = []
    curvature: float | None = 0.0
    omitted: dict[str, str] = {}
    done = 0.4

    def advance_by(weight: float, what: str) -> Callable[[float], None]:
        def advance(share: float) -> None:
            nonlocal done
            done += weight * share
            note(min(done, 1.0), what)

        return advance

    with torch_settings(uses_gpu=False):
        for module, where in ((start, "at the start"), (end, "after the cycles")):
            probe = Probe(module, batches, loss, seed)
            gradients = advance_by(0.1, f"gradients {where}")
            points.append(gradient_moments(probe, probed, len(batches.shards), gradients))
            if curvature is None:
                continue
            try:
                found = smoothness(probe, probed[:CURVATURE_CLIENTS], advance_by(0.2, f"curvature {where}"))
                curvature = max(curvature, found)
            except NoCurvatureError as error:
                curvature = None
                omitted["smoothness"] = str(error)
    if curvature == 0.0:
        curvature = None
        omitted["smoothness"] = (
            "the Hessian is zero where we looked: the loss is linear there, or not twice differentiable"
        )
    return points, curvature, omitted


def _constants(points: Sequence[GradientMoments], curvature: float | None) -> Constants:
    unlike, left = dissimilarity(points)
    return Constants(
        smoothness=curvature,
        gradient_variance=max(point.noise for point in points),
        largest_variance=max(point.largest_noise for point in points),
        dissimilarity=unlike,
        heterogeneity=left,
        initial_gap=max(points[0].loss, 0.0),
    )


def _theory(constants: Constants, learning_rate: float, interval: int, iterations: int, clients: int) -> Theory | None:
    if constants.smoothness is None:
        return None
    problem = {
        "smoothness": constants.smoothness,
        "interval": interval,
        "clients": clients,
        "initial_gap": constants.initial_gap,
        "gradient_variance": constants.gradient_variance,
        "heterogeneity": constants.heterogeneity,
        "dissimilarity": constants.dissimilarity,
    }
    limit = largest_learning_rate(
        smoothness=constants.smoothness, interval=interval, dissimilarity=constants.dissimilarity
    )
    cycles = max(1, math.ceil(iterations / interval))
    at_limit = convergence_terms(learning_rate=limit, rounds=cycles, **problem)
    # Each term is a power of η: beyond the limit the formulas still tell which one grows how.
    ratio = learning_rate / limit
    at_configured = BoundTerms(
        optimisation=at_limit.optimisation / ratio,
        noise=at_limit.noise * ratio,
        drift=at_limit.drift * ratio**2,
        heterogeneity=at_limit.heterogeneity * ratio**2,
    )
    horizon = None
    if constants.initial_gap > 0 or constants.gradient_variance > 0:
        horizon = linear_speedup_rounds(**problem)
    return Theory(limit, at_limit, at_configured, horizon)


def _profiles(
    base_interval: int, increase_factor: int, rule: Rule, layout: Layout, measured: Sequence[float]
) -> list[LayerProfile]:
    """d_l, and the interval that the first adjustment gives; FedAvg's, too, shows what φ = 2 would make long."""
    intervals = adjust_intervals(
        measured,
        layout.sizes,
        base_interval=base_interval,
        increase_factor=max(increase_factor, 2),
        adaptive=layout.adaptive,
        rule=rule,
    )
    profiles: list[LayerProfile] = []
    for layer, d, interval in zip(layout.layers, measured, intervals, strict=True):
        profiles.append(LayerProfile(layer.name, layer.size, layer.adaptive, d, interval))
    return profiles


def recommend(predictions: Sequence[Prediction], root_spread: float, base_interval: int) -> str:
    """One sentence: the largest factor whose discrepancy is tolerable, if layer-wise intervals gain at all."""
    candidates = list(zip(FACTORS, predictions[1:], strict=False))
    gain = min(prediction.at_equal_bytes for _, prediction in candidates)
    if gain > WORTH_WHILE:
        best = 1 - 1 / (1 + root_spread**2)
        return (
            f"Intervals of their own gain little here (no intervals have more than {best:.0%} less discrepancy than a "
            f"FedAvg of equal bytes): use FedAvg with a longer interval than {base_interval}, or a codec, to send less."
        )
    factor, chosen = candidates[0]
    for other_factor, other in candidates[1:]:
        if other.discrepancy <= TOLERABLE:
            factor, chosen = other_factor, other
    return (
        f"Use FedLAMA({base_interval}, {factor}): it would send {chosen.cost:.0%} of FedAvg({base_interval})'s "
        f"parameters, with {chosen.discrepancy:.2f} times its discrepancy once intervals are settled, which is "
        f"{1 - chosen.at_equal_bytes:.0%} less than a FedAvg of equal bytes has; a code such as frugal's saves more."
    )
