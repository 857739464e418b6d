"""A local rule of your own: SGD with gradients that are clipped number by number."""

from dataclasses import dataclass

from fedlama.local import OnSGD


@dataclass(frozen=True)
class Clipped(OnSGD):
    limit: float = 0.1

    def step(self, row, gradient, own, server, *, rate, kernels):
        gradient.clamp_(-self.limit, self.limit)
        self.base.step(row, gradient, own, server, rate=rate, kernels=kernels)
