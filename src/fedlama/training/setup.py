"""A job with the module that it trains, and how it is to be run here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

from torch import nn

from fedlama.base import InputError
from fedlama.compress import Channel, Codec, ErrorFeedback
from fedlama.core import Layout
from fedlama.data import Batches
from fedlama.rows import Binding, ClientStore, Slot, counter_width
from fedlama.training.checkpoint import Checkpoint, Shapes
from fedlama.training.checkpoint_file import CheckpointSource
from fedlama.training.checkpointing import Checkpointing
from fedlama.training.job import Job
from fedlama.training.memory import MemoryDemand, check_memory, demand_of, fits
from fedlama.training.resuming import check_resumable
from fedlama.training.seen_rows import SeenRows, read_seen_rows
from fedlama.training.trainers import (
    OneByOneTrainer,
    StackedTrainer,
    Trainer,
    can_stack,
    suits_stacking,
)


@dataclass(frozen=True)
class Setup:
    """A job with the module that it trains, and how it is to be run here.

    Arguments:
        job: The run.
        module: What is trained.
        layout: Where its layers are in a row.
        stacked: Whether clients are trained in stacks.
        checkpointing: Where checkpoints go, and what to resume from, if anybody keeps any.
    """

    job: Job
    module: nn.Module
    layout: Layout
    stacked: bool
    checkpointing: Checkpointing | None

    @property
    def shapes(self) -> Shapes:
        """What a checkpoint of this job must fit."""
        job = self.job
        server = job.make_server(self.layout)
        return Shapes(
            width=self.layout.width,
            counter_width=counter_width(self.module),
            server_slots=_names(server.slots),
            cohort_slots=_names(job.client_slots),
            seen_slots=_names(job.outliving_slots),
            cohort=job.cohort_size,
            clients=len(job.shards),
        )

    def restored(self, source: CheckpointSource) -> Checkpoint:
        """A checkpoint without the rows of clients seen; InputError if the run cannot go on from it.

        Arguments:
            source: Its content, or the file that has it.
        """
        saved = Checkpoint.decode(source, self.shapes)
        check_resumable(saved, self.job, self.layout)
        return saved

    def seen_rows(self, source: CheckpointSource) -> Iterator[SeenRows]:
        """The rows of clients seen in a checkpoint that was restored, piece by piece.

        Arguments:
            source: Its content, or the file that has it.
        """
        return read_seen_rows(source, self.shapes)

    def round_of(self, source: CheckpointSource) -> int:
        """The round after which a checkpoint was saved; InputError if the run cannot go on from it.

        Arguments:
            source: Its content, or the file that has it.
        """
        saved = self.restored(source)
        for _ in self.seen_rows(source):
            # They are checked as they are read
            continue
        return saved.policy_state.round

    @contextmanager
    def store(self) -> Iterator[ClientStore | None]:
        """Where slots that outlive a window are kept; made before processes are forked, so that they share it."""
        outliving = self.job.outliving_slots
        if not outliving:
            yield None
            return
        clients = len(self.job.shards)
        store = ClientStore(outliving, clients, self.layout.width)
        with closing(store):
            yield store

    def trainer(self, binding: Binding, batches: Batches) -> Trainer:
        """Whoever takes the local steps in one process."""
        job = self.job
        if self.stacked:
            return StackedTrainer(binding, batches, job.local)
        return OneByOneTrainer(
            binding=binding,
            batches=batches,
            rule=job.local,
            loss=job.loss,
            seed=job.options.seed,
            precision=job.options.precision,
        )


def _names(slots: Iterable[Slot]) -> tuple[str, ...]:
    return tuple(slot.name for slot in slots)


def uplink_channel(codec: Codec | None, layout: Layout, seed: int) -> Channel | None:
    """The code of what clients send, for this model."""
    if codec is None:
        return None
    return Channel(codec, layout, seed=seed, direction="uplink")


def downlink_channel(codec: Codec | None, layout: Layout, seed: int) -> Channel | None:
    """The code of what clients that stay are sent. The server stays, so what its code leaves out is never forgotten."""
    if codec is None:
        return None
    lasting = codec.for_whole_run()
    if not lasting.slots:
        lasting = ErrorFeedback(codec, lifetime="run")
    return Channel(lasting, layout, seed=seed, direction="downlink")


def choose_when_to_save(setup: Setup, workers: int) -> None:
    """Where memory is short, keep checkpoints for the ends of windows: a run should not fail for its checkpoints.

    Arguments:
        setup: The run, whose control is changed.
        workers: How many processes share it.
    """
    if setup.checkpointing is None:
        return
    if not fits(_demand_anywhere(setup, workers)):
        setup.checkpointing.control.save_between_windows()


def check_setup_memory(setup: Setup, workers: int) -> None:
    """Refuse a run that will not fit into memory.

    Arguments:
        setup: The run, after `choose_when_to_save`.
        workers: How many processes share it.
    """
    demand = _demand_anywhere(setup, workers)
    checkpointing = setup.checkpointing
    if checkpointing is not None and checkpointing.control.between_windows:
        # There no slots of a cohort are to be saved.
        demand = replace(demand, saved_clients=0)
    check_memory(demand)


def _demand_anywhere(setup: Setup, workers: int) -> MemoryDemand:
    """What a run needs if it may be saved anywhere, also inside a window."""
    return demand_of(
        setup.job,
        setup.layout,
        workers=workers,
        stacked=setup.stacked,
        saves=setup.checkpointing is not None,
    )


def choose_stacked(module: nn.Module, layout: Layout, job: Job) -> bool:
    """Whether clients are trained in stacks, which is decided by a rule and never by a timing."""
    execution = job.options.execution
    refusal = "execution = 'stacked' does not fit this training"
    if job.local.steps is not None:
        if execution == "stacked":
            raise InputError(f"{refusal}: clients take unequal numbers of steps")
        return False
    if execution == "auto":
        return suits_stacking(
            module=module,
            layout=layout,
            data=job.data,
            loss=job.loss,
            precision=job.options.precision,
        )
    reason = can_stack(module, job.data, job.loss, job.options.precision)
    if execution == "stacked" and reason:
        raise InputError(f"{refusal}: {reason}")
    return execution == "stacked"
