"""How the data falls on clients, as a table for the terminal."""

from __future__ import annotations

import numpy as np
from rich.table import Table

from fedlama.report.numbers.partition import PartitionView

HEADINGS = ("client", "samples", "classes", "largest class", "label entropy")
MAX_ROWS = 12  # of more clients, the first and the last


def partition_table(view: PartitionView) -> Table:
    """A row per client, the middle left out where there are many, and a last row for all of them."""
    clients = len(view.sizes)
    table = Table(
        title=f"{view.name}: {clients:,} clients, {view.sizes.sum():,} training samples"
    )
    for heading in HEADINGS:
        table.add_column(heading, justify="right")

    if clients <= MAX_ROWS:
        _add_clients(table, view, range(clients))
    else:
        half = MAX_ROWS // 2
        _add_clients(table, view, range(half))
        table.add_row(*["…"] * len(HEADINGS))
        _add_clients(table, view, range(clients - half, clients))

    table.add_section()
    table.add_row(*_cells_of_all(view))
    table.caption = (
        "Last row: least, median and largest size; means of the other columns."
    )
    return table


def _add_clients(table: Table, view: PartitionView, clients: range) -> None:
    for client in clients:
        table.add_row(*_cells(view, client))


def _cells(view: PartitionView, client: int) -> list[str]:
    counts = view.counts_CK[client]
    owned = (counts > 0).sum()

    largest = int(counts.argmax())
    share = counts[largest] / counts.sum()
    return [
        str(client),
        f"{counts.sum():,}",
        str(owned),
        f"{largest} ({share:.0%})",
        f"{view.entropy[client]:.2f} bits",
    ]


def _cells_of_all(view: PartitionView) -> list[str]:
    classes = view.counts_CK.shape[1]
    low, middle, high = np.percentile(view.sizes, [0, 50, 100])
    owned = (view.counts_CK > 0).sum(axis=1)
    largest = view.counts_CK.max(axis=1)
    largest_share = largest / view.sizes
    # Of a client whose classes are equally large
    most_bits = np.log2(classes)
    return [
        "all",
        f"{low:,.0f} – {middle:,.0f} – {high:,.0f}",
        f"{owned.mean():.1f} of {classes}",
        f"{largest_share.mean():.0%}",
        f"{view.entropy.mean():.2f} of {most_bits:.2f} bits",
    ]
