"""What codecs are tried on: normal, heavy-tailed and real differences."""

from functools import cache

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import fedlama

REAL = (512, 256)  # 131,072 numbers


def gaussian(count: int, seed: int = 0) -> torch.Tensor:
    return 0.01 * torch.randn(count, generator=torch.Generator().manual_seed(seed))


def laplace(count: int, seed: int = 0) -> torch.Tensor:
    uniform = (
        torch.rand(
            count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
        )
        - 0.5
    )
    return (-0.01 * uniform.sign() * torch.log1p(-2 * uniform.abs())).float()


@cache
def real_difference() -> torch.Tensor:
    """What six steps of SGD on the digits change in a kernel: of low rank, with rows of zeros where a unit is dead."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Flatten(),
            nn.Linear(64, 256),
            nn.ReLU(),
            nn.Linear(256, 512),
            nn.ReLU(),
            nn.Linear(512, 10),
        )
    data = fedlama.data.digits()
    images = (data.x_train.float() / 16 - 0.3) / 0.38
    before = model[3].weight.detach().clone()
    for step in range(6):
        batch = slice(32 * step, 32 * step + 32)
        loss = cross_entropy(model(images[batch]), data.y_train[batch])
        for parameter, gradient in zip(
            model.parameters(),
            torch.autograd.grad(loss, list(model.parameters())),
            strict=True,
        ):
            parameter.data.sub_(gradient, alpha=0.1)
    return (model[3].weight.detach() - before).reshape(REAL)


VECTORS = {
    "gaussian": lambda: gaussian(9 * 16384),
    "laplace": lambda: laplace(9 * 16384),
    "real": real_difference,
}
