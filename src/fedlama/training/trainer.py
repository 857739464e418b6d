"""One process's module at work: training clients in turn and evaluating the global row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from fedlama.base import InputError, RunError, random_key
from fedlama.data import Batches, Dataset
from fedlama.local import SGD
from fedlama.processes.world import World
from fedlama.rows import Binding, trainable

Loss = Callable[[Tensor, Tensor], Tensor]
Metric = Callable[[Tensor, Tensor], Tensor | float]

PRECISIONS = ("float32", "bfloat16")
EVALUATION_BATCH = 256  # enough to keep a core busy; activations of a wide network take megabytes a sample


def accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    """The share of targets that is the largest output of its sample."""
    return (outputs.argmax(dim=1) == targets).double().mean()


class Trainer:
    """Trains any client's row with one module."""

    at_once = 1

    def __init__(
        self, binding: Binding, batches: Batches, rule: SGD, loss: Loss, seed: int, precision: str = "float32"
    ) -> None:
        self.binding, self.batches, self.rule, self.loss, self.seed = binding, batches, rule, loss, seed
        self._reduced = precision == "bfloat16"
        self._frozen = [parameter for parameter in binding.module.parameters() if not parameter.requires_grad]
        self._frozen_versions = [parameter._version for parameter in self._frozen]
        self._kernels = kernel_mask(binding)

    def train(
        self, clients: list[int], rows_CP: Tensor, memory_CMP: Tensor, counters_CK: Tensor, steps: range
    ) -> Tensor:
        """Take these global steps on every client's row, in place; the mean loss of each client."""
        losses = torch.zeros(len(clients), dtype=torch.float64, device=rows_CP.device)
        for i, client in enumerate(clients):
            losses[i] = self._train_one(client, rows_CP[i], memory_CMP[i], counters_CK[i], steps)
        return losses

    def _train_one(self, client: int, row: Tensor, memory: Tensor, counters: Tensor, steps: range) -> Tensor:
        binding = self.binding
        binding.point_at(row)
        binding.load_counters(counters)
        seed_module_draws(random_key(self.seed, "module", client, steps.start), binding.device)
        total = torch.zeros((), dtype=torch.float64, device=row.device)
        for step in steps:
            inputs, targets = self.batches.at(client, step)
            binding.clear_gradients()
            loss = self._forward(client, step, inputs, targets)
            loss.backward()
            total += loss.detach()
            for part, gradient in binding.gradients():
                self.rule.update(row[part], gradient, memory[:, part], self._kernels[part], step)
        binding.collect()
        binding.save_counters(counters)
        if [parameter._version for parameter in self._frozen] != self._frozen_versions:
            raise RunError(
                "the model writes to a parameter that does not require a gradient, which every client would share: "
                "register it as a buffer instead"
            )
        return total / len(steps)

    def _forward(self, client: int, step: int, inputs: Tensor, targets: Tensor) -> Tensor:
        try:
            with torch.autocast(self.binding.device.type, torch.bfloat16, enabled=self._reduced):
                return self.loss(self.binding.module(inputs), targets)
        except ValueError as error:
            if "more than 1 value per channel" not in str(error):
                raise
            raise RunError(
                f"client {client} has one sample in its batch at step {step}, and BatchNorm cannot train on that: "
                f"choose another local.batch_size ({self.batches.batch_size}) or a larger partition.min_samples"
            ) from None


def kernel_mask(binding: Binding) -> Tensor:
    """1 where a parameter belongs to a kernel, 0 elsewhere."""
    mask = torch.zeros_like(binding.gradient)
    for (_, parameter), part in zip(trainable(binding.module), binding.layout.tensor_slices, strict=True):
        mask[part] = float(parameter.dim() >= 2)
    return mask


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
def torch_settings(uses_gpu: bool) -> Iterator[None]:
    """One thread, so that sums do not depend on the machine; the caller's threads and generators come back."""
    threads = torch.get_num_threads()
    # Looking at a GPU's generator starts CUDA, and processes forked after that could not use it
    devices = [torch.cuda.current_device()] if uses_gpu else []
    with torch.random.fork_rng(devices=devices), torch.enable_grad():
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def build(model: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Call the user's builder once, with its random initial weights a function of the seed."""
    if isinstance(model, nn.Module) or not callable(model):
        raise InputError("model must be a function without arguments that builds an nn.Module: write lambda: MyNet()")
    seed_module_draws(random_key(seed, "model"), torch.device("cpu"))
    module = model()
    if not isinstance(module, nn.Module):
        raise InputError(f"model() must build an nn.Module, but it returned {type(module).__name__}")
    return module.train()
