"""How many clients there are: nodes say it, and one of them may be wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection


class Votes:
    """What nodes say that answered before the run."""

    def __init__(self) -> None:
        self._clients: dict[int, int] = {}  # by node; 0 where it does not know

    def note(self, node: int, clients: int) -> None:
        """Note how many clients there are according to a node.

        Arguments:
            node: Flower's id of it.
            clients: The number.
        """
        self._clients[node] = clients

    def winner(self, there: Collection[int]) -> int | None:
        """The number that most nodes say; of a tie, the smaller; None where nobody knows.

        Arguments:
            there: Flower's ids of the nodes whose votes count.
        """
        votes: Counter[int] = Counter()
        for node, clients in self._clients.items():
            if node in there and clients:
                votes[clients] += 1
        if not votes:
            return None
        return max(votes, key=lambda clients: (votes[clients], -clients))

    def voters(self, clients: int) -> list[int]:
        """The nodes that say this number.

        Arguments:
            clients: It.
        """
        return [node for node, said in self._clients.items() if said == clients]
