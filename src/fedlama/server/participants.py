"""Who was averaged in a round, as far as rules and policies see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedlama.local import steps_taken


@dataclass(frozen=True)
class Participant:
    """A client that was averaged.

    Arguments:
        weight: What it weighs in the average.
        pace: How many steps it takes per base interval; None where it takes each of them.
    """

    weight: float = 1.0
    pace: int | None = None


@dataclass(frozen=True)
class Participants:
    """The clients that were averaged.

    Arguments:
        clients: Each with its weight (default: one in the place of all, which takes every step).
        share: Which share of the whole population they are.
        sent: Bytes of each layer, of all their messages together. None where that is the upward traffic of the round:
            more travelled where some sent in vain, and less is charged where each rank has an account of its own.
    """

    clients: tuple[Participant, ...] = (Participant(),)
    share: float = 1.0
    sent: Mapping[int, int] | None = None

    def taken(self, steps: range, base_interval: int) -> list[tuple[float, int]]:
        """The weight of every client, and how many of these steps it took itself.

        Arguments:
            steps: Global steps.
            base_interval: τ', in global steps.
        """
        taken: list[tuple[float, int]] = []
        for client in self.clients:
            own_steps = steps_taken(client.pace, base_interval, steps)
            count = len(own_steps)
            taken.append((client.weight, count))
        return taken


# Nobody is left out, and all are as fast as the schedule.
EVERYONE = Participants()
