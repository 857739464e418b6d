"""The clients of a window: drawn from the seed, and who of them takes part."""

from __future__ import annotations

from dataclasses import dataclass, field

from fedlama.core import Policy, RoundPlan
from fedlama.flower.nodes import Nodes
from fedlama.server.exclusions import FAILED_BEFORE, part_of_cycle
from fedlama.training.participation import Participation
from fedlama.training.position import Position


@dataclass
class FlowerCohort:
    """The clients of a window. `tags` has, for those whose state is up to date, the tag of it."""

    clients: list[int]
    entered: int  # the global step before which they came
    absent: set[int] = field(default_factory=set[int])
    tags: dict[int, str] = field(default_factory=dict[int, str])

    @property
    def present(self) -> list[int]:
        """Those who take part, in the cohort's order."""
        return [client for client in self.clients if client not in self.absent]


class FlowerCohorts:
    """Draws the clients of every window over partition ids, so that a run can be repeated: node ids are random.

    Arguments:
        nodes: Who is there.
        participation: How many train at a time, and for how long.
        policy: Which layers are averaged when.
        seed: The run's.
    """

    def __init__(
        self, nodes: Nodes, participation: Participation, policy: Policy, *, seed: int
    ) -> None:
        self.nodes = nodes
        self.participation = participation
        self.window_steps = participation.window_steps(policy)
        self.seed = seed
        self._current: FlowerCohort | None = None

    def window_of(self, step: int) -> int:
        """The number of the window that a global step lies in.

        Arguments:
            step: It, counted from 0.
        """
        return step // self.window_steps

    def ends_window(self, step: int) -> bool:
        """Whether a window ends after so many steps.

        Arguments:
            step: Global steps taken.
        """
        return step % self.window_steps == 0

    def at(
        self, position: Position, plan: RoundPlan
    ) -> tuple[FlowerCohort, dict[int, str]]:
        """The clients of the next round, and why some of them are absent from a cycle's start.

        Arguments:
            position: Where the run stands.
            plan: The next round.
        """
        enters = position.brings_clients(self.window_steps)
        if self._current is None or enters:
            self._current = self._draw(position)
        cohort = self._current

        cycle = part_of_cycle(plan.cycle, entered=cohort.entered)
        if position.step != cycle.start:
            return cohort, {}

        # Whoever was excluded is back at a cycle's start, if there is somebody to talk to.
        self.nodes.refresh()
        there = self.nodes.present(cohort.clients)
        cohort.absent = set(cohort.clients) - set(there)
        absent_in_order = sorted(cohort.absent)
        reasons: dict[int, str] = {}
        for client in absent_in_order:
            reasons[client] = self.nodes.refusals.get(client, FAILED_BEFORE)
        return cohort, reasons

    def _draw(self, position: Position) -> FlowerCohort:
        window = self.window_of(position.step)
        clients = self.participation.cohort(
            self.nodes.population,
            self.seed,
            window,
            position.attempt,
        )
        return FlowerCohort(clients, entered=position.step)
