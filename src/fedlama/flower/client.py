"""The client side: what makes a Flower ClientApp of a module and a way to train it.

Flower starts a new process for every message, so nothing here may be slow to import: no pydantic, no matplotlib, and
local rules of our own instead of torch's optimizers.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from fedlama.base import InputError, check_made
from fedlama.data import Partition
from fedlama.flower.client_round import ClientRound
from fedlama.flower.function_trainer import FunctionTrainer, TrainFunction
from fedlama.flower.queries import KEEPS, RECORD, read_forget
from fedlama.flower.rule_trainer import Data, RuleTrainer, check_data
from fedlama.flower.state import forget_run
from fedlama.flower.tasks import read_task
from fedlama.flower.trainers import ClientTrainer
from fedlama.local import LocalRule
from fedlama.local.rule import check_local_rule
from fedlama.training.evaluation import Loss
from fedlama.training.modules import built, check_builder

PARTITION = "partition-id"  # in the node's configuration
PARTITIONS = "num-partitions"


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
        model: A function without arguments that builds the module; the function itself, not what it returns.
        data: What the client trains on, made by `fedlama.data.arrays(x, y, None, None)`, or a function of Flower's
            context that returns such a data set. No test samples are needed.
        local: How it trains, such as `fedlama.SGD(learning_rate=0.1, batch_size=16)`; a rule with a part on the server
            (Scaffold, FedNova, FedDyn) must be given to the strategy, too.
        partition: How the data is dealt to clients, of which this one is the node's `partition-id`, where all nodes
            read the same data (default: all of the data is the client's own).
        loss: A function of outputs and targets (default: cross entropy, where targets are classes).
        threads: How many threads torch uses; results are the same bits for the same number.
    """
    check_data(data)
    check_local_rule("local", local)
    if partition is not None:
        check_made("partition", partition, Partition, "fedlama.Dirichlet(…)")
    trainer = RuleTrainer(data, local, partition, loss)
    return _app(model, trainer, threads)


def layerwise(
    model: Callable[[], nn.Module],
    *,
    samples: Callable[[Context], int] | None = None,
    threads: int = 1,
) -> Callable[[TrainFunction], ClientApp]:
    """What makes a ClientApp of `train(model, steps, context)`, for those who have a loop of their own.

    Write `app = fedlama.flower.layerwise(build_model)(train)`. As a decorator above `def app` it makes the same app,
    but `flwr run` finds only names that are assigned to.

    The function takes `len(steps)` steps with the module, whose weights are in place, and returns its mean training
    loss. `steps` is the range of global steps, for schedules. An optimizer begins anew in every round.

    Arguments:
        model: A function without arguments that builds the module.
        samples: A function of Flower's context: how many samples the client has. Needed where the strategy weighs by
            them.
        threads: How many threads torch uses.
    """

    def decorate(train: TrainFunction) -> ClientApp:
        trainer = FunctionTrainer(train, samples)
        return _app(model, trainer, threads)

    return decorate


def _app(
    model: Callable[[], nn.Module], trainer: ClientTrainer, threads: int
) -> ClientApp:
    check_builder(model)
    app = ClientApp()

    @app.query()
    def query(message: Message, context: Context) -> Message:  # pyright: ignore[reportUnusedFunction]
        """Who this client is, for a node's information has no partition id; or that it should forget a run."""
        question = message.content.config_records[RECORD]
        client = _partition_id(context)
        run = read_forget(question)
        if run is not None:
            forget_run(context, client, run.name, keep=run.keep)
            return Message(RecordDict(), reply_to=message)

        rule = str(question["rule"])
        trainer.check_rule(rule)
        weights = str(question["weights"])
        trainer.check_weights(weights)
        seed = int(str(question["seed"]))
        clients = int(context.node_config.get(PARTITIONS, 0))
        answer = ConfigRecord(
            {
                "client": client,
                "clients": clients,
                "samples": trainer.samples(context, client, seed),
                "local": trainer.name,
                "options": json.dumps(trainer.options),
                KEEPS: bool(trainer.slots),
            }
        )
        content = RecordDict({RECORD: answer})
        return Message(content, reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:  # pyright: ignore[reportUnusedFunction]
        """One round of this client."""
        task, download = read_task(message)
        trainer.check_rule(task.rule)
        torch.set_num_threads(threads)
        module = built(model)
        current = ClientRound(module, task, trainer, context)
        content = current.play(download)
        return Message(content, reply_to=message)

    return app


def _partition_id(context: Context) -> int:
    number = context.node_config.get(PARTITION)
    if not isinstance(number, int) or number < 0:
        raise InputError(
            f"the node has no {PARTITION}: start flower-supernode "
            f"with --node-config '{PARTITION}=0 {PARTITIONS}=4'"
        )
    return number
