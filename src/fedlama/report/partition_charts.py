"""How the data fell on clients: the partition of a setting's first run, made again from its configuration and seed."""

from __future__ import annotations

from functools import lru_cache

from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedlama.base import InputError, RunError
from fedlama.data import load
from fedlama.report.charts import Chart, axis
from fedlama.report.comparison import Comparison
from fedlama.report.partition import PartitionView, view_partition
from fedlama.report.style import PALETTE, styled
from fedlama.run.config import PartitionSection, parse_config
from fedlama.run.directory import Run

MOST_CLIENTS = 128
MOST_PARTITIONS = 3


def partition_charts(comparison: Comparison) -> tuple[list[Chart], list[str]]:
    """A chart for each way in which settings divide their data, and a sentence for each that cannot be drawn."""
    charts: list[Chart] = []
    sentences: list[str] = []
    runs = {_key(setting.runs[0]): setting.runs[0] for setting in reversed(comparison.settings)}
    for run in list(reversed(runs.values()))[:MOST_PARTITIONS]:
        try:
            charts.append(_chart(_view(*_key(run)), run.seed, len(charts)))
        except (InputError, RunError, OSError, ValueError) as error:
            sentences.append(f"How the data fell on clients is left out, because the data cannot be loaded: {error}")
    return charts, sentences


def _key(run: Run) -> tuple[str, str, int]:
    config = parse_config(run.config, str(run.path / "config.toml"))
    return config.data.name, config.partition.model_dump_json(), config.seed


@lru_cache(maxsize=MOST_PARTITIONS)
def _view(name: str, partition: str, seed: int) -> PartitionView:
    """Kept, because a page that is drawn again and again while a run is going would read the data each time."""
    data, section = load(name), PartitionSection.model_validate_json(partition)
    return view_partition(data, section.build(data.clients is not None).assign(data, seed))


def _chart(view: PartitionView, seed: int, number: int) -> Chart:
    counts = view.counts_CK[:MOST_CLIENTS].tolist()
    classes = len(counts[0])
    rows = [
        [client, str(label), samples, round(samples / sum(owned), 4)]
        for client, owned in enumerate(counts)
        for label, samples in enumerate(owned)
        if samples
    ]
    first = f", first {len(counts)}" if len(counts) < len(view.sizes) else ""
    return Chart(
        id="partition" if number == 0 else f"partition-{number}",
        title=f"{view.name} on {len(view.sizes):,} clients{first} (seed {seed})",
        columns=["client", "class", "samples", "share of the client"],
        formats=["number", "text", "number", "percent"],
        rows=rows,
        drawing={
            "kind": "tiles",
            "height": 70 + max(160, min(420, 22 * classes)),
            "at": {"y": 1, "x": 0, "end": 0, "value": 3},
            "x": axis("client", min=-0.5, max=len(counts) - 0.5),
            "y": axis("class", scale="category", categories=[str(label) for label in range(classes)], thin=True),
            "low": 0,
            "high": max(row[3] for row in rows),
            "colour": 0,
        },
        figure=shares_figure(counts),
    )


@styled
def shares_figure(counts: list[list[int]]) -> Figure:
    """The still picture: a column a client, a row a class, the darker the larger its share of the client's samples."""
    figure = Figure(figsize=(8.0, 3.4), layout="constrained")
    axes = figure.subplots()
    largest = max(max(owned) / sum(owned) for owned in counts)
    shares = [[owned[label] / sum(owned) / largest for owned in counts] for label in range(len(counts[0]))]
    pixels = [[(*to_rgb(PALETTE[0]), share) for share in row] for row in shares]
    axes.imshow(pixels, aspect="auto", interpolation="nearest")
    axes.set(xlabel="client", ylabel="class")
    for part in (axes.xaxis, axes.yaxis):
        part.set_major_locator(MaxNLocator(10, integer=True))
    return figure
