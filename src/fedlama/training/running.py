"""The loop in this process, in worker processes, or as one process of a group that torchrun started."""

from __future__ import annotations

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
from fedlama.training.loop import Emit, Federation
from fedlama.training.setup import Setup
from fedlama.training.values import Position


def run_loop(
    setup: Setup, store: ClientStore | None, workers: int, take: Emit
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
    def work(world: World, emit: Emit) -> Position:
        device = world.device(setup.device)
        federation = _federation(setup, store, world, device)
        with as_current(device):
            if checkpointing is None:
                end = federation.run(emit)
                return end.on_cpu()
            # What rank 0 found, everywhere: all processes must go on from the same step.
            saved = world.from_first(checkpointing.resume)
            resume = None
            if saved:
                resume = setup.restored(saved)

            end = federation.run(emit, checkpointing.control, resume)
            return end.on_cpu()

    backend = backend_for(setup.device)
    if launched_by_torchrun():
        with torchrun_world(backend) as world:
            return work(world, take)
    if workers == 1:
        return work(World(), take)
    if has_process_group():
        raise InputError(
            "this process already has a process group: use workers=1, or start the program with torchrun"
        )

    def work_and_send(world: World, emit: Emit) -> Position:
        end = work(world, emit)
        return end.as_arrays()

    end = run_workers(workers, work_and_send, take, backend)
    return end.on_cpu()


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
        job.seed,
    )
    trainer = setup.trainer(binding, batches)
    return Federation(job, binding, trainer, world, store)
