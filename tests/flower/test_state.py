"""What Flower clients keep between rounds and windows, when it is damaged, too large, or no longer needed."""

from pathlib import Path

import pytest
import torch

pytest.importorskip("flwr", reason="fedlama[flower] is not installed")

from flwr.app import Context, RecordDict

import fedlama
from fedlama.base import InputError, RunError
from fedlama.flower import layerwise
from fedlama.flower import state as states
from fedlama.flower.state import ClientState, load_outliving, store_state
from fedlama.rows import describe
from flower.grid import MemoryGrid
from flower.test_strategy import CLIENTS, network, strategy, train

RUN, CLIENT, WIDTH = "abc", 3, 4


def context_of(folder):
    return Context(
        run_id=1,
        node_id=1,
        node_config={"state-folder": str(folder)},
        state=RecordDict(),
        run_config={},
    )


def keep(context, window):
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
    keep(context, 0)
    keep(context, 1)
    assert found(context, 2) == 1
    damage(path_of(tmp_path))
    assert found(context, 2) == 0
    # A torn file is no predecessor: the one before stays until there is a whole one.
    keep(context, 2)
    assert found(context, 3) == 2
    assert found(context, 2) == 0


def test_a_disk_that_is_full_leaves_the_files_as_they_are(tmp_path, monkeypatch):
    context = context_of(tmp_path)
    keep(context, 0)
    keep(context, 1)

    def full(*args, **options):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(states.os, "fsync", full)
        with pytest.raises(InputError, match="cannot be written"):
            keep(context, 2)
    assert found(context, 2) == 1
    assert found(context, 1) == 0


def test_a_window_that_is_played_three_times_begins_with_the_same_rows(tmp_path):
    context = context_of(tmp_path)
    keep(context, 0)
    for _ in range(3):
        assert found(context, 1) == 0
        keep(context, 1)
    assert found(context, 2) == 1


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
