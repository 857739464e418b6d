"""Where a message belongs: what its random draws follow from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fedlama.base import InputError, check_whole


@dataclass(frozen=True)
class MessagePlace:
    """Where a message belongs; every random draw in it follows from here, and nothing of it is sent.

    Arguments:
        round: The number of the round in the run.
        client: The number of the client; 0 for the server's own messages.
        round_in_window: Which round of the window it is, counted from 0. Error feedback with a profile or a gain has to
            know.
        rounds_per_window: How many rounds the window has.
        layer_rounds: The same pair for layers that are not due in every round of the window.
    """

    round: int
    client: int
    round_in_window: int = 0
    rounds_per_window: int = 1
    layer_rounds: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_whole("round", self.round, minimum=0)
        check_whole("client", self.client, minimum=0)
        of_layers = self.layer_rounds.values()
        for position, count in (self.of_window, *of_layers):
            check_whole("rounds_per_window", count, minimum=1)
            check_whole("round_in_window", position, minimum=0)
            if position >= count:
                raise InputError(
                    f"round_in_window must be below {count}, not {position}"
                )

    @property
    def of_window(self) -> tuple[int, int]:
        """Which of how many rounds in the window."""
        return self.round_in_window, self.rounds_per_window

    def of_layer(self, layer: int) -> tuple[int, int]:
        """Which of how many synchronisations of this layer in the window.

        Arguments:
            layer: Its number in the layout.
        """
        return self.layer_rounds.get(layer, self.of_window)
