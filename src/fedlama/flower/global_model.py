"""GlobalModel: the module of a run, and the server's row in it and out of it."""

from __future__ import annotations

import torch
from flwr.app import ArrayRecord
from torch import nn

from fedlama.core import Layout
from fedlama.flower.modules import arrays_of
from fedlama.flower.tasks import layout_digest
from fedlama.rows import Binding
from fedlama.server import Server
from fedlama.training.position import Position


class GlobalModel:
    """The module of a run.

    Arguments:
        module: As it is before the first step.
        layout: Its layers.
    """

    def __init__(self, module: nn.Module, layout: Layout) -> None:
        self.module = module
        self.layout = layout
        self._binding = Binding(module, layout)

    @property
    def counter_width(self) -> int:
        """How many whole-number buffers it has."""
        return self._binding.counter_width

    @property
    def digest(self) -> str:
        """What clients compare with theirs: both sides must mean the same numbers."""
        return layout_digest(self.layout, self.counter_width)

    @property
    def arrays(self) -> ArrayRecord:
        """The model as Flower has it, with the weights that were written last."""
        return arrays_of(self.module)

    def first_position(self, server: Server) -> Position:
        """Where a run begins: with the module as it is.

        Arguments:
            server: The run's.
        """
        binding = self._binding
        counters = torch.zeros(binding.counter_width, dtype=torch.int64)
        binding.save_counters(counters)
        row = binding.read()
        state = server.start(row)
        return Position(state, counters)

    def write(self, position: Position) -> None:
        """Give the module the global weights.

        Arguments:
            position: Where the run stands.
        """
        # A copy, so that the module never shares memory with the server's row.
        row = position.server_state.row.clone()
        self._binding.point_at(row)
        self._binding.load_counters(position.counters)

    def release(self) -> None:
        """The module's tensors are its own again."""
        self._binding.release()
