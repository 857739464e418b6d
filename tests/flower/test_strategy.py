"""The Flower runtime without processes: the real client app and strategy over a grid in memory."""

import copy
import json
import logging
import os
import pickle
import subprocess
import sys
from dataclasses import dataclass

import pytest
import torch

pytest.importorskip("flwr", reason="fedlama[flower] is not installed")

from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod, fixedclipping_mod
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from torch import nn

import fedlama
from fedlama.base import InputError, RunError
from fedlama.compress import Cast, Chain, ErrorFeedback, LowRank, Quantize, Rotate, TopK
from fedlama.data import digits
from fedlama.flower import LayerwiseStrategy, client_app, initial_arrays, layerwise
from fedlama.flower.codes import codec_from_plain, codec_to_plain
from fedlama.run.recorded import read_run
from fedlama.training.evaluation import accuracy
from flower.grid import MemoryGrid

CLIENTS, SEED, ITERATIONS = 5, 3, 24
PARTITION = fedlama.Dirichlet(clients=CLIENTS, alpha=1.0)
LOCAL = fedlama.SGD(learning_rate=0.1, batch_size=8, momentum=0.5)
POLICY = fedlama.FedLAMA(2, 4)


def network():
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, 12),
        nn.BatchNorm1d(12),
        nn.ReLU(),
        nn.Linear(12, 10),
    )


def app(local=LOCAL):
    return client_app(network, digits(), local=local, partition=PARTITION)


def evaluate(round_, arrays):
    data = digits()
    module = network()
    module.load_state_dict(arrays.to_torch_state_dict())
    module.eval()
    with torch.no_grad():
        outputs = module(data.inputs(data.x_test))
    loss = nn.functional.cross_entropy(outputs, data.y_test)
    return MetricRecord(
        {"accuracy": float(accuracy(outputs, data.y_test)), "loss": float(loss)}
    )


def strategy(policy=POLICY, **options):
    options = {"clients": 3, "seed": SEED, "deadline": 20.0, "wait": 5.0, **options}
    return LayerwiseStrategy(policy, **options)


def train(grid, plan, iterations=ITERATIONS, **options):
    return plan.start(
        grid,
        initial_arrays(network, SEED),
        iterations=iterations,
        evaluate_fn=evaluate,
        **options,
    )


def simulated(
    policy=POLICY, iterations=ITERATIONS, local=LOCAL, participation=3, **options
):
    return fedlama.simulate(
        network,
        digits(),
        policy=policy,
        local=local,
        partition=PARTITION,
        participation=participation,
        iterations=iterations,
        seed=SEED,
        execution="one-by-one",
        **options,
    )


def assert_same_run(result, plan, expected, *, bytes_apart=0):
    for mine, theirs in zip(plan.records, expected.records, strict=True):
        assert mine.intervals == theirs.intervals
        assert mine.due == theirs.due
        assert mine.step == theirs.step
        assert mine.loss == pytest.approx(theirs.loss, rel=1e-5)
        assert mine.accuracy == theirs.accuracy
        assert mine.uplink_bytes == pytest.approx(theirs.uplink_bytes, abs=bytes_apart)
        assert mine.downlink_bytes == pytest.approx(
            theirs.downlink_bytes, abs=bytes_apart
        )
        assert mine.uplink_share == pytest.approx(theirs.uplink_share, rel=0.01)
        assert mine.to_plain().keys() == theirs.to_plain().keys()
    trained = result.arrays.to_torch_state_dict()
    for name, values in expected.model.state_dict().items():
        torch.testing.assert_close(trained[name], values, rtol=1e-5, atol=1e-6)


CODES = {
    "nothing": {},
    "uplink": {"uplink": ErrorFeedback(Rotate(1.6))},
    "both": {"uplink": Quantize(4), "downlink": Rotate(2.0)},
    "feedback over the run": {"uplink": ErrorFeedback(TopK(0.1), lifetime="run")},
}


@pytest.mark.parametrize("code", CODES)
def test_three_cycles_with_partial_participation_are_those_of_the_simulator(code):
    plan = strategy(**CODES[code])
    result = train(MemoryGrid(app(), range(CLIENTS)), plan)
    # The simulator reckons what the entropy coder would give, to within 8 bytes for each of 3 messages.
    assert_same_run(
        result, plan, simulated(**CODES[code]), bytes_apart=24 if CODES[code] else 0
    )


@pytest.mark.parametrize(
    ("policy", "options", "others"),
    [
        (fedlama.FedAvg(3), {"weights": "samples"}, {"weights": "samples"}),
        (
            POLICY,
            {"server": fedlama.server.Momentum(0.9)},
            {"server": fedlama.server.Momentum(0.9)},
        ),
        (
            POLICY,
            {"window": 16, "layers": "module"},
            {"window": 16, "layers": "module"},
        ),
        (fedlama.FedLUAR(2, recycled=1), {"window": 8}, {"window": 8}),
        (
            fedlama.FedPart(2, groups=2, full_rounds=1, group_rounds=1),
            {"window": 12},
            {"window": 12},
        ),
        (fedlama.Budget(2, 8, 0.5), {}, {}),
        # Of frugal: the schedule of FedAvg(2), so that new clients come in every round
        (fedlama.Budget(2, 8, 1.0), {"window": 2}, {"window": 2}),
    ],
)
def test_weights_server_rules_windows_and_modules_are_those_of_the_simulator(
    policy, options, others
):
    plan = strategy(policy, **options)
    result = train(MemoryGrid(app(), range(CLIENTS)), plan)
    assert_same_run(result, plan, simulated(policy, **others))


def test_fedprox_has_its_anchor():
    local = fedlama.FedProx(LOCAL, mu=0.5)
    plan = strategy()
    result = train(MemoryGrid(app(local), range(CLIENTS)), plan)
    assert_same_run(result, plan, simulated(local=local))


PLAIN_SGD = fedlama.SGD(learning_rate=0.1, batch_size=8)
UNEVEN_SGD = fedlama.SGD(learning_rate=0.1, batch_size=8, momentum=0.5, steps=(1, 4))


@pytest.mark.parametrize(
    ("local", "options"),
    [
        (fedlama.Scaffold(PLAIN_SGD), {}),
        (fedlama.Scaffold(PLAIN_SGD), {"downlink": Rotate(4.0)}),
        (fedlama.FedDyn(LOCAL, alpha=0.1), {}),
        (fedlama.FedNova(UNEVEN_SGD), {}),
        (fedlama.FedNova(UNEVEN_SGD), {"uplink": Rotate(4.0)}),
    ],
)
def test_rules_with_a_part_on_the_server_are_those_of_the_simulator(local, options):
    plan = strategy(local=local, **options)
    grid = MemoryGrid(app(local), range(CLIENTS))
    result = train(grid, plan)
    assert_same_run(
        result,
        plan,
        simulated(local=local, **options),
        bytes_apart=24 if options else 0,
    )
    assert not any(context.state for context in grid.contexts.values())


@pytest.mark.parametrize("local", [UNEVEN_SGD, fedlama.FedNova(UNEVEN_SGD)])
def test_a_client_without_a_step_in_a_round_is_that_of_the_simulator(local):
    policy = fedlama.FedLAMA(6, 3, "accelerate")
    plan = strategy(policy, local=local)
    result = train(MemoryGrid(app(local), range(CLIENTS)), plan)
    assert any(record.step % 6 for record in plan.records)
    assert_same_run(result, plan, simulated(policy, local=local))


def test_client_and_strategy_must_mean_the_same_rule():
    for rule in (
        fedlama.Scaffold(PLAIN_SGD),
        fedlama.FedNova(PLAIN_SGD),
        fedlama.FedDyn(PLAIN_SGD, alpha=0.1),
    ):
        with pytest.raises(
            RunError, match="has a part on the server: pass the same local="
        ):
            train(MemoryGrid(app(rule), range(CLIENTS)), strategy(wait=0.1))
    with pytest.raises(RunError, match="this client trains with SGD"):
        train(
            MemoryGrid(app(PLAIN_SGD), range(CLIENTS)),
            strategy(local=fedlama.FedNova(PLAIN_SGD), wait=0.1),
        )
    with pytest.raises(InputError, match="local must be made with"):
        strategy(local=fedlama.FedNova)


def test_what_outlives_a_window_is_found_again_by_a_run_that_is_resumed(tmp_path):
    class KilledError(Exception):
        pass

    def dies(round_, arrays):
        if round_ >= 7:
            raise KilledError
        return evaluate(round_, arrays)

    local = fedlama.Scaffold(PLAIN_SGD)
    options = {"local": local, "evaluate_every": 1}
    whole = strategy(**options)
    expected = train(MemoryGrid(app(local), range(CLIENTS)), whole)
    node_config = {"state-folder": str(tmp_path / "state")}
    grid = MemoryGrid(app(local), range(CLIENTS), node_config=node_config)
    with pytest.raises(KilledError):
        strategy(**options).start(
            grid,
            initial_arrays(network, SEED),
            iterations=ITERATIONS,
            evaluate_fn=dies,
            save_to=tmp_path / "cut",
        )
    # Other contexts, as in another run of Flower; only the folder stays.
    grid = MemoryGrid(app(local), range(CLIENTS), node_config=node_config)
    resumed = strategy(**options)
    result = train(grid, resumed, resume_from=tmp_path / "cut")
    assert resumed.records == whole.records
    # Also of clients that trained before the break only
    assert list((tmp_path / "state").iterdir()) == []
    for name, values in expected.arrays.to_torch_state_dict().items():
        assert torch.equal(result.arrays.to_torch_state_dict()[name], values)


def test_the_ledger_counts_the_bytes_of_the_arrays():
    for options in CODES.values():
        plan = strategy(**options)
        grid = MemoryGrid(app(), range(CLIENTS))
        train(grid, plan)
        trained = [entry for entry in grid.sent if entry[1] == "train"]
        assert sum(up for *_, up in trained) == sum(
            record.uplink_bytes for record in plan.records
        )
        # A broadcast is charged what the entropy coder would give, to within 8 bytes of what it gives.
        down = sum(down for *_, down, _ in trained)
        assert down == pytest.approx(
            sum(record.downlink_bytes for record in plan.records), abs=8 * len(trained)
        )


def test_a_state_kept_in_a_file_gives_the_same_run(tmp_path):
    plan = strategy()
    grid = MemoryGrid(
        app(), range(CLIENTS), node_config={"state-folder": str(tmp_path)}
    )
    result = train(grid, plan)
    assert_same_run(result, plan, simulated())
    assert not list(tmp_path.iterdir())  # freed at each window's end
    assert all(not context.state for context in grid.contexts.values())


def test_a_client_that_lost_its_state_gets_the_whole_model_at_once():
    def forgets(partition, message, reply):
        if message.metadata.message_type == "train":
            for name in list(grid.context(partition).state):
                del grid.context(partition).state[name]
        return reply

    grid = MemoryGrid(app(), range(CLIENTS), misbehave=forgets)
    plan = strategy()
    train(grid, plan)
    assert plan.records[-1].step == ITERATIONS
    assert not any(record.excluded for record in plan.records)
    # Every round inside a cycle is asked twice: once for nothing, once with the whole model.
    inside = sum(record.step % 8 != 2 for record in plan.records)
    assert inside > 0
    asked = sum(kind == "train" for _, kind, *_ in grid.sent)
    assert asked == 3 * (len(plan.records) + sum(_begins_inside(plan.records)))


def test_a_client_with_an_older_state_gets_the_whole_model_at_once():
    kept = []
    expected = {}  # by the step before the round: whether client 1's tasks expect a state

    def falls_back(partition, message, reply):
        if message.metadata.message_type != "train" or partition != 1:
            return reply
        task = task_of(message)
        expected.setdefault(task["step"], []).append(bool(task["expects"]))
        state = grid.context(1).state
        if task["step"] == 0:
            kept.append(copy.deepcopy(state))
        if task["step"] == 2:
            # As after a SuperNode whose last push was lost: a state of this run, with a tag.
            grid.context(1).state = kept[0]
        return reply

    grid = MemoryGrid(app(), range(CLIENTS), misbehave=falls_back)
    plan = strategy(clients=None)
    train(grid, plan, iterations=8)
    assert expected == {0: [False], 2: [True], 4: [True, False], 6: [True]}
    assert not any(record.excluded for record in plan.records)


def _begins_inside(records):
    before = [0, *(record.step for record in records[:-1])]
    return [step % 8 != 0 for step in before]


def in_record(array, name="layers"):
    return RecordDict({"layers": ArrayRecord({name: array})})


def reply_with(name="layers", *, data, stype, shape=None):
    array = Array(dtype="uint8", shape=shape or (len(data),), stype=stype, data=data)
    return in_record(array, name)


def two_arrays(data, stype):
    arrays = {}
    for name in ("layers", "more"):
        arrays[name] = Array(dtype="uint8", shape=(len(data),), stype=stype, data=data)
    return RecordDict({"layers": ArrayRecord(arrays)})


LIES = {"tag": 3, "lost": "no", "loss": [], "counters": "many"}
# What a client makes of its reply: of its bytes, what it says they are, and its report.
HOSTILE = {
    "NaN": lambda data, kind, report: reply_with(
        data=b"\x00\x00\xc0\x7f" + data[4:], stype=f"{kind} {report}"
    ),
    "wrong shape": lambda data, kind, report: reply_with(
        data=data + bytes(4), stype=f"{kind} {report}"
    ),
    "unknown layer": lambda data, kind, report: reply_with(
        "other", data=data, stype=f"{kind} {report}"
    ),
    "truncated": lambda data, kind, report: reply_with(
        data=data[:-3], stype=f"{kind} {report}"
    ),
    "a header that lies": lambda data, kind, report: reply_with(
        data=data[:64], stype=f"numpy.ndarray {report}", shape=(10**12,)
    ),
    "zeros": lambda data, kind, report: reply_with(
        data=bytes(1 << 24), stype=f"{kind} {report}"
    ),
    "no report": lambda data, kind, report: reply_with(data=data, stype=kind),
    "a report of another kind": lambda data, kind, report: reply_with(
        data=data, stype=f"{kind} {json.dumps(LIES)}"
    ),
    "nothing": lambda data, kind, report: RecordDict(),
    "a kind of a megabyte": lambda data, kind, report: reply_with(
        data=data, stype=f"{'k' * (1 << 20)} {report}"
    ),
    "a report of two megabytes": lambda data, kind, report: reply_with(
        data=data, stype=f"{kind} {report}{' ' * (1 << 21)}"
    ),
    "two arrays": lambda data, kind, report: two_arrays(data, f"{kind} {report}"),
    "a loss of 400 digits": lambda data, kind, report: reply_with(
        data=data, stype=f"{kind} {json.dumps({**json.loads(report), 'loss': 10**400})}"
    ),
    # Both would be accepted as numbers; the first would have all others refused in the next round.
    "a counter as large as can be": lambda data, kind, report: reply_with(
        data=data,
        stype=f"{kind} {json.dumps({**json.loads(report), 'counters': [2**62 - 1]})}",
    ),
    "a counter that went back": lambda data, kind, report: reply_with(
        data=data,
        stype=f"{kind} {json.dumps({**json.loads(report), 'counters': [-1]})}",
    ),
    "brackets without end": lambda data, kind, report: reply_with(
        data=data, stype=f"{kind} {'[' * 100_000}"
    ),
    "a list": lambda data, kind, report: reply_with(
        data=data, stype=f"{kind} [{report}]"
    ),
}


def broken(reply, how):
    array = reply.content["layers"]["layers"]
    kind, _, report = array.stype.partition(" ")
    return HOSTILE[how](array.data, kind, report)


@pytest.mark.parametrize("code", [None, Rotate(2.0)])
@pytest.mark.parametrize("how", HOSTILE)
def test_hostile_replies_are_excluded_and_the_others_go_on(how, code):
    def misbehave(partition, message, reply):
        if (
            partition != 2
            or message.metadata.message_type != "train"
            or reply.has_error()
        ):
            return reply
        return Message(broken(reply, how), reply_to=message)

    plan = strategy(clients=None, uplink=code, seed=SEED)
    train(MemoryGrid(app(), range(CLIENTS), misbehave=misbehave), plan, iterations=8)
    assert plan.records[-1].step == 8
    excluded = [entry for record in plan.records for entry in record.excluded]
    assert {entry["client"] for entry in excluded} == {2}
    # Once a cycle: it takes no part again before the next one.
    assert len(excluded) == 1
    if how == "NaN" and code is None:
        assert excluded[0]["reason"] == "not finite"
    else:
        assert excluded[0]["reason"].startswith("refused")


def test_a_policy_is_told_the_bytes_of_those_who_were_averaged():
    def misbehave(partition, message, reply):
        if (
            partition != 2
            or message.metadata.message_type != "train"
            or reply.has_error()
        ):
            return reply
        return Message(broken(reply, "NaN"), reply_to=message)

    told = []

    class Watched(fedlama.FedAvg):
        def observe(self, state, plan, evidence, layers):
            told.append((evidence, [layer.size for layer in layers]))
            return super().observe(state, plan, evidence, layers)

    plan = strategy(Watched(2), clients=None)
    train(MemoryGrid(app(), range(CLIENTS), misbehave=misbehave), plan, iterations=4)
    assert plan.records[0].excluded
    for evidence, sizes in told:
        assert evidence.clients == CLIENTS - 1
        assert [
            evidence.sent[layer] / evidence.clients for layer in range(len(sizes))
        ] == [4 * n for n in sizes]


def task_of(message):
    _, _, text = message.content["layers"]["layers"].stype.partition(" ")
    return json.loads(text)


def test_a_message_is_as_few_objects_of_flower_as_can_be():
    seen = []

    def listen(partition, message, reply):
        if message.metadata.message_type == "train":
            seen.append((message, reply))
        return reply

    local = fedlama.Scaffold(PLAIN_SGD)
    train(
        MemoryGrid(app(local), range(CLIENTS), misbehave=listen),
        strategy(local=local),
        iterations=4,
    )
    for message, reply in seen:
        # Each is a request of its own: the message, its dictionary, the record, the Array, and the Array's bytes.
        assert len(get_all_nested_objects(message)) == 5
        assert len(get_all_nested_objects(reply)) == 5


def test_clients_that_are_sent_the_same_share_its_bytes():
    sent = []

    def listen(partition, message, reply):
        if message.metadata.message_type == "train" and task_of(message)["step"] == 2:
            array = message.content["layers"]["layers"]
            sent.append((array.stype, list(array.children)))
        return reply

    train(MemoryGrid(app(), range(CLIENTS), misbehave=listen), strategy(), iterations=4)
    tasks = {task for task, _ in sent}
    assert len(tasks) == 3
    # Flower knows them by their digest, and its SuperLink keeps them once.
    assert all(chunks == sent[0][1] for _, chunks in sent)


def test_errors_and_silence_exclude_until_the_next_cycle():
    def misbehave(partition, message, reply):
        if message.metadata.message_type != "train":
            return reply
        step = task_of(message)["step"]
        if partition == 1 and step == 2:
            return None
        return reply

    def failing(module, steps, context):
        if context.node_config["partition-id"] == 3 and steps.start == 2:
            raise RuntimeError("out of memory")
        return 0.5

    plan = strategy(fraction=1.0, clients=None, deadline=1.5)
    train(
        MemoryGrid(layerwise(network)(failing), range(CLIENTS), misbehave=misbehave),
        plan,
        iterations=16,
    )
    reasons = [
        [(entry["client"], entry["reason"]) for entry in record.excluded]
        for record in plan.records
    ]
    assert reasons[1] == [
        (1, "missed the deadline"),
        (3, "failed during the cycle (Flower's error 2: out of memory)"),
    ]
    assert not any(reasons[:1])
    assert not any(reasons[2:])


def test_a_node_that_returns_takes_part_from_the_next_cycle_with_the_whole_model():
    def evaluate_and_change(round_, arrays):
        if round_ == first_cycle[0]:
            grid.join(4, CLIENTS)
        return evaluate(round_, arrays)

    first_cycle = [4]
    grid = MemoryGrid(app(), range(CLIENTS - 1), population=CLIENTS)
    plan = strategy(
        fedlama.FedAvg(2), clients=None, window=8, wait=1.0, evaluate_every=1
    )
    plan.start(
        grid,
        initial_arrays(network, SEED),
        iterations=16,
        evaluate_fn=evaluate_and_change,
    )
    absent = [[entry["client"] for entry in record.excluded] for record in plan.records]
    assert absent == [[4], [4], [4], [4], [], [], [], []]
    assert {
        entry["reason"] for record in plan.records for entry in record.excluded
    } == {"failed before the cycle"}


def test_too_few_clients_repeat_the_round_or_stop_it(tmp_path):
    silent = {0, 1, 2, 3, 4}

    def misbehave(partition, message, reply):
        if message.metadata.message_type == "train" and partition in silent:
            silent.discard(partition)
            return Message(RecordDict(), reply_to=message)
        return reply

    plan = strategy(min_clients=3)
    train(MemoryGrid(app(), range(CLIENTS), misbehave=misbehave), plan, iterations=8)
    assert plan.records[-1].step == 8
    assert max(entry["attempt"] for entry in plan.records[0].excluded) >= 2

    def never(partition, message, reply):
        if message.metadata.message_type == "train":
            return Message(RecordDict(), reply_to=message)
        return reply

    plan = strategy(on_too_few="stop")
    with pytest.raises(
        RunError, match="fewer than min_clients = 1 clients were left in round 1"
    ):
        train(MemoryGrid(app(), range(CLIENTS), misbehave=never), plan)


def test_a_round_is_repeated_ten_times_and_ten_times_more_after_a_resume(tmp_path):
    def never(partition, message, reply):
        if message.metadata.message_type == "train":
            return Message(RecordDict(), reply_to=message)
        return reply

    def tasks(**options):
        grid = MemoryGrid(app(), range(CLIENTS), misbehave=never)
        with pytest.raises(RunError, match="fewer than min_clients = 1 clients"):
            train(grid, strategy(), **options)
        return sum(kind == "train" for _, kind, *_ in grid.sent)

    # Three clients are asked at each attempt.
    assert tasks(save_to=tmp_path / "run") == 10 * 3
    assert tasks(resume_from=tmp_path / "run") == 10 * 3


@pytest.mark.parametrize(("limit", "min_clients"), [(0.45, 2), (0.5, 3)])
def test_exclusions_and_repeated_rounds_are_those_of_the_simulator(limit, min_clients):
    tolerated = {"norm_limit": limit, "min_clients": min_clients}
    plan = strategy(**tolerated)
    result = train(MemoryGrid(app(), range(CLIENTS)), plan)
    expected = simulated(faults=fedlama.Faults(**tolerated))
    assert_same_run(result, plan, expected)
    excluded = [record.excluded for record in plan.records]
    assert excluded == [record.excluded for record in expected.records]
    entries = [entry for of_round in excluded for entry in of_round]
    assert {entry["reason"] for entry in entries} == {
        "norm beyond the limit",
        "too few clients left",
    }
    assert max(entry["attempt"] for entry in entries) > 1


@pytest.mark.parametrize("code", ["nothing", "both"])
def test_a_run_that_was_interrupted_goes_on_from_the_last_cycle_to_the_same_end(
    tmp_path, code
):
    class KilledError(Exception):
        pass

    def dies(round_, arrays):
        if round_ >= 7:
            raise KilledError
        return evaluate(round_, arrays)

    options = {**CODES[code], "evaluate_every": 1}
    whole = strategy(**options)
    expected = train(
        MemoryGrid(app(), range(CLIENTS)), whole, save_to=tmp_path / "whole"
    )
    with pytest.raises(KilledError):
        strategy(**options).start(
            MemoryGrid(app(), range(CLIENTS)),
            initial_arrays(network, SEED),
            iterations=ITERATIONS,
            evaluate_fn=dies,
            save_to=tmp_path / "cut",
        )
    resumed = strategy(**options)
    result = train(
        MemoryGrid(app(), range(CLIENTS)), resumed, resume_from=tmp_path / "cut"
    )
    assert resumed.records == whole.records
    for name, values in expected.arrays.to_torch_state_dict().items():
        assert torch.equal(result.arrays.to_torch_state_dict()[name], values)
    assert (tmp_path / "cut" / "rounds.jsonl").read_text() == (
        tmp_path / "whole" / "rounds.jsonl"
    ).read_text()
    run = read_run(tmp_path / "cut")
    assert run.tables["local"]["batch_size"] == LOCAL.batch_size
    assert run.tables["local"]["momentum"] == LOCAL.momentum
    simulation = simulated(**CODES[code])
    assert run.summary.uplink_share == pytest.approx(simulation.uplink_share, abs=1e-3)
    for name in ("codec", "server", "local", "policy", "cost_of", "metric", "metrics"):
        assert getattr(run.summary, name) == getattr(simulation, name)
    assert run.summary.seconds > 0
    report = subprocess.run(
        [sys.executable, "-m", "fedlama", "report", str(tmp_path / "cut")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert report.returncode == 0, report.stderr


def test_the_log_says_how_good_the_model_is_and_what_it_cost(tmp_path, caplog):
    caplog.set_level("INFO", logger="flwr")
    logger = logging.getLogger("flwr")
    logger.addHandler(caplog.handler)
    plan = strategy(fedlama.FedLAMA(2, 2), evaluate_every=4)
    try:
        train(MemoryGrid(app(), range(CLIENTS)), plan, iterations=8, save_to=tmp_path)
    finally:
        logger.removeHandler(caplog.handler)
    lines = [record.getMessage() for record in caplog.records]
    first, last = plan.records[1], plan.records[-1]
    up = sum(record.uplink_bytes for record in plan.records[:2])
    down = sum(record.downlink_bytes for record in plan.records[:2])
    # A cycle of two rounds was evaluated at its end.
    scores = f"accuracy {first.accuracy:.4f}, loss {first.test_loss:.4f}"
    sent = f"{up / 1000:.1f} kB up and {down / 1000:.1f} kB down"
    assert f"round 2: {scores}; so far {sent}" in lines
    scores = f"accuracy {last.accuracy:.4f}, loss {last.test_loss:.4f}"
    share = f"{100 * last.uplink_share:.1f} % of the uplink of FedAvg(2)"
    ending = f"the run has ended: {scores}; {share}; run directory: {tmp_path}"
    assert ending in lines


def test_a_metric_other_than_the_accuracy_is_in_records_and_summary(tmp_path):
    def error(round_, arrays):
        scores = evaluate(round_, arrays)
        return MetricRecord({"error": 1 - scores["accuracy"], "loss": scores["loss"]})

    error.higher_is_better = False
    plan = strategy()
    plan.start(
        MemoryGrid(app(), range(CLIENTS)),
        initial_arrays(network, SEED),
        iterations=8,
        evaluate_fn=error,
        save_to=tmp_path,
    )
    run = read_run(tmp_path)
    assert run.summary.accuracy is None
    assert run.summary.metrics == run.records[-1].metrics
    assert list(run.summary.metrics) == ["error"]
    assert run.summary.metric.name == "error"
    assert not run.summary.metric.higher_is_better


def test_a_function_of_ones_own_trains_as_the_rule_does():
    plain = fedlama.SGD(learning_rate=0.1, batch_size=8)
    data = digits()
    shards = PARTITION.assign(data, SEED)

    def by_hand(module, steps, context):
        batches = fedlama.data.Batches(data, shards, 8, SEED)
        total = 0.0
        for step in steps:
            inputs, targets = batches.at(context.node_config["partition-id"], step)
            module.zero_grad()
            loss = nn.functional.cross_entropy(module(inputs), targets)
            loss.backward()
            with torch.no_grad():
                for parameter in module.parameters():
                    parameter.sub_(0.1 * parameter.grad)
            total += float(loss.detach())
        return total / len(steps)

    plan = strategy()
    result = train(MemoryGrid(layerwise(network)(by_hand), range(CLIENTS)), plan)
    assert_same_run(result, plan, simulated(local=plain))


def test_a_function_that_does_not_say_its_samples_is_not_weighed_by_them():
    def moves(module, steps, context):
        # The bias of client c is c + 1 after the round.
        number = context.node_config["partition-id"] + 1
        with torch.no_grad():
            module[4].bias.fill_(float(number))
        return 0.5

    plan = strategy(fedlama.FedAvg(1), clients=None, weights="samples", wait=0.1)
    silent = MemoryGrid(layerwise(network)(moves), range(2))
    with pytest.raises(RunError, match=r"pass samples= to fedlama\.flower\.layerwise"):
        train(silent, plan, iterations=1)

    def count(context):
        return 3 if context.node_config["partition-id"] == 0 else 1

    counting = MemoryGrid(layerwise(network, samples=count)(moves), range(2))
    result = train(counting, plan, iterations=1)
    bias = result.arrays.to_torch_state_dict()["4.bias"]
    # Three quarters of 1 and a quarter of 2
    torch.testing.assert_close(bias, torch.full((10,), 1.25))


def test_another_model_on_a_client_is_refused_with_a_sentence():
    other = client_app(
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), digits(), local=LOCAL
    )
    reasons = []

    def listen(partition, message, reply):
        if reply.has_error():
            reasons.append(reply.error.reason)
        return reply

    plan = strategy(on_too_few="stop")
    with pytest.raises(RunError, match="Flower's error 2"):
        train(MemoryGrid(other, range(CLIENTS), misbehave=listen), plan)
    assert "the client's model is not the server's" in reasons[0]


@pytest.mark.parametrize("mod", [fixedclipping_mod, LocalDpMod(1.0, 1.0, 1.0, 1e-5)])
def test_mods_of_flower_that_change_arrays_refuse_the_messages(mod):
    inner = app()
    outer = ClientApp()

    @outer.query()
    def query(message, context):
        return inner(message, context)

    @outer.train(mods=[mod])
    def training(message, context):
        return inner(message, context)

    plan = strategy(on_too_few="stop")
    # Nothing that a mod made of a message is averaged.
    with pytest.raises(RunError, match="Flower's error"):
        train(MemoryGrid(outer, range(CLIENTS)), plan)
    assert plan.records == []


def test_codecs_travel_as_plain_values():
    for codec in (
        Cast("float16"),
        Rotate(0.64, small_bits=3),
        ErrorFeedback(Chain(TopK(0.1), Quantize(4)), lifetime="run"),
        ErrorFeedback(Rotate(1.0), profile=(0.25, 0.75)),
        LowRank(2),
    ):
        assert codec_from_plain(json.loads(json.dumps(codec_to_plain(codec)))) == codec
    with pytest.raises(InputError, match="there is no codec"):
        codec_from_plain({"codec": "Channel", "options": {}})


# What a client's process does with one message; the modules of its arguments that it has loaded by then.
CLIENT_PROCESS = """
import pickle, sys

before = set(sys.modules)
import flwr.app, flwr.clientapp
of_flower = set(sys.modules) - before
from digits_app.client import app

with open(sys.argv[1], "rb") as file:
    message, context = pickle.load(file)
reply = app(message, context)
assert not reply.has_error(), reply.error
print([name for name in sys.argv[2:] if name in set(sys.modules) - of_flower])
"""


@pytest.mark.parametrize("code", ["nothing", "both"])
def test_the_client_path_is_light(tmp_path, code):
    """A client starts a new process for every message: what it imports, it imports in every round."""
    from digits_app import client as example
    from digits_app import task

    def keep(partition, message, reply):
        if message.metadata.message_type == "train":
            file = tmp_path / "message"
            file.write_bytes(pickle.dumps((message, grid.context(partition))))
        return reply

    grid = MemoryGrid(example.app, range(task.CLIENTS), misbehave=keep)
    plan = strategy(clients=1, **CODES[code])
    plan.start(grid, initial_arrays(task.network, SEED), iterations=2)

    heavy = [
        "pydantic",
        "typer",
        "matplotlib",
        "jinja2",
        "torch._dynamo",
        "fedlama.run",
        "fedlama.report",
        "fedlama.cli",
    ]
    done = subprocess.run(
        [sys.executable, "-c", CLIENT_PROCESS, str(tmp_path / "message"), *heavy],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_without_flower_the_sentence_says_what_to_install():
    program = "import sys; sys.modules['flwr'] = None; import fedlama; fedlama.flower.client_app"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines()[-1].endswith(
        "needs Flower: pip install 'fedlama[flower]'"
    )


def test_more_updates_than_a_share_of_the_clients_can_give_are_refused(tmp_path):
    # How many a share is shows when the clients are there: 0.4 of five
    plan = LayerwiseStrategy(POLICY, fraction=0.4, min_clients=3, wait=5.0)
    folder = tmp_path / "run"
    with pytest.raises(
        InputError, match=r"^min_clients is 3, but only 2 clients train at a time$"
    ):
        train(MemoryGrid(app(), range(CLIENTS)), plan, save_to=folder)
    assert not folder.exists()


@dataclass(frozen=True)
class Kinded(fedlama.FedLAMA):
    """A field of it has the name of a key that says which policy it is."""

    kind: str = "fedavg"


@dataclass(frozen=True)
class Ruled(fedlama.server.Momentum):
    """The same for what the server makes of an average."""

    rule: str = "mean"


class OwnCodec(Rotate):
    """No client knows it by a name."""


@pytest.mark.parametrize("where", ["save_to", "resume_from"])
@pytest.mark.parametrize(
    ("policy", "options", "sentence"),
    [
        (Kinded(2, 2), {}, "Kinded has a field kind"),
        (POLICY, {"server": Ruled(0.5)}, "Ruled has a field rule"),
    ],
)
def test_what_a_run_directory_cannot_name_is_refused_before_anyone_is_waited_for(
    tmp_path, policy, options, sentence, where
):
    plan = strategy(policy, wait=600.0, **options)
    folder = tmp_path / "run"
    with pytest.raises(InputError, match=sentence):
        # Whoever asked this grid for nodes would fail with another error.
        train(None, plan, **{where: folder})
    assert not folder.exists()


def test_codecs_that_clients_do_not_know_are_refused_when_the_strategy_is_made():
    sentence = r"^clients know the codecs of fedlama\.compress only, not OwnCodec\("
    for options in (
        {"uplink": OwnCodec(2.0)},
        {"uplink": ErrorFeedback(OwnCodec(2.0))},
        {"downlink": OwnCodec(2.0)},
    ):
        with pytest.raises(InputError, match=sentence):
            strategy(**options)


def test_wrong_arguments_are_refused_with_a_sentence():
    with pytest.raises(InputError, match="policy must be made with"):
        LayerwiseStrategy(fedlama.FedLAMA)
    with pytest.raises(InputError, match="deadline"):
        strategy(deadline=0.0)
    with pytest.raises(InputError, match="weights must be one of"):
        strategy(weights="size")
    with pytest.raises(InputError, match="whole number of cycles"):
        strategy(window=7)
    with pytest.raises(
        InputError, match=r"^min_clients is 4, but only 3 clients train at a time$"
    ):
        strategy(clients=3, min_clients=4)
    strategy(clients=3, min_clients=3)
    with pytest.raises(InputError, match="give clients= or fraction=, not both"):
        LayerwiseStrategy(POLICY, clients=3, fraction=0.5)
    with pytest.raises(
        InputError,
        match=r"^clients must be a whole number, not 0\.5: .* fraction=0\.5$",
    ):
        LayerwiseStrategy(POLICY, clients=0.5)
    assert LayerwiseStrategy(POLICY).options.participation.fraction == 1
    with pytest.raises(RunError, match="no node could say within"):
        train(MemoryGrid(app(), []), strategy(wait=0.1))
