"""The global model on the test set, and on the samples of each client."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedlama.base import InputError, shown
from fedlama.data import Dataset, Shards
from fedlama.processes.world import World
from fedlama.rows import Binding
from fedlama.training.measures import ACCURACY, ClientScores, EvaluatedOn, Measure
from fedlama.training.modules import seed_module_draws

Loss = Callable[[Tensor, Tensor], Tensor]
MetricFunction = Callable[[Tensor, Tensor], Tensor | float]

# Enough to keep a core busy; activations of a wide network take megabytes per sample
EVALUATION_BATCH = 256
MAX_NAME = 60  # characters of a metric's name
# Which records have already
TAKEN_NAMES = ("loss", "test_loss", "round", "step", "cycle", "cost")


def accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    """The share of targets that is the largest output of its sample."""
    predicted = outputs.argmax(dim=1)
    is_right = predicted == targets
    return is_right.double().mean()


@dataclass(frozen=True)
class Metric:
    """What the global model is judged by, under its own name and with its own direction.

    Arguments:
        function: Of outputs and targets: one number, the mean over the samples it is given.
        name: What records, progress and reports call it (default: the function's name).
        higher_is_better: Whether more of it is better (default: what the function's own attribute of this name says, as
            torchmetrics has it; otherwise yes).
    """

    function: MetricFunction
    name: str = ""
    higher_is_better: bool | None = None

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise InputError(
                f"metric must be a function of outputs and targets, not {shown(self.function)}"
            )
        name = self.name or _name_of(self.function)
        is_usable = (
            isinstance(name, str) and name.isprintable() and len(name) <= MAX_NAME
        )
        if not is_usable or name in TAKEN_NAMES:
            raise InputError(
                f"the metric's name {shown(name)} must print, be short, and be none of a record's own"
            )
        higher_is_better = self.higher_is_better
        if higher_is_better is None:
            # Metrics of torchmetrics say it themselves, with None for "neither"
            own = getattr(self.function, "higher_is_better", None)
            higher_is_better = own is not False
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "higher_is_better", higher_is_better)

    @property
    def measure(self) -> Measure:
        """Its name and direction, as they are recorded."""
        return Measure(self.name, bool(self.higher_is_better))


def _name_of(function: object) -> str:
    """A function's own name; `metric` for one without."""
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__name__", None) or type(function).__name__
    if name == "<lambda>":
        return "metric"
    return name


DEFAULT_METRIC = Metric(accuracy, ACCURACY)


@torch.no_grad()
def evaluate(
    binding: Binding,
    data: Dataset,
    loss: Loss,
    metric: Metric | None,
    world: World,
    key: int,
) -> tuple[float, float | None]:
    """Loss and metric on the test set of the row that the module points at, its batches shared among processes."""
    starts = range(0, len(data.x_test), EVALUATION_BATCH)
    costs = [1.0] * len(starts)
    scores = torch.zeros(
        len(starts),
        2,
        dtype=torch.float64,
        device=binding.device,
    )

    binding.module.eval()
    for index in world.share(costs):
        start = starts[index]
        part = slice(start, start + EVALUATION_BATCH)
        targets = data.y_test[part]
        # A module may draw in evaluation mode, too
        seed_module_draws(key + index, binding.device)
        inputs = data.inputs(data.x_test[part])
        outputs = binding.module(inputs)
        # Sums over samples, because the last batch may be a short one
        batch_loss = loss(outputs, targets)
        scores[index, 0] = batch_loss * len(targets)
        if metric:
            value = _value(metric, outputs, targets)
            scores[index, 1] = value * len(targets)
    binding.module.train()
    binding.check_same_parameters()
    world.sum_(scores)

    means = scores.sum(dim=0) / len(data.x_test)
    mean_loss, mean_metric = means.tolist()
    if not metric:
        return mean_loss, None
    return mean_loss, mean_metric


def _value(metric: Metric, outputs: Tensor, targets: Tensor) -> Tensor | float:
    value = metric.function(outputs, targets)
    if isinstance(value, Tensor):
        return value
    return float(value)  # torch takes no numbers of numpy


@dataclass(frozen=True)
class ClientSamples:
    """What each client is evaluated on: its own test samples where their owners are known, else what it trains on.

    Arguments:
        on: Which of the two.
        of: For each client the indices of its samples; it may have none.
    """

    on: EvaluatedOn
    of: Sequence[Tensor]

    @staticmethod
    def choose(data: Dataset, shards: Shards) -> ClientSamples:
        """Test samples count where each client of the data is a client of the run."""
        clients = len(shards)
        owners = data.test_clients
        if owners is None or not _is_natural(data, shards):
            own_samples = [shards.of(client) for client in range(clients)]
            return ClientSamples("training", own_samples)
        own_samples = _samples_by_owner(owners, clients)
        return ClientSamples("test", own_samples)


def _samples_by_owner(owners: Tensor, clients: int) -> list[Tensor]:
    """For each client the indices of its samples."""
    # Samples of nobody (−1) come first, and are left out.
    order = owners.argsort(stable=True)
    sorted_owners = owners[order]
    numbers = torch.arange(clients)
    starts = torch.searchsorted(sorted_owners, numbers)
    ends = torch.searchsorted(sorted_owners, numbers, right=True)

    own_samples: list[Tensor] = []
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        samples = order[start:end]
        own_samples.append(samples)
    return own_samples


def _is_natural(data: Dataset, shards: Shards) -> bool:
    """Whether the clients of the run are those that the data names."""
    if data.clients is None:
        return False
    numbers = torch.arange(len(shards))
    dealt_to = torch.repeat_interleave(numbers, shards.sizes)
    # Shards hold the samples of one client after the other
    named = data.clients[shards.order]
    return torch.equal(named, dealt_to)


@torch.no_grad()
def evaluate_clients(
    binding: Binding,
    data: Dataset,
    samples: ClientSamples,
    metric: Metric,
    world: World,
    key: int,
) -> ClientScores:
    """The metric of the row that the module points at on every client's own samples, shared among processes."""
    x = data.x_train
    y = data.y_train
    if samples.on == "test":
        x = data.x_test
        y = data.y_test
    count = len(samples.of)
    sizes = [len(own) for own in samples.of]
    costs = [float(size) for size in sizes]
    scores = torch.zeros(
        count,
        dtype=torch.float64,
        device=binding.device,
    )

    binding.module.eval()
    for client in world.share(costs):
        own = samples.of[client].to(x.device)
        for number, part in enumerate(own.split(EVALUATION_BATCH)):
            if not len(part):
                continue
            targets = y[part]
            # Another key for every batch of every client
            offset = client + number * count
            seed_module_draws(key + offset, binding.device)
            inputs = data.inputs(x[part])
            outputs = binding.module(inputs)
            value = _value(metric, outputs, targets)
            scores[client] += value * len(targets) / len(own)
    binding.module.train()
    binding.check_same_parameters()
    world.sum_(scores)

    found: list[float | None] = []
    for size, score in zip(sizes, scores.tolist(), strict=True):
        if size:
            found.append(score)
        else:
            found.append(None)
    return client_scores(samples.on, found, metric.measure)


def client_scores(
    on: EvaluatedOn, scores: Sequence[float | None], measure: Measure
) -> ClientScores:
    """Scores of all clients with what is said about them: how the worst tenth fares, and how far they lie apart.

    >>> found = client_scores("test", [0.5, None, 0.9, 1.0], Measure("accuracy", True))
    >>> round(found.mean, 4), found.worst_decile, round(found.spread, 4)
    (0.8, 0.5, 0.216)
    """
    known: list[float] = []
    listed: list[float | None] = []
    for score in scores:
        if score is None or not math.isfinite(score):
            listed.append(None)
        else:
            listed.append(score)
            known.append(score)
    if not known:
        return ClientScores(
            on=on,
            scores=list(scores),
            mean=None,
            worst_decile=None,
            spread=None,
        )

    worst_first = sorted(known, reverse=not measure.higher_is_better)
    tenth = math.ceil(len(worst_first) / 10)
    tenth = max(1, tenth)
    worst = worst_first[:tenth]
    return ClientScores(
        on=on,
        scores=listed,
        mean=math.fsum(known) / len(known),
        worst_decile=math.fsum(worst) / tenth,
        spread=float(np.std(known)),
    )
