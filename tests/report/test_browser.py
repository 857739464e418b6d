"""The page in a real browser: what it shows, what it says when touched, and that it fits."""

import json
import re

import pytest
from browser import CHROMIUM, browser
from hand_made import write_run
from test_page import HOSTILE, deep_runs, fair_runs, hostile_runs, three_runs

from fedlama.report import draw_report
from fedlama.report.numbers.network import Network
from fedlama.report.page.draw import View
from fedlama.report.words.units import bandwidth_text

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        CHROMIUM is None,
        reason="chromium is not on PATH: the page was not looked at in a browser",
    ),
]
COLOURS = ("#0072b2", "#d55e00", "#009e73")  # of the first three settings
OVERFLOW = "document.documentElement.scrollWidth"
TIP = "[...document.querySelectorAll('.tip')].map(tip => tip.innerText).join(' ')"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """Ordinary, hostile and deep runs, each with its page."""
    made = {}
    for make in (three_runs, hostile_runs, deep_runs, fair_runs):
        folder = tmp_path_factory.mktemp(make.__name__)
        made[make.__name__] = draw_report(make(folder / "runs"), folder / "out")
    return made


def plain(text):
    return re.sub(r"\s+", " ", text)


def chart_middle(page, chart):
    """Where the middle of a chart is, with it in sight."""
    page.value(
        f"document.getElementById('chart-{chart}').scrollIntoView({{block: 'center'}})"
    )
    box = f"document.querySelector('#chart-{chart} .drawing').getBoundingClientRect()"
    return page.value(f"(({{x, y, width, height}}) => [x, y, width, height])({box})")


def hover(page, chart, across, down):
    """The pointer over a chart, at parts of its width and height."""
    left, top, width, height = chart_middle(page, chart)
    page.hover(left + across * width, top + down * height)


def says(page, text):
    """Whether a tooltip shows this, in a moment."""
    return page.until(f"{TIP}.replace(/\\s+/g, ' ').includes({json.dumps(text)})")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize(
    "name", ["three_runs", "hostile_runs", "deep_runs", "fair_runs"]
)
def test_nothing_overflows_or_complains(page, reports, name, dark):
    page.complaints.clear()
    for width in (380, 1280):
        page.open(reports[name], width=width, dark=dark)
        page.value(
            "document.querySelectorAll('details').forEach(part => part.open = true)"
        )
        assert page.value(OVERFLOW) == width
        drawn = page.value(
            "[...document.querySelectorAll('.drawing')].map(one => one.querySelectorAll('svg path').length)"
        )
        assert len(drawn) >= 6
        assert all(drawn)
    assert page.complaints == []
    # No alert(1) has run: it would still be open
    assert page.value("document.title").startswith("fedlama report")


def test_colours_follow_the_reader(page, reports):
    paper = "document.querySelector('#chart-network .drawing svg rect').getAttribute('fill')"
    page.open(reports["three_runs"])
    assert page.value(paper) in ("#fff", "#ffffff", "rgb(255,255,255)")
    scheme = [{"name": "prefers-color-scheme", "value": "dark"}]
    # While the page is open
    page.call("Emulation.setEmulatedMedia", media="", features=scheme)
    assert page.until(f"{paper} === '#14181e'")


def test_numbers_on_the_page_are_those_of_the_summaries(page, reports):
    page.open(reports["three_runs"])
    script = (
        "[...document.querySelectorAll('table.settings tbody tr')]"
        ".map(row => [...row.cells].map(c => c.innerText))"
    )
    rows = {
        plain(row[0]).strip(): [plain(cell).strip() for cell in row[1:]]
        for row in page.value(script)
    }
    runs = reports["three_runs"].parents[1] / "runs"
    # Accuracies of 0.9, 0.7 and 0.8
    differences = {"FedAvg(6)": "–", "FedAvg(24)": "−20.00", "FedLAMA(6, 4)": "−10.00"}
    for label, name in {
        "FedAvg(6)": "fast",
        "FedAvg(24)": "slow",
        "FedLAMA(6, 4)": "lama",
    }.items():
        summary = json.loads((runs / name / "summary.json").read_text())
        accuracy, difference, _, uplink, downlink, _ = rows[label]
        # One seed has no error
        assert difference == differences[label]
        assert accuracy == f"{100 * summary['accuracy']:.2f} %"
        assert (uplink, downlink) == (f"{summary['uplink_bytes'] / 1000:.2f} kB",) * 2
        last = (
            f"fedlamaReport.charts[1].rows.filter(row => row[0] === {label!r}).at(-1)"
        )
        assert page.value(last)[2:4] == [summary["uplink_bytes"], summary["accuracy"]]


def test_hovering_gives_values(page, reports):
    page.open(reports["three_runs"])
    assert page.value(TIP) == ""
    hover(page, "accuracy-over-steps", 0.92, 0.4)  # the last evaluation, at step 48
    assert says(page, "step 48 FedAvg(6) bytes sent 6.4 kB · accuracy 90.00 %")
    assert says(page, "FedLAMA(6, 4) bytes sent 2.56 kB · accuracy 80.00 %")
    hover(page, "aggregations-by-layer", 0.6, 0.2)
    assert says(
        page, "conv.weight FedAvg(6) times averaged 8 · share of the model 80.00 %"
    )
    assert says(page, "FedLAMA(6, 4) times averaged 2 · share of the model 80.00 %")
    hover(page, "intervals-1", 0.6, 0.2)
    assert says(
        page, "layer: conv.weight first cycle: 1 last cycle: 2 interval in steps: 24"
    )
    hover(page, "network", 0.5, 0.5)
    assert says(page, "uplink in bit/s")
    hover(page, "crossing-1", 0.3, 0.5)
    assert says(page, "lengthened true")


def test_a_tooltip_goes_with_the_pointer(page, reports):
    page.open(reports["three_runs"])
    hover(page, "aggregations-by-layer", 0.6, 0.2)
    assert says(page, "times averaged 8")
    hover(page, "network", 0.5, 0.5)
    assert says(page, "uplink in bit/s")
    assert page.until(f"!{TIP}.includes('times averaged')")
    page.hover(2, 2)
    assert page.until(f"{TIP}.trim() === ''")


@pytest.mark.parametrize("uplink", [1e6, 1e9])
def test_the_mark_of_a_bandwidth_stays_between_the_axis_ends(page, tmp_path, uplink):
    network = Network(uplink=uplink, downlink=uplink)
    page.open(
        draw_report(
            three_runs(tmp_path / "runs"), tmp_path / "out", view=View(network=network)
        )
    )
    name = json.dumps(plain(bandwidth_text(uplink)))
    boxes = page.value(
        "[...document.querySelectorAll('#chart-network .drawing svg text')]"
        f".filter(one => one.textContent.replace(/\\s/g, ' ') === {name})"
        ".map(one => one.getBoundingClientRect()).map(({left, right, top}) => [top, left, right])"
    )
    # The mark's name is on top, the axis' at the bottom
    (_, left, right), (_, tick_left, tick_right) = sorted(boxes)
    end = (tick_left + tick_right) / 2
    assert left > end - 2 if uplink == 1e6 else right < end + 2


def test_hostile_names_are_text_in_a_tooltip(page, reports):
    page.open(reports["hostile_runs"])
    hover(page, "aggregations-by-layer", 0.8, 0.1)  # right of the names
    assert says(page, HOSTILE)
    assert page.value("document.querySelectorAll('.tip script, .tip img').length") == 0


def test_charts_are_saved_and_their_numbers_taken(page, reports, tmp_path):
    page.open(reports["three_runs"])
    text = page.value(
        "fedlamaReport.csv(fedlamaReport.charts.find(chart => chart.id === 'frontier'))"
    )
    first, *rows = text.split("\r\n")
    assert (
        first
        == "setting,bytes up and down,accuracy,standard deviation,mean − deviation,mean + deviation"
    )
    assert '"FedLAMA(6, 4)",5120,0.8,,,' in rows
    pictures = page.value("fedlamaReport.charts.map(fedlamaReport.picture)")
    assert all(
        picture.startswith("<svg") and "</svg>" in picture for picture in pictures
    )
    assert all("FedLAMA(6, 4)" in picture for picture in pictures[:5])
    # The library's own colours: a legend that does not know its lines
    default = ("#5070dd", "#b6d634", "#505372")
    assert not any(colour in picture for colour in default for picture in pictures)
    page.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    for kind in ("svg", "png", "csv"):
        page.value(
            f"document.querySelector('#chart-network [data-save={kind}]').click()"
        )
    wanted = {
        "network.svg": b"<svg",
        "network.png": b"\x89PNG",
        "network.csv": b"setting,uplink",
    }
    for _ in range(200):  # written after the click, under another name first
        if {path.name for path in tmp_path.iterdir()} == set(wanted):
            break
        page.value("new Promise(done => setTimeout(done, 50))")
    assert all(
        (tmp_path / name).read_bytes().startswith(start)
        for name, start in wanted.items()
    )


def test_without_scripts_and_on_paper_there_are_still_pictures(page, reports):
    shown = """[...document.querySelectorAll('{}')].filter(one => one.getBoundingClientRect().height > 50).length"""
    page.open(reports["three_runs"])
    charts = page.value("fedlamaReport.charts.length")
    assert page.value(shown.format(".drawing")) == charts
    assert page.value(shown.format(".still")) == 0
    page.call("Emulation.setEmulatedMedia", media="print", features=[])
    assert (
        page.value(shown.format(".drawing")),
        page.value(shown.format(".still")),
    ) == (0, charts)
    page.open(reports["three_runs"], scripts=False)
    document = page.call("DOM.getDocument")["root"]["nodeId"]
    stills = page.call("DOM.querySelectorAll", nodeId=document, selector=".still")[
        "nodeIds"
    ]
    heights = [
        page.call("DOM.getBoxModel", nodeId=node)["model"]["height"] for node in stills
    ]
    assert len(heights) == charts
    assert min(heights) > 50


def test_a_page_of_runs_that_are_going_reads_itself_again(page, tmp_path):
    run = write_run(tmp_path / "run", finished=False)
    path = draw_report([run], tmp_path / "out", view=View(refresh=1))
    page.open(path)
    page.value("window.seen = true")
    page.loaded = False
    page.wait_for_load()
    assert page.value("window.seen") is None


def lines_of(page, chart):
    """The colours of the lines that a chart draws."""
    paths = f"[...document.querySelectorAll('#chart-{chart} .drawing svg path')]"
    return set(page.value(f"{paths}.map(path => path.getAttribute('stroke'))"))


def test_one_legend_shows_and_hides_a_setting_in_all_charts(page, reports):
    page.open(reports["three_runs"])
    orange = "#d55e00"  # of the second setting, FedAvg(24)
    charts = ("accuracy-over-steps", "accuracy-over-bytes", "network")
    assert all(orange in lines_of(page, chart) for chart in charts)
    page.value("document.querySelector('.legend [data-setting=\"1\"]').click()")
    assert not any(orange in lines_of(page, chart) for chart in charts)
    assert (
        page.value("document.querySelector('.legend [data-setting=\"1\"]').ariaPressed")
        == "false"
    )
    # The one with a decision of its own
    page.value("document.querySelector('.legend [data-setting=\"2\"]').click()")
    assert (
        page.value(
            "document.getElementById('chart-crossing-1').getBoundingClientRect().height"
        )
        == 0
    )
    page.value(
        "document.querySelectorAll('.legend [aria-pressed=false]').forEach(button => button.click())"
    )
    assert all(orange in lines_of(page, chart) for chart in charts)
    assert (
        page.value(
            "document.getElementById('chart-crossing-1').getBoundingClientRect().height"
        )
        > 100
    )
    assert page.complaints == []


def test_the_band_of_the_fastest_goes_with_its_setting(page, reports):
    page.open(reports["three_runs"])
    strips = "fedlamaReport.charts.find(chart => chart.id === 'network').bands.map(band => band.name)"
    fastest = page.value(strips)
    assert fastest
    fills = "[...document.querySelectorAll('#chart-network .drawing svg path')].map(path => path.getAttribute('fill'))"
    before = [fill for fill in page.value(fills) if fill in COLOURS]
    assert len(before) == len(fastest)
    page.value(
        "document.querySelectorAll('.legend [data-setting]').forEach(button => button.click())"
    )
    assert not [fill for fill in page.value(fills) if fill in COLOURS]


def test_curves_switch_between_the_late_and_the_whole_range(page, reports):
    page.open(reports["three_runs"])
    texts = (
        "[...document.querySelectorAll('#chart-training-loss-over-steps .drawing svg text')]"
        ".map(t => t.textContent)"
    )
    assert "0.25" in page.value(texts)  # the loss after half of the run
    assert "1" not in page.value(texts)
    page.value("document.querySelector('[data-range]').click()")
    assert "1" in page.value(texts)  # and after the first round
    page.value("document.querySelector('[data-range]').click()")
    assert "1" not in page.value(texts)


def test_many_layers_are_reduced_to_the_kernels_and_back(page, tmp_path):
    layers = {
        f"block{place}.{part}": 10 for place in range(12) for part in ("weight", "bias")
    }
    page.open(
        draw_report([write_run(tmp_path / "run", layers=layers)], tmp_path / "out")
    )
    names = "[...document.querySelectorAll('#chart-aggregations-by-layer .drawing svg text')].map(t => t.textContent)"
    height = (
        "document.querySelector('#chart-aggregations-by-layer .drawing').clientHeight"
    )
    before = page.value(height)
    assert "block3.bias" in page.value(names)
    page.value("document.querySelector('[data-kernels]').click()")
    assert "block3.bias" not in page.value(names)
    assert "block3.weight" in page.value(names)
    assert page.value(height) < before
    page.value("document.querySelector('[data-kernels]').click()")
    assert "block3.bias" in page.value(names)


def test_a_table_that_is_wider_than_a_phone_says_so(page, reports):
    shown = "[...document.querySelectorAll('.hint')].filter(hint => hint.getBoundingClientRect().height > 0).length"
    page.open(reports["three_runs"])
    assert page.value(shown) == 0
    page.open(reports["three_runs"], width=390)
    assert page.value(shown) == 3
    page.value(
        "document.querySelectorAll('.box').forEach(box => { box.scrollLeft = 10000; })"
    )
    assert page.until(f"{shown} === 0")


def test_clients_follow_the_legend_and_give_their_values(page, reports):
    page.open(reports["fair_runs"])
    blue = "#0072b2"  # of the first setting
    assert blue in lines_of(page, "clients")
    hover(page, "clients", 0.95, 0.5)
    assert says(page, "share of the clients 100.00 %")
    page.value("document.querySelector('.legend [data-setting=\"0\"]').click()")
    assert blue not in lines_of(page, "clients")
    assert page.complaints == []


def test_labels_of_the_two_axes_do_not_meet_where_they_begin(page, reports):
    page.open(reports["three_runs"], width=390)
    box = "(({x, y, width, height}) => [t.textContent, x, y, width, height])(t.getBoundingClientRect())"
    boxes = page.value(
        f"[...document.querySelectorAll('#chart-network .drawing svg text')].map(t => {box})"
    )
    for place, (name, x, y, width, height) in enumerate(boxes):
        for other, left, top, wide, high in boxes[place + 1 :]:
            apart = (
                x + width <= left + 1
                or left + wide <= x + 1
                or y + height <= top + 1
                or top + high <= y + 1
            )
            assert apart, f"{name!r} lies on {other!r}"


def test_tapping_gives_values(page, reports):
    """Last, because a screen that was touched once takes the mouse for a finger."""
    page.open(reports["three_runs"], width=380, touch=True)
    left, top, width, height = chart_middle(page, "frontier")
    page.tap(left + 0.9 * width, top + 0.5 * height)
    assert says(page, "FedAvg(6) accuracy 90.00 %")
    page.tap(left + 0.5 * width, top + height + 150)
    assert page.until(f"!{TIP}.includes('90.00 %')")
