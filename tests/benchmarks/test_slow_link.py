"""The slow link: what is read from a run, what the replay predicts from it, and what is said where it cannot run.

And the programs that start a federation, here and in examples/flower, with a stand-in for it.
"""

import json
import os
import signal
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="fedlama[flower] is not installed")

import deploy
from benchmarks.slow_link import __main__ as slow_link
from benchmarks.slow_link import links, page
from benchmarks.slow_link.__main__ import APP, chunk_for, read
from benchmarks.slow_link.page import Measurement, publish
from benchmarks.slow_link.prediction import fitted, largest_error, predict
from benchmarks.slow_link.runs import Run
from federation import leave_when_asked
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from torch import nn

import fedlama
from fedlama.flower import LayerwiseStrategy, initial_arrays
from flower.grid import MemoryGrid

# Ctrl-C, a supervisor's, and that of a terminal which is closed
ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def a_run(rate, megabytes, seconds, **more):
    """Ten rounds in which each client moves so many megabytes each way, in so many seconds each."""
    moved = 10 * megabytes * 1e6
    each = [megabytes * 1e6] * 10
    run = Run(
        rate=rate,
        setting="fedlama",
        rounds=10,
        seconds=10 * seconds,
        up=moved,
        down=moved,
        ledger_up=moved,
        ledger_down=moved,
        round_up=each,
        round_down=each,
        target_rounds=5,
        target_seconds=5 * seconds,
    )
    return replace(run, **more)


def page_of(runs):
    """The page of these runs."""
    return publish(Measurement("slow_link", 0.85, {"memory": "25 GB"}, runs), None)


def test_the_fixed_time_has_the_smallest_largest_error_of_a_rate():
    # Bytes take 2 s a round of the small run and 40 of the large one. With 14 s on top that is 16 and 54 s, and off by
    # -20 % and +20 %: as far as each other, so that every other time brings one of them further away.
    small = a_run(10e6, 1.25, 20.0)
    large = a_run(10e6, 25.0, 45.0)
    # At 2 Mbit/s bytes take 200 s: alone on its links, it is met.
    slow = a_run(2e6, 25.0, 210.0)
    overheads = predict([large, slow, small])
    assert overheads == pytest.approx({10e6: 14.0, 2e6: 10.0})
    assert small.predicted == pytest.approx(10 * (14 + 2))
    assert large.predicted == pytest.approx(10 * (14 + 40))
    assert slow.predicted == pytest.approx(10 * (10 + 200))
    assert slow.predicted_target == pytest.approx(5 * (10 + 200))
    assert (small.off, large.off) == pytest.approx((-0.2, 0.2))


def test_no_other_fixed_time_has_a_smaller_largest_error():
    runs = [
        a_run(10e6, megabytes, seconds)
        for megabytes, seconds in [(2, 13.6), (13, 36.3), (17, 41.9), (26, 62.3)]
    ]
    best = fitted(runs)
    least = largest_error(runs, best)
    for tenths in range(600):
        assert largest_error(runs, tenths / 10) >= least
    # Where bytes alone take longer than the rounds did, nothing is taken off them.
    assert fitted([a_run(10e6, 25.0, 30.0)]) == 0


def test_a_run_that_is_left_out_is_predicted_by_the_others():
    # Alone, the small run would have 18 s and the large one 5 s on top of its bytes.
    small = a_run(10e6, 1.25, 20.0)
    large = a_run(10e6, 25.0, 45.0)
    slow = a_run(2e6, 25.0, 210.0)
    predict([small, large, slow])
    assert small.predicted_by_others == pytest.approx(10 * (2 + 5))
    assert large.predicted_by_others == pytest.approx(10 * (40 + 18))
    assert small.off_by_others == pytest.approx(7 / 20 - 1)
    assert slow.predicted_by_others is None
    assert slow.off_by_others is None


def test_the_way_to_the_target_has_the_bytes_of_the_rounds_on_it():
    # All of it in the first cycle, nothing afterwards: 100 MB each way, so 25 in each of the first four rounds.
    small = a_run(10e6, 1.25, 12.0)
    first_cycle = [25e6] * 4 + [0.0] * 6
    lama = a_run(10e6, 10.0, 26.0, round_up=first_cycle, round_down=first_cycle)
    lama.target_rounds = 4
    assert predict([small, lama]) == pytest.approx({10e6: 10.0})
    # 10 MB each way take 16 s at 10 Mbit/s.
    assert lama.predicted == pytest.approx(10 * (10 + 16))
    assert lama.predicted_target == pytest.approx(4 * (10 + 40))


def test_without_the_bytes_of_rounds_only_the_whole_run_is_predicted():
    small = a_run(10e6, 1.25, 12.0)
    early = a_run(10e6, 10.0, 26.0, round_up=[], round_down=[])
    predict([small, early])
    assert early.predicted == pytest.approx(10 * (10 + 16))
    assert early.predicted_target is None
    early.target_rounds = early.rounds
    predict([small, early])
    assert early.predicted_target == early.predicted


def test_the_page_says_how_many_predictions_are_close_also_where_they_are_left_out():
    alone = a_run(10e6, 1.25, 12.0)
    page_of_one = page_of([alone])
    assert "--round-overhead 10.0s" in page_of_one
    assert "what was measured:" not in page_of_one
    # Beside their bytes the rounds took 10 of 12, 10 of 50 and 24 of 40 s. The first and the last are equally far off
    # where (x - 10) / 12 = (24 - x) / 40, which is at 13.23 s: 26.9 %.
    # Left out, the first is predicted with 17.78 s, where (x - 10) / 50 = (24 - x) / 40: 19.78 of 12 s, or +64.8 %.
    # The second then has 13.23 s as before, and the last 10 s: 26 of 40, or -35 %.
    close = a_run(10e6, 25.0, 50.0)
    far = a_run(10e6, 10.0, 40.0)
    text = page_of([alone, close, far])
    assert "--round-overhead 13.2s" in text
    assert "measured: 1 of 3 with the time fitted to all,\n" in text
    assert "1 of 3 where a run is left out of the fit; the largest errors are" in text
    assert "are 26.9% and 64.8%." in text


def test_on_slow_links_flowers_pieces_are_small_unless_others_are_asked_for():
    assert chunk_for(10e6, None) is None
    assert chunk_for(3e6, None) is None
    assert chunk_for(2e6, None) == 1_048_576
    assert chunk_for(2e6, 5_242_880) == 5_242_880
    assert chunk_for(10e6, 65_536) == 65_536


def test_the_page_names_the_links_with_other_pieces():
    fast = a_run(10e6, 1.25, 12.0)
    slow = a_run(2e6, 1.25, 20.0, chunk=1_048_576)
    text = page_of([fast, slow])
    variable = page.CHUNK_VARIABLE
    assert f"At 2 Mbit/s every process has `{variable}=1048576`." in text
    assert text.count(variable) == 1
    assert variable not in page_of([fast])


def test_a_run_is_read_from_its_folder_and_the_counters(tmp_path):
    records = [
        {"round": 1, "accuracy": 0.5, "uplink_bytes": 400, "downlink_bytes": 500},
        {"round": 2, "accuracy": None, "uplink_bytes": 0, "downlink_bytes": 100},
        {"round": 3, "accuracy": 0.9, "uplink_bytes": 200, "downlink_bytes": 200},
    ]
    timings = [{"round": number, "seconds": 10.0 * number} for number in (1, 2, 3)]
    (tmp_path / "rounds.jsonl").write_text(
        "\n".join(json.dumps(record) for record in records)
    )
    (tmp_path / "timings.jsonl").write_text(
        "\n".join(json.dumps(timing) for timing in timings)
    )
    (tmp_path / "summary.json").write_text(
        json.dumps({"uplink_bytes": 600, "downlink_bytes": 800})
    )
    run = read(tmp_path, "fedlama", 1e6, (100, 200), (900, 1200), target=0.8)
    assert (run.rounds, run.seconds) == (3, 30.0)
    assert (run.up, run.down) == (400, 500)
    assert (run.ledger_up, run.ledger_down) == (300, 400)
    # Two clients: half of what the records add up
    assert run.round_up == [200, 0, 100]
    assert run.round_down == [250, 50, 100]
    assert (run.target_rounds, run.target_seconds) == (3, 30.0)


def test_a_page_is_made_anew_from_its_file(monkeypatch, tmp_path, capsys):
    runs = [a_run(10e6, 1.25, 12.0), a_run(2e6, 25.0, 200.0, chunk=1_048_576)]
    measured = Measurement("as it was called", 0.7, {"took": "3 minutes"}, runs)
    text = publish(measured, tmp_path / "page.md")
    assert "`as it was called`" in text
    assert "10 rounds of" in text
    assert "an accuracy of 0.7." in text
    monkeypatch.setattr(
        sys, "argv", ["slow_link", "--from", str(tmp_path / "page.json")]
    )
    slow_link.main()
    assert capsys.readouterr().out == f"{text}\n"


def test_what_was_written_by_hand_below_a_page_stays_there(
    monkeypatch, tmp_path, capsys
):
    written = tmp_path / "page.md"
    runs = [a_run(10e6, 1.25, 12.0)]
    about = {"memory": "25 GB", "took": "3 minutes"}
    text = publish(Measurement("as it was called", 0.7, about, runs), written)
    notes = "\nOther programs ran beside it.\n\n* They were slow.\n"
    written.write_text(text.replace("A slow link", "An old title") + notes)
    command = ["slow_link", "--from", str(tmp_path / "page.json")]
    monkeypatch.setattr(sys, "argv", [*command, "--write", str(written)])
    slow_link.main()
    assert written.read_text() == text + notes
    assert capsys.readouterr().out == f"{text}{notes}\n"


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("--rates", "-1", "--rates must be above 0, not -1"),
        ("--rates", "0", "--rates must be above 0, not 0"),
        ("--rates", "nan", "--rates must be above 0, not nan"),
        ("--rounds", "0", "--rounds must be at least 1, not 0"),
        ("--chunk", "0", "--chunk must be at least 1, not 0"),
        ("--target", "0", "--target must be above 0 and below 1, not 0"),
        ("--target", "1", "--target must be above 0 and below 1, not 1"),
        ("--target", "85", "--target must be above 0 and below 1, not 85"),
    ],
)
def test_numbers_that_no_run_can_have_are_refused(
    monkeypatch, capsys, option, value, sentence
):
    def measures():
        raise AssertionError("something was measured")

    monkeypatch.setattr(slow_link, "missing", measures)
    monkeypatch.setattr(sys, "argv", ["slow_link", f"{option}={value}"])
    with pytest.raises(SystemExit) as ending:
        slow_link.main()
    assert ending.value.code == 2
    assert capsys.readouterr().err.endswith(f"error: {sentence}\n")


def test_files_of_earlier_measurements_are_read(monkeypatch, tmp_path, capsys):
    # As slow_link wrote them: sums only, and neither the command nor the target nor the pieces
    early = []
    for setting, target in ("frugal-both", 10), ("fedlama", 4), ("flower", 5):
        megabytes = 1.25 if setting == "frugal-both" else 25.0
        seconds = 12.0 if setting == "frugal-both" else 50.0
        run = a_run(10e6, megabytes, seconds, setting=setting, target_rounds=target)
        values = asdict(run)
        for name in ("round_up", "round_down", "chunk", "predicted_by_others"):
            del values[name]
        early.append(values)
    file = tmp_path / "early.json"
    plain = {"about": {"took": "25 minutes"}, "round_overhead": 1.0, "runs": early}
    file.write_text(json.dumps(plain))
    monkeypatch.setattr(
        sys, "argv", ["slow_link", "--from", str(file), "--chunk", "65536"]
    )
    slow_link.main()
    text = capsys.readouterr().out
    assert f"`{page.CHUNK_VARIABLE}=65536`" in text
    assert "* took: 25 minutes" in text
    predicted = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 2 + len(page.HEADINGS):
            predicted[cells[2]] = cells[-2]
    # 10 s of overhead; 25 MB each way take 40. Nobody knows what FedLAMA's first four rounds moved.
    assert predicted["frugal, coded downlink"] == "120 s"
    assert predicted["FedLAMA(6, 4)"] == "–"
    assert predicted["Flower's FedAvg"] == "250 s"


def test_it_says_what_is_missing_and_stops(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["slow_link"])
    monkeypatch.setattr(links.shutil, "which", lambda program: None)
    with pytest.raises(
        SystemExit, match=r"slow_link cannot run here: ip is not installed"
    ):
        slow_link.main()
    monkeypatch.setattr(links.shutil, "which", lambda program: f"/sbin/{program}")
    monkeypatch.setattr(links.os, "geteuid", lambda: 1000)
    with pytest.raises(SystemExit, match="network namespaces need root"):
        slow_link.main()


class StandIn:
    """In place of a federation and of links: nothing is started, a run has its summary at once."""

    ended = 0

    def __init__(self, *arguments, **options):
        self.environment = {}
        self.port = 9092
        self.rate = 2e6
        self.server = ()
        self.addresses = []

    def __enter__(self):
        return self

    def __exit__(self, *problem):
        # Asked to end once more, in every way: what has begun is not broken off.
        if problem[0] is SystemExit:
            for ending in ENDINGS:
                os.kill(os.getpid(), ending)
        StandIn.ended += 1

    def address(self, index):
        return f"10.77.{index}.1"

    def client(self, index):
        return ()

    def passed(self):
        return 0, 0

    def start_supernode(self, *arguments, **options):
        pass

    def run(self, app, *, save_to, setting, **options):
        out = Path(save_to)
        out.mkdir()
        summary = {
            "accuracy": 0.9,
            "uplink_bytes": 4000,
            "downlink_bytes": 8000,
            "seconds": 5.0,
        }
        (out / "summary.json").write_text(json.dumps(summary))
        return "1"

    def wait_for(self, run, sign):
        assert sign.exists()


class AskedToEnd(StandIn):
    """The program is asked to end while it waits for a run."""

    how = signal.SIGTERM

    def wait_for(self, run, sign):
        os.kill(os.getpid(), self.how)


@pytest.fixture
def terminable(monkeypatch):
    """What ends a program fails the test in place of ending all tests, and is what it was afterwards."""

    def not_handled(number, _):
        raise AssertionError(f"the program does not handle signal {number}")

    before = {ending: signal.signal(ending, not_handled) for ending in ENDINGS}
    monkeypatch.setattr(StandIn, "ended", 0)
    yield
    for ending, handler in before.items():
        signal.signal(ending, handler)


def test_the_example_deploys_every_setting_and_prints_a_table(
    terminable, monkeypatch, capsys
):
    monkeypatch.setattr(sys, "argv", ["deploy.py"])
    monkeypatch.setattr(deploy, "Federation", StandIn)
    deploy.main()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(deploy.SETTINGS)
    assert lines[1].split() == ["FedAvg", "0.900", "4", "8", "5"]
    assert StandIn.ended == 1


@pytest.mark.parametrize("how", ENDINGS)
def test_asked_to_end_the_example_ends_what_it_started(terminable, monkeypatch, how):
    monkeypatch.setattr(sys, "argv", ["deploy.py", "fedavg"])
    monkeypatch.setattr(deploy, "Federation", AskedToEnd)
    monkeypatch.setattr(AskedToEnd, "how", how)
    with pytest.raises(SystemExit) as ending:
        deploy.main()
    assert ending.value.code == 128 + how
    assert StandIn.ended == 1


def test_what_is_to_be_ignored_stays_ignored(terminable):
    """As nohup has it, with which a program outlives its terminal."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    leave_when_asked()
    os.kill(os.getpid(), signal.SIGHUP)


def test_asked_to_end_the_benchmark_ends_what_it_started(terminable, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["slow_link", "--rates", "2"])
    monkeypatch.setattr(slow_link, "missing", lambda: "")
    monkeypatch.setattr(slow_link, "Links", StandIn)
    monkeypatch.setattr(slow_link, "Federation", AskedToEnd)
    with pytest.raises(SystemExit) as ending:
        slow_link.main()
    assert ending.value.code == 143
    # The federation, and then the links
    assert StandIn.ended == 2


@pytest.fixture
def slow_app(monkeypatch):
    """The modules of the app that the links carry."""
    monkeypatch.syspath_prepend(str(APP))
    from slow_app import client, server, task

    yield client, server, task
    for name in [name for name in sys.modules if name.startswith("slow_app")]:
        del sys.modules[name]


def test_its_clients_train_for_both_strategies(slow_app):
    client, _, task = slow_app
    grid = MemoryGrid(client.app, range(task.CLIENTS))
    strategy = LayerwiseStrategy(fedlama.FedAvg(1), seed=task.SEED)
    first = initial_arrays(task.network, task.SEED)
    strategy.start(grid, first, iterations=1)
    assert [record.excluded for record in strategy.records] == [[]]

    # A round as Flower's own FedAvg asks for it
    content = RecordDict(
        {
            "arrays": ArrayRecord(task.network().state_dict()),
            "config": ConfigRecord({"server-round": 1}),
        }
    )
    asked = Message(content, dst_node_id=1, message_type="train")
    reply = client.app(asked, grid.context(0))
    assert set(reply.content["arrays"]) == set(first)
    assert reply.content["metrics"]["num-examples"] > 0


class OnlyEvaluates:
    """In place of Flower's FedAvg: nobody trains, every round is evaluated."""

    def __init__(self, **options):
        pass

    def start(self, *, initial_arrays, num_rounds, evaluate_fn, **others):
        for number in range(num_rounds + 1):
            evaluate_fn(number, initial_arrays)


def test_flowers_own_rounds_are_written_with_their_bytes(
    slow_app, monkeypatch, tmp_path
):
    _, server, task = slow_app
    monkeypatch.setattr(server, "FedAvg", OnlyEvaluates)
    monkeypatch.setattr(server, "evaluate", lambda arrays: {"accuracy": 0.9})
    monkeypatch.setattr(server, "network", lambda: nn.Linear(3, 2))
    out = tmp_path / "flower"
    server.train_with_flower(None, {"save-to": str(out), "rounds": 3})
    run = read(out, "flower", 1e6, (0, 0), (0, 0), target=0.8)
    arrays = initial_arrays(lambda: nn.Linear(3, 2), task.SEED)
    model = sum(len(array.data) for array in arrays.values())
    assert run.round_up == run.round_down == [model] * 3
    assert run.ledger_up == run.ledger_down == 3 * model
