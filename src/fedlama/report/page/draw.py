"""The report: one HTML file that needs nothing else, and the picture by itself."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fedlama.base import InputError
from fedlama.report.numbers.comparison import Comparison, compare
from fedlama.report.numbers.crossings import crossings
from fedlama.report.numbers.intervals import interval_maps
from fedlama.report.numbers.network import DEFAULT_NETWORK, Network, replay
from fedlama.report.page.parts import NetworkSection, configuration, facts, layer_section, setting_row
from fedlama.report.pictures.charts import Chart, script_json
from fedlama.report.pictures.crossings import crossing_chart
from fedlama.report.pictures.frontier import frontier_chart
from fedlama.report.pictures.intervals import interval_chart
from fedlama.report.pictures.layers import layer_chart
from fedlama.report.pictures.network import network_chart
from fedlama.report.pictures.overview import report_figure
from fedlama.report.pictures.partition import partition_charts
from fedlama.report.pictures.scores import score_charts
from fedlama.report.pictures.style import colour_number, png
from fedlama.report.tables.network import network_rows
from fedlama.report.tables.settings import headings
from fedlama.report.words.conclusion import verdict_sentences
from fedlama.report.words.crossings import crossing_sentence
from fedlama.report.words.formats import unbroken
from fedlama.report.words.frontier import equal_bytes
from fedlama.report.words.network import assumptions, payoff_sentences
from fedlama.report.words.notes import notes
from fedlama.run.directory import Run
from fedlama.run.files import write_atomically
from fedlama.version import __version__

SCRIPTS = ("echarts.js", "charts.js", "page.js")


@dataclass(frozen=True)
class View:
    """What a reader may choose: the network of the replay and its target, and a page that reads itself again."""

    network: Network = DEFAULT_NETWORK
    target: float | None = None  # None: the best score that every setting reaches
    refresh: int | None = None  # seconds, while runs are going

    @property
    def is_default(self) -> bool:
        """Whether the network and the target are ours and not the reader's."""
        return self.network == DEFAULT_NETWORK and self.target is None


@dataclass(frozen=True)
class Charts:
    """The charts of a page by section, in the order in which the page has them."""

    frontier: list[Chart]
    scores: list[Chart]
    layers: list[Chart]
    crossings: list[Chart]
    intervals: list[Chart]
    network: list[Chart]
    partitions: list[Chart]

    @property
    def every(self) -> list[Chart]:
        """All of them."""
        return [
            *self.frontier,
            *self.scores,
            *self.layers,
            *self.crossings,
            *self.intervals,
            *self.network,
            *self.partitions,
        ]


def draw_report(
    runs: Sequence[Run],
    out: Path,
    *,
    labels: Mapping[Path, str] | None = None,
    baseline: str | None = None,
    view: View | None = None,
) -> Path:
    """Write `report.html` and `report.png` into a folder; the page's path.

    Arguments:
        runs: finished or not.
        out: the folder, made if it is not there.
        labels: names of settings by run directory, as in `compare`.
        baseline: the label of the setting whose cost is 100 %, as in `compare`.
        view: the network of the replay, its target, and whether the page reads itself again.
    """
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; a report needs a folder: choose another --out")

    comparison = compare(runs, labels=labels, baseline=baseline)
    page = render_page(comparison, out, view or View())
    picture = png(report_figure(comparison))
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{out} cannot be made a folder for the report ({error.strerror})") from None

    write_atomically(out / "report.png", picture)
    write_atomically(out / "report.html", page)
    return out / "report.html"


def render_page(comparison: Comparison, out: Path, view: View) -> str:
    """The page as text.

    Arguments:
        comparison: the settings.
        out: the folder of the page; runs are named by their way from it.
        view: what the reader chose.
    """
    environment = Environment(
        loader=PackageLoader("fedlama.report.page"),
        autoescape=True,  # names come from configurations and folders of others
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    answer, *rest = [unbroken(sentence) for sentence in verdict_sentences(comparison)]
    network = _network(comparison, view)
    partitions, left_out = partition_charts(comparison)
    charts = _charts(comparison, network, partitions)
    scripts = [_script(name) for name in SCRIPTS]
    return environment.get_template("report.html.j2").render(
        title=", ".join(setting.label for setting in comparison.settings),
        facts=facts(comparison),
        answer=answer,
        rest=rest,
        headings=headings(comparison),
        rows=[setting_row(index, setting, comparison) for index, setting in enumerate(comparison.settings)],
        notes=notes(comparison),
        charts=charts,
        equal_bytes=[unbroken(sentence) for sentence in equal_bytes(comparison)],
        decisions=[crossing_sentence(crossing) for crossing in crossings(comparison)],
        network=network,
        left_out=left_out,
        layers=layer_section(comparison),
        configurations=[configuration(setting, out) for setting in comparison.settings],
        metric=comparison.metric,
        version=__version__,
        refresh=view.refresh,
        data=script_json(charts.every, view.refresh),
        scripts=scripts,
        policy=_security_policy(scripts),
    )


def _charts(comparison: Comparison, network: NetworkSection | None, partitions: list[Chart]) -> Charts:
    layers = [
        layer_chart(comparison, "aggregations"),
        layer_chart(comparison, "uplink_bytes"),
    ]
    decisions = enumerate(crossings(comparison), start=1)
    maps = enumerate(interval_maps(comparison), start=1)
    return Charts(
        frontier=_known([frontier_chart(comparison)]),
        scores=score_charts(comparison),
        layers=_known(layers),
        crossings=[crossing_chart(one, number) for number, one in decisions],
        intervals=[interval_chart(one, number) for number, one in maps],
        network=[] if network is None else network.charts,
        partitions=partitions,
    )


def _known(charts: Sequence[Chart | None]) -> list[Chart]:
    return [chart for chart in charts if chart is not None]


def _network(comparison: Comparison, view: View) -> NetworkSection | None:
    played = replay(comparison, view.network, view.target)
    if played is None:
        return None

    rows: list[tuple[int, str, list[str]]] = []
    for index, row in enumerate(network_rows(played, comparison)):
        rows.append((colour_number(index), row.label, row.numbers))

    ratio = played.network.downlink / played.network.uplink
    return NetworkSection(
        assumptions=[unbroken(sentence) for sentence in assumptions(played, comparison)],
        sentences=[unbroken(sentence) for sentence in payoff_sentences(played, comparison)],
        rows=rows,
        charts=_known([network_chart(played, comparison)]),
        ratio=f"{ratio:g}",
        assumed=view.is_default,
    )


def _script(name: str) -> Markup:
    folder = files("fedlama.report.page") / "static"
    text = folder.joinpath(name).read_text(encoding="utf-8")
    return Markup(text)


def _security_policy(scripts: Sequence[str]) -> str:
    """Nothing is loaded from elsewhere, and no script runs but the page's own, whatever text got into it."""
    allowed: list[str] = []
    for script in scripts:
        digest = hashlib.sha256(script.encode()).digest()
        text = base64.b64encode(digest).decode()
        allowed.append(f"'sha256-{text}'")
    return f"default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; script-src {' '.join(allowed)}"
