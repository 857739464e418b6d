"""The report: one HTML file that needs nothing else, and the picture by itself."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import chain
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fedlama.base import InputError
from fedlama.report.numbers.comparison import RunComparison
from fedlama.report.numbers.crossings import crossings
from fedlama.report.numbers.groups import ComparisonGroup, compare_groups
from fedlama.report.numbers.intervals import interval_maps
from fedlama.report.numbers.network import DEFAULT_NETWORK, Network, replay
from fedlama.report.page.charts import Charts, charts_of
from fedlama.report.page.parts import (
    Configuration,
    FairnessSection,
    LayerSection,
    NetworkSection,
    SettingRow,
    configuration,
    facts,
    fairness_section,
    layer_section,
    setting_row,
)
from fedlama.report.pictures.charts import Chart, script_json
from fedlama.report.pictures.network import network_chart
from fedlama.report.pictures.overview import report_figure
from fedlama.report.pictures.partition import partition_charts
from fedlama.report.pictures.style import colour_number, png
from fedlama.report.tables.network import NETWORK_HEADINGS, network_rows
from fedlama.report.tables.settings import headings
from fedlama.report.words.conclusion import verdict_sentences
from fedlama.report.words.crossings import crossing_sentence
from fedlama.report.words.formats import unbroken
from fedlama.report.words.frontier import equal_bytes
from fedlama.report.words.intervals import even_intervals
from fedlama.report.words.network import assumptions, payoff_sentences
from fedlama.report.words.notes import cost_heading, notes, warnings_of
from fedlama.run.files import write_atomically
from fedlama.run.recorded import RecordedRun
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
        if self.target is not None:
            return False
        return self.network == DEFAULT_NETWORK


@dataclass(frozen=True)
class GroupPart:
    """Everything that the page says of one group of runs, as its template reads it."""

    number: int
    title: str
    warnings: list[str]
    answer: str
    rest: list[str]
    facts: list[tuple[str, str]]
    headings: list[str]
    cost_column: int  # the number of the one whose numbers have a bar
    rows: list[SettingRow]
    notes: list[str]
    charts: Charts
    equal_bytes: list[str]
    decisions: list[str]
    even_intervals: list[str]
    network: NetworkSection | None
    fairness: FairnessSection | None
    left_out: list[str]
    layers: LayerSection
    configurations: list[Configuration]
    metric: str


def draw_report(
    runs: Sequence[RecordedRun],
    out: Path,
    *,
    labels: Mapping[Path, str] | None = None,
    baseline: str | None = None,
    view: View | None = None,
) -> Path:
    """Write `report.html` and `report.png` into a folder; the page's path.

    Runs that differ in more than policy, rules, codec, learning rate and seed are not compared: each group has a part
    of the page and a picture of its own (`report-2.png`, …).

    Arguments:
        runs: finished or not.
        out: the folder, made if it is not there.
        labels: names of settings by run directory, as in `compare`.
        baseline: the label of the setting whose cost is 100 %, as in `compare`.
        view: the network of the replay, its target, and whether the page reads itself again.
    """
    if out.exists() and not out.is_dir():
        raise InputError(
            f"{out} is a file; a report needs a folder: choose another --out"
        )

    groups = compare_groups(runs, labels=labels, baseline=baseline)
    page = render_page(groups, out, view or View())
    pictures = [png(report_figure(group.comparison)) for group in groups]
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{out} cannot be made a folder for the report ({error.strerror})"
        ) from None

    # Pictures of groups that are no more would be taken for those of today.
    for old in out.glob("report-*.png"):
        old.unlink()
    for number, picture in enumerate(pictures, start=1):
        name = "report.png"
        if number != 1:
            name = f"report-{number}.png"
        write_atomically(out / name, picture)
    write_atomically(out / "report.html", page)
    return out / "report.html"


def render_page(groups: Sequence[ComparisonGroup], out: Path, view: View) -> str:
    """The page as text.

    Arguments:
        groups: runs that may be compared, each with a part of the page.
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
    parts: list[GroupPart] = []
    charts: list[Chart] = []
    names: dict[int, list[str]] = {}
    for number, group in enumerate(groups, start=1):
        part = _part(number, group, out, view)
        parts.append(part)
        charts += part.charts.every
        names[number] = [setting.label for setting in group.comparison.settings]

    scripts = [_script(name) for name in SCRIPTS]
    return environment.get_template("report.html.j2").render(
        title=", ".join(dict.fromkeys(chain(*names.values()))),
        groups=parts,
        version=__version__,
        refresh=view.refresh,
        data=script_json(charts, names, view.refresh),
        scripts=scripts,
        policy=_security_policy(scripts),
    )


def _part(number: int, group: ComparisonGroup, out: Path, view: View) -> GroupPart:
    comparison = group.comparison
    answer, *rest = [unbroken(sentence) for sentence in verdict_sentences(comparison)]
    partitions, left_out = partition_charts(comparison)
    network = _network(comparison, view)
    clients = fairness_section(comparison)
    charts = charts_of(
        comparison=comparison,
        network=network,
        clients=clients,
        partitions=partitions,
        number=number,
    )
    columns = headings(comparison)
    return GroupPart(
        number=number,
        title=group.title,
        warnings=warnings_of(comparison),
        answer=answer,
        rest=rest,
        facts=facts(comparison),
        headings=[unbroken(column) for column in columns],
        cost_column=columns.index(cost_heading(comparison)),
        rows=[setting_row(setting, comparison) for setting in comparison.settings],
        notes=notes(comparison),
        charts=charts,
        equal_bytes=[unbroken(sentence) for sentence in equal_bytes(comparison)],
        decisions=[crossing_sentence(crossing) for crossing in crossings(comparison)],
        even_intervals=even_intervals(interval_maps(comparison)),
        network=network,
        fairness=clients,
        left_out=left_out,
        layers=layer_section(comparison),
        configurations=[configuration(setting, out) for setting in comparison.settings],
        metric=comparison.metric,
    )


def _network(comparison: RunComparison, view: View) -> NetworkSection | None:
    played = replay(comparison, view.network, view.target)
    if played is None:
        return None

    rows: list[tuple[int, str, list[str]]] = []
    lines = network_rows(played, comparison)
    for setting, row in zip(comparison.settings, lines, strict=True):
        rows.append((colour_number(setting.look), row.label, row.numbers))

    ratio = played.network.downlink / played.network.uplink
    return NetworkSection(
        assumptions=[
            unbroken(sentence) for sentence in assumptions(played, comparison)
        ],
        sentences=[
            unbroken(sentence) for sentence in payoff_sentences(played, comparison)
        ],
        headings=NETWORK_HEADINGS,
        rows=rows,
        chart=network_chart(played, comparison),
        ratio=f"{ratio:g}",
        assumed=view.is_default,
    )


def _script(name: str) -> Markup:
    folder = files("fedlama.report.page") / "static"
    file = folder.joinpath(name)
    text = file.read_text(encoding="utf-8")
    return Markup(text)


def _security_policy(scripts: Sequence[str]) -> str:
    """Nothing is loaded from elsewhere, and no script runs but the page's own, whatever text got into it."""
    allowed: list[str] = []
    for script in scripts:
        digest = hashlib.sha256(script.encode()).digest()
        text = base64.b64encode(digest).decode()
        allowed.append(f"'sha256-{text}'")
    rules = (
        "default-src 'none'",
        "style-src 'unsafe-inline'",
        "img-src data: blob:",
        f"script-src {' '.join(allowed)}",
    )
    return "; ".join(rules)
