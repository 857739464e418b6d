"""The driver works with tiny settings, tells failures as failures, and leaves no process behind."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.__main__ import is_run_alone
from benchmarks.coding import CycleShares, ProcessorSeconds
from benchmarks.job import seconds_per_round
from benchmarks.jobs import JOBS, growing, prepare
from benchmarks.measure import CONTESTANTS, Contestant, Outcome, run, with_token
from benchmarks.table import Entry, Results
from benchmarks.turns import TurnError, take_turns

ROOT = Path(__file__).resolve().parents[2]
TINY = JOBS["C"].but(rounds=4, warmup=1)


def results(**seconds: list[float]) -> Results:
    entries = [
        Entry(TINY, name, dict(enumerate(values))) for name, values in seconds.items()
    ]
    return Results(entries, {"seed": 0})


def test_a_ratio_compares_runs_of_the_same_repetition():
    measured = results(bare=[1.0, 2.0, 4.0], fedlama=[0.5, 1.2, 2.0])
    assert measured.ratios("C", "fedlama") == [0.5, 0.6, 0.5]
    assert measured.rows()[1][2:5] == ("1.20 s", "0.500 (0.500–0.600)", "3 runs")
    assert (
        "C: × bare loop",
        "≤ 0.75",
        "0.500 (0.500–0.600)",
        "yes",
    ) in measured.checks()


def test_turns_count_where_both_took_them():
    measured = results(bare=[1.0], fedlama=[9.0], pfl=[3.0])
    for entry, turns in zip(
        measured.entries, [[2.0, 4.0], [1.0, 3.0], []], strict=True
    ):
        entry.turns = turns
    assert measured.ratios("C", "fedlama") == [0.5, 0.75]
    assert measured.ratios("C", "pfl") == [3.0]  # runs of the same repetition
    assert measured.rows()[1][2:5] == (
        "2.00 s",
        "0.625 (0.500–0.750)",
        "2 turns, 1 runs",
    )


def test_who_takes_turns_runs_alone_only_beside_those_that_cannot():
    bare, fedlama, coded, pfl = (
        Entry(TINY, name) for name in ("bare", "fedlama", "fedlama-rotate", "pfl")
    )
    for entry in (bare, fedlama, coded):
        entry.turns = [1.0]
    assert not is_run_alone(bare, [bare, fedlama])
    assert is_run_alone(bare, [bare, fedlama, coded, pfl])
    assert is_run_alone(pfl, [bare, fedlama, coded, pfl])
    assert not is_run_alone(coded, [bare, fedlama, coded, pfl])
    bare.turns = []  # they did not work
    assert is_run_alone(bare, [bare, fedlama])


@pytest.mark.slow
def test_contestants_take_turns_and_nothing_is_left_of_them(tmp_path: Path):
    job, _ = prepare(TINY, tmp_path)
    pair = [CONTESTANTS["bare"], CONTESTANTS["fedlama"]]
    found = take_turns(pair, job, turns=3, seconds=60)
    assert [len(seconds) for seconds in found] == [3, 3]
    assert all(0 < value < 60 for seconds in found for value in seconds)
    assert not children()


@pytest.mark.slow
def test_a_contestant_that_cannot_take_its_turn_ends_them_for_all(tmp_path: Path):
    job, _ = prepare(TINY, tmp_path)
    pair = [CONTESTANTS["bare"], Contestant("nobody", "nobody")]
    with pytest.raises(TurnError, match=r"nobody: .*No module named"):
        take_turns(pair, job, turns=3, seconds=60)
    assert not children()


def children() -> list[str]:
    """The processes that this one has started and that are still there."""
    found = subprocess.run(
        ["ps", "-o", "args=", "--ppid", str(os.getpid())],
        capture_output=True,
        text=True,
        check=False,
    )
    return [line for line in found.stdout.splitlines() if "contestants" in line]


def test_a_burst_of_other_work_in_one_cycle_does_not_count():
    # Cycles of 4, 4, 32 and 5 seconds: their median is 4.5, that of four rounds.
    assert seconds_per_round([0.0, 4.0, 8.0, 40.0, 45.0]) == 4.5 / 4


def test_what_coding_adds_is_told_beside_the_run_without():
    job = JOBS["A"]
    entries = [
        Entry(job, "fedlama", {0: 2.0, 1: 4.0}),
        Entry(job, "fedlama-rotate", {0: 2.08, 1: 4.12}),
    ]
    told = [
        check
        for check in Results(entries, {"seed": 0}).checks()
        if "Rotate" in check[0]
    ]
    assert told == [
        ("A: with Rotate(1.6) × without", "≤ 1.05", "1.035 (1.030–1.040)", "yes")
    ]


def test_the_share_of_coding_is_that_of_whole_cycles_after_the_warm_up():
    """0.4 s of coding beside 10 s of training, in four rounds of eight clients."""
    processor = ProcessorSeconds()
    watch = CycleShares(JOBS["A"].but(warmup=4, rounds=4), processor)
    for number in range(1, 9):
        processor.seconds["train"] += 2.5
        processor.seconds["encode"] += 5.0 if number <= 4 else 0.1
        watch.round_ends(number)
    assert watch.shares == pytest.approx([0.04])
    assert watch.coding == pytest.approx([0.4 / 4 / 8])


def test_a_contestant_that_failed_has_no_numbers():
    entry = Entry(TINY, "flower")
    entry.take(Outcome(failure="exit 1: ImportError: flwr"), 0)
    measured = Results([entry], {})
    assert measured.rows() == [
        (
            "C",
            "Flower simulation",
            "–",
            "–",
            "0 runs, failed: exit 1: ImportError: flwr",
            "–",
        ),
    ]
    assert "ImportError: flwr" in measured.as_markdown()
    assert measured.checks() == []


def test_every_client_has_whole_batches(tmp_path: Path):
    job, source = prepare(TINY, tmp_path)
    samples = job.samples()
    sizes = [len(samples.shard(client)) for client in range(job.clients)]
    assert source == "digits"
    # 1,437 samples on 64 clients are 22 or 23 each, and a batch has 16
    assert set(sizes) == {32}
    assert samples.inputs(samples.shard(0)).shape == (32, 1, 8, 8)


def test_only_the_index_grows_with_the_population(tmp_path: Path):
    job = next(job for job in growing(quick=True) if job.clients == 10**6)
    samples = prepare(job, tmp_path)[0].samples()
    assert len(samples.offsets) == 10**6 + 1
    assert len(samples.x) == 1 << 14


def test_fedlama_is_timed_over_whole_cycles():
    assert CONTESTANTS["fedlama"].adapt(TINY).warmup == 4
    assert CONTESTANTS["fedlama-fedavg"].adapt(TINY).warmup == 1


@pytest.mark.slow
def test_a_program_that_cannot_start_is_told(tmp_path: Path):
    outcome = run(Contestant("nobody", "nobody"), prepare(TINY, tmp_path)[0])
    assert outcome.seconds is None
    assert outcome.failure is not None
    assert "No module named" in outcome.failure


@pytest.mark.slow
def test_a_program_that_takes_too_long_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("benchmarks.measure.TIMEOUT", 0.5)
    token = secrets.token_hex(16)
    monkeypatch.setattr("secrets.token_hex", lambda size: token)
    outcome = run(CONTESTANTS["bare"], prepare(TINY, tmp_path)[0])
    assert outcome.failure == "took more than 0 s"
    assert list(with_token(token)) == []


@pytest.mark.slow
def test_quick_run_from_the_command_line(tmp_path: Path):
    command = [
        "-m",
        "benchmarks",
        "--quick",
        "--jobs",
        "C",
        "--contestants",
        "bare,fedlama",
        "--write",
    ]
    report = tmp_path / "benchmarks.md"
    done = subprocess.run(
        [sys.executable, *command, report],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert "bare loop" in done.stdout
    runs = json.loads(report.with_suffix(".json").read_text(encoding="utf-8"))["runs"]
    assert [len(entry["turns"]) for entry in runs] == [1, 1]
    # Nobody is there who could not take turns
    assert [len(entry["seconds"]) for entry in runs] == [0, 0]
    assert all(entry["memory"] > 10**7 and entry["failure"] is None for entry in runs)


def test_every_point_of_d_has_a_target():
    job = next(
        job for job in growing(quick=False) if job.title == "cohort 8, 10⁵ parameters"
    )
    entries = [
        Entry(job, "bare", {0: 1.0, 1: 1.0, 2: 1.0}),
        Entry(job, "fedlama", {0: 1.04, 1: 1.06, 2: 1.07}),
    ]
    check = (
        "cohort 8, 10⁵ parameters: × bare loop",
        "≤ 1.05",
        "1.060 (1.040–1.070)",
        "no",
    )
    assert check in Results(entries, {}).checks()


def test_d_goes_from_8_to_128_clients_and_from_a_hundred_thousand_to_forty_million_parameters():
    jobs = [job for job in growing(quick=False) if job.title.startswith("cohort")]
    assert {job.active for job in jobs} == {8, 32, 128}
    sizes = [
        sum(parameter.numel() for parameter in job.build().parameters())
        for job in jobs
        if job.active == 8
    ]
    assert sizes == pytest.approx([1e5, 3e5, 1e6, 2e6, 1e7, 4e7], rel=0.01)
    assert all(job.rounds % 4 == 0 for job in jobs)  # whole cycles


@pytest.mark.slow
def test_the_share_of_bookkeeping_is_told(tmp_path: Path):
    outcome = run(CONTESTANTS["fedlama-1"], prepare(TINY, tmp_path)[0])
    assert outcome.failure is None
    assert 0 < outcome.answer["own"] < outcome.answer["seconds"]
    assert 0 < outcome.answer["averaging"] < outcome.answer["seconds"]
