"""One process's module at work: training clients in turn and evaluating the global row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from fedlama.core import random_key
from fedlama.data import Batches, Dataset
from fedlama.local import SGD
from fedlama.rows import Binding, trainable
from fedlama.training.world import World

Loss = Callable[[Tensor, Tensor], Tensor]
Metric = Callable[[Tensor, Tensor], Tensor | float]

EVALUATION_BATCH = 1024


def accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    """The share of targets that is the largest output of its sample."""
    return (outputs.argmax(dim=1) == targets).double().mean()


class Trainer:
    """Trains any client's row with one module."""

    def __init__(self, binding: Binding, batches: Batches, rule: SGD, loss: Loss, seed: int) -> None:
        self.binding, self.batches, self.rule, self.loss, self.seed = binding, batches, rule, loss, seed
        self._kernels = _kernel_mask(binding)

    def train(self, client: int, row: Tensor, memory: Tensor, counters: Tensor, steps: range) -> Tensor:
        """Take these global steps on `row`, in place; the mean loss."""
        module, gradient = self.binding.module, self.binding.gradient
        parameters = row[: len(gradient)]
        self.binding.point_at(row)
        self.binding.load_counters(counters)
        seed_module_draws(random_key(self.seed, "module", client, steps.start), self.binding.device)
        total = torch.zeros((), dtype=torch.float64, device=row.device)
        for step in steps:
            inputs, targets = self.batches.at(client, step)
            gradient.zero_()
            loss = self.loss(module(inputs), targets)
            loss.backward()
            total += loss.detach()
            self.rule.update(parameters, gradient, memory, self._kernels, step)
        self.binding.save_counters(counters)
        return total / len(steps)


def _kernel_mask(binding: Binding) -> Tensor:
    """1 where a parameter belongs to a kernel, 0 elsewhere."""
    mask = torch.zeros_like(binding.gradient)
    for (_, parameter), part in zip(trainable(binding.module), binding.layout.tensor_slices, strict=True):
        mask[part] = float(parameter.dim() >= 2)
    return mask


@torch.no_grad()
def evaluate(
    binding: Binding, data: Dataset, loss: Loss, metric: Metric | None, world: World
) -> tuple[float, float | None]:
    """Loss and metric on the test set of the row that the module points at, its batches shared among processes."""
    starts = range(0, len(data.x_test), EVALUATION_BATCH)
    scores = torch.zeros(len(starts), 2, dtype=torch.float64, device=binding.device)
    binding.module.eval()
    for index in world.share([1.0] * len(starts)):
        part = slice(starts[index], starts[index] + EVALUATION_BATCH)
        targets = data.y_test[part]
        outputs = binding.module(data.inputs(data.x_test[part]))
        scores[index, 0] = loss(outputs, targets) * len(targets)
        scores[index, 1] = metric(outputs, targets) * len(targets) if metric else 0
    binding.module.train()
    world.sum_(scores)
    total_loss, total_metric = (scores.sum(dim=0) / len(data.x_test)).tolist()
    return total_loss, total_metric if metric else None


def seed_module_draws(key: int, device: torch.device) -> None:
    """Seed the generators that a module's own draws (dropout) come from."""
    seed = key % 2**63
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


@contextmanager
def torch_settings() -> Iterator[None]:
    """One thread, so that sums do not depend on the machine; the caller's threads and generators come back."""
    threads = torch.get_num_threads()
    with torch.random.fork_rng():
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def build(model: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Call the user's builder once, with its random initial weights a function of the seed."""
    seed_module_draws(random_key(seed, "model"), torch.device("cpu"))
    return model().train()
