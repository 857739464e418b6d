"""Local steps with one of fedlama's local rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from flwr.app import Context
from torch import Tensor, nn

from fedlama.base import InputError, check_made
from fedlama.core import Layout
from fedlama.data import Batches, Dataset, Partition, Shards
from fedlama.flower.codes import rule_to_plain
from fedlama.flower.tasks import Task
from fedlama.flower.trainers import ANCHOR, ROW, LocalWork
from fedlama.local import MODEL, LocalRule, steps_per_interval, steps_taken
from fedlama.rows import ReadOnly, Slot, views
from fedlama.training.arguments import task_of
from fedlama.training.evaluation import Loss
from fedlama.training.trainers import OneByOneTrainer

ARRAYS = "fedlama.data.arrays(x, y, None, None)"
Data = Dataset | Callable[[Context], Dataset]


def check_data(data: Data) -> None:
    """Refuse what is neither a data set nor a function that returns one.

    Arguments:
        data: What `client_app` was given.
    """
    # Modules can be called, and classes, too
    is_function = callable(data) and not isinstance(data, type | nn.Module)
    if is_function:
        return
    example = f"{ARRAYS}, or be a function of Flower's context that returns such"
    check_made("data", data, Dataset, example)


class RuleTrainer:
    """Takes local steps with a local rule.

    Arguments:
        data: What the client trains on, or a function of Flower's context that returns it.
        local: The rule.
        partition: How the data is dealt to clients; None where all of it is the client's own.
        loss: A function of outputs and targets; None for cross entropy.
    """

    def __init__(
        self,
        data: Data,
        local: LocalRule,
        partition: Partition | None,
        loss: Loss | None,
    ) -> None:
        self.data = data
        self.local = local
        self.partition = partition
        self.loss = loss

    @property
    def slots(self) -> tuple[Slot, ...]:
        """What the rule keeps on each client."""
        return self.local.slots

    @property
    def sends(self) -> tuple[str, ...]:
        """What the rule is sent beside the model."""
        return self.local.sends

    @property
    def name(self) -> str:
        """The rule."""
        return str(self.local)

    @property
    def options(self) -> dict[str, Any]:
        """The rule's name and options."""
        return rule_to_plain(self.local)

    def check_rule(self, expected: str) -> None:
        """The server must do its part of a rule that has one, and not that of another rule.

        Arguments:
            expected: The rule that the strategy was given; empty for none.
        """
        mine = repr(self.local)
        if expected and expected != mine:
            raise InputError(
                f"this client trains with {mine}, and the strategy was given local={expected}"
            )
        if not expected and has_server_part(self.local):
            name = type(self.local).__name__
            raise InputError(
                f"{name} has a part on the server: pass the same local= to LayerwiseStrategy, too"
            )

    def check_weights(self, weights: str) -> None:
        """Nothing to refuse: the samples are here to be counted.

        Arguments:
            weights: What the strategy weighs clients by.
        """

    def samples(self, context: Context, client: int, seed: int) -> int:
        """How many samples the client has.

        Arguments:
            context: Flower's.
            client: The client's number.
            seed: The run's.
        """
        _, shards = self._shard(context, client, seed)
        return shards.size_of(client)

    def train(self, work: LocalWork) -> float:
        """Take the task's steps on the row, in place; the mean loss.

        Arguments:
            work: The client's row, and the steps to take on it.
        """
        local = self.local
        task = work.task
        rows = work.rows
        binding = work.binding
        data, shards = self._shard(work.context, task.client, task.seed)
        loss, _ = task_of(data, self.loss, None)
        batches = Batches(data, shards, local.batch_size, task.seed)
        trainer = OneByOneTrainer(
            binding=binding, batches=batches, rule=local, loss=loss, seed=task.seed
        )
        pace = steps_per_interval(
            local.steps,
            samples=shards.size_of(task.client),
            batch_size=local.batch_size,
            seed=task.seed,
            window=task.window,
            client=task.client,
        )

        # The trainer takes a cohort, with a row per client: here it is a cohort of one.
        steps = task.global_steps
        own_steps = steps_taken(pace, task.base_interval, steps)
        own: dict[str, Tensor] = {}
        for slot in self.slots:
            own[slot.name] = rows[slot.name][None]
        server_rows = self._server_rows(rows)
        read_only = ReadOnly.sent(server_rows)
        losses = trainer.train(
            [task.client],
            rows[ROW][None],
            slots=own,
            counters=work.counters[None],
            server_rows=server_rows,
            steps=steps,
            local_steps=[own_steps],
            trained=work.trained_slices,
        )
        self._sync(task, binding.layout, rows, pace)
        read_only.check(local)
        return float(losses[0])

    def _server_rows(self, rows: dict[str, Tensor]) -> dict[str, Tensor]:
        """What the rule may look at: the anchor, and what the server sent for it."""
        server = {MODEL: rows[ANCHOR]}
        for name in self.sends:
            server[name] = rows[name]
        return server

    def _sync(
        self, task: Task, layout: Layout, rows: dict[str, Tensor], pace: int | None
    ) -> None:
        """Before a due layer is uploaded, the rule may update its slots, or what is sent."""
        row = rows[ROW]
        own_rows = {slot.name: rows[slot.name] for slot in self.slots}
        server_rows = self._server_rows(rows)
        end = task.global_steps.stop
        for number in task.due:
            # A layer with a long interval was trained in rounds before this one, too.
            since = range(task.since[number], end)
            local_steps = steps_taken(pace, task.base_interval, since)
            taken = torch.tensor([len(local_steps)])
            layer = layout.layers[number]
            for part in layer.slices:
                self.local.sync(
                    row[part],
                    views(own_rows, part),
                    views(server_rows, part),
                    steps=since,
                    taken=taken,
                )

    def _shard(
        self, context: Context, client: int, seed: int
    ) -> tuple[Dataset, Shards]:
        data = self.data
        if not isinstance(data, Dataset):
            data = data(context)
            check_made("what data(context) returns", data, Dataset, ARRAYS)
        if self.partition is not None:
            shards = self.partition.assign(data, seed)
            return data, shards

        # All samples are this client's. Those before it have none, so that it keeps its number: batches depend on it.
        count = len(data.x_train)
        order = torch.arange(count)
        offsets = torch.zeros(client + 2, dtype=torch.int64)
        offsets[-1] = count
        return data, Shards(order, offsets)


def has_server_part(rule: LocalRule) -> bool:
    """Whether a rule needs more of the server than to average what clients send.

    Arguments:
        rule: A local rule.
    """
    if rule.server_slots or rule.sends:
        return True

    # A rule without slots of its own on the server may still change the mean, by how many steps clients took.
    anchor = torch.zeros(1)
    mean = torch.ones(1)
    merged = rule.merge(
        anchor,
        mean,
        {},
        steps=range(2),
        taken=[(1.0, 1)],
        share=1.0,
    )
    return not torch.equal(merged, mean)
