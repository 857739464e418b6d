"""The scripts behind results/frontier.md and the README's first picture and table."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

RESULTS = Path(__file__).parents[2] / "results"


def said(program, *arguments):
    """What a program beside the scripts prints."""
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        cwd=RESULTS,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_the_readmes_picture_has_every_data_set_with_what_it_must_show():
    program = (
        "import json; from frontier_picture import picture; "
        "print(json.dumps([[t.get_text() for t in a.texts] for a in picture().axes]))"
    )
    panels = json.loads(said(program))
    assert len(panels) == 3
    for names in panels:
        for name in (
            "FedAvg(6)",
            "FedAvg(12)",
            "FedAvg(24)",
            "FedLAMA(6, 4)",
            "frugal",
        ):
            assert name in names
    for names in panels[:2]:
        text = " ".join(names)
        for name in ("FedLUAR", "FedPart", "top 1 %", "PowerSGD", "4 bits", "EDEN"):
            assert name in text


@pytest.mark.parametrize("table", ["short", "headline"])
def test_the_readmes_first_tables_are_what_the_runs_that_are_kept_say(table):
    program = f"from frontier_tables import {table}; print({table}())"
    readme = (RESULTS.parent / "README.md").read_text(encoding="utf-8")
    assert said(program) in readme


def test_every_table_of_the_page_is_what_the_runs_that_are_kept_say():
    program = (
        "import re; from frontier_tables import *; text = PAGE.read_text('utf-8')\n"
        "for name in re.findall('<!-- table (.*) -->', text):\n"
        "    content = content_of(name)\n"
        "    assert content is None or content in text, name\n"
        "    print(name)\n"
    )
    assert "digits" in said(program).splitlines()


def test_a_setting_is_held_against_fedavgs_line_at_its_own_bytes():
    # The line is straight over the logarithm: half of the way from 25 to 100 bytes is 50. At seed 0 it is at
    # (0.6 + 0.8) / 2 = 0.7 and at seed 1 at 0.6, so the gains are 0.02 and 0.04. FedAvg(24) lacks seed 2.
    program = (
        "from frontier_line import gain\n"
        "runs = {'FedAvg(6)': {0: (100, 0.8), 1: (100, 0.7), 2: (100, 0.9)},\n"
        "        'FedAvg(24)': {0: (25, 0.6), 1: (25, 0.5)},\n"
        "        'FedLAMA(6, 4)': {0: (50, 0.72), 1: (50, 0.64), 2: (50, 0.1)},\n"
        "        'FedPart(6)': {0: (50, 0.69)},\n"
        "        'Budget(6, 48, 0.25)': {0: (10, 0.9)}}\n"
        "for name in ('FedLAMA(6, 4)', 'FedPart(6)', 'Budget(6, 48, 0.25)', 'FedLUAR(6, 1)'):\n"
        "    print(gain(runs, name))\n"
    )
    assert said(program).splitlines() == [
        "+3.00 ± 1.00 at 50.0 %",
        "−1.00 (one seed) at 50.0 %",
        "–",  # fewer bytes than any FedAvg
        "–",
    ]


def test_a_combination_stands_under_the_share_that_it_sends():
    program = (
        "from types import SimpleNamespace as Pair\n"
        "from frontier_tables import _answered, _at_share, Answer\n"
        "some = [Pair(label='Rotate(0.3)', uplink_share=0.0102, total_share=0.5, mean=-0.01,\n"
        "             error=0.002, seeds=[1, 2]),\n"
        "        Pair(label='FedAvg(12) + Rotate(0.1)', uplink_share=0.0026, mean=-0.02, error=None, seeds=[1])]\n"
        "for share in (0.01, 0.005, 0.0025):\n"
        "    print(_at_share(some, share))\n"
        "named = {one.label: one for one in some}\n"
        "for answer in (Answer('yes', ('frugal', 'Rotate(0.3)')), Answer('yes', ('Rotate(0.3)',), both_ways=True),\n"
        "               Answer('no', ('frugal',))):\n"
        "    print(_answered(named, answer))\n"
    )
    assert said(program).splitlines() == [
        "−1.00 ± 0.20",
        "–",
        "−2.00, FedAvg(12)",
        "−1.00 ± 0.20 at 1.02 % (2)",
        "−1.00 ± 0.20 at 50.0 % (2)",
        "–",
    ]


def test_labels_keep_off_each_other_and_inside_the_frame():
    program = (
        "from itertools import combinations\n"
        "from labels import Label, place_labels\n"
        "from matplotlib.figure import Figure\n"
        "from matplotlib.transforms import Bbox\n"
        "figure = Figure(figsize=(5, 3))\n"
        "axes = figure.subplots()\n"
        "axes.set(xlim=(0, 1), ylim=(0, 1))\n"
        "places = [(0.5, 0.5), (0.53, 0.52), (0.98, 0.9), (0.02, 0.03)]\n"
        "labels = [Label('a setting', x, y, 0.1, {}) for x, y in places]\n"
        "place_labels(axes, labels, [[(0.1, 0.1), (0.5, 0.5)]])\n"
        "boxes = [text.get_window_extent() for text in axes.texts]\n"
        "frame = axes.get_window_extent()\n"
        "assert len(boxes) == 4\n"
        "for one, other in combinations(boxes, 2):\n"
        "    assert Bbox.intersection(one, other) is None\n"
        "for box in boxes:\n"
        "    assert frame.x0 <= box.x0 and box.x1 <= frame.x1\n"
        "    assert frame.y0 <= box.y0 and box.y1 <= frame.y1\n"
    )
    said(program)


def test_combinations_are_told_by_their_labels():
    expected = {
        "Rotate(0.28)": "A",
        "FedAvg(12) + Rotate(0.135)": "A",
        "Rotate(0.28) + window feedback": "B",
        "FedLAMA(6, 4) + Rotate(0.4)": "C",
        "FedLAMA(6, 4) + Rotate(0.4) + window feedback": "B + C",
        "Rotate(0.28), water-filled": "None",
        "FedLAMA(6, 4)": "None",
    }
    program = (
        "import sys; from frontier_codes import combination_of\n"
        "for label in sys.argv[1:]:\n"
        "    print(combination_of(label))\n"
    )
    assert said(program, *expected).splitlines() == list(expected.values())
