"""How the data fell on clients: the partition of a setting's first run, as its directory recorded it.

Of runs of early versions, which have no such file, it is made again from the configuration and the seed.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from fedlama.base import InputError, RunError
from fedlama.report.numbers.comparison import RunComparison
from fedlama.report.numbers.partition import PartitionView, view_counts, view_partition
from fedlama.report.pictures.charts import Chart, axis
from fedlama.report.pictures.style import MUTED, PALETTE, styled, without_dates
from fedlama.run.config import Config
from fedlama.run.recorded import RecordedRun
from fedlama.run.resolve import own_code, prepared_data
from fedlama.run.tables import TrainSection

MAX_CLIENTS = 128  # columns of the page's chart
MAX_CLIENTS_IN_FILE = 256  # columns of the picture that `fedlama data show` writes
MAX_PARTITIONS = 3
# By the ending of a picture's file: what says when and with what it was drawn, which would differ from run to run.
NO_METADATA: dict[str, dict[str, None]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
}


def partition_charts(comparison: RunComparison) -> tuple[list[Chart], list[str]]:
    """A chart for each way in which settings divide their data, and a sentence for each that cannot be drawn."""
    configs: dict[str, tuple[Config, RecordedRun]] = {}
    for setting in comparison.settings:
        config = _deciding(setting.runs[0].config)
        configs[config.model_dump_json()] = (config, setting.runs[0])

    charts: list[Chart] = []
    sentences: list[str] = []
    for text, (config, run) in list(configs.items())[:MAX_PARTITIONS]:
        try:
            view = _view(run, text)
        except InputError as error:
            sentences.append(
                f"How the data fell on clients is left out, because {error}"
            )
            continue
        charts.append(_chart(view, config.seed, len(charts)))
    return charts, sentences


def _deciding(config: Config) -> Config:
    """Only what decides how the data falls on clients: settings that agree in it share a chart."""
    return Config(
        data=config.data,
        partition=config.partition,
        seed=config.seed,
        train=TrainSection.model_validate({"iterations": 1}),
    )


def _view(run: RecordedRun, text: str) -> PartitionView:
    """As the run recorded it, or made again; an InputError ends a sentence with the reason why neither can be."""
    try:
        recorded = run.partition
    except InputError as error:
        raise InputError(f"what the run recorded cannot be read: {error}") from None
    if recorded is not None:
        counts_CK = np.asarray(recorded.counts)
        return view_counts(recorded.data, counts_CK, recorded.clients)

    try:
        return _made_again(text)
    except (InputError, RunError, OSError, ValueError) as error:
        raise InputError(f"the data cannot be loaded: {error}") from None


@lru_cache(maxsize=MAX_PARTITIONS)
def _made_again(text: str) -> PartitionView:
    """Kept, because a page that is drawn again and again while a run is going would divide the data each time."""
    config = Config.model_validate_json(text)
    if own_code(config):
        raise InputError(
            "it comes from code of the user's own, which a report does not run"
        )
    # The run's own way to its data: a second one would forget the validation split.
    data = prepared_data(config)
    partition = config.partition.build(data.clients is not None)
    shards = partition.assign(data, config.seed)
    return view_partition(data, shards)


def _chart(view: PartitionView, seed: int, number: int) -> Chart:
    counts_CK = view.counts_CK[:MAX_CLIENTS]
    clients, classes = counts_CK.shape
    rows = _tiles(counts_CK)

    title = f"{view.name} on {view.clients:,} clients"
    if clients < view.clients:
        title += f", first {clients}"

    labels = [str(label) for label in range(classes)]
    return Chart(
        id="partition" if number == 0 else f"partition-{number}",
        title=f"{title} (seed {seed})",
        columns=["client", "class", "samples", "share of the client"],
        formats=["number", "text", "number", "percent"],
        rows=rows,
        drawing={
            "kind": "tiles",
            "height": 160 + max(160, min(420, 22 * classes)),
            "at": {"y": 1, "x": 0, "end": 0, "value": 3},
            "x": axis("client", min=-0.5, max=clients - 0.5),
            "y": axis("class", scale="category", categories=labels, thin=True),
            "low": 0,
            "high": max(row[3] for row in rows),
            "colour": 0,
            "sizes": counts_CK.sum(axis=1).tolist(),
        },
        figure=shares_figure(counts_CK),
    )


def _tiles(counts_CK: NDArray[np.int64]) -> list[list[Any]]:
    """A row for every class that a client has."""
    rows: list[list[Any]] = []
    for client, owned in enumerate(counts_CK.tolist()):
        total = sum(owned)
        for label, samples in enumerate(owned):
            if not samples:
                continue
            share = round(samples / total, 4)
            rows.append([client, str(label), samples, share])
    return rows


@styled
def shares_figure(counts_CK: NDArray[np.int64]) -> Figure:
    """The still picture: a column per client, a row per class, the darker the larger its share; sizes above.

    Arguments:
        counts_CK: how many samples of each class each client has.
    """
    figure = Figure(figsize=(8.0, 4.4), layout="constrained")
    sizes, axes = figure.subplots(2, 1, sharex=True, height_ratios=[1, 3])
    clients = range(len(counts_CK))
    samples = counts_CK.sum(axis=1)
    sizes.bar(clients, samples, width=0.9, color=MUTED)
    sizes.set_ylabel("samples")

    pixels = _pixels(counts_CK)
    axes.imshow(pixels, aspect="auto", interpolation="nearest")

    axes.set(xlabel="client", ylabel="class")
    axes.xaxis.set_major_locator(MaxNLocator(10, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(10, integer=True))
    return figure


@styled
def _figure_by_itself(view: PartitionView) -> Figure:
    """The same for a file of its own, which has no page around it that says what it shows."""
    counts_CK = view.counts_CK[:MAX_CLIENTS_IN_FILE]
    figure = shares_figure(counts_CK)
    sizes, axes = figure.axes
    shown = len(counts_CK)
    if shown < view.clients:
        axes.set_xlabel(f"client (first {shown})")

    own = to_rgb(PALETTE[0])
    transparent = (*own, 0.0)
    opaque = (*own, 1.0)
    colours = LinearSegmentedColormap.from_list("shares", [transparent, opaque])
    shares = _shares(counts_CK)
    largest = float(shares.max())
    scale = ScalarMappable(Normalize(0, largest), colours)
    figure.colorbar(scale, ax=[sizes, axes], label="share of the client's samples")
    entropy = view.entropy.mean()
    figure.suptitle(
        f"{view.name}: {view.clients:,} clients, mean label entropy {entropy:.2f} bits"
    )
    return figure


def _pixels(counts_CK: NDArray[np.int64]) -> list[list[tuple[float, ...]]]:
    """One colour for every class and client; its opacity is the class's share of the client, the largest of all 1."""
    shares_KC = _shares(counts_CK).T
    largest = shares_KC.max()
    opacity_KC = shares_KC / largest
    own = to_rgb(PALETTE[0])
    rows: list[list[tuple[float, ...]]] = []
    for of_class in opacity_KC.tolist():
        row = [(*own, opacity) for opacity in of_class]
        rows.append(row)
    return rows


def _shares(counts_CK: NDArray[np.int64]) -> NDArray[np.float64]:
    totals = counts_CK.sum(axis=1, keepdims=True)
    return counts_CK / totals


def draw_partition(view: PartitionView, path: Path) -> Path:
    """Who has how much of which class: a column per client, darker for a larger share, sizes above.

    Arguments:
        view: the partition; of very many clients the first are drawn.
        path: a .png, .svg or .pdf file.
    """
    if path.suffix not in NO_METADATA:
        raise InputError(f"{path}: a picture's name must end in .png, .svg or .pdf")

    figure = _figure_by_itself(view)
    FigureCanvasAgg(figure)
    metadata = NO_METADATA[path.suffix]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with without_dates():
            figure.savefig(path, dpi=130, metadata=metadata)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None
    return path
