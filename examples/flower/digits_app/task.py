"""What is learnt: a small network on the embedded digits, which a Dirichlet partition deals to four clients."""

from torch import nn

import fedlama

CLIENTS = 4
PARTITION = fedlama.Dirichlet(clients=CLIENTS, alpha=0.5)
LOCAL = fedlama.SGD(learning_rate=0.1, batch_size=16)


def network():
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, 64),
        nn.ReLU(),
        nn.Linear(64, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )
