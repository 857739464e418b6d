"""A partition of your own: client i has a share of the samples in proportion to 1/(i + 1)."""

from dataclasses import dataclass

import numpy as np

from fedlama.base import random_key
from fedlama.data import Shards


@dataclass(frozen=True)
class Unequal:
    clients: int

    def assign(self, data, seed):
        # A key in place of a shared generator: the same seed gives the same shards, whatever was drawn before
        draws = np.random.Generator(
            np.random.Philox(key=random_key(seed, "unequal shares"))
        )
        shares = 1 / np.arange(1, self.clients + 1)
        owners = draws.choice(
            self.clients, size=len(data.x_train), p=shares / shares.sum()
        )
        return Shards.by_owner(owners, self.clients)  # refuses a client without samples
