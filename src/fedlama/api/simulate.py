"""`fedlama.simulate`: train a federation in Python, with or without a run directory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from fedlama.base import InputError, check_flag
from fedlama.compress import Codec
from fedlama.core import Policy
from fedlama.data import Dataset, Partition
from fedlama.local import LocalRule
from fedlama.processes.world import torchrun_rank
from fedlama.rows import Grouping
from fedlama.run.directory import CONFIG
from fedlama.run.execute import OnRecord, execute
from fedlama.run.planning import plan
from fedlama.run.progress import progress as show_progress
from fedlama.run.recorded import read_run
from fedlama.run.result import Result, read_result, result_of
from fedlama.server import ServerRule
from fedlama.training import Faults, Metric, Participation, Record
from fedlama.training import simulate as simulate_in_memory
from fedlama.training.arguments import check_numbers
from fedlama.training.checkpointing import Checkpointing
from fedlama.training.evaluation import Loss, MetricFunction
from fedlama.training.modules import build
from fedlama.training.options import (
    Evaluated,
    RunOptions,
    Weighting,
    participation_of,
)
from fedlama.training.trainers import Execution, Precision


def simulate(
    model: Callable[[], nn.Module],
    data: Dataset,
    *,
    policy: Policy,
    local: LocalRule,
    server: ServerRule | None = None,
    uplink: Codec | None = None,
    downlink: Codec | None = None,
    partition: Partition | None = None,
    participation: float | int | Participation = 1.0,
    iterations: int,
    seed: int = 0,
    workers: int = 1,
    window: int | None = None,
    weights: Weighting = "uniform",
    layers: Grouping = "tensor",
    adaptive: Sequence[str] | None = None,
    faults: Faults | None = None,
    loss: Loss | None = None,
    metric: MetricFunction | Metric | None = None,
    evaluate_every: int | None = None,
    evaluate: Evaluated = "model",
    evaluate_clients: bool = False,
    evaluate_average: bool = False,
    average_steps: int = 120,
    device: str = "auto",
    execution: Execution = "auto",
    precision: Precision = "float32",
    on_record: Callable[[Record], None] | None = None,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    progress: bool = False,
    checkpoint_minutes: float = 5.0,
    checkpointing: Checkpointing | None = None,
) -> Result:
    """Train a federation and account for every byte.

    The same arguments give the same bits on the same type of machine, whatever the number of workers.

    Arguments:
        model: A function without arguments that builds any nn.Module; it is called once.
        data: Samples and targets, from `fedlama.data.load`, `fedlama.data.digits` or `fedlama.data.arrays`.
        policy: Which layers are averaged when, such as `fedlama.FedLAMA(6, 4)` or `fedlama.FedAvg(6)`.
        local: How a client trains, such as `fedlama.SGD(learning_rate=0.1, batch_size=16)`.
        server: What the server makes of an average (default: `fedlama.server.Mean()`, the average itself).
        uplink: The code of what clients send, such as `fedlama.compress.Rotate(1.6)` (default: float32 as it is).
        downlink: The code of what clients that stay are sent. The server keeps what it leaves out and sends it later.
            Clients that enter get the whole model as it is, so this needs a `window` of several rounds.
        partition: How samples are dealt to clients, such as `fedlama.Dirichlet(clients=32, alpha=0.5)`, or shards that
            were drawn already (default: the data's own client ids; data without them is dealt to 32 clients alike, as
            in a configuration).
        participation: Who trains at a time: `fedlama.Participation(clients=8)` or
            `fedlama.Participation(fraction=0.25)`. A bare whole number counts clients, and a bare float is a fraction
            of them; a bare 1, which may mean one client or all, is refused.
        iterations: How many global steps to train; every client of a cohort takes each of them.
        seed: Decides every random draw: initial weights, partition, cohorts, batches, faults.
        workers: How many processes share the work.
        window: How many steps a cohort stays before another is drawn (default: one cycle of the policy).
        weights: What a client weighs in an average: "uniform", or "samples" for as much as it has samples.
        layers: What is averaged as one: each "tensor", or all tensors of one "module".
        adaptive: Patterns of the names of layers that may get a longer interval (default: those with a kernel).
        faults: Lets clients fail. Without it, a client whose loss or weights are not finite ends the run.
        loss: A function of outputs and targets (default: cross entropy, where targets are classes).
        metric: Another such function, reported under its own name, or a `fedlama.Metric`, which says whether less of it
            is better (default: the accuracy, the share of right classes).
        evaluate_every: The global model is evaluated at cycle ends that pass a multiple of so many steps (default:
            about 20 times in a run), and at the end.
        evaluate: What is evaluated, and returned as the trained module: the global "model", or "ema", a moving average
            of it that the server keeps. It costs no bytes; give it to every setting that is compared.
        evaluate_clients: Whether the model is also evaluated on each client's own samples, wherever it is evaluated:
            `Result.clients` has every client's metric, the worst decile and the spread.
        evaluate_average: Whether a moving average is also evaluated, beside the model: `Result.average_score` has its
            metric. Training is the same, so one run tells what both would give.
        average_steps: Over how many steps that average reaches back.
        device: "cpu", "cuda", or "auto" for a GPU where there is one.
        execution: How a process trains its clients: "one-by-one", small models "stacked", or "auto" to choose by size.
        precision: "float32", or "bfloat16" for local steps under autocast; weights and averages stay float32.
        on_record: Called with the record of every round.
        out: A folder to write the run into, as `fedlama run` does: configuration, every round, checkpoints, the model,
            the summary and a report page (default: nothing is written).
        resume: Whether a run that was interrupted in `out` goes on from its last checkpoint. One that is finished is
            read back.
        progress: Whether progress is shown on standard error.
        checkpoint_minutes: How many minutes lie between two checkpoints in `out`; 0 saves one at every cycle's end.
        checkpointing: For programs that keep checkpoints in a place of their own, without `out`: where they go, and
            what to resume from.

    Returns:
        What came of it, with the record of every round and the trained module.
    """
    check_flag("resume", resume)
    check_flag("progress", progress)
    if resume and out is None:
        raise InputError("resume=True needs out=, the folder of the run that goes on")
    if checkpointing is not None and out is not None:
        raise InputError(
            "checkpointing= means nothing with out=, which keeps its own checkpoints"
        )
    options = RunOptions(
        iterations=iterations,
        seed=seed,
        weights=weights,
        layers=layers,
        adaptive=adaptive,
        evaluate_every=evaluate_every,
        evaluate=evaluate,
        evaluate_clients=evaluate_clients,
        evaluate_average=evaluate_average,
        average_steps=average_steps,
        device=device,
        execution=execution,
        precision=precision,
        checkpoint_minutes=checkpoint_minutes,
    )
    # What a run is built of, beside its model and its data
    parts: dict[str, Any] = {
        "policy": policy,
        "local": local,
        "server": server,
        "uplink": uplink,
        "downlink": downlink,
        "partition": partition,
        "participation": participation_of(participation, window),
        "faults": faults,
        "loss": loss,
        "metric": metric,
    }

    with _display(iterations, policy, progress) as display:
        observers = [one for one in (on_record, display) if one is not None]
        if out is None:
            found = simulate_in_memory(
                model,
                data,
                options,
                **parts,
                workers=workers,
                on_record=_each(observers),
                checkpointing=checkpointing,
            )
            return result_of(found)

        planned = plan(model, data, options, **parts)
        check_numbers(workers=workers)
        folder = Path(out)
        if (folder / CONFIG).exists() and not resume:
            raise InputError(
                f"{folder} already holds a run: resume=True goes on with it, or choose another out="
            )
        done = execute(planned, folder, observers, workers=workers, resume=resume)

    if done is not None:
        _draw_page(folder)
        return result_of(done)
    # The run was finished before: its result comes back from the directory.
    return read_result(
        read_run(folder),
        build(model, seed),
        preparation=data.preparation,
        is_classifier=data.classes is not None,
        client_names=planned.shards.names,
    )


def _draw_page(folder: Path) -> None:
    """The page and picture of the run, once over all processes of a cluster."""
    # Imported here, because a run in memory should not wait for a plotting library.
    from fedlama.report import draw_report
    from fedlama.study.runs import find_runs

    if torchrun_rank() == 0:
        runs = find_runs([folder])
        draw_report(runs, folder)


def _each(observers: Sequence[OnRecord]) -> OnRecord:
    def take(record: Record) -> None:
        for observer in observers:
            observer(record)

    return take


@contextmanager
def _display(
    iterations: int, policy: Policy, wanted: bool
) -> Iterator[OnRecord | None]:
    if not wanted:
        yield None
        return
    with show_progress(iterations) as display:
        base_interval = getattr(policy, "base_interval", None)
        display.begin(str(policy), base_interval)
        yield display
