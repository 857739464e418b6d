"""The command line as a user meets it: in a process of its own, on a terminal and in a log.

Importing torch takes seconds, so the many small mistakes are tried in forked processes, which have it already.
"""

import csv
import fcntl
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from multiprocessing import get_context
from pathlib import Path

import pytest

import fedlama
import fedlama.run.execute  # and so torch, before any fork
from fedlama.cli import main
from fedlama.cli.main import HELP
from fedlama.paper.demo import demo_folder
from fedlama.paper.reproduce import reproduction
from fedlama.run.config import load_config
from fedlama.run.labels import run_label

SCRIPT = Path(sys.executable).with_name("fedlama")
TINY = """
[data]
name = "digits"
[partition]
clients = 4
[policy]
base_interval = 2
increase_factor = 2
[local]
batch_size = 8
[train]
iterations = 12
[output]
tensorboard = false
"""
SAME_EVERY_TIME = ("config.toml", "rounds.jsonl", "checkpoint/model.safetensors")

pytestmark = pytest.mark.slow


def environment(**variables: str) -> dict[str, str]:
    """This environment without what CI systems and colourful shells add to it."""
    unwanted = ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "TERMINAL_WIDTH", "LINES")
    kept = {name: value for name, value in os.environ.items() if name not in unwanted}
    return {**kept, "COLUMNS": "120", "NO_COLOR": "1", "TERM": "xterm", **variables}


def command(
    *arguments: str | Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "fedlama", *map(str, arguments)]
    return subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=environment(**variables),
    )


def forked(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The same in a fork of this process."""
    words = ["fedlama", *map(str, arguments)]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = get_context("fork").Process(
            target=_in_the_fork, args=(words, out.fileno(), err.fileno())
        )
        process.start()
        process.join(timeout=120)
        assert process.exitcode is not None, "still running"
        for file in (out, err):
            file.seek(0)
        return subprocess.CompletedProcess(
            words, process.exitcode, out.read(), err.read()
        )


def _in_the_fork(words: list[str], out: int, err: int) -> None:
    os.environ.update(environment())
    os.dup2(out, 1)
    os.dup2(err, 2)
    sys.argv = words
    sys.stdout, sys.stderr = (
        os.fdopen(1, "w", closefd=False),
        os.fdopen(2, "w", closefd=False),
    )
    main()


def on_a_terminal(columns: int, *arguments: str | Path) -> tuple[int, str]:
    """Run with all three streams on a terminal; the exit code and what it showed, without colours and movements."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    variables = {
        name: value
        for name, value in environment(TERM="xterm-256color").items()
        if name != "COLUMNS"
    }
    words = [sys.executable, "-m", "fedlama", *map(str, arguments)]
    with subprocess.Popen(
        words, stdin=theirs, stdout=theirs, stderr=theirs, env=variables
    ) as process:
        os.close(theirs)
        shown = b""
        try:
            while chunk := os.read(ours, 65536):
                shown += chunk
        except OSError:  # Linux says so when the other end is closed
            pass
        finally:
            os.close(ours)
    return process.returncode, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())


@pytest.fixture
def tiny(tmp_path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """One run with one worker, and what it printed."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "tiny.toml").write_text(TINY)
    return folder / "run", command(
        "run", folder / "tiny.toml", "--out", folder / "run", "--workers", "1"
    )


# What it says about itself.


def test_version():
    done = command("--version")
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        f"fedlama {fedlama.__version__}\n",
        "",
    )


def test_the_script_is_the_module():
    done = subprocess.run(
        [SCRIPT, "--version"],
        capture_output=True,
        text=True,
        check=True,
        env=environment(),
    )
    assert done.stdout == command("--version").stdout


def test_help_teaches():
    done = command("--help")
    assert (done.returncode, done.stderr) == (0, "")
    for words in (
        "fedlama demo",
        "fedlama run CONFIG.toml",
        "--set policy.kind=fedavg",
        "fedlama report",
    ):
        assert words in done.stdout
    # Markup must not eat the table's name
    assert '[data]\n   name = "digits"' in re.sub(" +\n", "\n", done.stdout)
    assert "iterations = 480" in done.stdout
    assert re.search(
        r"Exit codes: 0 done · 1 the run failed.* · 2 the\s+input is wrong", done.stdout
    )


@pytest.mark.parametrize(
    ("name", "options"),
    [("demo", ["--seeds", "--out"]), ("run", ["--set", "--out", "--workers"])],
)
def test_every_command_has_help(name, options):
    done = command(name, "--help")
    assert done.returncode == 0
    assert all(option in done.stdout for option in options)


def test_the_baseline_of_the_help_is_fedavg_also_of_a_configuration_with_a_preset(
    tmp_path,
):
    overrides = re.findall(r"--set (\S+)", HELP)
    assert "policy.kind=fedavg" in overrides
    config = tmp_path / "config.toml"
    task = '[data]\nname = "digits"\n[train]\niterations = 480\n'
    for preset in ("", 'preset = "frugal"\n', 'preset = "frugal"\nshare = 0.02\n'):
        config.write_text(preset + task)
        assert run_label(load_config(config, overrides)) == "FedAvg(6)"


def test_help_tells_the_defaults():
    shown = command("run", "--help").stdout
    assert "runs/NAME-OF-CONFIG" in shown
    assert "one per GPU" in shown


def test_no_arguments_show_the_help():
    done = command()
    assert done.returncode == 2
    assert "fedlama demo" in done.stdout + done.stderr


# A run.


def test_a_run_writes_its_directory_and_prints_a_table(finished):
    path, done = finished
    assert done.returncode == 0, done.stderr
    files = {str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()}
    written = {
        "config.toml",
        "rounds.jsonl",
        "timings.jsonl",
        "summary.json",
        "checkpoint/model.safetensors",
    }
    assert files >= {*written, "report.html"}
    summary = json.loads((path / "summary.json").read_text())
    assert "FedLAMA(2, 2)" in done.stdout
    assert f"{100 * summary['accuracy']:.2f} %" in done.stdout
    assert done.stdout.splitlines()[-1] == f"report: {path / 'report.html'}"


def test_a_run_of_a_preset_is_called_by_its_name(tmp_path):
    config = tmp_path / "frugal.toml"
    config.write_text('preset = "frugal"\n' + TINY.replace("increase_factor = 2\n", ""))
    done = forked("run", config, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("frugal(2) · step ")
    assert "Budget" not in done.stdout + done.stderr
    assert "frugal(2) reached " in done.stdout
    assert " of FedAvg(2)'s uplink and 100 % of the cost of" in done.stdout


def test_progress_in_a_log_is_plain_lines_on_stderr(finished):
    path, done = finished
    progress = done.stderr.splitlines()
    reached = r"loss \d+\.\d+ · accuracy [\d.]+% · sent \d+% of FedAvg\(2\)"
    shape = rf"FedLAMA\(2, 2\) · step \d+/12 · round \d+ · {reached}"
    assert all(
        re.fullmatch(f"{shape} · under a minute left", line) for line in progress[:-1]
    ), done.stderr
    assert re.fullmatch(shape, progress[-1]), done.stderr  # nothing is left
    assert "step 12/12" in progress[-1]
    assert "\x1b" not in done.stdout + done.stderr
    evaluated = [
        line
        for line in (path / "rounds.jsonl").read_text().splitlines()
        if '"accuracy": null' not in line
    ]
    assert len(progress) >= len(evaluated)


def test_progress_on_a_terminal_is_a_bar(tiny, tmp_path):
    code, shown = on_a_terminal(
        160, "run", tiny, "--out", tmp_path / "run", "--workers", "1"
    )
    assert code == 0, shown
    frames = [frame for frame in re.split(r"[\r\n]+", shown) if "round 6" in frame]
    assert frames, shown
    assert re.search(
        r"FedLAMA\(2, 2\) ━+ round 6 loss [\d.]+ acc [\d.]+% \d+% of FedAvg\(2\) \d+:\d\d",
        frames[-1],
    )
    # The table and the verdict come after the bar
    assert "FedLAMA(2, 2)" in shown.splitlines()[-2]


def test_the_bar_fits_a_terminal_of_80_columns(tiny, tmp_path):
    _, shown = on_a_terminal(
        80, "run", tiny, "--out", tmp_path / "run", "--workers", "1"
    )
    frames = [frame for frame in re.split(r"[\r\n]+", shown) if "round 6" in frame]
    assert re.search(r"━.*\d:\d\d", frames[-1])


def test_set_changes_keys_and_out_has_a_default(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    overrides = (
        "--set",
        "policy.kind=fedavg",
        "--set",
        "train.iterations=4",
        "--set",
        "seed=5",
    )
    done = command("run", "tiny.toml", *overrides, "--workers", "1")
    assert done.returncode == 0, done.stderr
    assert "FedAvg(2)" in done.stdout
    summary = json.loads((tmp_path / "runs" / "tiny" / "summary.json").read_text())
    assert (summary["iterations"], summary["seed"]) == (4, 5)


def test_two_workers_give_the_bytes_of_one(tiny, tmp_path, finished):
    done = command("run", tiny, "--out", tmp_path / "two", "--workers", "2")
    assert done.returncode == 0, done.stderr
    for name in SAME_EVERY_TIME:
        assert (tmp_path / "two" / name).read_bytes() == (
            finished[0] / name
        ).read_bytes(), name


def test_report_draws_again_and_compares(finished, tmp_path):
    path, _ = finished
    shutil.copytree(path, tmp_path / "runs" / "a")
    (tmp_path / "runs" / "a" / "report.html").unlink()
    done = command("report", tmp_path / "runs")
    assert (done.returncode, done.stderr) == (0, "")
    assert "FedLAMA(2, 2)" in done.stdout
    assert (tmp_path / "runs" / "report.html").stat().st_size > 1000
    done = forked("report", path, tmp_path / "runs" / "a", "--out", tmp_path / "there")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "there" / "report.html").exists()


def test_report_replays_the_runs_on_a_network(finished, tmp_path):
    options = [
        "--uplink",
        "5Mbit",
        "--latency",
        "80ms",
        "--round-overhead",
        "10s",
        "--stragglers",
        "lognormal:0.5",
        "--target",
        "0.05",
    ]
    done = forked("report", finished[0], "--out", tmp_path / "there", *options)
    assert (done.returncode, done.stderr) == (0, "")
    page = (tmp_path / "there" / "report.html").read_text(encoding="utf-8")
    for words in (
        "sends at 5 Mbit/s and receives at 50 Mbit/s",
        "one round trip of 80 ms and 10 s beside it",
        "σ = 0.5",
        "as asked for",
    ):
        assert words in page
    told = (
        "The network: 5 Mbit/s up and 50 Mbit/s down per client, a round trip of 80 ms, 20 ms per local step, "
        "10 s beside it per round"
    )
    assert done.stdout.count(told) == 1


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--uplink", "10MB", "such as --uplink 10Mbit"),
        ("--downlink", "0Mbit", "such as --downlink 10Mbit"),
        ("--latency", "50", "such as --latency 50ms"),
        ("--step-time", "fast", "such as --step-time 50ms"),
        ("--round-overhead", "10", "such as --round-overhead 50ms"),
        ("--stragglers", "0.5", "such as --stragglers lognormal:0.5"),
        ("--target", "90", "such as --target 0.9"),
    ],
)
def test_a_network_that_cannot_be_read(finished, tmp_path, option, value, said):
    assert_refused(
        forked("report", finished[0], "--out", tmp_path, option, value),
        f"{option} ",
        said,
    )
    assert list(tmp_path.iterdir()) == []


def test_report_watches_until_ctrl_c(finished, tmp_path):
    """The page of an unfinished run reads itself again while it is watched, and no more when that ends."""
    run, page = tmp_path / "run", tmp_path / "run" / "report.html"
    shutil.copytree(
        finished[0], run, ignore=shutil.ignore_patterns("summary.json", "report.*")
    )
    words = [sys.executable, "-m", "fedlama", "report", "--watch", str(run)]
    with subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        assert "following the runs" in process.stdout.readline()
        assert "Nothing is finished yet" in process.stdout.readline()
        assert 'http-equiv="refresh"' in page.read_text(encoding="utf-8")
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (0, "")
    assert rest.splitlines()[-1] == f"report: {page}"
    assert 'http-equiv="refresh"' not in page.read_text(encoding="utf-8")


def test_report_watches_until_the_runs_are_finished(finished, tmp_path):
    done = command("report", finished[0], "--watch", "--out", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert 'http-equiv="refresh"' not in (tmp_path / "report.html").read_text(
        encoding="utf-8"
    )


@pytest.fixture(scope="module")
def small_demo(tmp_path_factory):
    """A demo that was run to its end, and what it printed."""
    folder = tmp_path_factory.mktemp("demo") / "demo"
    return folder, command(
        "demo", "--seeds", "1", "--iterations", "48", "--out", folder
    )


def test_demo_prints_four_settings_and_draws_the_report(small_demo):
    folder, done = small_demo
    assert done.returncode == 0, done.stderr
    for setting in ("FedAvg(6)", "FedAvg(24)", "FedLAMA(6, 4)", "frugal"):
        row = next(
            line for line in done.stdout.splitlines() if line.startswith(f"{setting} ")
        )
        assert row.count("%") == 3  # accuracy, cost and share of the uplink
    assert "of FedAvg(6)" in done.stdout  # what the cost is a share of
    assert done.stdout.splitlines()[-1] == f"report: {folder / 'report.html'}"
    assert (
        (folder / "report.html")
        .read_text(encoding="utf-8")
        .lstrip()
        .lower()
        .startswith("<!doctype html")
    )
    assert (folder / "report.png").read_bytes().startswith(b"\x89PNG")
    assert "\x1b" not in done.stdout + done.stderr


def test_demo_says_what_it_takes_and_costs_of_the_baseline(small_demo):
    _, done = small_demo
    first, second, *lines = done.stderr.splitlines()
    # 48 steps of 8 clients
    assert first == "plan: 4 runs to train, 1,536 client steps in all"
    assert second.startswith("plan: ")
    assert len(lines) == 4
    (long,) = [line for line in lines if "FedAvg(24), seed 0: done" in line]
    assert "sent 25 % of FedAvg(6)" in long
    assert "0 min left" not in done.stderr


def test_a_finished_demo_is_not_trained_again_and_never_mixed_with_another(
    small_demo, tmp_path
):
    folder = tmp_path / "demo"
    shutil.copytree(small_demo[0], folder)
    stamps = {path: path.stat().st_mtime_ns for path in folder.rglob("summary.json")}
    again = command("demo", "--seeds", "1", "--iterations", "48", "--out", folder)
    assert again.returncode == 0, again.stderr
    assert again.stderr == "plan: nothing to train: 4 runs are finished already\n"
    assert {
        path: path.stat().st_mtime_ns for path in folder.rglob("summary.json")
    } == stamps
    other = command("demo", "--seeds", "1", "--iterations", "24", "--out", folder)
    assert other.returncode == 2
    assert "holds a run of another configuration" in other.stderr
    assert "train.iterations" in other.stderr


def test_a_demo_with_other_options_has_a_folder_of_its_own():
    usual = Path("somewhere") / "fedlama-demo"
    assert demo_folder(usual, 480, 0.1) == usual
    assert demo_folder(usual, 96, 0.1) == Path("somewhere") / "fedlama-demo-96-steps"
    assert (
        demo_folder(usual, 96, 0.05)
        == Path("somewhere") / "fedlama-demo-96-steps-rate-0.05"
    )


def test_a_smoke_test_makes_a_figure_and_says_everywhere_that_it_is_no_result(tmp_path):
    out = tmp_path / "smoke"
    done = command("reproduce", "figure2", "--scale", "smoke", "--out", out)
    assert done.returncode == 0, done.stderr
    assert "Smoke test, no result" in done.stdout
    reports = [line for line in done.stdout.splitlines() if line.startswith("report: ")]
    assert len(reports) == len(set(reports))
    files = [*out.glob("figure2*"), *out.rglob("report.html")]
    assert {path.suffix for path in files} == {".md", ".csv", ".tex", ".svg", ".html"}
    for path in files:
        assert "no result" in path.read_text(encoding="utf-8"), path
    drawn_again = command("report", next(out.rglob("report.html")).parent)
    assert "Smoke test, no result" in drawn_again.stdout

    # What is finished can be shown while the rest is missing: here one panel lacks a run, the other has none.
    first, second = sorted(path.parent for path in out.rglob("study.json"))
    removed = next(first.glob("fedavg-*"))
    shutil.rmtree(removed)
    shutil.rmtree(second)
    for path in out.glob("figure2*"):
        path.unlink()
    shown = command(
        "reproduce", "figure2", "--scale", "smoke", "--finished", "--out", out
    )
    assert shown.returncode == 0, shown.stderr
    assert f"* {second}: no run of this study is finished" in shown.stdout
    assert len(list(out.glob("figure2?.svg"))) == 1  # by its letter in the paper
    assert not removed.exists()
    assert not second.exists()


def test_learning_curves_of_which_no_records_were_kept(tmp_path):
    out = tmp_path / "cpu"
    shutil.copytree(Path(__file__).parents[2] / "results" / "cpu", out)
    words = ["reproduce", "figure6", "--finished", "--out", out]
    # Nor is the data needed
    done = command(*words, FEDLAMA_DATA=str(tmp_path))
    assert done.returncode == 1
    (said,) = [line for line in done.stdout.splitlines() if "not drawn" in line]
    assert said.startswith(
        "figure6: not drawn, the records of rounds (rounds.jsonl) of FedAvg(10), "
    )
    assert done.stderr.splitlines() == ["fedlama: no figure was drawn"]


def test_one_line_of_a_table_is_trained_once(tmp_path):
    words = ["reproduce", "table4", "--scale", "smoke", "--group", "1"]
    words += ["--out", str(tmp_path / "out")]
    first = forked(*words, "--setting", "FedLAMA(6, 4)", "--seeds", "0")
    assert first.returncode == 0, first.stderr
    assert "plan: 1 run to train" in first.stderr
    summaries = list((tmp_path / "out").rglob("summary.json"))
    assert [path.parent.name for path in summaries] == ["seed0"]
    # Without its baseline there is nothing to subtract, and no cost to divide by
    (row,) = csv_rows(tmp_path / "out" / "table4-group1.csv")
    assert (row["setting"], row["seeds"]) == ("FedLAMA(6, 4)", "0")
    assert (row["difference"], row["relative_cost"]) == ("", "")
    markdown = (tmp_path / "out" / "table4-group1.md").read_text(encoding="utf-8")
    assert "cost, of FedAvg(6)" in markdown
    # The folder has no run of the baseline, and can be drawn all the same
    shown = forked("report", summaries[0].parents[2])
    assert shown.returncode == 0, shown.stderr

    stamp = summaries[0].stat().st_mtime_ns
    again = forked(*words, "--setting", "FedAvg(6)", "--seeds", "0")
    assert again.returncode == 0, again.stderr
    # What was finished before stands beside it
    rows = csv_rows(tmp_path / "out" / "table4-group1.csv")
    assert [row["setting"] for row in rows] == ["FedAvg(6)", "FedLAMA(6, 4)"]
    assert rows[1]["difference"]
    whole = forked(*words, "--plan")
    assert "2 runs are finished already" in whole.stderr
    assert summaries[0].stat().st_mtime_ns == stamp


def csv_rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def test_a_setting_that_a_table_does_not_have(tmp_path):
    words = ["reproduce", "table4", "--scale", "smoke", "--group", "1"]
    done = forked(*words, "--setting", "FedAvg(7)", "--out", tmp_path / "out")
    assert done.returncode == 2
    assert "--setting 'FedAvg(7)'" in done.stderr
    assert "FedAvg(6), " in done.stderr
    assert not (tmp_path / "out").exists()


def test_the_frontier_needs_its_baseline(tmp_path):
    words = ["reproduce", "frontier", "--scale", "smoke", "--out", tmp_path / "out"]
    done = forked(*words, "--setting", "FedAvg(12)")
    assert done.returncode == 2
    assert "FedAvg(6)" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["figure2", "frontier"])
def test_showing_what_is_finished_writes_nothing_where_there_is_nothing(name, tmp_path):
    out = tmp_path / "deep" / "smoke"
    nothing = forked("reproduce", name, "--scale", "smoke", "--finished", "--out", out)
    assert (nothing.returncode, nothing.stdout) == (2, "")
    lines = nothing.stderr.splitlines()
    assert all(line.endswith(": no run of this study is finished") for line in lines)
    assert lines[0].startswith("fedlama: ")
    # A line for each panel of the figure
    expected = {"figure2": 2, "frontier": 1}
    assert len(lines) == expected[name]
    assert not out.parent.exists()


@pytest.mark.parametrize(
    "option", [["--iterations", "96"], ["--no-decay"], ["--group", "2"], ["--pilots"]]
)
def test_what_the_frontier_does_not_take_is_refused(option, tmp_path):
    out = tmp_path / "out"
    done = forked("reproduce", "frontier", "--plan", "--out", out, *option)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("fedlama: reproduce frontier takes no --group, ")
    assert not out.exists()


def test_a_refusal_that_panels_share_is_said_once(tmp_path):
    nothing = forked(
        "reproduce", "table3", "--scale", "smoke", "--finished", "--out", tmp_path / "a"
    )
    # Three groups that are one once they are scaled down
    (line,) = nothing.stderr.splitlines()
    assert line.endswith(": no run of this study is finished")


def test_a_plan_counts_what_waits_where_checkpoints_are_kept(tmp_path):
    made = reproduction("figure2", "smoke")
    panel = made.panels[0]
    cell = panel.study.cells({})[0]
    kept = tmp_path / "kept" / "smoke" / panel.folder / cell.path / "checkpoint"
    kept.mkdir(parents=True)
    (kept / "step-000000024.json").write_text("{}")

    words = ["reproduce", "figure2", "--scale", "smoke", "--plan"]
    words += ["--out", str(tmp_path / "out")]
    whole = forked(*words)
    rest = forked(*words, "--checkpoints", tmp_path / "kept")
    # 2 of the 8 clients are active
    assert client_steps(rest) == client_steps(whole) - 24 * 2


def client_steps(done: subprocess.CompletedProcess[str]) -> int:
    assert done.returncode == 0, done.stderr
    (number,) = re.findall(r"([\d,]+) client steps in all", done.stderr)
    return int(number.replace(",", ""))


def test_plans_are_printed_and_nothing_is_spent(tmp_path):
    done = command(
        "reproduce", "all", "--scale", "smoke", "--plan", "--out", tmp_path / "out"
    )
    assert (done.returncode, done.stdout) == (0, "")
    first, second = done.stderr.splitlines()
    assert first == "plan: 49 runs to train, 6,480 client steps in all"
    assert "on this machine" in second
    assert not (tmp_path / "out").exists()


# The input is wrong: exit code 2.


def assert_refused(done: subprocess.CompletedProcess[str], *said: str) -> None:
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert 1 <= len(lines) <= 2, done.stderr
    assert lines[0].startswith("fedlama: ")
    assert "Traceback" not in done.stderr
    for words in said:
        assert words in done.stderr


@pytest.mark.parametrize(
    ("override", "said"),
    [
        (
            "policy.kind=fedlma",
            ["policy.kind = 'fedlma'", "fedlama, fedavg", "did you mean 'fedlama'?"],
        ),
        (
            "policy.increase_factor=0",
            ["policy.increase_factor = 0: must be at least 1"],
        ),
        ("policy.base_interval=0", ["policy.base_interval = 0: must be at least 1"]),
        ("local.batch_size=0", ["local.batch_size = 0: must be at least 1"]),
        ("participation.active=5", ["participation.active", "5", "only 4 clients"]),
        (
            "participation.window=2",
            ["participation.window = 2", "a cycle of FedLAMA(2, 2) is 4 steps"],
        ),
        (
            "partition.clients=5000",
            ["partition.clients", "5000", "1437 training samples"],
        ),
        ("data.name=digit", ["'digit'", "did you mean", "digits"]),
        (
            "model.name=smal_cnn",
            ["model.name = 'smal_cnn'", "did you mean 'small_cnn'?"],
        ),
        ("nonsense", ["--set 'nonsense'", "--set key=value"]),
    ],
)
def test_a_wrong_value_is_answered_in_a_line_or_two(override, said, tiny, tmp_path):
    assert_refused(
        forked(
            "run", tiny, "--out", tmp_path / "run", "--workers", "1", "--set", override
        ),
        *said,
    )


def test_an_unknown_key_in_a_process_of_its_own(tiny, tmp_path):
    done = command(
        "run", tiny, "--out", tmp_path / "run", "--set", "policy.base_intervall=3"
    )
    assert_refused(done, "'policy.base_intervall'; did you mean 'base_interval'?")
    assert not (tmp_path / "run").exists()


def test_a_file_that_is_not_toml_or_not_there(tmp_path):
    (tmp_path / "bad.toml").write_text("[data\n")
    assert_refused(
        forked("run", tmp_path / "bad.toml"), "bad.toml: is not TOML", "line 1"
    )
    assert_refused(
        forked("run", tmp_path / "nope.toml"), "nope.toml: there is no such file"
    )


def test_a_directory_that_holds_a_run(tiny, finished):
    before = (finished[0] / "rounds.jsonl").read_bytes()
    assert_refused(
        command("run", tiny, "--out", finished[0]),
        f"{finished[0]} already holds a run",
        "--out",
    )
    assert (finished[0] / "rounds.jsonl").read_bytes() == before


def test_a_place_where_nothing_can_be_written(tiny):
    assert_refused(
        forked("run", tiny, "--out", "/dev/null/run"),
        "/dev/null/run: cannot be written",
    )


def test_a_report_of_nothing(tmp_path):
    assert_refused(forked("report", tmp_path / "nope"), "nope: there is no such folder")
    assert_refused(forked("report", tmp_path), f"{tmp_path} holds no run")


def test_a_report_that_cannot_be_written(finished):
    assert_refused(
        forked("report", finished[0], "--out", "/dev/null/x"),
        "/dev/null/x cannot be made a folder",
    )


def test_a_config_of_another_program_among_the_runs(tmp_path):
    (tmp_path / "config.toml").write_text("title = 'of another program'\n")
    assert_refused(forked("report", tmp_path), "config.toml")


MISUSE = [
    (["run", "tiny.toml", "--bogus"], "--bogus"),
    (["run"], "config"),
    (["run", "tiny.toml", "--workers", "0"], "--workers"),
    (["demo", "--seeds", "many"], "--seeds"),
    (["frobnicate"], "frobnicate"),
    (["data", "lsit"], "lsit"),
]


@pytest.mark.parametrize(("arguments", "said"), MISUSE)
def test_misuse_is_exit_code_2_and_names_what_is_wrong(arguments, said):
    done = forked(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr.lower()
    assert "Traceback" not in done.stderr


def test_a_suggestion_is_made_once():
    assert forked("data", "lsit").stderr.count("Did you mean") == 1


def test_misuse_is_answered_in_a_line_or_two():
    for arguments, said in MISUSE:
        # Typer writes an argument's name in capitals
        shown = "'CONFIG'" if said == "config" else said
        assert_refused(forked(*arguments), shown)


# The run failed: exit code 1.


def test_a_training_that_diverges_at_once(tiny, tmp_path):
    done = forked(
        "run",
        tiny,
        "--out",
        tmp_path / "run",
        "--workers",
        "1",
        "--set",
        "local.learning_rate=1e30",
    )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert re.match(
        r"fedlama: the (?:weights|loss) of client \d+ (?:were|was) not finite in round 1 .*diverged",
        done.stderr,
    )
    assert "local.learning_rate" in done.stderr
    assert not (tmp_path / "run" / "summary.json").exists()


def test_a_training_that_diverges_later_leaves_its_records(tiny, tmp_path):
    # x ← x − 0.1 · (g + 100 · x) multiplies the weights by −9 a step, until they are no numbers any more
    changes = ("--set", "local.weight_decay=100.0", "--set", "train.iterations=200")
    done = command("run", tiny, "--out", tmp_path / "run", "--workers", "2", *changes)
    assert done.returncode == 1
    *progress, last = done.stderr.splitlines()
    failed = re.match(
        r"fedlama: the (?:weights|loss) of client \d+ (?:were|was) not finite in round (\d+) ",
        last,
    )
    assert failed, done.stderr
    assert all(" · step " in line for line in progress)
    records = [
        json.loads(line)
        for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()
    ]
    assert [record["round"] for record in records] == list(range(1, int(failed[1])))
    assert len(records) > 1
    assert not (tmp_path / "run" / "summary.json").exists()


def test_ctrl_c_ends_the_run_and_keeps_its_records(tiny, tmp_path):
    changes = ("--workers", "2", "--set", "train.iterations=1000000")
    words = [
        sys.executable,
        "-m",
        "fedlama",
        "run",
        tiny,
        "--out",
        tmp_path / "run",
        *changes,
    ]
    records = tmp_path / "run" / "rounds.jsonl"
    with subprocess.Popen(
        words, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        while process.poll() is None and not (
            records.exists() and records.stat().st_size
        ):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode not in (0, 2), said
    assert "Traceback" not in said
    assert json.loads(records.read_text().splitlines()[0])["round"] == 1


# The shell helps.


def test_completion_in_bash(tmp_path):
    script = """
        source <(_FEDLAMA_COMPLETE=source_bash fedlama)
        COMP_WORDS=(fedlama re); COMP_CWORD=1; _fedlama_completion fedlama; echo "${COMPREPLY[@]}"
        COMP_WORDS=(fedlama run --se); COMP_CWORD=2; _fedlama_completion fedlama; echo "${COMPREPLY[@]}"
    """
    path = f"{SCRIPT.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env=environment(PATH=path),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    commands, options = done.stdout.splitlines()
    assert "report" in commands.split()
    assert options == "--set"
