"""How long the rounds of a deployment took, from its timings to the page."""

import json

import pytest
from hand_made import write_run
from test_page import drawn

from fedlama.report.numbers.round_times import round_times

OVER_FLOWER = {"flwr": "1.41.0"}


def write_timings(run, seconds):
    lines = []
    for number, value in enumerate(seconds, start=1):
        lines.append(json.dumps({"round": number, "seconds": value}) + "\n")
    (run.path / "timings.jsonl").write_text("".join(lines))


def test_the_page_has_the_median_and_the_longest_round_over_all_seeds(tmp_path):
    first = write_run(tmp_path / "a", seed=0, versions=OVER_FLOWER)
    second = write_run(tmp_path / "b", seed=1, versions=OVER_FLOWER)
    # Rounds of 10, 12 and 14 s, and of 11 and 40 s
    write_timings(first, [10.0, 22.0, 36.0])
    write_timings(second, [11.0, 51.0])
    page = drawn([first, second], tmp_path / "out")
    assert "A round took 12 s (median), the longest 40 s." in page.words
    write_timings(second, [])
    page = drawn([first, second], tmp_path / "out")
    assert "A round took" not in page.words


@pytest.mark.parametrize(
    "seconds",
    [
        [10.0, 9.0],
        [10.0, float("inf")],
        [float("nan")],
        [-1.0],
        [1e300],
        ["ten"],
        [],
    ],
)
def test_of_times_that_no_run_wrote_nothing_is_said(tmp_path, seconds):
    run = write_run(tmp_path / "run", versions=OVER_FLOWER)
    write_timings(run, seconds)
    assert round_times([run]) is None


def test_where_one_run_has_no_times_nothing_is_said(tmp_path):
    first = write_run(tmp_path / "a", seed=0, versions=OVER_FLOWER)
    second = write_run(tmp_path / "b", seed=1, versions=OVER_FLOWER)
    write_timings(first, [10.0])
    (second.path / "timings.jsonl").unlink(missing_ok=True)
    assert round_times([first, second]) is None


def test_rounds_of_a_simulation_are_no_result(tmp_path):
    run = write_run(tmp_path / "run")
    write_timings(run, [10.0])
    assert round_times([run]) is None
