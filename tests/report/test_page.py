"""The page and the pictures: complete, closed to hostile text, and no wider than the screen."""

import html
import shutil
import subprocess
from html.parser import HTMLParser
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hand_made import LAYERS, write_run

from fedlama.core import InputError
from fedlama.experiment.run_directory import load_run
from fedlama.report import compare, draw_report, verdict
from fedlama.report.crossings import crossings
from fedlama.report.plots import layers_figure, report_figure
from fedlama.report.style import svg

HOSTILE = "<script>alert(1)</script>"
VOID = {"meta", "link", "br", "img", "wbr", "hr"}


class Page(HTMLParser):
    """Text and links of a page; asserts that every element is closed in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.links, self.text, self.ids = [], set(), [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.links += [value for name, value in attrs if name in ("src", "href", "xlink:href")]
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
        if self.open and self.open[-1] != "style":
            self.text.append(data)

    @property
    def words(self):
        return " ".join(" ".join(self.text).split())  # a no-break space is a space here


def three_runs(folder, layers=LAYERS, long=("conv.weight",)):
    return [
        write_run(folder / "fast", policy="fast", accuracy=0.9, layers=layers),
        write_run(folder / "slow", policy="slow", accuracy=0.7, layers=layers),
        write_run(folder / "lama", policy="fedlama", accuracy=0.8, layers=layers, long=long),
    ]


def hostile_runs(folder):
    """Every text that comes from others, at its worst: markup, mathematics, other scripts, no end."""
    layers = {f"{HOSTILE}.weight": 80, "$x^{$.weight": 4, "层.weight": 10, "a" * 90: 6}
    return [
        write_run(folder / "<img src=x onerror=alert(1)>", policy="fast", layers=layers, data={"name": HOSTILE}),
        write_run(folder / "b", layers=layers, data={"name": "&amp; \" ' " + "long" * 30}, versions={HOSTILE: HOSTILE}),
        write_run(folder / "c", layers=layers, data={"name": HOSTILE}, finished=False),
    ]


def deep_runs(folder):
    layers = {f"stage{place // 20}.block{place // 4}.conv{place}.weight": 100 + place for place in range(68)}
    return three_runs(folder, layers, long=list(layers)[40:])


def drawn(runs, out):
    page = draw_report(runs, out)
    assert page == out / "report.html"
    assert sorted(path.name for path in out.iterdir()) == ["report.html", "report.png"]
    return Page(page.read_text(encoding="utf-8"))


def test_page_holds_sentence_table_layers_and_configuration(tmp_path):
    runs = three_runs(tmp_path / "runs")
    page = drawn(runs, tmp_path / "out")
    assert verdict(compare(runs)) in page.words
    assert "FedLAMA(6, 4) 80.00 % 40.00 % 2.56 kB 2.56 kB 1" in page.words
    assert "conv.weight 80 80.00 % 8 5.12 kB 2 1.28 kB 2 1.28 kB" in page.words
    assert "all 100 6.40 kB 1.60 kB 2.56 kB" in page.words
    assert 'name = "digits"' in page.words
    assert "fedlama 0.0" in page.words
    assert "../runs/lama" in page.words


def test_page_needs_nothing_from_elsewhere(tmp_path):
    page = drawn(three_runs(tmp_path / "runs"), tmp_path / "out")
    assert all(link.startswith("#") for link in page.links)
    assert not page.tags & {"script", "link", "img", "iframe"}
    assert len(page.ids) == len(set(page.ids))
    assert {link[1:] for link in page.links} <= set(page.ids)


def test_hostile_text_stays_text(tmp_path):
    runs = hostile_runs(tmp_path / "runs")
    page = drawn(runs, tmp_path / "out")
    assert not page.tags & {"script", "img"}
    assert HOSTILE in page.words
    assert "<img src=x onerror=alert(1)>" in page.words


def test_the_same_runs_give_the_same_files(tmp_path):
    runs = three_runs(tmp_path / "runs")
    for name in ("one", "two"):
        draw_report(runs, tmp_path / name)
    for file in ("report.html", "report.png"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


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
    figure = layers_figure(comparison)
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
    figure = layers_figure(compare([write_run(tmp_path / "run", layers=layers)]))
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names == [f"layer{place}" for place in range(30, 130)]
    assert "the 100 largest of 130 layers" in figure.axes[0].get_xlabel()


def test_crossing_of_the_last_cycle(tmp_path):
    """d = 1/80, 2/4, 3/16 and sizes 80, 4, 16: masses 1, 2, 3, in the order conv.weight, fc.weight, conv.bias."""
    (crossing,) = crossings(compare(three_runs(tmp_path)))
    assert crossing.names == ["conv.weight", "fc.weight"]  # the rule walks what may be lengthened, no biases
    assert crossing.delta == pytest.approx([1 / 6, 4 / 6])
    assert crossing.kept == pytest.approx([0.2, 0.04])
    assert crossing.lengthened == [True, True]  # 1 − λ < δ first at fc.weight: 0.04 < 4/6
    assert crossing.lengthened_share == pytest.approx(0.96)
    assert crossing.step == 48


def test_single_and_unfinished_and_empty_runs_have_a_page(tmp_path):
    single = write_run(tmp_path / "single", accuracy=None)
    assert "a loss of 0.125" in drawn([single], tmp_path / "a").words
    going = write_run(tmp_path / "going", finished=False)
    assert "unfinished, step 24 of 48" in drawn([going], tmp_path / "b").words
    (going.path / "rounds.jsonl").unlink()
    assert "nothing evaluated yet" in drawn([load_run(going.path)], tmp_path / "c").words


def test_a_file_is_no_folder_for_a_report(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(InputError, match="taken is a file"):
        draw_report([write_run(tmp_path / "run")], tmp_path / "taken")


# A frame has exactly the width it is given; a window has a least width of its own.
FRAME = """<!doctype html><body><iframe style="width: {width}px; height: 900px; border: 0" srcdoc="{page}" onload="
const page = this.contentDocument.documentElement;
document.body.dataset.fits = this.contentWindow.innerWidth + ' ' + page.scrollWidth"></iframe></body>"""
CHROMIUM = """chromium --headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking
--disable-component-update --disable-sync --hide-scrollbars --window-size=1300,1000 --dump-dom"""


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("chromium"), reason="chromium is not on PATH: the page's width was not measured")
@pytest.mark.parametrize("make", [three_runs, hostile_runs, deep_runs])
def test_page_is_no_wider_than_the_screen(tmp_path, make):
    page = draw_report(make(tmp_path / "runs"), tmp_path / "out").read_text(encoding="utf-8")
    opened = html.escape(page.replace("<details>", "<details open>"))
    for width in (380, 1200):
        frame = tmp_path / f"{width}.html"
        frame.write_text(FRAME.format(width=width, page=opened), encoding="utf-8")
        command = [*CHROMIUM.split(), f"--user-data-dir={tmp_path / 'profile'}", frame.as_uri()]
        result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        assert f'data-fits="{width} {width}"' in result.stdout
