"""Rows that a rule is handed to look at: whether it wrote to one of them all the same.

They are the values before a round, which policies, codes and the next clients refer to as well. Torch counts how often
a tensor was written to, through any of its views; that count is compared once for a whole round of steps.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from fedlama.base import InputError, shown


class ReadOnly:
    """Rows as they are now.

    Arguments:
        rows: The rows, by what a rule knows them as.
    """

    def __init__(self, rows: Mapping[str, Tensor]) -> None:
        self._rows = rows
        self._writes: dict[str, int] = {}
        for name, row in rows.items():
            self._writes[name] = _writes_to(row)

    @staticmethod
    def sent(rows: Mapping[str, Tensor]) -> ReadOnly:
        """What a server sends its clients for their rule: rules know it as `server`, by name.

        Arguments:
            rows: The rows.
        """
        as_written: dict[str, Tensor] = {}
        for name, row in rows.items():
            key = shown(name)
            as_written[f"server[{key}]"] = row
        return ReadOnly(as_written)

    def check(self, rule: object) -> None:
        """Raise InputError if a row was written to since.

        Arguments:
            rule: Which was handed the rows, and nobody else was.
        """
        for name, row in self._rows.items():
            if _writes_to(row) != self._writes[name]:
                kind = type(rule).__name__
                raise InputError(
                    f"{kind} writes to {name}, which is read-only for a rule: work on a copy of it instead"
                )


def _writes_to(row: Tensor) -> int:
    """How often a tensor was written to, as far as torch counts it."""
    # In inference mode it counts nothing, and may not be asked.
    if row.is_inference():
        return 0
    return row._version
