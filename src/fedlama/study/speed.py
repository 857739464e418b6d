"""How fast this machine is at a run: a few steps of it, timed, before a study spends hours.

Processor time is counted: what else the machine does while a plan is made says nothing of the hours to come.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import NamedTuple

import torch

from fedlama.core import FedAvg
from fedlama.data import IID, Dataset
from fedlama.processes.devices import is_on_gpu
from fedlama.processes.forking import Emit, Finished, Forks, Item
from fedlama.processes.signals import ignore_signals
from fedlama.rows import describe
from fedlama.run.config import Config
from fedlama.run.execute import train
from fedlama.run.resolve import Resolved
from fedlama.run.tables import EvaluateSection
from fedlama.study.phase_times import timed_phases
from fedlama.training import Participation
from fedlama.training.checkpointing import Checkpointing, Control
from fedlama.training.trainers.stacked import BLOCK, MAX_PARAMETERS

BUDGET = 7.0  # seconds for all measurements of a plan
ENOUGH = 0.5  # seconds: a longer measurement would say little more
# Seconds for a step of one client by a first look: a second one is not waited for
TOO_LONG = 3.0
FEW = 2  # samples of a first look; BatchNorm refuses a single one
MAX_STEPS = 24
TESTED = 64  # samples
# What a step takes does not depend on these keys of [local].
WITHOUT_TIME = ("learning_rate", "warmup_steps", "decay_steps", "decay_factor")


@dataclass(frozen=True)
class Speed:
    """Seconds of one core.

    Arguments:
        step: A step of one client.
        exchange: One client's part in the end of a round: coding, averaging and measuring.
        sample: Testing one sample.
    """

    step: float
    exchange: float
    sample: float


@dataclass(frozen=True)
class Amount:
    """What a run computes, counted.

    Arguments:
        client_steps: Steps of all clients.
        exchanges: How often a client takes part in the end of a round.
        tested: Samples tested, over all evaluations.
    """

    client_steps: int
    exchanges: int
    tested: int

    def seconds(self, speed: Speed) -> float:
        """How long one core takes for it."""
        trained = self.client_steps * speed.step
        averaged = self.exchanges * speed.exchange
        tested = self.tested * speed.sample

        return trained + averaged + tested


def amount_of(run: Resolved, taken: int = 0) -> Amount:
    """What a run computes.

    Arguments:
        run: What is to be run.
        taken: Steps that it has taken already.
    """
    options = run.config.options
    steps = max(0, options.iterations - taken)
    clients = run.participation.count(len(run.shards))
    rounds = math.ceil(steps / run.policy.base_interval)

    evaluations = math.ceil(steps / options.evaluation_interval)
    return Amount(
        client_steps=steps * clients,
        exchanges=rounds * clients,
        tested=evaluations * len(run.data.x_test),
    )


class Kind(NamedTuple):
    """What decides how long a step takes: runs of one kind need one measurement."""

    task: str  # data and model
    method: str  # rules, codecs and how it is computed


def kind_of(config: Config) -> Kind:
    """The kind of a run."""
    task = config.model_dump(include={"data", "model"})
    method = config.model_dump(include={"local", "server", "uplink", "downlink"})
    for key in WITHOUT_TIME:
        method["local"].pop(key, None)
    method["computed"] = [
        config.train.precision,
        config.train.execution,
        config.train.device,
    ]
    return Kind(
        task=json.dumps(task, sort_keys=True, default=str),
        method=json.dumps(method, sort_keys=True, default=str),
    )


def total_seconds(
    amounts: Iterable[tuple[Kind, Amount]], speeds: Mapping[Kind, Speed | None]
) -> float | None:
    """What one core takes for all of it; None where one of the tasks was not measured.

    Arguments:
        amounts: What is to be computed, with its kind.
        speeds: What was measured. Another method counts as the slowest that was measured with its task.
    """
    slowest: dict[str, Speed] = {}
    for kind, speed in speeds.items():
        if speed is None:
            continue
        other = slowest.setdefault(kind.task, speed)
        own_time = speed.step + speed.exchange
        other_time = other.step + other.exchange
        if own_time > other_time:
            slowest[kind.task] = speed

    total = 0.0
    for kind, amount in amounts:
        speed = speeds.get(kind) or slowest.get(kind.task)
        if speed is None:
            return None
        total += amount.seconds(speed)
    return total


def measured(runs: Sequence[Resolved], budget: float = BUDGET) -> list[Speed | None]:
    """The speeds of these runs, in their order; None for one that could not be measured in time.

    A process of its own measures, so that this one starts neither threads nor CUDA, and stops in time whatever happens.

    Arguments:
        runs: One of each kind.
        budget: Seconds for all of them.
    """

    def work(emit: Emit) -> None:
        # A first look at all of them, in case that the time runs out.
        looks: list[Speed] = []
        for number, run in enumerate(runs):
            look = first_look(run)
            looks.append(look)
            emit((number, look))

        for number, run in enumerate(runs):
            speed = measure(run, looks[number])
            emit((number, speed))

    speeds: list[Speed | None] = [None] * len(runs)
    deadline = monotonic() + budget
    with Forks() as forks:
        forks.start(work, ignore_signals, daemon=True)
        while not forks.all_ended() and monotonic() < deadline:
            left = max(0.0, deadline - monotonic())
            for _, message in forks.listen(timeout=left):
                if isinstance(message, Item):
                    number, speed = message.content
                    speeds[number] = speed
                elif not isinstance(message, Finished):
                    # What is wrong with a run is for the run to say.
                    return speeds
    return speeds


def first_look(run: Resolved) -> Speed:
    """Time one step on two samples: quick for any model, and at most as fast as a whole batch is for each sample."""
    look = _timed(
        run,
        clients=_clients(run),
        samples=FEW,
        steps=1,
        tested=FEW,
    )
    larger = max(1.0, run.local.batch_size / FEW)
    return replace(look, step=look.step * larger)


def measure(run: Resolved, look: Speed) -> Speed:
    """Time a few steps of a run, and what comes with them.

    Arguments:
        run: What is to be run.
        look: What a first look said of it; of a model for which a step takes long, no more is asked.
    """
    if look.step > TOO_LONG:
        return look

    clients = _clients(run)
    # Two rounds are timed, of which the first warms up.
    fitting = int(ENOUGH / (2 * clients * look.step))
    steps = max(1, min(MAX_STEPS, fitting))
    return _timed(
        run,
        clients=clients,
        samples=run.local.batch_size,
        steps=steps,
        tested=TESTED,
    )


def _clients(run: Resolved) -> int:
    """Small models are trained in blocks of clients: one client alone would take as long as a block."""
    if _is_small(run):
        return BLOCK
    return 1


def _is_small(run: Resolved) -> bool:
    # Shapes only
    with torch.device("meta"):
        layout = describe(run.model())

    return layout.width <= MAX_PARAMETERS


def _timed(
    run: Resolved, *, clients: int, samples: int, steps: int, tested: int
) -> Speed:
    """Two rounds of the run with fewer clients and samples; the first warms up, the second counts."""
    part = _part_of(run.data, clients * samples, tested)
    steps_in_all = 2 * steps
    train_keys = {
        "iterations": steps_in_all,
        "evaluate_every": steps,
    }
    keys = {
        "train": run.config.train.model_copy(update=train_keys),
        "evaluate": EvaluateSection(),
    }
    small = replace(
        run,
        config=run.config.model_copy(update=keys),
        data=part,
        shards=IID(clients).assign(part, run.config.seed),
        policy=FedAvg(steps),
        participation=Participation(clients=clients, window=steps_in_all),
        faults=None,
    )
    keeping = Checkpointing(Control(), lambda content, state: None)
    on_gpu = is_on_gpu(run.config.train.device)
    with timed_phases(on_gpu=on_gpu) as seconds:
        train(small, 1, lambda record: None, keeping)

    # An uplink without a code has nothing to encode.
    encode = seconds.get("encode", 0.0)
    exchange = encode + seconds["aggregate"]
    return Speed(
        step=seconds["train"] / (clients * steps),
        exchange=exchange / clients,
        sample=seconds["evaluate"] / len(part.x_test),
    )


def _part_of(data: Dataset, samples: int, tested: int) -> Dataset:
    return replace(
        data,
        x_train=data.x_train[:samples],
        y_train=data.y_train[:samples],
        x_test=data.x_test[:tested],
        y_test=data.y_test[:tested],
        clients=None,
        test_clients=None,
        client_names=None,
    )
