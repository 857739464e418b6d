"""Flower runs that are resumed: killed in the first window, finished, or without a score."""

import json
import logging
import tomllib
from dataclasses import replace

import pytest
import torch

pytest.importorskip("flwr", reason="fedlama[flower] is not installed")

from flwr.app import Message, MetricRecord, RecordDict
from safetensors.torch import load_file

import fedlama
from fedlama.base import InputError, RunError
from fedlama.compress import Quantize, Rotate
from fedlama.flower import initial_arrays, layerwise
from fedlama.report.numbers.groups import compare_groups
from fedlama.report.page.parts import facts, setting_row
from fedlama.run.recorded import read_run
from flower.grid import MemoryGrid
from flower.test_strategy import (
    CLIENTS,
    ITERATIONS,
    LOCAL,
    PLAIN_SGD,
    SEED,
    app,
    evaluate,
    network,
    task_of,
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
    summary = read_run(tmp_path).summary
    assert summary.loss is None
    assert summary.iterations == ITERATIONS
    assert summary.seconds > 0
    compared = compare_groups([read_run(tmp_path)])[0].comparison
    assert setting_row(compared.settings[0], compared).progress == ""
    assert "a run took" in dict(facts(compared))
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


def after_round(last):
    """An evaluation in which the run is killed once so many rounds have ended."""

    def dies(round_, arrays):
        if round_ >= last:
            raise KilledError
        return evaluate(round_, arrays)

    return dies


def mixed(apps):
    """An app that is another one on some clients."""
    usual = app()

    def choose(message, context):
        client = context.node_config["partition-id"]
        return apps.get(client, usual)(message, context)

    return choose


def local_table(folder):
    """What a run directory says of how clients train; None where it says nothing."""
    config = tomllib.loads((folder / "config.toml").read_text())
    return config.get("local")


OTHER = fedlama.SGD(learning_rate=0.1, batch_size=4, momentum=0.5)


@pytest.mark.parametrize(
    ("before", "now"), [({}, {1: app(OTHER)}), ({1: app(OTHER)}, {})]
)
def test_how_clients_train_is_no_part_of_which_run_it_is(tmp_path, before, now, caplog):
    with pytest.raises(KilledError):
        start(
            strategy(),
            MemoryGrid(mixed(before), range(CLIENTS)),
            after_round(7),
            save_to=tmp_path,
        )
    recorded = local_table(tmp_path)
    assert (recorded is None) == bool(before)

    plan = strategy()
    train(MemoryGrid(mixed(now), range(CLIENTS)), plan, resume_from=tmp_path)
    assert plan.records[-1].step == ITERATIONS
    assert local_table(tmp_path) == recorded


def test_a_run_goes_on_without_the_client_that_trained_otherwise(tmp_path):
    differs = mixed({4: app(OTHER)})
    with pytest.raises(KilledError):
        start(
            strategy(),
            MemoryGrid(differs, range(CLIENTS)),
            after_round(7),
            save_to=tmp_path,
        )
    plan = strategy(wait=0.1)
    there = MemoryGrid(differs, range(CLIENTS - 1), population=CLIENTS)
    train(there, plan, resume_from=tmp_path)
    assert plan.records[-1].step == ITERATIONS


def test_clients_that_all_train_otherwise_than_before_are_told_of(tmp_path, caplog):
    with pytest.raises(KilledError):
        start(strategy(), grid(), after_round(7), save_to=tmp_path)
    lines = logged(
        caplog,
        lambda: train(
            MemoryGrid(app(OTHER), range(CLIENTS)), strategy(), resume_from=tmp_path
        ),
    )
    (line,) = {one for one in lines if "train otherwise" in one}
    assert "batch_size=4" in line


def logged(caplog, do):
    caplog.set_level("INFO", logger="flwr")
    logger = logging.getLogger("flwr")
    logger.addHandler(caplog.handler)
    try:
        do()
    finally:
        logger.removeHandler(caplog.handler)
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("code", [{}, {"uplink": Quantize(4), "downlink": Rotate(2.0)}])
def test_clients_that_keep_nothing_else_go_on_inside_a_window(tmp_path, code):
    def nodes(misbehave=None):
        return MemoryGrid(app(PLAIN_SGD), range(CLIENTS), misbehave=misbehave)

    options = {"window": ITERATIONS, **code}
    whole = strategy(**options)
    expected = train(nodes(), whole)
    # Four rounds are a cycle of eight steps, and the window is three of them.
    with pytest.raises(KilledError):
        start(strategy(**options), nodes(), after_round(7), save_to=tmp_path)

    steps = []

    def listen(partition, message, reply):
        if message.metadata.message_type == "train":
            steps.append(task_of(message)["step"])
        return reply

    resumed = strategy(**options)
    result = train(nodes(listen), resumed, resume_from=tmp_path)
    assert min(steps) == 8
    assert_same_weights(result, expected)
    for mine, theirs in zip(resumed.records, whole.records, strict=True):
        # The same clients, which are sent the whole model again
        if mine.step == 10:
            assert mine.downlink_bytes >= theirs.downlink_bytes
        else:
            assert mine.downlink_bytes == theirs.downlink_bytes
        assert replace(mine, downlink_bytes=0) == replace(theirs, downlink_bytes=0)


def test_momentum_and_error_feedback_need_the_whole_window(tmp_path):
    feedback = {"uplink": fedlama.compress.ErrorFeedback(Rotate(2.0))}
    for name, local, options in (
        ("momentum", LOCAL, {}),
        ("feedback", PLAIN_SGD, feedback),
    ):
        folder = tmp_path / name
        plan = strategy(window=ITERATIONS, **options)
        nodes = MemoryGrid(app(local), range(CLIENTS))
        with pytest.raises(KilledError):
            start(plan, nodes, after_round(7), save_to=folder)
        assert not list(folder.glob("checkpoint/step-*"))


def test_a_folder_without_a_run_is_told_of(tmp_path, caplog):
    folder = tmp_path / "none"
    lines = logged(caplog, lambda: train(grid(), strategy(), resume_from=folder))
    assert any(f"{folder} has no checkpoint" in line for line in lines)


def test_a_loop_of_ones_own_has_no_learning_rate_that_nobody_set(tmp_path):
    def train_by_hand(module, steps, context):
        return 0.5

    nodes = MemoryGrid(layerwise(network)(train_by_hand), range(CLIENTS))
    train(nodes, strategy(), iterations=8, save_to=tmp_path)
    run = read_run(tmp_path)
    assert "local" not in run.config
    assert run.summary.local == "a function"
    compared = compare_groups([run])[0].comparison
    shown = dict(facts(compared))
    assert "learning rate" not in shown
    assert "batch size" not in shown
    assert shown["steps"] == "8"
