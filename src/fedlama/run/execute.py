"""From a configuration to a finished run directory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from fedlama.base import InputError, printable
from fedlama.processes.devices import default_workers
from fedlama.processes.signals import stop_on_signals
from fedlama.processes.world import torchrun_rank, torchrun_restarts
from fedlama.rows import describe
from fedlama.run.checkpoint_search import find_checkpoint
from fedlama.run.config import Config
from fedlama.run.directory import CHECKPOINTS, CONFIG, UNTIL_ROUND, RunDirectory
from fedlama.run.files import OUT_OPTION, locked
from fedlama.run.partition_file import PartitionFile
from fedlama.run.recorded import check_same_network
from fedlama.run.references import is_reference
from fedlama.run.resolve import Resolved, data_source, resolve
from fedlama.run.tensorboard import tensorboard_writer
from fedlama.run.toml import read_toml
from fedlama.training import Record, TrainingResult, simulate
from fedlama.training.checkpoint_file import CheckpointSource
from fedlama.training.checkpointing import Check, Checkpointing, Control
from fedlama.training.modules import build

OnRecord = Callable[[Record], None]


def execute(
    config: Config | Resolved,
    out: Path,
    observers: Sequence[OnRecord] = (),
    *,
    workers: int | None = None,
    replace: bool = False,
    resume: bool = False,
    quiet: bool = False,
    option: str = OUT_OPTION,
) -> TrainingResult | None:
    """Run a configuration into a directory.

    Arguments:
        config: what to run; what is resolved already is not built again.
        out: the run directory.
        observers: called with each record after it is on disk.
        workers: how many processes share the work (default: one per GPU, or one per core). Of a group that torchrun
            started, rank 0 writes.
        replace: whether a run that the directory holds may be overwritten.
        resume: whether it goes on from its last checkpoint, as it does when torchrun restarts the group. A finished
            run stays as it is, and None is returned.
        quiet: whether nothing is printed when a signal asks the run to stop.
        option: what the user named the directory by, for messages.
    """
    run = config
    if not isinstance(run, Resolved):
        run = resolve(run)
    if torchrun_rank() != 0:
        # Rank 0 alone writes.
        nowhere = Checkpointing(Control())
        return train(run, workers, lambda record: None, nowhere)

    with locked(out, option=option) as held:
        resume = resume or torchrun_restarts() > 0
        directory = RunDirectory(
            out,
            run.config,
            replace=replace,
            resume=resume,
            held=held,
            partition=PartitionFile.of(run.data, run.shards),
            option=option,
        )
        if resume and _is_finished(directory, run, option):
            return None
        keeping = _checkpointing(directory, resume)

        board = None
        if run.config.output.tensorboard:
            board = tensorboard_writer(directory.path)
        # The directory first of all: what others are shown is on disk.
        watching: list[OnRecord] = [directory.record]
        if board is not None:
            watching.append(board)
        watching.extend(observers)

        def take(record: Record) -> None:
            for observer in watching:
                observer(record)

        def ask_to_stop() -> None:
            keeping.control.request_stop()
            if not quiet:
                print(
                    "\nfedlama: finishing the cycle to save a checkpoint; once more stops at once",
                    file=sys.stderr,
                )

        with stop_on_signals(ask_to_stop):
            result = train(run, workers, take, keeping)
        if board is not None:
            clients = run.participation.count(len(run.shards))
            board.finish(result, clients)
        directory.finish(result)
        return result


def _is_finished(directory: RunDirectory, run: Resolved, option: str) -> bool:
    """Whether there is nothing left to train of a run that is resumed; other data or another network is refused."""
    out = directory.path
    _check_same_data(directory, option)
    for sentence in changed_code(out / CONFIG, run.config):
        print(f"fedlama: {sentence}", file=sys.stderr)

    if not directory.is_finished():
        return False
    # Models of fedlama's are known by their names; only code of the user's own may build another one.
    if run.config.hashes:
        check_same_network(out, network_of(run))
    return True


def train(
    run: Resolved, workers: int | None, take: OnRecord, keeping: Checkpointing
) -> TrainingResult:
    """Train what a configuration describes; nothing is written.

    Arguments:
        run: What was built from the configuration.
        workers: How many processes share the work (default: one per GPU, or one per core).
        take: Called with the record of every round.
        keeping: Where checkpoints go, and what to resume from.
    """
    config = run.config
    return simulate(
        run.model,
        run.data,
        config.options,
        policy=run.policy,
        local=run.local,
        server=run.server,
        uplink=run.uplink,
        downlink=run.downlink,
        partition=run.shards,
        participation=run.participation,
        faults=run.faults,
        loss=run.loss,
        metric=run.metric,
        workers=workers or default_workers(config.train.device),
        on_record=take,
        checkpointing=keeping,
    )


def _check_same_data(directory: RunDirectory, option: str) -> None:
    """A run that goes on with other data would end with numbers that belong to neither."""
    data = directory.config.data
    before = _stored_hash(directory.path / CONFIG, data.name)
    now = data.sha256
    if before is None or now is None or before == now:
        return

    source = data.name
    if ":" in data.name or not _was_given(directory.config):
        source = data_source(data)
    raise InputError(
        f"{source} changed since the run in {directory.path} began (SHA-256 {before[:12]}…, now {now[:12]}…): "
        f"restore the data, or start a new run with another {option}"
    )


def _was_given(config: Config) -> bool:
    """Whether the data was handed over in Python: then its name is no file's."""
    return (
        config.model.name is not None
        and is_reference(config.model.name)
        and not is_reference(config.data.name)
    )


def network_of(run: Resolved) -> list[tuple[str, int]]:
    """The name and the size of every layer that a run trains."""
    model = run.config.model
    # Whoever looks at a finished run keeps the draws of their own.
    with torch.random.fork_rng(devices=[]):
        module = build(run.model, run.config.seed)

    layout = describe(module, model.layers, model.adaptive)
    return [(layer.name, layer.size) for layer in layout.layers]


def changed_code(path: Path, config: Config, study: Path | None = None) -> list[str]:
    """A sentence for each file with code of the user's own that is not what it was when a run began.

    Arguments:
        path: The configuration in the run's directory.
        config: Of the run that is to go on, resolved.
        study: The folder to name in place of the run's, so that all runs of a study say the same (default: the run's).
    """
    if not path.exists():
        return []
    before: Any = read_toml(path).get("hashes", {})
    if not isinstance(before, dict):
        return []

    what = f"the run in {path.parent}"
    if study is not None:
        what = f"runs in {study}"
    sentences: dict[str, None] = {}  # what is in one file has one sentence
    for name, now in config.hashes.items():
        was = str(before.get(name, now))
        if was == now:
            continue

        happened = "began"
        if any(known.startswith(f"{name}{UNTIL_ROUND}") for known in before):
            happened = "last went on"
        whose, _, _ = name.partition(":")
        if whose == "__main__":
            # A notebook is no file: each function has its own hash.
            whose = name
        sentence = (
            f"the code of {printable(whose)} changed since {what} {happened} (SHA-256 {was[:12]}…, now {now[:12]}…): "
            f"what was computed before is of the old code"
        )
        sentences[sentence] = None
    return list(sentences)


def _stored_hash(path: Path, name: str) -> str | None:
    """The SHA-256 of this data set that a run directory's configuration has, if it has one."""
    if not path.exists():
        return None

    stored: Any = read_toml(path).get("data", {})
    if not isinstance(stored, dict):
        return None
    if stored.get("name") != name:
        return None
    return stored.get("sha256")


def _checkpointing(directory: RunDirectory, resume: bool) -> Checkpointing:
    """Where checkpoints go and, for a run that is resumed, where it goes on."""
    config = directory.config
    seconds = 60 * config.train.checkpoint_minutes
    keeping = Checkpointing(Control(seconds), begin=directory.begin_checkpoint)
    if not resume:
        return keeping

    tables = config.model_dump(exclude_none=True)

    def find(round_of: Check) -> tuple[CheckpointSource, list[Record]]:
        found = find_checkpoint(
            directory.path / CHECKPOINTS,
            tables,
            directory.recorded(),
            round_of,
        )
        if found is None:
            directory.check_same_config()
            return b"", []

        for reason in found.refused:
            print(f"fedlama: {reason}; the one before it is used", file=sys.stderr)
        records = directory.continue_after(found.round)
        return found.path, records

    keeping.find = find
    return keeping
