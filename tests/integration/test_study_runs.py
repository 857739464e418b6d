"""`fedlama study` on the command line: real runs, an interruption, a divergence, a changed file."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

STUDY = """
[data]
name = "digits"
[model]
name = "mlp"
[partition]
kind = "dirichlet"
clients = 12
alpha = 0.5
[participation]
active = 4
[local]
batch_size = 16
[train]
iterations = {iterations}
[output]
tensorboard = false
[study]
seeds = [0, 1]
baseline = "FedAvg(6)"
learning_rates = [0.05, 0.2, 1e30]
pilot_iterations = 24
fedavg_intervals = [12]
[[study.setting]]
policy = {{ kind = "fedavg", base_interval = 6 }}
[[study.setting]]
policy = {{ kind = "fedlama", base_interval = 6, increase_factor = 4 }}
"""
FEDLAMA = [sys.executable, "-m", "fedlama"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A study that was run to its end."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "study.toml").write_text(STUDY.format(iterations=48))
    return folder, run(folder)


def run(folder, *more):
    command = [*FEDLAMA, "study", "study.toml", "--out", "out", *more]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )


def stamps(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("summary.json")}


def test_the_table_in_four_forms(finished):
    folder, done = finished
    assert done.returncode == 0, done.stderr
    assert "FedLAMA(6, 4)".replace(" ", "\xa0") in done.stdout
    markdown = (folder / "out" / "table.md").read_text()
    assert "| FedAvg(6) |" in markdown
    assert "pilots on a validation split, out of 0.05, 0.2, 1e+30" in markdown
    latex = (folder / "out" / "table.tex").read_text()
    assert latex.count(r"\\") == 4
    assert r"$\pm$" in latex
    rows = list(csv.DictReader((folder / "out" / "table.csv").read_text().splitlines()))
    assert [row["setting"] for row in rows] == [
        "FedAvg(6)",
        "FedLAMA(6, 4)",
        "FedAvg(12)",
    ]
    for row in rows:
        summaries = [
            json.loads(path.read_text())
            for path in (folder / "out").glob(f"{slug(row['setting'])}/*/summary.json")
        ]
        assert float(row["accuracy"]) == pytest.approx(
            sum(one["accuracy"] for one in summaries) / 2
        )
        first = [
            json.loads(path.read_text())
            for path in sorted((folder / "out").glob("fedavg-6/*/summary.json"))
        ]
        gaps = [
            own["accuracy"] - base["accuracy"]
            for own, base in zip(by_seed(summaries), first, strict=True)
        ]
        if row["setting"] != "FedAvg(6)":
            assert float(row["difference"]) == pytest.approx(sum(gaps) / 2)
            # |d₀ − d₁| / √2 / √2
            assert float(row["difference_error"]) == pytest.approx(
                abs(gaps[0] - gaps[1]) / 2
            )
        assert (
            float(row["uplink_bytes"])
            == sum(one["uplink_bytes"] for one in summaries) / 2
        )
    assert [float(row["relative_cost"]) for row in rows][0::2] == [1.0, 0.5]


def by_seed(summaries):
    return sorted(summaries, key=lambda summary: summary["seed"])


def slug(name):
    return name.lower().replace("(", "-").replace(", ", "-").replace(")", "")


def test_a_rate_that_diverges_is_not_chosen_and_stops_nothing(finished):
    folder, _ = finished
    index = json.loads((folder / "out" / "study.json").read_text())
    for choice in index["choices"].values():
        assert choice["scores"]["1e+30"] is None
        assert choice["rate"] in (0.05, 0.2)
    assert len(list((folder / "out" / "pilots").rglob("diverged.txt"))) == 3


def test_a_finished_study_runs_nothing_again(finished):
    folder, _ = finished
    before = stamps(folder / "out")
    again = run(folder, "--resume")
    assert again.returncode == 0
    assert stamps(folder / "out") == before
    assert "runs ·" not in again.stderr  # no cell was run


def test_report_names_settings_as_the_study_does_and_leaves_the_pilots_out(finished):
    folder, _ = finished
    shown = subprocess.run(
        [*FEDLAMA, "report", "out", "--out", "again"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    places = [
        shown.index(f"\n{name} ")
        for name in ("FedAvg(6)", "FedLAMA(6, 4)", "FedAvg(12)")
    ]
    assert places == sorted(places)  # as in the study's file
    assert "validation" not in shown


def test_a_changed_study_is_refused(finished):
    folder, _ = finished
    (folder / "other.toml").write_text(STUDY.format(iterations=72))
    command = [*FEDLAMA, "study", "other.toml", "--out", "out"]
    refused = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False
    )
    assert refused.returncode == 2
    assert "train.iterations (was 48, is 72)" in refused.stderr


def test_an_interrupted_study_goes_on_and_ends_with_the_same_numbers(tmp_path):
    text = STUDY.format(iterations=240).replace(
        "learning_rates = [0.05, 0.2, 1e30]\n", ""
    )
    for name in ("whole", "broken"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "study.toml").write_text(text)
    assert run(tmp_path / "whole").returncode == 0
    command = [*FEDLAMA, "study", "study.toml", "--out", "out"]
    with subprocess.Popen(
        command, cwd=tmp_path / "broken", stderr=subprocess.PIPE, text=True
    ) as started:
        wait_for(lambda: any((tmp_path / "broken").rglob("rounds.jsonl")))
        started.send_signal(signal.SIGTERM)
        _, told = started.communicate(timeout=60)
    assert started.returncode == 1
    assert "the same command goes on from here" in told
    assert not list((tmp_path / "broken").rglob(".lock"))
    assert run(tmp_path / "broken").returncode == 0
    for path in sorted((tmp_path / "whole").rglob("rounds.jsonl")):
        other = tmp_path / "broken" / path.relative_to(tmp_path / "whole")
        assert path.read_bytes() == other.read_bytes()
    assert (tmp_path / "whole/out/table.csv").read_bytes() == (
        tmp_path / "broken/out/table.csv"
    ).read_bytes()


def test_sittings_with_a_limit_end_with_the_same_numbers(tmp_path):
    text = STUDY.format(iterations=2400).replace(
        "learning_rates = [0.05, 0.2, 1e30]\n", ""
    )
    for name in ("whole", "sittings"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "study.toml").write_text(text)
    assert run(tmp_path / "whole").returncode == 0
    folder, kept = tmp_path / "sittings", tmp_path / "kept"
    waiting: set[Path] = set()
    # A busy machine may not get to a first step in the shorter ones
    for minutes in ("0.05", "0.1", "0.2", "0.4"):
        sitting = run(
            folder, "--minutes", minutes, "--checkpoints", str(kept), "--workers", "1"
        )
        assert sitting.returncode == 1
        assert re.search(
            rf"stopped after {minutes} minutes, as asked, with [1-6] of 6 runs left",
            sitting.stderr,
        )
        assert "the same command goes on from here" in sitting.stderr
        waiting = {path.parent for path in kept.rglob("step-*.safetensors")}
        if waiting:
            break
    assert len(waiting) == 1  # one worker, so one run was going
    assert not list((folder / "out").rglob("step-*"))
    assert run(folder, "--checkpoints", str(kept)).returncode == 0
    assert not list(kept.rglob("*.jsonl"))
    for path in sorted((tmp_path / "whole").rglob("rounds.jsonl")):
        assert (
            path.read_bytes()
            == (folder / path.relative_to(tmp_path / "whole")).read_bytes()
        )
    assert (tmp_path / "whole/out/table.csv").read_bytes() == (
        folder / "out/table.csv"
    ).read_bytes()
    assert not list((folder / "out").rglob("step-*"))


def test_a_killed_cell_stops_the_study_and_loses_nothing(tmp_path):
    (tmp_path / "study.toml").write_text(STUDY.format(iterations=2400))
    command = [*FEDLAMA, "study", "study.toml", "--out", "out", "--workers", "1"]
    with subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as started:
        wait_for(lambda: any((tmp_path / "out").glob("fedavg-6/*/rounds.jsonl")))
        children = (
            Path(f"/proc/{started.pid}/task/{started.pid}/children").read_text().split()
        )
        os.kill(int(children[0]), signal.SIGKILL)
        _, told = started.communicate(timeout=60)
    assert started.returncode == 1
    assert "its process ended with code -9" in told
    assert "Traceback" not in told


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_study_of_which_every_pilot_diverges_says_so(tmp_path):
    text = STUDY.format(iterations=24).replace("[0.05, 0.2, 1e30]", "[1e29, 1e30]")
    (tmp_path / "study.toml").write_text(text.replace("fedavg_intervals = [12]\n", ""))
    done = run(tmp_path)
    assert done.returncode == 1
    assert "every pilot in out diverged" in done.stderr
    assert "(1e+29, 1e+30): add smaller ones to study.learning_rates" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_part_of_a_study_first_and_the_rest_later(tmp_path):
    (tmp_path / "study.toml").write_text(STUDY.format(iterations=48))
    part = run(tmp_path, "--setting", "FedLAMA(6, 4)", "--seeds", "1")
    assert part.returncode == 0, part.stderr
    finished = {path.parent for path in (tmp_path / "out").glob("*/seed*/summary.json")}
    assert finished == {tmp_path / "out" / slug("FedLAMA(6, 4)") / "seed1"}
    assert "| FedAvg(6) |" not in (tmp_path / "out" / "table.md").read_text()

    before = stamps(tmp_path)
    whole = run(tmp_path)
    assert whole.returncode == 0, whole.stderr
    after = stamps(tmp_path)
    assert len(list((tmp_path / "out").glob("*/seed*/summary.json"))) == 6
    assert all(after[path] == before[path] for path in before)


def test_a_part_that_the_study_does_not_have(tmp_path):
    (tmp_path / "study.toml").write_text(STUDY.format(iterations=48))
    done = run(tmp_path, "--setting", "FedAvg(7)")
    assert done.returncode == 2
    assert "there is no such setting" in done.stderr
    assert not (tmp_path / "out").exists()
