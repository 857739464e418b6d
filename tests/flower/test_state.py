"""What Flower clients keep between rounds and windows, when it is damaged, too large, or no longer needed."""

import time
from pathlib import Path

import pytest
import torch

pytest.importorskip("flwr", reason="fedlama[flower] is not installed")

from flwr.app import Context, Message, RecordDict

import fedlama
from fedlama.base import InputError, RunError
from fedlama.compress import ErrorFeedback, TopK
from fedlama.flower import layerwise
from fedlama.flower import nodes as nodes_of_flower
from fedlama.flower import state as states
from fedlama.flower.state import (
    ClientState,
    forget_run,
    load_outliving,
    load_state,
    store_state,
)
from fedlama.rows import describe
from flower.grid import MemoryGrid
from flower.test_strategy import (
    CLIENTS,
    ITERATIONS,
    app,
    network,
    strategy,
    task_of,
    train,
)

RUN, CLIENT, WIDTH = "abc", 3, 4


def context_of(folder):
    return Context(
        run_id=1,
        node_id=1,
        node_config={"state-folder": str(folder)},
        state=RecordDict(),
        run_config={},
    )


def keep_in(context, window):
    """Store what outlives this window: a row of its number."""
    row = torch.full((WIDTH,), float(window))
    state = ClientState(tag="t", run=RUN, window=window, rows={"own": row})
    store_state(context, CLIENT, state, part="run")


def found(context, window):
    """The window whose row a client that enters this one finds; None where it finds nothing."""
    state = load_outliving(context, RUN, CLIENT, WIDTH, window=window)
    if not state.rows:
        return None
    return float(state.rows["own"][0])


def path_of(folder):
    return folder / f"fedlama-{RUN}-{CLIENT}.run.safetensors"


def tear(path):
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


@pytest.mark.parametrize("damage", [Path.unlink, tear])
def test_the_file_before_is_used_where_the_latest_is_missing_or_torn(tmp_path, damage):
    context = context_of(tmp_path)
    keep_in(context, 0)
    keep_in(context, 1)
    assert found(context, 2) == 1
    damage(path_of(tmp_path))
    assert found(context, 2) == 0
    # A torn file is no predecessor: the one before stays until there is a whole one.
    keep_in(context, 2)
    assert found(context, 3) == 2
    assert found(context, 2) == 0


def test_a_disk_that_is_full_leaves_the_files_as_they_are(tmp_path, monkeypatch):
    context = context_of(tmp_path)
    keep_in(context, 0)
    keep_in(context, 1)

    def full(*args, **options):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(states.os, "fsync", full)
        with pytest.raises(InputError, match="cannot be written"):
            keep_in(context, 2)
    assert found(context, 2) == 1
    assert found(context, 1) == 0


def test_a_window_that_is_played_three_times_begins_with_the_same_rows(tmp_path):
    context = context_of(tmp_path)
    keep_in(context, 0)
    for _ in range(3):
        assert found(context, 1) == 0
        keep_in(context, 1)
    assert found(context, 2) == 1


@pytest.mark.parametrize("broken_off_at", ["ArrayRecord", "ConfigRecord"])
def test_a_state_that_was_not_stored_to_its_end_counts_as_none(
    monkeypatch, broken_off_at
):
    """Flower keeps what was written before an exception: new rows must not stand under the tag before."""

    def state_of(round_):
        row = torch.full((WIDTH,), float(round_))
        return ClientState(tag=f"round {round_}", run=RUN, window=0, rows={"row": row})

    def fails(*_):
        raise MemoryError

    context = context_of("")
    store_state(context, CLIENT, state_of(1))
    assert load_state(context, RUN, CLIENT, WIDTH).tag == "round 1"
    with monkeypatch.context() as patch:
        patch.setattr(states, broken_off_at, fails)
        with pytest.raises(MemoryError):
            store_state(context, CLIENT, state_of(2))
    assert load_state(context, RUN, CLIENT, WIDTH).tag == ""


def test_a_state_that_is_too_large_is_refused_before_training(monkeypatch):
    trained = []

    def counts(module, steps, context):
        trained.append(steps)
        return 0.5

    # Row and anchor: two rows of the model's width, of which one alone would fit.
    width = describe(network()).width
    monkeypatch.setattr(states, "MAX_IN_CONTEXT", 2 * 4 * width - 1)
    grid = MemoryGrid(layerwise(network)(counts), range(CLIENTS))
    with pytest.raises(RunError, match="name a folder for it") as stopped:
        train(grid, strategy(on_too_few="stop"))
    assert not trained
    assert "state-folder" in str(stopped.value)

    # A window of one round keeps nothing, and so needs no room.
    train(grid, strategy(fedlama.FedAvg(2)))
    assert trained


def test_a_state_of_the_largest_size_is_kept(monkeypatch):
    width = describe(network()).width
    monkeypatch.setattr(states, "MAX_IN_CONTEXT", 2 * 4 * width)
    plan = strategy()
    train(MemoryGrid(layerwise(network)(lambda *_: 0.5), range(CLIENTS)), plan)
    assert not any(record.excluded for record in plan.records)


# -- when a run has ended


FEEDBACK_OVER_THE_RUN = ErrorFeedback(TopK(0.1), lifetime="run")


def left(grid):
    """What clients still hold in Flower's state, by client."""
    found = {}
    for context in grid.contexts.values():
        if context.state:
            found[context.node_config["partition-id"]] = sorted(context.state)
    return found


def forgotten(grid):
    """The clients that were asked to forget: all questions but the first, which is who they are."""
    asked = [partition for partition, kind, *_ in grid.sent if kind == "query"]
    return sorted(asked[CLIENTS:])


def empty_from(step, *clients):
    """These clients reply with nothing from this step on."""

    def misbehave(partition, message, reply):
        if message.metadata.message_type != "train" or partition not in clients:
            return reply
        if task_of(message)["step"] < step:
            return reply
        return Message(RecordDict(), reply_to=message)

    return misbehave


def test_what_outlives_windows_is_freed_on_clients_outside_the_last_cohort():
    grid = MemoryGrid(app(), range(CLIENTS))
    train(grid, strategy(uplink=FEEDBACK_OVER_THE_RUN))
    assert left(grid) == {}
    # Three of five are in the last window, and free theirs by themselves.
    assert len(forgotten(grid)) == 2


def test_a_client_that_was_excluded_in_the_last_window_keeps_nothing():
    # The last cycle of FedLAMA(2, 4) are the steps from 16 to 24.
    misbehave = empty_from(20, 0)
    grid = MemoryGrid(app(), range(CLIENTS), misbehave=misbehave)
    plan = strategy(clients=None)
    train(grid, plan)
    assert [entry["client"] for entry in plan.records[-2].excluded] == [0]
    assert left(grid) == {}
    assert forgotten(grid) == [0]


def test_where_everyone_ends_the_run_nobody_is_asked_to_forget():
    grid = MemoryGrid(app(), range(CLIENTS))
    train(grid, strategy(clients=None, uplink=FEEDBACK_OVER_THE_RUN))
    assert left(grid) == {}
    assert forgotten(grid) == []


@pytest.mark.parametrize("is_saved", [False, True])
def test_a_run_that_stops_keeps_what_it_needs_to_go_on(tmp_path, is_saved):
    # The first window ends at step 8; in the second nobody is left.
    misbehave = empty_from(12, *range(CLIENTS))
    grid = MemoryGrid(app(), range(CLIENTS), misbehave=misbehave)
    plan = strategy(clients=None, on_too_few="stop", uplink=FEEDBACK_OVER_THE_RUN)
    options = {"save_to": tmp_path} if is_saved else {}
    with pytest.raises(RunError, match="stopped at step 12"):
        train(grid, plan, **options)
    if is_saved:
        outliving = ["fedlama.state.run", "fedlama.state.run.tag"]
        assert left(grid) == dict.fromkeys(range(CLIENTS), outliving)
    else:
        assert left(grid) == {}


def test_files_of_a_run_that_has_ended_are_deleted(tmp_path):
    misbehave = empty_from(20, 0)
    node_config = {"state-folder": str(tmp_path)}
    grid = MemoryGrid(
        app(), range(CLIENTS), misbehave=misbehave, node_config=node_config
    )
    plan = strategy(clients=4, uplink=FEEDBACK_OVER_THE_RUN)
    train(grid, plan)
    assert forgotten(grid)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("keep", ["run", "nothing"])
def test_forgetting_leaves_no_file_of_the_run_and_all_of_others(tmp_path, keep):
    context = context_of(tmp_path)
    for window in (0, 1):
        keep_in(context, window)
    other = tmp_path / "fedlama-another-3.run.safetensors"
    other.touch()
    for part in ("window", "run"):
        (tmp_path / f"fedlama-{RUN}-{CLIENT}.{part}.partial").touch()
    forget_run(context, CLIENT, RUN, keep=keep)
    names = sorted(path.name for path in tmp_path.iterdir())
    if keep == "nothing":
        assert names == [other.name]
    else:
        assert found(context, 2) == 1
        assert not [name for name in names if ".window." in name]


def test_a_late_request_to_forget_leaves_the_state_of_the_next_run():
    context = context_of("")
    keep_in(context, 0)
    forget_run(context, CLIENT, "earlier", keep="nothing")
    assert found(context, 1) == 0
    forget_run(context, CLIENT, RUN, keep="nothing")
    assert not context.state


def test_a_client_that_does_not_say_that_it_forgot_delays_the_end_by_seconds_only(
    monkeypatch,
):
    def misbehave(partition, message, reply):
        is_question = message.metadata.message_type == "query"
        if is_question and "forget" in message.content.config_records["fedlama"]:
            return None
        return reply

    monkeypatch.setattr(nodes_of_flower, "FORGET_SECONDS", 1.0)
    grid = MemoryGrid(app(), range(CLIENTS), misbehave=misbehave)
    plan = strategy(deadline=600.0)
    started = time.monotonic()
    train(grid, plan, iterations=16)
    assert plan.records[-1].step == 16
    assert forgotten(grid)
    assert time.monotonic() - started < 60


def test_a_link_that_fails_at_the_end_does_not_spoil_the_result():
    class Failing(MemoryGrid):
        """It takes no message once the run has ended."""

        def push_messages(self, messages):
            for message in messages:
                records = message.content.config_records
                if "fedlama" in records and "forget" in records["fedlama"]:
                    raise ConnectionError("the SuperLink is gone")
            return super().push_messages(messages)

    plan = strategy()
    result = train(Failing(app(), range(CLIENTS)), plan, iterations=ITERATIONS)
    assert result.arrays is not None
    assert plan.records[-1].step == ITERATIONS
