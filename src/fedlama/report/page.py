"""The report: one HTML file that needs nothing else, and the picture by itself."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fedlama.base import InputError
from fedlama.report.charts import Chart, script_json
from fedlama.report.comparison import Comparison, compare
from fedlama.report.conclusion import verdict_sentences
from fedlama.report.crossings import crossings
from fedlama.report.formats import notes
from fedlama.report.frontier import equal_bytes
from fedlama.report.interval_maps import interval_maps
from fedlama.report.layer_charts import crossing_chart, interval_chart, layer_chart
from fedlama.report.network import DEFAULT_NETWORK, Network, replay
from fedlama.report.network_charts import assumptions, network_chart, network_rows, payoff_sentences
from fedlama.report.page_parts import configuration, crossing_words, facts, layer_table, setting_row, unbroken
from fedlama.report.partition_charts import partition_charts
from fedlama.report.plots import report_figure
from fedlama.report.score_charts import frontier_chart, score_charts
from fedlama.report.style import png
from fedlama.report.tables import headings
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


def draw_report(
    runs: Sequence[Run],
    out: Path,
    *,
    labels: Mapping[Path, str] | None = None,
    baseline: str | None = None,
    view: View | None = None,
) -> Path:
    """Write `report.html` and `report.png` into a folder; the page's path. `labels` and `baseline` as in `compare`."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; a report needs a folder: choose another --out")
    comparison = compare(runs, labels=labels, baseline=baseline)
    page = render_page(comparison, out, view or View())
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{out} cannot be made a folder for the report ({error.strerror})") from None
    write_atomically(out / "report.png", png(report_figure(comparison)))
    write_atomically(out / "report.html", page)
    return out / "report.html"


def render_page(comparison: Comparison, out: Path, view: View) -> str:
    """The page as text; runs are named by their way from `out`."""
    environment = Environment(
        loader=PackageLoader("fedlama.report"),
        autoescape=True,  # names come from configurations and folders of others
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    answer, *rest = [unbroken(sentence) for sentence in verdict_sentences(comparison)]
    charts = _charts(comparison)
    network = _network(comparison, view)
    partitions, left_out = partition_charts(comparison)
    every = [chart for group in charts.values() for chart in group] + network.get("charts", []) + partitions
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
        decisions=[crossing_words(crossing) for crossing in crossings(comparison)],
        network=network,
        partitions=partitions,
        left_out=left_out,
        layers=layer_table(comparison),
        configurations=[configuration(setting, out) for setting in comparison.settings],
        metric=comparison.metric,
        version=__version__,
        refresh=view.refresh,
        data=script_json(every, view.refresh),
        scripts=scripts,
        policy=_security_policy(scripts),
    )


def _charts(comparison: Comparison) -> dict[str, list[Chart]]:
    layers = [layer_chart(comparison, "aggregations"), layer_chart(comparison, "uplink_bytes")]
    return {
        "frontier": _known([frontier_chart(comparison)]),
        "scores": score_charts(comparison),
        "layers": _known(layers),
        "crossings": [crossing_chart(one, number) for number, one in enumerate(crossings(comparison), 1)],
        "intervals": [interval_chart(one, number) for number, one in enumerate(interval_maps(comparison), 1)],
    }


def _known(charts: Sequence[Chart | None]) -> list[Chart]:
    return [chart for chart in charts if chart is not None]


def _network(comparison: Comparison, view: View) -> dict[str, Any]:
    played = replay(comparison, view.network, view.target)
    if played is None:
        return {}
    return {
        "assumptions": [unbroken(sentence) for sentence in assumptions(played, comparison)],
        "sentences": [unbroken(sentence) for sentence in payoff_sentences(played, comparison)],
        "rows": network_rows(played, comparison),
        "charts": _known([network_chart(played, comparison)]),
        "ratio": f"{played.network.downlink / played.network.uplink:g}",
        "assumed": view.network == DEFAULT_NETWORK and view.target is None,
    }


def _script(name: str) -> Markup:
    return Markup(files("fedlama.report").joinpath("static", name).read_text(encoding="utf-8"))


def _security_policy(scripts: Sequence[str]) -> str:
    """Nothing is loaded from elsewhere, and no script runs but the page's own, whatever text got into it."""
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return f"default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; script-src {allowed}"
