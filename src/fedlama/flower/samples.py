"""How many samples a client may say it has: the number decides what it weighs, or how many steps it is to take."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median_low

from fedlama.base import InputError
from fedlama.flower.options import Options
from fedlama.flower.trainers import BY_SAMPLES

# Of honest clients some have a hundred times as much as most, and hardly one has more
TIMES_MEDIAN = 100


class SamplesLimit:
    """What a client may say.

    Arguments:
        options: What the strategy was given.
    """

    def __init__(self, options: Options) -> None:
        local = options.local
        by_epochs = local is not None and isinstance(local.steps, str)
        self.counts = options.weights == BY_SAMPLES or by_epochs
        self.maximum = options.max_samples

    def settle(self, said: Iterable[int]) -> None:
        """Work out the limit, where the strategy was given none and samples count.

        Arguments:
            said: What the clients say that answered before the run.
        """
        if self.maximum is None and self.counts:
            # The lower of two in the middle: of two clients, one must not decide by itself what is too much
            self.maximum = TIMES_MEDIAN * median_low(said)

    def check(self, samples: int) -> None:
        """Refuse a number beyond the limit.

        Arguments:
            samples: What a client says.
        """
        if self.maximum is None or samples <= self.maximum:
            return
        raise InputError(
            f"it says that it has {samples:,} samples, and at most {self.maximum:,} are believed; "
            f"if it has, give LayerwiseStrategy a larger max_samples"
        )
