"""How a data set falls on clients: sizes, class balance and label entropy, as numbers and as a picture."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.table import Table

from fedlama.base import InputError
from fedlama.data import Dataset, Shards

ROWS_SHOWN = 12
CLIENTS_DRAWN = 256


@dataclass(frozen=True)
class PartitionView:
    """`counts_CK` is how many samples of each class a client has; entropy is in bits."""

    name: str
    sizes: NDArray[np.int64]
    counts_CK: NDArray[np.int64]
    entropy: NDArray[np.float64]


def view_partition(data: Dataset, shards: Shards) -> PartitionView:
    """Count the classes of every client; data without class labels counts as one class."""
    classified = data.classes is not None and data.y_train.dim() == 1
    labels = data.y_train.numpy() if classified else np.zeros(len(data.y_train), dtype=np.int64)
    classes = (data.classes or 1) if classified else 1
    sizes = shards.sizes.numpy()
    owners = np.repeat(np.arange(len(shards)), sizes)
    flat = owners * classes + labels[shards.order.numpy()]
    counts = np.bincount(flat, minlength=len(shards) * classes).reshape(len(shards), classes)
    return PartitionView(data.name, sizes, counts, _entropy(counts))


def _entropy(counts_CK: NDArray[np.int64]) -> NDArray[np.float64]:
    shares = counts_CK / counts_CK.sum(axis=1, keepdims=True)
    bits = np.log2(shares, out=np.zeros_like(shares), where=shares > 0)
    return np.abs(-(shares * bits).sum(axis=1))


def partition_table(view: PartitionView) -> Table:
    """A row a client, the middle left out where there are many, and a last row for all of them."""
    classes = view.counts_CK.shape[1]
    table = Table(title=f"{view.name}: {len(view.sizes):,} clients, {view.sizes.sum():,} training samples")
    for heading in ("client", "samples", "classes", "largest class", "label entropy"):
        table.add_column(heading, justify="right")
    count = len(view.sizes)
    half = ROWS_SHOWN // 2
    shown = range(count) if count <= ROWS_SHOWN else [*range(half), *range(count - half, count)]
    for index, client in enumerate(shown):
        if count > ROWS_SHOWN and index == half:
            table.add_row(*["…"] * 5)
        table.add_row(str(client), *_cells(view, client))
    table.add_section()
    low, middle, high = np.percentile(view.sizes, [0, 50, 100])
    table.add_row(
        "all",
        f"{low:,.0f} – {middle:,.0f} – {high:,.0f}",
        f"{(view.counts_CK > 0).sum(axis=1).mean():.1f} of {classes}",
        f"{_largest_share(view).mean():.0%}",
        f"{view.entropy.mean():.2f} of {np.log2(classes):.2f} bits",
    )
    table.caption = "Last row: least, median and largest size; means of the other columns."
    return table


def _cells(view: PartitionView, client: int) -> list[str]:
    counts = view.counts_CK[client]
    largest = int(counts.argmax())
    share = counts[largest] / counts.sum()
    return [
        f"{counts.sum():,}",
        str((counts > 0).sum()),
        f"{largest} ({share:.0%})",
        f"{view.entropy[client]:.2f} bits",
    ]


def _largest_share(view: PartitionView) -> NDArray[np.float64]:
    return view.counts_CK.max(axis=1) / view.sizes


def draw_partition(view: PartitionView, path: Path) -> Path:
    """Who has how much of which class: a column a client (the first 256), darker for a larger share, sizes above."""
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise InputError(f"{path}: a picture's name must end in .png, .svg or .pdf")
    counts = view.counts_CK[:CLIENTS_DRAWN]
    figure = Figure(figsize=(9, 4.8), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[1, 2])
    above.bar(np.arange(len(counts)), counts.sum(axis=1), width=0.9, color="#4477aa")
    above.set_ylabel("samples")
    above.spines[["top", "right"]].set_visible(False)
    shares = counts / counts.sum(axis=1, keepdims=True)
    image = below.imshow(shares.T, aspect="auto", cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
    below.set_xlabel("client" if len(view.sizes) <= CLIENTS_DRAWN else f"client (first {CLIENTS_DRAWN})")
    below.set_ylabel("class")
    figure.colorbar(image, ax=below, label="share of the client's samples")
    figure.suptitle(f"{view.name}: {len(view.sizes):,} clients, mean label entropy {view.entropy.mean():.2f} bits")
    FigureCanvasAgg(figure)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=130, metadata={"Software": None} if path.suffix == ".png" else None)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None
    return path
