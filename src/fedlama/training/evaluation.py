"""The global model on the test set."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fedlama.data import Dataset
from fedlama.processes.world import World
from fedlama.rows import Binding
from fedlama.training.modules import seed_module_draws

Loss = Callable[[Tensor, Tensor], Tensor]
Metric = Callable[[Tensor, Tensor], Tensor | float]

EVALUATION_BATCH = 256  # enough to keep a core busy; activations of a wide network take megabytes per sample


def accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    """The share of targets that is the largest output of its sample."""
    return (outputs.argmax(dim=1) == targets).double().mean()


@torch.no_grad()
def evaluate(
    binding: Binding, data: Dataset, loss: Loss, metric: Metric | None, world: World, key: int
) -> tuple[float, float | None]:
    """Loss and metric on the test set of the row that the module points at, its batches shared among processes."""
    starts = range(0, len(data.x_test), EVALUATION_BATCH)
    scores = torch.zeros(len(starts), 2, dtype=torch.float64, device=binding.device)
    binding.module.eval()
    for index in world.share([1.0] * len(starts)):
        part = slice(starts[index], starts[index] + EVALUATION_BATCH)
        targets = data.y_test[part]
        seed_module_draws(key + index, binding.device)  # a module may draw in evaluation mode, too
        outputs = binding.module(data.inputs(data.x_test[part]))
        scores[index, 0] = loss(outputs, targets) * len(targets)
        if metric:
            value = metric(outputs, targets)
            if not isinstance(value, Tensor):
                value = float(value)  # torch takes no numbers of numpy
            scores[index, 1] = value * len(targets)
    binding.module.train()
    binding.check_same_parameters()
    world.sum_(scores)
    mean_loss, mean_metric = (scores.sum(dim=0) / len(data.x_test)).tolist()
    if not metric:
        return mean_loss, None
    return mean_loss, mean_metric
