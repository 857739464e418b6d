"""The client side: overlay what was received on the state kept, train, keep, reply with the due layers.

Flower starts a new process for every message, so nothing here may be slow to import: no pydantic, no matplotlib, and
local rules of our own instead of torch's optimizers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from flwr.app import Array, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor, nn

from fedlama.base import InputError
from fedlama.compress import Channel
from fedlama.core import Layout
from fedlama.data import Batches, Dataset, Partition, Shards
from fedlama.flower.state import ClientState, forget_state, load_state, store_state
from fedlama.flower.wire import (
    RECORD,
    Report,
    Task,
    all_slices,
    channel_of,
    coded_array,
    layout_digest,
    place_from_plain,
    plain_array,
    read_plain,
    read_task,
    report_record,
)
from fedlama.local import MODEL, FedNova, LocalRule, steps_per_interval, steps_taken
from fedlama.rows import Binding, Slot, describe
from fedlama.server import LAST_CHANGE
from fedlama.training.arguments import task_of
from fedlama.training.evaluation import Loss
from fedlama.training.trainers import OneByOneTrainer

ROW = "row"  # the client's own numbers
ANCHOR = "anchor"  # every layer as it was last synchronised
PARTITION = "partition-id"  # in the node's configuration
PARTITIONS = "num-partitions"

Data = Dataset | Callable[[Context], Dataset]
TrainFunction = Callable[[nn.Module, range, Context], float]


def client_app(
    model: Callable[[], nn.Module],
    data: Data,
    *,
    local: LocalRule,
    partition: Partition | None = None,
    loss: Loss | None = None,
    threads: int = 1,
) -> ClientApp:
    """A Flower ClientApp that trains with one of fedlama's local rules.

    Arguments:
        model: A function without arguments that builds the module.
        data: What the client trains on: a data set, or a function of Flower's context that returns one.
        local: How it trains, such as `fedlama.SGD(learning_rate=0.1, batch_size=16)`; a rule that keeps a part on the
            server (Scaffold, FedDyn, FedNova) is refused.
        partition: How the data is dealt to clients, of which this one is the node's `partition-id`, where all nodes
            read the same data (default: all of the data is the client's own).
        loss: A function of outputs and targets (default: cross entropy, where targets are classes).
        threads: How many threads torch uses; results are the same bits for the same number.
    """
    if local.server_slots or local.sends or isinstance(local, FedNova):
        raise InputError(
            f"local = {type(local).__name__} keeps a part on the server, which this runtime does not carry: "
            f"use SGD or FedProx"
        )
    trainer = _RuleTrainer(data, local, partition, loss)
    return _app(model, trainer, threads)


def layerwise(
    model: Callable[[], nn.Module], *, samples: Callable[[Context], int] | None = None, threads: int = 1
) -> Callable[[TrainFunction], ClientApp]:
    """A decorator that makes a ClientApp of `train(model, steps, context)`, for those who have a loop of their own.

    The function takes `len(steps)` steps with the module, whose weights are in place, and returns its mean training
    loss. `steps` is the range of global steps, for schedules. An optimizer with a memory begins anew in every round.

    Arguments:
        model: A function without arguments that builds the module.
        samples: A function of Flower's context: how many samples the client has, where the strategy weighs by them.
        threads: How many threads torch uses.
    """

    def decorate(train: TrainFunction) -> ClientApp:
        return _app(model, _FunctionTrainer(train, samples), threads)

    return decorate


class _RuleTrainer:
    """Takes local steps with a local rule."""

    def __init__(self, data: Data, local: LocalRule, partition: Partition | None, loss: Loss | None) -> None:
        self.data = data
        self.local = local
        self.partition = partition
        self.loss = loss

    @property
    def slots(self) -> tuple[Slot, ...]:
        return self.local.slots

    def samples(self, context: Context, client: int, seed: int) -> int:
        _, shards = self._shard(context, client, seed)
        return shards.size_of(client)

    def train(self, task: Task, binding: Binding, rows: dict[str, Tensor], counters: Tensor, context: Context) -> float:
        """Take the task's steps on the row, in place; the mean loss."""
        data, shards = self._shard(context, task.client, task.seed)
        loss, _ = task_of(data, self.loss, None)
        batches = Batches(data, shards, self.local.batch_size, task.seed)
        trainer = OneByOneTrainer(binding, batches, self.local, loss, task.seed)
        pace = steps_per_interval(
            self.local.steps,
            samples=shards.size_of(task.client),
            batch_size=self.local.batch_size,
            seed=task.seed,
            window=task.window,
            client=task.client,
        )
        steps = task.global_steps
        own = {slot.name: rows[slot.name][None] for slot in self.slots}
        server = {MODEL: rows[ANCHOR]}
        losses = trainer.train(
            [task.client],
            rows[ROW][None],
            own,
            counters[None],
            server,
            steps,
            [steps_taken(pace, task.base_interval, steps)],
            _trained(task, binding.layout),
        )
        self._sync(task, binding.layout, rows, pace)
        return float(losses[0])

    def _sync(self, task: Task, layout: Layout, rows: dict[str, Tensor], pace: int | None) -> None:
        """Before a due layer is uploaded, the rule may update its slots, or what is sent."""
        for layer in task.due:
            since = range(task.since[layer], task.global_steps.stop)
            taken = torch.tensor([len(steps_taken(pace, task.base_interval, since))])
            for part in layout.layers[layer].slices:
                own = {slot.name: rows[slot.name][part] for slot in self.slots}
                self.local.sync(rows[ROW][part], own, {MODEL: rows[ANCHOR][part]}, steps=since, taken=taken)

    def _shard(self, context: Context, client: int, seed: int) -> tuple[Dataset, Shards]:
        data = self.data
        if not isinstance(data, Dataset):
            data = data(context)
        if self.partition is not None:
            return data, self.partition.assign(data, seed)
        # All samples are this client's. Those before it have none, so that it keeps its number: batches depend on it.
        count = len(data.x_train)
        offsets = torch.zeros(client + 2, dtype=torch.int64)
        offsets[-1] = count
        return data, Shards(torch.arange(count), offsets)


class _FunctionTrainer:
    """Takes local steps with the user's own function."""

    slots: tuple[Slot, ...] = ()

    def __init__(self, function: TrainFunction, samples: Callable[[Context], int] | None) -> None:
        self.function = function
        self._samples = samples

    def samples(self, context: Context, client: int, seed: int) -> int:
        if self._samples is None:
            return 1
        return self._samples(context)

    def train(self, task: Task, binding: Binding, rows: dict[str, Tensor], counters: Tensor, context: Context) -> float:
        row = rows[ROW]
        # On a copy: the function changes all layers, of which only those that the task trains are taken over.
        binding.point_at(row.clone())
        binding.load_counters(counters)
        loss = self.function(binding.module, task.global_steps, context)
        if not isinstance(loss, int | float):
            raise InputError(f"the training function must return its mean loss, a number, not {type(loss).__name__}")
        after = binding.read()
        parts = _trained(task, binding.layout)
        if parts is None:
            parts = [slice(0, binding.layout.parameter_width)]
        for part in [*parts, *binding.layout.statistics]:
            row[part] = after[part]
        binding.save_counters(counters)
        return float(loss)


def _app(model: Callable[[], nn.Module], trainer: Any, threads: int) -> ClientApp:
    app = ClientApp()

    @app.query()
    def query(message: Message, context: Context) -> Message:  # pyright: ignore[reportUnusedFunction]
        """Who this client is; a node's information has no partition id."""
        client = _partition_id(context)
        seed = int(str(message.content.config_records[RECORD]["seed"]))
        told = {
            "client": client,
            "clients": int(context.node_config.get(PARTITIONS, 0)),
            "samples": trainer.samples(context, client, seed),
        }
        return Message(RecordDict({RECORD: ConfigRecord(told)}), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:  # pyright: ignore[reportUnusedFunction]
        task, array = read_task(message)
        torch.set_num_threads(threads)
        round_ = _Round(model(), task, trainer, context)
        return Message(round_.play(array), reply_to=message)

    return app


def _partition_id(context: Context) -> int:
    number = context.node_config.get(PARTITION)
    if not isinstance(number, int) or number < 0:
        raise InputError(
            f"the node has no {PARTITION}: start flower-supernode with --node-config '{PARTITION}=0 {PARTITIONS}=4'"
        )
    return number


class _Round:
    """One round of one client."""

    def __init__(self, module: nn.Module, task: Task, trainer: Any, context: Context) -> None:
        self.task = task
        self.trainer = trainer
        self.context = context
        self.layout = describe(module, task.grouping)
        self.binding = Binding(module.train(), self.layout)
        if layout_digest(self.layout, self.binding.counter_width) != task.layout:
            raise InputError(
                "the client's model is not the server's: their layers, statistics or counters differ; "
                "if it has frozen or tied weights or buffers of its own, pass model= to the strategy's start"
            )
        self.uplink = channel_of(task.uplink, self.layout, task.seed, "uplink")
        self.downlink = channel_of(task.downlink, self.layout, task.seed, "downlink")

    def play(self, array: Array) -> RecordDict:
        """Train and reply, or say that the state is not what the server thinks."""
        task = self.task
        kept = load_state(self.context, task.run, task.client, self.layout.width)
        if task.expects and kept.tag != task.expects:
            return report_record(Report(tag=kept.tag, lost=True))
        if task.expects:
            rows = kept.rows
            self._overlay(rows, array)
        else:
            rows = self._enter(kept, array)
        counters = torch.tensor(task.counters, dtype=torch.int64)
        loss = self.trainer.train(task, self.binding, rows, counters, self.context)
        upload = self._upload(rows)
        self._store(rows)
        return report_record(Report(tag=task.tag, loss=loss, counters=counters.tolist()), upload)

    @property
    def _slots(self) -> tuple[Slot, ...]:
        """All that is kept beside the client's row and the anchor."""
        slots = list(self.trainer.slots)
        if self.uplink is not None:
            slots += self.uplink.slots
            if self.uplink.codec.wants_warm:
                slots.append(Slot(LAST_CHANGE))
        return tuple(slots)

    def _enter(self, kept: ClientState, array: Array) -> dict[str, Tensor]:
        """The rows of a client that is sent the whole model."""
        anchor = torch.zeros(self.layout.width)
        read_plain(array, anchor, all_slices(self.layout, self.task.sent))
        rows = {ANCHOR: anchor, ROW: anchor.clone()}
        for slot in self._slots:
            rows[slot.name] = torch.zeros(self.layout.width)
            if slot.lifetime == "run" and slot.name in kept.rows:
                rows[slot.name] = kept.rows[slot.name]
        return rows

    def _overlay(self, rows: dict[str, Tensor], array: Array) -> None:
        """Write what was averaged last over the client's own numbers."""
        task = self.task
        slices = all_slices(self.layout, task.sent)
        anchor = rows[ANCHOR]
        before = anchor.clone()
        if self.downlink is None:
            read_plain(array, anchor, slices)
        else:
            assert task.sent_place is not None, "a coded download comes with its place"
            place = place_from_plain(task.sent_place)
            decoded = self.downlink.unpack(array.data, task.sent, place, anchor=before)
            for part in slices:
                torch.add(before[part], decoded.row[part], out=anchor[part])
        for part in slices:
            rows[ROW][part] = anchor[part]
        if LAST_CHANGE in rows:
            for part in self.layout.slices_of(task.sent):
                rows[LAST_CHANGE][part] = anchor[part] - before[part]

    def _upload(self, rows: dict[str, Tensor]) -> Array:
        task = self.task
        slices = all_slices(self.layout, task.due)
        if self.uplink is None or not _is_finite(rows[ROW], slices):
            # No code can hold what is not finite; the server will refuse it by its name.
            return plain_array(rows[ROW], slices)
        return coded_array(self._coded(self.uplink, rows))

    def _coded(self, channel: Channel, rows: dict[str, Tensor]) -> bytes:
        return channel.pack(
            rows[ROW] - rows[ANCHOR],
            self.task.due,
            place_from_plain(self.task.place),
            anchor=rows[ANCHOR],
            own={slot.name: rows[slot.name] for slot in channel.slots},
            warm=rows.get(LAST_CHANGE),
        )

    def _store(self, rows: dict[str, Tensor]) -> None:
        task = self.task
        if task.keep == "run":
            outliving = [slot.name for slot in self._slots if slot.lifetime == "run"]
            rows = {name: rows[name] for name in outliving}
        if task.keep == "nothing" or not rows:
            forget_state(self.context, task.client, task.run)
        else:
            store_state(self.context, task.client, ClientState(tag=task.tag, run=task.run, rows=rows))


def _trained(task: Task, layout: Layout) -> list[slice] | None:
    """The parts of a row that change in training; None for all of it."""
    if task.trained is None:
        return None
    return layout.slices_of(task.trained)


def _is_finite(row: Tensor, slices: Sequence[slice]) -> bool:
    return all(bool(row[part].isfinite().all()) for part in slices)
