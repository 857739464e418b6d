"""Flower runs that are resumed: killed in the first window, finished, or without a score."""

import json

import pytest
import torch

pytest.importorskip("flwr", reason="fedlama[flower] is not installed")

from flwr.app import Message, MetricRecord, RecordDict
from safetensors.torch import load_file

from fedlama.base import InputError, RunError
from fedlama.flower import initial_arrays
from fedlama.run.recorded import read_run
from flower.grid import MemoryGrid
from flower.test_strategy import (
    CLIENTS,
    ITERATIONS,
    SEED,
    app,
    evaluate,
    network,
    train,
)
from flower.test_strategy import strategy as strategy_of


class KilledError(Exception):
    """What ends a run here."""


def strategy(**options):
    return strategy_of(evaluate_every=1, **options)


def grid():
    return MemoryGrid(app(), range(CLIENTS))


def start(plan, grid, evaluate_fn, **options):
    return plan.start(
        grid,
        initial_arrays(network, SEED),
        iterations=ITERATIONS,
        evaluate_fn=evaluate_fn,
        **options,
    )


def assert_same_weights(result, expected):
    weights = result.arrays.to_torch_state_dict()
    for name, values in expected.arrays.to_torch_state_dict().items():
        assert torch.equal(weights[name], values)


def contents(folder):
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.name: path.read_bytes() for path in files}


def test_a_run_that_was_killed_in_its_first_window_begins_anew(tmp_path):
    def dies(round_, arrays):
        raise KilledError

    with pytest.raises(KilledError):
        start(strategy(window=24), grid(), dies, save_to=tmp_path)
    assert not list(tmp_path.glob("checkpoint/step-*"))
    assert (tmp_path / "rounds.jsonl").exists()

    with pytest.raises(InputError, match="go on with it by resume_from") as refused:
        train(grid(), strategy(window=24), save_to=tmp_path)
    assert "--" not in str(refused.value)
    with pytest.raises(InputError, match=r"of another configuration: participation\."):
        train(grid(), strategy(window=16), resume_from=tmp_path)

    whole = strategy(window=24)
    expected = train(grid(), whole)
    resumed = strategy(window=24)
    result = train(grid(), resumed, resume_from=tmp_path)
    assert resumed.records == whole.records
    assert read_run(tmp_path).records == whole.records
    assert_same_weights(result, expected)


def test_the_seconds_of_a_run_that_is_resumed_go_on(tmp_path):
    def dies(round_, arrays):
        if round_ >= 7:
            raise KilledError
        return evaluate(round_, arrays)

    with pytest.raises(KilledError):
        start(strategy(), grid(), dies, save_to=tmp_path)
    path = tmp_path / "timings.jsonl"
    # As if every round before the break had taken an hour.
    before = [json.loads(line) for line in path.read_text().splitlines()]
    slow = [{**timing, "seconds": 3600.0 * timing["round"]} for timing in before]
    path.write_text("".join(json.dumps(timing) + "\n" for timing in slow))

    plan = strategy()
    train(grid(), plan, resume_from=tmp_path)
    timings = [json.loads(line) for line in path.read_text().splitlines()]
    rounds = [timing["round"] for timing in timings]
    assert rounds == [record.round for record in plan.records]
    seconds = [timing["seconds"] for timing in timings]
    assert seconds == sorted(seconds)
    # The first cycle's four rounds were kept, and the others took no hour.
    assert seconds[3] == 4 * 3600
    assert seconds[-1] < 5 * 3600


def test_a_file_in_place_of_a_folder_is_named(tmp_path):
    path = tmp_path / "file"
    path.write_text("")
    with pytest.raises(InputError, match=r"is a file; .* choose another save_to"):
        train(grid(), strategy(), save_to=path)


def test_a_finished_run_is_not_trained_again(tmp_path):
    plan = strategy()
    expected = train(grid(), plan, save_to=tmp_path)
    before = contents(tmp_path)
    assert "summary.json" in before

    again = strategy()
    asked = grid()
    result = train(asked, again, resume_from=tmp_path)
    assert not [kind for _, kind, *_ in asked.sent if kind == "train"]
    assert again.records == plan.records
    assert_same_weights(result, expected)
    assert contents(tmp_path) == before

    with pytest.raises(InputError, match=r"another configuration: train\.iterations"):
        train(grid(), strategy(), iterations=2 * ITERATIONS, resume_from=tmp_path)
    (tmp_path / "checkpoint" / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(InputError, match="does not hold the weights of this model"):
        train(grid(), strategy(), resume_from=tmp_path)


def accuracy_alone(round_, arrays):
    return MetricRecord({"accuracy": evaluate(round_, arrays)["accuracy"]})


@pytest.mark.parametrize("evaluate_fn", [None, accuracy_alone])
def test_a_run_without_a_loss_writes_its_model_and_is_finished(tmp_path, evaluate_fn):
    plan = strategy()
    expected = start(plan, grid(), evaluate_fn, save_to=tmp_path)
    assert read_run(tmp_path).summary is None
    written = load_file(tmp_path / "checkpoint" / "model.safetensors")
    for name, values in expected.arrays.to_torch_state_dict().items():
        assert torch.equal(written[name], values)

    before = contents(tmp_path)
    again = strategy()
    asked = grid()
    result = start(again, asked, evaluate_fn, resume_from=tmp_path)
    assert not [kind for _, kind, *_ in asked.sent if kind == "train"]
    assert again.records == plan.records
    assert_same_weights(result, expected)
    assert contents(tmp_path)["rounds.jsonl"] == before["rounds.jsonl"]


def test_resume_from_is_recommended_only_where_something_was_saved(tmp_path):
    def never(partition, message, reply):
        if message.metadata.message_type == "train":
            return Message(RecordDict(), reply_to=message)
        return reply

    for options, is_recommended in (({}, False), ({"save_to": tmp_path}, True)):
        nodes = MemoryGrid(app(), range(CLIENTS), misbehave=never)
        with pytest.raises(RunError) as stopped:
            train(nodes, strategy(on_too_few="stop"), **options)
        assert ("resume_from" in str(stopped.value)) == is_recommended
