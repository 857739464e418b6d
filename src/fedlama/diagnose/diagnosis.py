"""`diagnose`: the first cycles, a few gradients, a few Hessian-vector products, and what follows from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from torch import nn

from fedlama.compress import Codec
from fedlama.core import (
    FedLAMA,
    Layout,
    Policy,
    asks_for_movement,
    crossing_curves,
)
from fedlama.core.policy_checks import check_policy
from fedlama.data import Batches, Dataset, Partition, default_partition
from fedlama.diagnose.findings import GRADIENT_VARIANCE, Diagnosis
from fedlama.diagnose.layers import Prediction, predict, profiles_of, spread_of_roots
from fedlama.diagnose.policies import compared, fedlama_beside
from fedlama.diagnose.recommendation import recommend
from fedlama.diagnose.theory import (
    BEFORE,
    DiagnosisProgress,
    constants_of,
    look_at_both_ends,
    theory_of,
)
from fedlama.local import SGD, LocalRule
from fedlama.rows import Grouping, describe
from fedlama.training import Participation, Record, simulate
from fedlama.training.arguments import task_of
from fedlama.training.evaluation import Loss
from fedlama.training.modules import build, torch_settings
from fedlama.training.options import RunOptions

MAX_CLIENTS = 8  # that are looked at
MAX_CLIENT_STEPS = 400  # of the first cycles, over all clients
MAX_CYCLES = 4  # the first is special: some layers hardly move before others have
TEST_SAMPLES = 64  # the first cycles' accuracy is not what they are for


def diagnose(
    model: Callable[[], nn.Module],
    data: Dataset,
    *,
    policy: Policy,
    local: LocalRule,
    iterations: int,
    partition: Partition | None = None,
    participation: Participation | None = None,
    seed: int = 0,
    layers: Grouping = "tensor",
    adaptive: Sequence[str] | None = None,
    loss: Loss | None = None,
    workers: int = 1,
    coded: Mapping[str, tuple[Policy, Codec]] | None = None,
    progress: DiagnosisProgress | None = None,
) -> Diagnosis:
    """Estimate the theorem's constants for this federation and predict what policies would send.

    Arguments:
        model: builds the module, as for `simulate`.
        data: what it is trained on.
        policy: what is planned, and predicted among others. The first cycles are those of FedLAMA with its τ' and φ (of
            another policy: with its longest cycle); with FedAvg the profile is that of its first round.
        local: what clients do with a gradient; the theorem knows plain SGD only.
        iterations: steps of the whole run that is planned.
        partition: deals the samples to clients (default: as `simulate` does).
        participation: how many are active (default: all).
        seed: of everything random.
        layers: "tensor" or "module", as for `simulate`.
        adaptive: patterns of layers that may be adapted, as for `simulate`.
        loss: default cross-entropy.
        workers: processes for the first cycles.
        coded: combinations of a policy and a codec whose bytes are predicted, too, by their names.
        progress: called with the share that is done and what is being done.
    """
    check_policy("policy", policy)
    beside = fedlama_beside(policy)
    base_interval = beside.base_interval
    increase_factor = beside.increase_factor
    rule = beside.rule
    on_progress = progress or (lambda share, what: None)
    who = participation or Participation()
    # Shards that were dealt before give themselves
    dealing = partition or default_partition(data)
    shards = dealing.assign(data, seed)
    active = who.count(len(shards))
    loss, _ = task_of(data, loss, None)

    # First the cycles, which show how the layers drift apart
    steps = base_interval * increase_factor
    looked_at = _clients_looked_at(active, len(shards), steps)
    probed = Participation(looked_at).cohort(len(shards), seed, 0)
    cycles = _cycles_of(steps * looked_at)

    def tell_cycles(record: Record) -> None:
        share = BEFORE * record.step / (steps * cycles)
        on_progress(share, "first cycles")

    on_progress(0.0, "first cycles")
    options = RunOptions(
        iterations=steps * cycles,
        seed=seed,
        layers=layers,
        adaptive=adaptive,
    )
    first = simulate(
        model,
        _hardly_tested(data),
        options,
        policy=FedLAMA(base_interval, increase_factor, rule),
        local=local,
        partition=shards,
        participation=Participation(looked_at),
        loss=loss,
        workers=min(workers, looked_at),
        on_record=tell_cycles,
    )
    first_cycle = _discrepancy(first.records, steps)
    last_cycle = _discrepancy(first.records, steps * cycles)

    # Then gradients and curvature before and after them, for the theorem's constants
    with torch_settings(uses_gpu=False):
        start = build(model, seed)
    layout = describe(start, layers, adaptive)
    batches = Batches(data, shards, local.batch_size, seed)
    points, curvature, omitted = look_at_both_ends(
        start=start,
        end=first.model,
        batches=batches,
        loss=loss,
        seed=seed,
        probed=probed,
        on_progress=on_progress,
    )
    if all(shards.size_of(client) == 1 for client in probed):
        omitted[GRADIENT_VARIANCE] = (
            "a client with one sample draws it every time, so noise cannot be seen"
        )

    # And what follows from both
    constants = constants_of(points, curvature)
    learning_rate, momentum = _rate_and_momentum(local)
    effective_rate = learning_rate / (1 - momentum)
    theory = theory_of(
        constants=constants,
        learning_rate=effective_rate,
        interval=steps,
        iterations=iterations,
        clients=active,
    )
    if theory is None and "smoothness" in omitted:
        omitted["theory"] = "the limit and the terms need L"
    earlier = profiles_of(
        base_interval=base_interval,
        increase_factor=increase_factor,
        variant=rule,
        layout=layout,
        measured=first_cycle,
    )
    later = profiles_of(
        base_interval=base_interval,
        increase_factor=increase_factor,
        variant=rule,
        layout=layout,
        measured=last_cycle,
    )
    root_spread = spread_of_roots(last_cycle, layout.sizes)
    combinations = coded or {}
    with_codes = [combined for combined, _ in combinations.values()]
    predictions = _predictions(
        policies=_foreseeable(compared(policy, with_codes), omitted),
        coded=combinations,
        layout=layout,
        discrepancy=last_cycle,
        iterations=iterations,
    )
    on_progress(1.0, "done")
    return Diagnosis(
        learning_rate=learning_rate,
        momentum=momentum,
        base_interval=base_interval,
        increase_factor=increase_factor,
        iterations=iterations,
        clients=active,
        probed=probed,
        constants=constants,
        theory=theory,
        cycles=cycles,
        layers=earlier,
        crossing=crossing_curves(first_cycle, layout.sizes, layout.adaptive, rule),
        later_layers=later,
        root_spread=root_spread,
        predictions=predictions,
        coded=tuple(combinations),
        recommendation=recommend(
            predictions, root_spread, base_interval, tuple(combinations)
        ),
        omitted=omitted,
    )


def _foreseeable(policies: Sequence[Policy], omitted: dict[str, str]) -> list[Policy]:
    """The policies whose decisions follow from discrepancies; why the others are left out is noted."""
    found: list[Policy] = []
    for one in policies:
        if asks_for_movement(one):
            omitted[str(one)] = "it decides by how far layers move, which is not known"
        else:
            found.append(one)
    return found


def _clients_looked_at(active: int, clients: int, steps: int) -> int:
    """How many train in the first cycles: two at least, where there are two, as κ² and β² say how much they differ."""
    affordable = MAX_CLIENT_STEPS // steps
    wanted = max(2, min(active, MAX_CLIENTS, affordable))
    return min(wanted, clients)


def _cycles_of(client_steps: int) -> int:
    """How many cycles of so many client steps there are."""
    affordable = MAX_CLIENT_STEPS // client_steps
    return max(1, min(MAX_CYCLES, affordable))


def _hardly_tested(data: Dataset) -> Dataset:
    """The data with a few test samples."""
    return replace(
        data,
        x_test=data.x_test[:TEST_SAMPLES],
        y_test=data.y_test[:TEST_SAMPLES],
    )


def _rate_and_momentum(local: LocalRule) -> tuple[float, float]:
    """What the theory's η follows from; a rule of the user's own is taken by its first rate, without momentum."""
    sgd = getattr(local, "base", local)  # FedProx and the like are built on one
    if isinstance(sgd, SGD):
        return sgd.learning_rate, sgd.momentum
    return local.rate(0), 0.0


def _discrepancy(records: Sequence[Record], step: int) -> list[float]:
    """d_l of all layers at a step that ended a cycle."""
    at_step = [record for record in records if record.step == step]
    (record,) = at_step
    return [value or 0.0 for value in record.discrepancy]


def _predictions(
    policies: Sequence[Policy],
    coded: Mapping[str, tuple[Policy, Codec]],
    layout: Layout,
    discrepancy: Sequence[float],
    iterations: int,
) -> list[Prediction]:
    """What each of these would send, first without and then with a code."""
    predictions: list[Prediction] = []
    for policy in policies:
        prediction, _ = predict(policy, layout, discrepancy, iterations)
        predictions.append(prediction)

    for name, (policy, codec) in coded.items():
        prediction, _ = predict(
            policy,
            layout,
            discrepancy,
            iterations,
            codec=codec,
            name=name,
        )
        predictions.append(prediction)
    return predictions
