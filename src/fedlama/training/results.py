"""What came of a run: its result, or why it stopped before its last step."""

from __future__ import annotations

from fedlama.core import Layout
from fedlama.rows import Binding
from fedlama.server.tolerance import MAX_NAMED
from fedlama.training.job import Job
from fedlama.training.position import Position
from fedlama.training.records import (
    ClientScores,
    LayerSummary,
    Record,
    TrainingResult,
    fedavg_at,
)
from fedlama.training.setup import Setup


def why_stopped(end: Position, job: Job) -> str:
    """Why a run stopped before its last step, and how to go on."""
    where = f"stopped at step {end.step} of {job.options.iterations}"
    if end.discarded is None:
        return f"{where}, as asked; --resume continues from there"
    assert job.faults, "only faults make a round one to be repeated"
    tried = ""
    if end.attempt > 1:
        tried = f" at {end.attempt} attempts"

    # Of the last attempt only
    named: list[str] = []
    for entry in end.discarded.excluded:
        if entry["attempt"] != end.attempt:
            continue
        if len(named) == MAX_NAMED:
            named.append("…")
            break
        client = job.shards.name_of(entry["client"])
        named.append(f"{client}: {entry['reason']}")
    why = job.faults.tolerance.too_few(
        named,
        option="faults.min_clients",
        round=end.policy_state.round + 1,
        tried=tried,
    )
    return f"{where}: {why}; --resume continues from there with new clients"


def result_of(
    setup: Setup,
    end: Position,
    records: list[Record],
    client_scores: ClientScores | None,
    seconds: float,
) -> TrainingResult:
    """What came of a run that reached its last step, with the global weights in the module."""
    ledger = end.server_state.ledger
    binding = Binding(setup.module.to("cpu"), setup.layout)
    binding.point_at(setup.job.evaluated(end.server_state))
    binding.load_counters(end.counters)
    binding.release()
    layers = layer_summaries(end, setup.layout)
    job = setup.job
    codec = "none"
    if job.uplink_channel is not None:
        codec = str(job.uplink_channel.codec)
    metric = None
    if job.metric is not None:
        metric = job.metric.measure
    last = records[-1]
    assert last.test_loss is not None, "the last round is always evaluated"
    return TrainingResult(
        accuracy=last.accuracy,
        metric=metric,
        metrics=dict(last.metrics),
        clients=client_scores,
        average_score=last.average_score,
        loss=last.test_loss,
        cost=end.relative_cost(job.policy),
        uplink_bytes=ledger.uplink_bytes,
        downlink_bytes=ledger.downlink_bytes,
        statistics_bytes=ledger.statistics_uplink,
        iterations=job.options.iterations,
        seed=job.options.seed,
        seconds=seconds,
        uplink_share=end.uplink_share(job.policy, job.cohort_size),
        codec=codec,
        server=str(job.server_rule),
        local=str(job.local),
        policy=str(job.policy),
        cost_of=fedavg_at(job.policy.base_interval),
        layers=layers,
        records=records,
        model=setup.module,
        preparation=job.data.preparation,
        is_classifier=job.data.classes is not None,
        client_names=job.shards.names,
    )


def layer_summaries(end: Position, layout: Layout) -> list[LayerSummary]:
    """What became of every layer.

    Arguments:
        end: Where the run ended.
        layout: The model's.
    """
    ledger = end.server_state.ledger
    layers: list[LayerSummary] = []
    for index, layer in enumerate(layout.layers):
        summary = LayerSummary(
            name=layer.name,
            size=layer.size,
            adaptive=layer.adaptive,
            aggregations=ledger.aggregations[index],
            interval=end.policy_state.intervals[index],
            uplink_bytes=ledger.layer_uplink[index],
            downlink_bytes=ledger.layer_downlink[index],
        )
        layers.append(summary)
    return layers
