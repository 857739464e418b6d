"""A local rule on the bare protocol: FedProx, a spring to the value that a layer had when it was last synchronised."""

from dataclasses import dataclass

from fedlama.local import MODEL, PlainSync


@dataclass(frozen=True)
class Spring(PlainSync):
    learning_rate: float
    batch_size: int
    mu: float

    slots = ()  # a client keeps nothing from step to step
    steps = None  # it takes as many as the interval has

    def rate(self, step):
        return self.learning_rate

    def step(self, row, gradient, own, server, *, rate, kernels):
        gradient.add_(row - server[MODEL], alpha=self.mu)
        row.add_(gradient, alpha=-rate)
