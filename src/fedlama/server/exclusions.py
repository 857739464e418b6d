"""Whose update does not count, and why: the entries of a record, and what attempts at a round add up to.

A round in which too few clients are left is repeated, so it may take several attempts. Every runtime records them with
the words of this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

# Pydantic reads records with it, and takes typing's only from Python 3.12 on
from typing_extensions import TypedDict

from fedlama.core import Ledger

FAILED_BEFORE = "failed before the cycle"
FAILED_DURING = "failed during the cycle"
LATE = "missed the deadline"
NOT_FINITE = "not finite"
REFUSED = "refused"
TOO_LARGE = "norm beyond the limit"
# It did nothing wrong, but the attempt did not count
TOO_FEW_LEFT = "too few clients left"


class Exclusion(TypedDict):
    """An entry of a record: who was excluded, why, and at which attempt of the window (counted from 1)."""

    client: int
    reason: str
    attempt: int


def entries_of(reasons: Mapping[int, str], attempt: int) -> list[Exclusion]:
    """An entry for every client that was excluded, in the order of clients.

    Arguments:
        reasons: Why, by client.
        attempt: How many cohorts of the window were given up before.
    """
    entries: list[Exclusion] = []
    for client in sorted(reasons):
        entry = Exclusion(
            client=client,
            reason=reasons[client],
            attempt=attempt + 1,
        )
        entries.append(entry)
    return entries


def entries_of_all(
    excluded: Sequence[Exclusion], present: Iterable[int], attempt: int
) -> list[Exclusion]:
    """The entries of an attempt that came to nothing, in the order of clients.

    Arguments:
        excluded: Those of clients that were excluded in it.
        present: The others. They did nothing wrong, and are in the record, too: they trained for nothing.
        attempt: How many cohorts of the window were given up before.
    """
    blameless = dict.fromkeys(present, TOO_FEW_LEFT)
    entries = list(excluded)
    entries += entries_of(blameless, attempt)
    entries.sort(key=itemgetter("client"))
    return entries


def part_of_cycle(cycle: range, *, entered: int) -> range:
    """The global steps of a cycle in which a cohort takes part: whoever is excluded is back where they begin.

    Arguments:
        cycle: Its global steps.
        entered: The step before which the cohort came. One that replaces another may come in the middle of a cycle.
    """
    begins = max(cycle.start, entered)
    return range(begins, cycle.stop)


@dataclass(frozen=True)
class Attempts:
    """Attempts at one round: those that came to nothing, and for its record also the one that counts.

    Arguments:
        excluded: Who did not count in them.
        uplink_bytes: What they sent.
        downlink_bytes: What they received.
    """

    excluded: tuple[Exclusion, ...] = ()
    uplink_bytes: int = 0
    downlink_bytes: int = 0

    def extended(
        self, entries: Sequence[Exclusion], before: Ledger, after: Ledger
    ) -> Attempts:
        """With one more attempt, between these two accounts."""
        up = after.uplink_bytes - before.uplink_bytes
        down = after.downlink_bytes - before.downlink_bytes
        return Attempts(
            excluded=(*self.excluded, *entries),
            uplink_bytes=self.uplink_bytes + up,
            downlink_bytes=self.downlink_bytes + down,
        )

    @staticmethod
    def from_plain(values: Mapping[str, Any] | None) -> Attempts | None:
        """Back from what JSON makes of it."""
        if values is None:
            return None
        entries: list[Exclusion] = []
        for one in values["excluded"]:
            entry = Exclusion(
                client=int(one["client"]),
                reason=str(one["reason"]),
                attempt=int(one["attempt"]),
            )
            entries.append(entry)
        return Attempts(
            excluded=tuple(entries),
            uplink_bytes=int(values["uplink_bytes"]),
            downlink_bytes=int(values["downlink_bytes"]),
        )
