"""The page and the pictures: complete, closed to hostile text, and no wider than the screen."""

import hashlib
import json
import os
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hand_made import LAYERS, write_run
from matplotlib.figure import Figure

import fedlama.report.page
from fedlama.base import InputError
from fedlama.report import compare, draw_report, verdict, verdict_sentences
from fedlama.report.numbers.crossings import crossings
from fedlama.report.numbers.intervals import interval_maps
from fedlama.report.numbers.layers import drawn_rows
from fedlama.report.page.draw import View
from fedlama.report.pictures.crossings import crossing_figure
from fedlama.report.pictures.layers import draw_layers, layer_chart, layers_figure
from fedlama.report.pictures.measures import TRAINING_LOSS
from fedlama.report.pictures.overview import report_figure
from fedlama.report.pictures.style import svg
from fedlama.report.tables.layers import layer_table
from fedlama.report.tables.settings import cells, headings, markdown_table
from fedlama.report.tables.study import study_grid
from fedlama.report.words.notes import notes
from fedlama.study.index import read_index
from fedlama.study.runs import load_run

STATIC = Path(fedlama.report.page.__file__).parent / "static"
ECHARTS_SHA256 = "3ab3cff94c6acd328e6f7ec3c6dd21c9eaa1ea3ba47a25e4e1f95704d637dfb9"
HOSTILE = "<script>alert(1)</script>"
VOID = {"meta", "link", "br", "img", "wbr", "hr"}


class Page(HTMLParser):
    """Text and links of a page; asserts that every element is closed in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.links, self.text, self.ids, self.scripts = (
            [],
            set(),
            [],
            [],
            [],
            [],
        )
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.scripts += [""] if tag == "script" else []
        self.links += [
            value for name, value in attrs if name in ("src", "href", "xlink:href")
        ]
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        elif self.open and self.open[-1] != "style":
            self.text.append(data)

    @property
    def charts(self):
        """What the page's script reads."""
        return {chart["id"]: chart for chart in json.loads(self.scripts[0])["charts"]}

    @property
    def words(self):
        return " ".join(" ".join(self.text).split())  # a no-break space is a space here


def three_runs(folder, layers=LAYERS, long=("conv.weight",)):
    return [
        write_run(folder / "fast", policy="fast", accuracy=0.9, layers=layers),
        write_run(folder / "slow", policy="slow", accuracy=0.7, layers=layers),
        write_run(
            folder / "lama", policy="fedlama", accuracy=0.8, layers=layers, long=long
        ),
    ]


def hostile_runs(folder):
    """Every text that comes from others, at its worst: markup, mathematics, other scripts, no end."""
    layers = {f"{HOSTILE}.weight": 80, "$x^{$.weight": 4, "层.weight": 10, "a" * 90: 6}
    return [
        write_run(
            folder / "<img src=x onerror=alert(1)>",
            policy="fast",
            layers=layers,
            data={"name": HOSTILE},
        ),
        write_run(
            folder / "b",
            layers=layers,
            data={"name": "&amp; \" ' " + "long" * 30},
            versions={HOSTILE: HOSTILE},
        ),
        write_run(folder / "c", layers=layers, data={"name": HOSTILE}, finished=False),
    ]


def fair_runs(folder):
    """Coded messages, clients one by one, a metric of somebody's own, and a name that is too long."""
    metric = {"metric_name": f"{HOSTILE} \x1b score", "higher_is_better": True}
    scores = {
        "on": "test",
        "mean": 0.7,
        "worst_decile": 0.4,
        "spread": 0.1,
        "scores": [0.4, 0.7, 1.0],
    }
    more = {"accuracy": None, "metrics": {"score": 0.7}, "clients": scores}
    runs = [
        write_run(
            folder / "plain", policy="fedavg", accuracy=None, train=metric, more=more
        ),
        write_run(
            folder / "coded",
            bits=4,
            uplink={"codec": "quantize", "bits": 4},
            accuracy=None,
            train=metric,
            more=more,
        ),
    ]
    for run in runs:
        records = [
            json.loads(line)
            for line in (run.path / "rounds.jsonl").read_text().splitlines()
        ]
        for record in records:
            if record["test_loss"] is not None:
                record["metrics"] = {"score": record["step"] / 96}
        lines = [json.dumps(record) for record in records]
        (run.path / "rounds.jsonl").write_text("\n".join(lines) + "\n")
    return [
        replace(
            load_run(run.path),
            setting=f"setting {run.path.name} " + "of a long name " * 8,
        )
        for run in runs
    ]


def deep_runs(folder):
    layers = {
        f"stage{place // 20}.block{place // 4}.conv{place}.weight": 100 + place
        for place in range(68)
    }
    return three_runs(folder, layers, long=list(layers)[40:])


def drawn(runs, out, pictures=("report.png",), **options):
    page = draw_report(runs, out, **options)
    assert page == out / "report.html"
    assert sorted(path.name for path in out.iterdir()) == sorted(
        ["report.html", *pictures]
    )
    return Page(page.read_text(encoding="utf-8"))


def test_page_holds_sentence_table_layers_and_configuration(tmp_path):
    runs = three_runs(tmp_path / "runs")
    page = drawn(runs, tmp_path / "out")
    assert all(sentence in page.words for sentence in verdict_sentences(compare(runs)))
    assert "FedLAMA(6, 4) 80.00 % −10.00 40.00 % 2.56 kB 2.56 kB 1" in page.words
    assert "conv.weight 80 80.00 % 8 5.12 kB 2 1.28 kB 2 1.28 kB" in page.words
    assert "all 100 6.40 kB 1.60 kB 2.56 kB" in page.words
    assert 'name = "digits"' in page.words
    assert "fedlama 0.0" in page.words
    assert "../runs/lama" in page.words


def test_the_bars_stand_under_the_costs(tmp_path):
    page = draw_report(three_runs(tmp_path / "runs"), tmp_path / "out")
    text = page.read_text(encoding="utf-8")
    barred = re.findall(
        r'<td>([^<]*)<span class="bar"><span style="width: (\S+)%', text
    )
    assert barred == [
        ("100.00\xa0%", "100.0"),
        ("25.00\xa0%", "25.0"),
        ("40.00\xa0%", "40.0"),
    ]


def test_page_needs_nothing_from_elsewhere(tmp_path):
    page = drawn(three_runs(tmp_path / "runs"), tmp_path / "out")
    inner = [
        link for link in page.links if not link.startswith("data:image/png;base64,")
    ]
    assert all(link.startswith("#") for link in inner)
    assert not page.tags & {"link", "img", "iframe", "object", "embed"}
    assert len(page.ids) == len(set(page.ids))
    assert {link[1:] for link in inner} <= set(page.ids)


def test_hostile_text_stays_text(tmp_path):
    runs = hostile_runs(tmp_path / "runs")
    labels = {run.path: f"{HOSTILE} {number}" for number, run in enumerate(runs)}
    page = drawn(runs, tmp_path / "out", ("report.png", "report-2.png"), labels=labels)
    assert "img" not in page.tags
    own = [
        (STATIC / name).read_text(encoding="utf-8")
        for name in ("echarts.js", "charts.js", "page.js")
    ]
    assert page.scripts[1:] == own  # and the first is data
    assert any(
        HOSTILE in setting["name"]
        for setting in page.charts["accuracy-over-steps"]["series"]
    )
    assert HOSTILE in page.words
    assert "<img src=x onerror=alert(1)>" in page.words


def test_the_same_runs_give_the_same_files(tmp_path):
    runs = three_runs(tmp_path / "runs")
    for name in ("one", "two"):
        draw_report(runs, tmp_path / name)
    for file in ("report.html", "report.png"):
        assert (tmp_path / "one" / file).read_bytes() == (
            tmp_path / "two" / file
        ).read_bytes()


def test_picture_has_content_and_is_a_whole_svg(tmp_path):
    comparison = compare(three_runs(tmp_path / "runs"))
    root = ElementTree.fromstring(svg(report_figure(comparison)))
    words = " ".join(root.itertext())
    for wanted in (
        "Accuracy over steps",
        "Accuracy over bytes sent",
        "Aggregations per layer",
        "conv.weight",
        "80.0 %",
    ):
        assert wanted in words
    draw_report(three_runs(tmp_path / "more"), tmp_path / "out")
    content = (tmp_path / "out" / "report.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    assert len(content) > 20_000


def test_every_one_of_68_layers_has_its_name_and_place(tmp_path):
    runs = deep_runs(tmp_path / "runs")
    comparison = compare(runs)
    figure = layers_figure(drawn_rows(comparison), comparison, "aggregations")
    figure.draw_without_rendering()
    labels = figure.axes[0].get_yticklabels()
    names = [layer.name for layer in comparison.settings[0].layers]
    assert [label.get_text() for label in labels] == names
    boxes = [label.get_window_extent() for label in labels]
    assert all(upper.y0 >= lower.y1 - 1 for upper, lower in pairwise(boxes))
    words = drawn(runs, tmp_path / "out").words
    assert all(name in words for name in names)


def test_of_a_very_deep_model_the_largest_layers_are_drawn(tmp_path):
    layers = {f"layer{place}": 10 + place for place in range(130)}
    comparison = compare([write_run(tmp_path / "run", layers=layers)])
    figure = layers_figure(drawn_rows(comparison), comparison, "aggregations")
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names == [f"layer{place}" for place in range(30, 130)]
    # The title says which they are, and nothing says it twice.
    chart = layer_chart(comparison, "aggregations")
    assert "the 100 largest of 130 layers" in chart.title
    assert "130 layers" not in figure.axes[0].get_xlabel()
    panel = Figure().subplots()
    draw_layers(panel, drawn_rows(comparison), comparison)
    assert "the 100 largest of 130 layers" in panel.get_xlabel()


def test_crossing_of_the_last_cycle(tmp_path):
    """d = 1/80, 2/4, 3/16 and sizes 80, 4, 16: masses 1, 2, 3, in the order conv.weight, fc.weight, conv.bias."""
    (crossing,) = crossings(compare(three_runs(tmp_path)))
    # The rule walks what may be lengthened, no biases
    assert crossing.names == ["conv.weight", "fc.weight"]
    assert crossing.delta == pytest.approx([1 / 6, 4 / 6])
    assert crossing.kept == pytest.approx([0.2, 0.04])
    # 1 − λ < δ first at fc.weight: 0.04 < 4/6
    assert crossing.lengthened == [True, True]
    assert crossing.lengthened_share == pytest.approx(0.96)
    assert crossing.step == 48


def test_the_crossing_says_what_its_axes_and_its_dotted_line_are(tmp_path):
    (crossing,) = crossings(compare(three_runs(tmp_path)))
    (axes,) = crossing_figure(crossing).axes
    assert axes.get_ylabel() == "δ and 1 − λ"
    # Two of three layers are walked
    assert axes.get_xlabel().startswith("kernels, by ascending discrepancy")
    assert "dotted: the last that is averaged less often" in axes.get_xlabel()
    (dotted,) = [line for line in axes.get_lines() if line.get_linestyle() == ":"]
    assert list(dotted.get_xdata()) == [2, 2]


def test_single_and_unfinished_and_empty_runs_have_a_page(tmp_path):
    single = write_run(tmp_path / "single", accuracy=None)
    assert "a loss of 0.125" in drawn([single], tmp_path / "a").words
    going = write_run(tmp_path / "going", finished=False)
    assert "unfinished, step 24 of 48" in drawn([going], tmp_path / "b").words
    (going.path / "rounds.jsonl").unlink()
    assert (
        "There is nothing evaluated yet."
        in drawn([load_run(going.path)], tmp_path / "c").words
    )


def test_a_file_is_no_folder_for_a_report(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(InputError, match="taken is a file"):
        draw_report([write_run(tmp_path / "run")], tmp_path / "taken")


def test_the_charting_library_is_the_one_that_notice_names():
    """Built from echarts-entry.js; a new build changes the digest here and in NOTICE."""
    assert (
        hashlib.sha256((STATIC / "echarts.js").read_bytes()).hexdigest()
        == ECHARTS_SHA256
    )
    notice = (Path(__file__).parents[2] / "NOTICE").read_text(encoding="utf-8")
    assert ECHARTS_SHA256 in notice
    version = re.search(r"Apache ECharts ([0-9.]+)", notice)[1]
    assert (
        f"Apache ECharts {version}"
        in (STATIC / "echarts.js").read_text(encoding="utf-8")[:200]
    )
    assert f"echarts@{version}" in (STATIC / "echarts-entry.js").read_text(
        encoding="utf-8"
    )


def test_no_text_ends_the_data_early(tmp_path):
    ending = "</script><script>alert(1)</script><!--"
    runs = [write_run(tmp_path / "a"), write_run(tmp_path / "b", data={"name": ending})]
    labels = {runs[0].path: ending}
    page = drawn(runs, tmp_path / "out", ("report.png", "report-2.png"), labels=labels)
    assert any(
        ending in series["name"]
        for series in page.charts["accuracy-over-steps"]["series"]
    )
    assert len(page.scripts) == 4


def test_charts_hold_the_numbers_that_were_recorded(tmp_path):
    charts = drawn(three_runs(tmp_path / "runs"), tmp_path / "out").charts
    assert list(charts) == [
        "frontier",
        "accuracy-over-steps",
        "accuracy-over-bytes",
        "test-loss-over-steps",
        "training-loss-over-steps",
        "aggregations-by-layer",
        "bytes-by-layer",
        "crossing-1",
        "intervals-1",
        "network",
        "partition",
    ]
    assert charts["accuracy-over-steps"]["rows"][-1] == [
        "FedLAMA(6, 4)",
        48,
        2560,
        0.8,
        0.8,
        0.8,
    ]
    assert charts["test-loss-over-steps"]["rows"][-1] == [
        "FedLAMA(6, 4)",
        48,
        2560,
        1 / 8,
        1 / 8,
        1 / 8,
    ]
    losses = [
        row[3]
        for row in charts["training-loss-over-steps"]["rows"]
        if row[0] == "FedLAMA(6, 4)"
    ]
    assert losses == [1 / number for number in range(1, 9)]  # one per round
    assert ["FedLAMA(6, 4)", "conv.weight", 80, 0.8, 2] in charts[
        "aggregations-by-layer"
    ]["rows"]
    assert ["FedLAMA(6, 4)", "conv.weight", 80, 0.8, 1280, 32] in charts[
        "bytes-by-layer"
    ]["rows"]
    assert charts["intervals-1"]["rows"] == [
        ["conv.weight", 1, 2, 24],
        ["conv.bias", 1, 2, 6],
        ["fc.weight", 1, 2, 6],
    ]
    # Digits, four fifths of 1797
    assert sum(row[2] for row in charts["partition"]["rows"]) == 1437


def test_intervals_are_spans_of_cycles(tmp_path):
    run = write_run(tmp_path / "run")
    # Two cycles of four rounds: the first layer becomes long in the second
    intervals = {1: [6, 6, 6], 2: [24, 6, 6]}
    records = [
        replace(record, intervals=intervals[record.cycle]) for record in run.records
    ]
    (one,) = interval_maps(compare([replace(run, records=records)]))
    assert [
        (span.layer, span.first, span.last, span.interval) for span in one.spans
    ] == [
        ("conv.weight", 1, 1, 6),
        ("conv.weight", 2, 2, 24),
        ("conv.bias", 1, 2, 6),
        ("fc.weight", 1, 2, 6),
    ]


def test_data_that_is_not_there_is_said(tmp_path):
    page = drawn(
        [write_run(tmp_path / "run", data={"name": "nowhere.npz"})], tmp_path / "out"
    )
    assert (
        "is left out, because the data cannot be loaded: data.name = 'nowhere.npz': nowhere.npz"
        in page.words
    )
    assert "partition" not in page.charts


def test_a_broken_record_of_the_partition_is_said_to_be_that(tmp_path):
    run = write_run(tmp_path / "run")
    (run.path / "partition.json").write_text("{}")
    page = drawn([run], tmp_path / "out")
    assert "left out, because what the run recorded cannot be read: " in page.words
    assert "partition.json is not one of a run" in page.words
    assert "the data cannot be loaded" not in page.words
    assert "partition" not in page.charts


def test_the_partition_is_that_of_the_samples_that_were_trained_on(tmp_path):
    """1,437 training samples of the digits, of which a fifth is held out: 287 of them, 1,150 are left."""
    changes = {
        "data": {"validation": 0.2},
        "partition": {"kind": "dirichlet", "clients": 8, "alpha": 0.5},
    }
    charts = drawn([write_run(tmp_path / "run", **changes)], tmp_path / "out").charts
    assert sum(row[2] for row in charts["partition"]["rows"]) == 1150


def test_a_model_of_which_no_layer_may_be_lengthened_has_no_crossing(tmp_path):
    run = write_run(tmp_path / "run", layers={"a.bias": 4, "b.bias": 6})
    page = drawn([run], tmp_path / "out")
    assert "crossing-1" not in page.charts


def test_runs_of_two_experiments_have_a_part_of_the_page_each(tmp_path):
    runs = [
        *three_runs(tmp_path / "uneven"),
        write_run(
            tmp_path / "even" / "fast",
            policy="fast",
            accuracy=0.5,
            data={"validation": 0.2},
        ),
        write_run(
            tmp_path / "even" / "lama",
            policy="fedlama",
            accuracy=0.4,
            data={"validation": 0.2},
        ),
    ]
    page = drawn(runs, tmp_path / "out", ("report.png", "report-2.png"))
    assert "These runs are 2 experiments." in page.words
    assert "held out for validation 0.0" in page.words
    assert "held out for validation 0.2" in page.words
    assert "reached 80.0 % against 90.0 %" in page.words
    assert "reached 40.0 % against 50.0 %" in page.words
    assert "40.0 % against 90.0 %" not in page.words
    for name in ("accuracy-over-steps", "network", "partition"):
        assert page.charts[name]["group"] == 1
        assert page.charts[f"group2-{name}"]["group"] == 2
    assert json.loads(page.scripts[0])["settings"] == {
        "1": ["FedAvg(6)", "FedAvg(24)", "FedLAMA(6, 4)"],
        "2": ["FedAvg(6)", "FedLAMA(6, 4)"],
    }
    # And its second picture is gone
    assert drawn(runs[:3], tmp_path / "out").words.count("experiments") == 0


def test_the_contents_lead_to_every_section(tmp_path):
    page = drawn(three_runs(tmp_path / "runs"), tmp_path / "out")
    sections = (
        "equal-bytes",
        "curves",
        "layers",
        "crossing",
        "intervals",
        "numbers",
        "network",
        "clients",
    )
    for section in (*sections, "configurations"):
        assert f"#{section}-1" in page.links


def test_curves_have_their_whole_range_beside_the_late_one(tmp_path):
    """Means of 45, 35 and 40 % after the first cycle, 90, 70 and 80 % after the second: both halves of the run."""
    charts = drawn(three_runs(tmp_path / "runs"), tmp_path / "out").charts
    # From 1 in the first round down to 1/8
    full = charts["training-loss-over-steps"]["full"]
    late = charts["training-loss-over-steps"]["y"]  # from 1/4 in the fourth
    assert (full["min"], full["max"]) == (0.0, 1.0)
    assert (late["min"], late["max"]) == (0.1, 0.25)


def test_a_long_curve_is_thinned_and_keeps_its_end(tmp_path):
    run = write_run(tmp_path / "run")
    (curve,) = [setting.training_loss for setting in compare([run]).settings]
    long = replace(curve, steps=list(range(1, 1002)))
    for values in ("uplink_bytes", "mean", "low", "high"):
        long = replace(long, **{values: list(range(1001))})
    setting = replace(compare([run]).settings[0], training_loss=long)
    thin = TRAINING_LOSS.curve(setting)
    assert len(thin.steps) == 334  # every third of 1,001, the last among them
    assert (thin.steps[-1], thin.mean[-1]) == (1001, 1000)
    assert TRAINING_LOSS.curve(compare([run]).settings[0]) == curve


def test_many_layers_can_be_reduced_to_the_kernels(tmp_path):
    layers = {
        f"block{place}.{part}": 10 for place in range(12) for part in ("weight", "bias")
    }
    charts = drawn(
        [write_run(tmp_path / "run", layers=layers)], tmp_path / "out"
    ).charts
    assert charts["aggregations-by-layer"]["kernels"] == [
        f"block{place}.weight" for place in range(12)
    ]
    charts = drawn(three_runs(tmp_path / "few"), tmp_path / "out").charts
    assert charts["aggregations-by-layer"]["kernels"] == []


def test_the_page_says_when_and_how_long(tmp_path):
    run = write_run(tmp_path / "run", versions={"machine": "x86_64"})
    os.utime(run.path / "summary.json", (0, 86400))
    page = drawn([run], tmp_path / "out")
    assert "Finished 1970-01-02; a run took 1 s." in page.words
    assert "finished 1970-01-02 a run took 1 s machine x86_64" in page.words


def test_the_partition_tells_how_much_each_client_has(tmp_path):
    partition = {"kind": "dirichlet", "clients": 8, "alpha": 0.5}
    chart = drawn(
        [write_run(tmp_path / "run", partition=partition)], tmp_path / "out"
    ).charts["partition"]
    sizes = [
        sum(row[2] for row in chart["rows"] if row[0] == client) for client in range(8)
    ]
    assert chart["sizes"] == sizes
    assert sum(sizes) == 1437


def test_a_page_reads_itself_again_only_while_runs_are_going(tmp_path):
    run = write_run(tmp_path / "run", finished=False)
    page = draw_report([run], tmp_path / "out", view=View(refresh=5)).read_text(
        encoding="utf-8"
    )
    assert '<meta http-equiv="refresh" content="5">' in page
    assert json.loads(Page(page).scripts[0])["refresh"] == 5
    page = draw_report([run], tmp_path / "out").read_text(encoding="utf-8")
    assert 'http-equiv="refresh"' not in page
    assert json.loads(Page(page).scripts[0])["refresh"] is None


def coded_runs(folder):
    """FedAvg as it is, and with four bits for each number."""
    return [
        write_run(folder / "plain", policy="fedavg"),
        write_run(
            folder / "coded",
            policy="fedavg",
            bits=4,
            uplink={"codec": "quantize", "bits": 4},
        ),
    ]


def test_bits_are_told_where_messages_are_coded(tmp_path):
    runs = coded_runs(tmp_path / "runs")
    comparison = compare(runs)
    # 80 numbers, 8 times, from 2 clients: 640 bytes are 4 bits for each
    assert [layer.bits for layer in comparison.settings[1].layers] == [4.0, 4.0, 4.0]
    table = layer_table(comparison)
    assert table.headings == [["averaged", "uplink"], ["averaged", "uplink", "bits"]]
    assert table.rows[0].counts == [["8", "5.12 kB"], ["8", "640 B", "4"]]
    page = drawn(runs, tmp_path / "out")
    assert "a number as it is takes 32" in page.words
    assert ["FedAvg(6) + Quantize(4)", "conv.weight", 80, 0.8, 640, 4.0] in page.charts[
        "bytes-by-layer"
    ]["rows"]


def test_without_codes_no_bits_and_no_share_of_the_uplink_are_told(tmp_path):
    page = drawn(three_runs(tmp_path / "runs"), tmp_path / "out")
    assert "a number as it is takes 32" not in page.words
    assert "uplink, of" not in page.words


def test_bits_are_not_known_without_the_number_of_clients(tmp_path):
    unknown = write_run(
        tmp_path / "run", participation={"active": 0.5}, partition={"kind": "natural"}
    )
    assert [layer.bits for layer in compare([unknown]).settings[0].layers] == [
        None,
        None,
        None,
    ]


def test_where_messages_are_coded_the_table_has_their_share(tmp_path):
    comparison = compare(coded_runs(tmp_path / "runs"))
    assert headings(comparison) == [
        "setting",
        "accuracy",
        "− FedAvg(6)",
        "cost, of FedAvg(6)",
        "uplink",
        "uplink, of FedAvg(6)",
        "downlink",
        "seeds",
    ]
    assert cells(comparison.settings[1], comparison)[3:7] == [
        "100.00 %",
        "800 B",
        "12.5 %",
        "6.40 kB",
    ]
    # Its name says it
    assert "uplink.codec" not in " ".join(verdict_sentences(comparison))


def test_intervals_that_never_change_are_a_sentence(tmp_path):
    page = drawn([write_run(tmp_path / "run")], tmp_path / "out")
    assert "intervals-1" not in page.charts
    assert (
        "FedLAMA(6, 4) averaged every layer every 6 steps, from first to last."
        in page.words
    )


def test_what_is_no_result_says_so_everywhere(tmp_path):
    run = write_run(tmp_path / "study" / "run" / "seed0")
    index = {
        "baseline": None,
        "labels": {"run/seed0": "tiny"},
        "choices": {},
        "diverged": {},
        "note": "No result.",
    }
    (tmp_path / "study" / "study.json").write_text(json.dumps(index))
    run = load_run(run.path)
    comparison = compare([run])
    page = drawn([run], tmp_path / "out")
    assert page.words.index("No result.") < page.words.index("tiny reached")
    assert verdict(comparison).startswith("No result. ")
    assert notes(comparison)[0] == "No result."
    assert "No result." in markdown_table(comparison)
    assert "No result." in svg(report_figure(comparison))
    assert (
        study_grid(comparison, read_index(tmp_path / "study")).records[0]["note"]
        == "No result."
    )


def test_the_page_names_the_type_of_processor(tmp_path):
    run = write_run(
        tmp_path / "run", versions={"machine": "x86_64", "cpu": "A Processor, AVX2"}
    )
    assert "machine A Processor, AVX2" in drawn([run], tmp_path / "out").words


def test_a_metrics_name_is_text_wherever_it_stands(tmp_path):
    page = drawn(fair_runs(tmp_path / "runs"), tmp_path / "out")
    assert HOSTILE in page.words  # as text
    assert all("\x1b" not in text for text in page.text)
    assert all(re.fullmatch(r"[a-zA-Z0-9-]+", name) for name in page.charts)
    assert "metric-over-steps" in page.charts
    assert page.charts["clients"]["rows"][0][1:] == [pytest.approx(1 / 3), 0.4]
