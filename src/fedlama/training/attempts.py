"""Rounds in which clients may fail: they wrap plain rounds, exclude who failed, and repeat where too few are left."""

from __future__ import annotations

from fedlama.core import Message, RoundPlan, Traffic, total_of
from fedlama.server.exclusions import (
    FAILED_BEFORE,
    FAILED_DURING,
    entries_of,
    part_of_cycle,
)
from fedlama.training.cohorts import Cohort
from fedlama.training.current import Round
from fedlama.training.faults import FaultPlace, Faults
from fedlama.training.played import Played, Reports, Verdict
from fedlama.training.position import Position
from fedlama.training.rounds import Rounds

# Attempts in one window, by cohorts that were too small; they cost nobody but the simulator time
MAX_ATTEMPTS = 100


class FaultyRounds:
    """Plays rounds as `Rounds` does, with the faults that a job asks for.

    A client that failed is absent until the next cycle. With too few clients left, nothing is averaged, and the round
    is tried again with new clients, or the run stops.

    Arguments:
        rounds: The rounds that are wrapped.
        faults: What may happen to clients, and what the server tolerates.
        seed: The run's, from which it follows what happens to whom.
    """

    def __init__(self, rounds: Rounds, faults: Faults, seed: int) -> None:
        self.rounds = rounds
        self.faults = faults
        self.seed = seed
        self.tolerance = faults.tolerance

    def play(self, position: Position, plan: RoundPlan) -> Played:
        """Play a round until enough clients are left, or give up."""
        while True:
            current = self.rounds.begin(position, plan)
            cohort = current.cohort
            place = self._place(current)
            reasons = self._absent_from_the_start(cohort, place)
            # Counted before anybody else fails: whoever is there now was sent the model
            downloads = cohort.present

            losses = self.rounds.train(current)
            self.rounds.encode(current)
            if self.faults.corrupt:
                self._break_updates(current, place)
            has_limit = self.tolerance.norm_limit is not None
            reports = self.rounds.report(current, losses, with_norms=has_limit)
            verdict = self._judge(current, reports, place, reasons)
            if cohort.absent:
                # They come back as if new: nothing of what they trained may stay
                self.rounds.cohorts.reset_absent(cohort, current.position)

            if self.tolerance.suffices(cohort.present):
                return self.rounds.close(current, verdict, downloads)
            # Other clients try again from here: the same step and row, with the bytes of this attempt counted
            position = self._discard(current, verdict, downloads)
            if self.tolerance.gives_up(position.attempt, maximum=MAX_ATTEMPTS):
                return Played(current.position, position, plan, verdict=None)

    def _place(self, current: Round) -> FaultPlace:
        position = current.position
        cycle = part_of_cycle(
            current.plan.cycle,
            entered=current.cohort.entered,
        )
        return FaultPlace(
            seed=self.seed,
            round=position.policy_state.round + 1,
            attempt=position.attempt,
            cycle=cycle,
            steps=current.steps,
        )

    def _absent_from_the_start(
        self, cohort: Cohort, place: FaultPlace
    ) -> dict[int, str]:
        """At a cycle's start everyone is back but those who fail before it: client → why it is excluded."""
        if not place.begins_cycle:
            return {}
        cohort.absent.clear()
        reasons: dict[int, str] = {}
        for index, client in enumerate(cohort.clients):
            if self.faults.fails_before(place, client):
                cohort.absent.add(index)
                reasons[client] = FAILED_BEFORE
        return reasons

    def _break_updates(self, current: Round, place: FaultPlace) -> None:
        """Let the clients whose turn it is return a broken update."""
        cohort = current.cohort
        for row_index, index in enumerate(cohort.mine):
            client = cohort.clients[index]
            number = self.faults.broken_number(place, client)
            if number is not None:
                self._spoil(current, row_index, number)

    def _spoil(self, current: Round, row_index: int, number: float) -> None:
        """Break the update of one of this process's clients: a wrong number in a slice that is due is enough.

        Arguments:
            current: The round, after it was trained.
            row_index: Which of this process's rows is the client's.
            number: How far the number is off the server's.
        """
        due = current.plan.due
        slices = self.rounds.layout.slices_with_statistics(due)
        first_number = slices[0].start
        row = current.cohort.rows[row_index]
        of_server = current.position.row
        row[first_number] = of_server[first_number] + number

    def _judge(
        self,
        current: Round,
        reports: Reports,
        place: FaultPlace,
        reasons: dict[int, str],
    ) -> Verdict:
        """Whose update counts; `reasons` are those of clients that the round began without."""
        cohort = current.cohort
        finite = reports.finite()
        reasons = dict(reasons)
        uploads: list[Message] = []
        counted: list[Message] = []
        for index, client in enumerate(cohort.clients):
            if index in cohort.absent:
                continue
            upload = reports.uploads[index]
            reason = self.faults.misses(place, client)
            # Who comes late has sent its update all the same, for nothing
            if reason != FAILED_DURING:
                uploads.append(upload)
            if reason is None:
                reason = self._refusal(current, index, reports, finite[index])
            if reason is None:
                counted.append(upload)
            else:
                cohort.absent.add(index)
                reasons[client] = reason

        # Zero times NaN would be NaN: nothing of what they sent may stay
        losses = list(reports.losses)
        largest = reports.largest.clone()
        for index in cohort.absent:
            losses[index] = 0.0
            largest[index] = 0
        return Verdict(
            weights=cohort.weights(),
            losses=losses,
            largest=largest.amax(dim=0).tolist(),
            upload=total_of(uploads),
            counted=total_of(counted),
            decoded=reports.decoded,
            excluded=entries_of(reasons, place.attempt),
        )

    def _refusal(
        self, current: Round, index: int, reports: Reports, weights_are_finite: bool
    ) -> str | None:
        """Why the server refuses an update that arrived; one that is not finite ends the run unless tolerated."""
        loss = reports.losses[index]
        if not self.faults.exclude_nonfinite:
            self.rounds.check_finite(current, index, loss, weights_are_finite)
        norm = None
        if self.tolerance.norm_limit is not None:
            norm = reports.norms[index]
        return self.tolerance.refusal(
            loss=loss,
            weights_are_finite=weights_are_finite,
            norm=norm,
        )

    def _discard(self, current: Round, verdict: Verdict, downloads: int) -> Position:
        """Where the run stands after an attempt that came to nothing.

        Arguments:
            current: The round.
            verdict: Who was excluded.
            downloads: How many clients were sent the model before the round.
        """
        before = current.position
        down = self.rounds.download(current, downloads)
        traffic = Traffic(up=verdict.upload, down=down)
        server_state = self.rounds.server.discard(before.server_state, traffic)

        cohort = current.cohort
        present: list[int] = []
        for index, client in enumerate(cohort.clients):
            if index not in cohort.absent:
                present.append(client)
        return before.given_up(server_state, verdict.excluded, present)
