"""The loop in this process, in worker processes, or as one process of a group that torchrun started."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from fedlama.base import InputError
from fedlama.data import Batches
from fedlama.processes.devices import as_current, backend_for
from fedlama.processes.memory import explain_out_of_memory
from fedlama.processes.workers import run_workers
from fedlama.processes.world import (
    World,
    has_process_group,
    launched_by_torchrun,
    torchrun_world,
)
from fedlama.rows import Binding, ClientStore
from fedlama.training.checkpoint import Checkpoint
from fedlama.training.checkpoint_file import CheckpointSource
from fedlama.training.loop import Federation, HandOut
from fedlama.training.position import Position, PositionArrays
from fedlama.training.seen_rows import SeenRows
from fedlama.training.setup import Setup


def run_loop(
    setup: Setup, store: ClientStore | None, workers: int, take: HandOut
) -> Position:
    """Train to the end; where the run stands then.

    Arguments:
        setup: The run.
        store: Where clients' slots of lifetime "run" are kept, if there are any.
        workers: How many processes share the work.
        take: Called in this process with every record and checkpoint.
    """
    checkpointing = setup.checkpointing

    @explain_out_of_memory()
    def work(world: World, emit: HandOut) -> Position:
        device = world.device(setup.job.options.device)
        federation = _federation(setup, store, world, device)
        with as_current(device):
            if checkpointing is None:
                end = federation.run(emit)
                return end.on_cpu()
            resume = _found_by_first(setup, checkpointing.resume, world)
            seen_rows: Iterator[SeenRows] = iter(())
            if world.rank == 0 and resume is not None:
                seen_rows = setup.seen_rows(checkpointing.resume)
            end = federation.run(
                emit,
                checkpointing.control,
                resume,
                seen_rows,
            )
            return end.on_cpu()

    backend = backend_for(setup.job.options.device)
    if launched_by_torchrun():
        with torchrun_world(backend) as world:
            return work(world, take)
    if workers == 1:
        return work(World(), take)
    if has_process_group():
        raise InputError(
            "this process already has a process group: use workers=1, or start the program with torchrun"
        )

    def work_and_send(world: World, emit: HandOut) -> PositionArrays:
        end = work(world, emit)
        return PositionArrays.of(end)

    end: PositionArrays = run_workers(workers, work_and_send, take, backend)
    return end.position()


def _found_by_first(
    setup: Setup, source: CheckpointSource, world: World
) -> Checkpoint | None:
    """What rank 0 goes on from, everywhere: all processes must go on from the same step.

    Arguments:
        setup: The run.
        source: What this process has found, which counts at rank 0.
        world: The processes that share the run.
    """
    content = b""
    if world.rank == 0 and source:
        saved = setup.restored(source)
        # Rows of clients seen would not fit into a message: they follow in pieces.
        without_seen = replace(saved, seen=saved.seen[:0])
        content = without_seen.encode()
    content = world.from_first(content)
    if not content:
        return None
    return setup.restored(content)


def _federation(
    setup: Setup, store: ClientStore | None, world: World, device: torch.device
) -> Federation:
    """The run at work in this process, on its device."""
    module = setup.module.to(device)
    binding = Binding(module, setup.layout)

    data = setup.job.data.to(device)
    job = replace(setup.job, data=data)
    batches = Batches(
        data,
        job.shards,
        job.local.batch_size,
        job.options.seed,
    )
    trainer = setup.trainer(binding, batches)
    return Federation(
        job=job, binding=binding, trainer=trainer, world=world, store=store
    )
