"""What is learnt: a small network on the embedded digits, which a Dirichlet partition deals to four clients."""

from torch import nn

import fedlama

CLIENTS = 4
SEED = 3
RATE = 0.1
BATCH = 16
PARTITION = fedlama.Dirichlet(clients=CLIENTS, alpha=0.5)
POLICY = fedlama.FedLAMA(6, 2)

# SecAgg+ adds whole numbers. What is sent is clipped to ±RANGE and rounded to one of LEVELS values; four of them must
# not overflow its 32 bits.
RANGE = 4.0
LEVELS = 1 << 22


def network():
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, 64),
        nn.ReLU(),
        nn.Linear(64, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )
