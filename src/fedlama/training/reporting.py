"""What every process has to know of every client after a round: added up over all of them at once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedlama.compress import Decoded
from fedlama.core import Layout
from fedlama.processes.world import World
from fedlama.rows import magnitudes
from fedlama.server.tolerance import update_norms
from fedlama.training.coding import Uplink
from fedlama.training.cohorts import Cohort
from fedlama.training.current import Round
from fedlama.training.played import Reports


@dataclass(frozen=True)
class ReportColumns:
    """The columns of a table with a row for each client, of this process or of all.

    Arguments:
        losses: Mean losses, [clients].
        largest: The largest magnitude of every slice that is averaged, [clients, slices].
        figures: What is known of coded messages, [clients, figures]; without a column where nothing is coded.
        norms: Of the updates of the due layers, [clients, 1]; without a column where there is no limit.
    """

    losses: Tensor
    largest: Tensor
    figures: Tensor
    norms: Tensor

    def pack(self) -> Tensor:
        """The table."""
        columns = [
            self.losses[:, None],
            self.largest,
            self.figures,
            self.norms,
        ]
        return torch.cat(columns, dim=1)

    def unpack(self, table: Tensor) -> ReportColumns:
        """The columns of another table that was packed like this one, such as that of all clients.

        Arguments:
            table: With as many columns as this one.
        """
        widths = [1, self.largest.shape[1], self.figures.shape[1], self.norms.shape[1]]
        losses, largest, figures, norms = table.split(widths, dim=1)
        return ReportColumns(losses[:, 0], largest, figures, norms)


def reports_of_all(
    current: Round,
    losses: Tensor,
    *,
    layout: Layout,
    world: World,
    uplink: Uplink | None,
    with_norms: bool,
) -> Reports:
    """What is known of every client of a cohort, in every process.

    Arguments:
        current: The round, after it was trained and coded.
        losses: The mean losses of this process's clients.
        layout: Where the layers are in a row.
        world: The processes that share the run.
        uplink: The code of what clients send, if any.
        with_norms: Whether the updates of the due layers are measured.
    """
    due = current.plan.due
    here = _columns_here(current, losses, layout, with_norms)
    table = _table_of_all(current.cohort, here.pack(), world)
    everywhere = here.unpack(table)

    decoded: list[Decoded] = []
    if uplink is None:
        plain = current.position.server_state.ledger.plain_message(due)
        uploads = [plain] * len(current.cohort.clients)
    else:
        decoded = uplink.messages(everywhere.figures, due)
        uploads = [message.charged for message in decoded]
    norms = everywhere.norms.flatten()
    return Reports(
        losses=everywhere.losses.tolist(),
        largest=everywhere.largest,
        norms=norms.tolist(),
        uploads=uploads,
        decoded=decoded,
    )


def _columns_here(
    current: Round, losses: Tensor, layout: Layout, with_norms: bool
) -> ReportColumns:
    """Those of this process's clients."""
    rows = current.cohort.rows
    due = current.plan.due
    no_columns = losses.new_zeros(len(losses), 0)
    figures = no_columns
    if current.figures is not None:
        figures = current.figures
    norms = no_columns
    if with_norms:
        of_clients = update_norms(rows, current.position.row, layout, due)
        norms = of_clients[:, None]
    slices = layout.slices_with_statistics(due)
    return ReportColumns(
        losses=losses,
        largest=magnitudes(rows, slices),
        figures=figures,
        norms=norms,
    )


def _table_of_all(cohort: Cohort, here: Tensor, world: World) -> Tensor:
    """A row for every client of the cohort, from the rows of this process's clients."""
    # One sum over all processes instead of several: on small models a collective costs more than the arithmetic.
    _, width = here.shape
    table = here.new_zeros(len(cohort.clients), width)
    table[cohort.mine] = here
    world.sum_(table)
    return table
