"""`fedlama.simulate` with a run directory, and what a result can do."""

import inspect
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import fedlama
from fedlama.cli.shared import show_report
from fedlama.run.own_code import reference_to
from fedlama.run.planning import plan
from fedlama.run.recorded import read_run
from fedlama.study.runs import find_runs
from fedlama.training import simulate as in_memory


def network():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.ReLU(), nn.Linear(12, 10))


JOB = {
    "policy": fedlama.FedLAMA(2, 2),
    "local": fedlama.SGD(0.1, 16, momentum=0.5),
    "partition": fedlama.Dirichlet(6, 0.5),
    "participation": 3,
    "iterations": 16,
    "evaluate_every": 4,
    "seed": 2,
}


def run(**changes):
    return fedlama.simulate(network, fedlama.data.digits(), **{**JOB, **changes})


class StoppedError(Exception):
    pass


def stop_after(round_):
    def take(record):
        if record.round == round_:
            raise StoppedError

    return take


def same_weights(first, second):
    pairs = zip(
        first.model.state_dict().values(),
        second.model.state_dict().values(),
        strict=True,
    )
    return all(torch.equal(one, other) for one, other in pairs)


def test_every_argument_is_explained():
    for name in inspect.signature(fedlama.simulate).parameters:
        assert f"        {name}: " in fedlama.simulate.__doc__


def test_both_ways_are_built_of_the_same_parts_with_the_same_defaults():
    public = inspect.signature(fedlama.simulate).parameters
    inner = inspect.signature(in_memory).parameters
    planned = inspect.signature(plan).parameters
    assert set(planned) <= set(inner)
    assert set(inner) - set(planned) == {"workers", "on_record", "checkpointing"}
    for name in set(inner) - {"options", "participation"}:
        assert public[name].default == inner[name].default
        assert public[name].annotation == inner[name].annotation
    for name in planned:
        assert planned[name] == inner[name]


def test_a_run_directory_is_as_fedlama_run_writes_it(tmp_path, capsys):
    plain = run()
    kept = run(out=tmp_path / "run", progress=True)
    assert kept == replace(plain, seconds=kept.seconds, model=kept.model)
    assert same_weights(kept, plain)
    assert "of FedAvg(2)" in capsys.readouterr().err
    found = read_run(tmp_path / "run")
    assert found.records == plain.records
    assert found.summary.score == plain.accuracy
    assert found.tables["model"]["name"] == reference_to(network)
    assert found.tables["policy"]["kind"] == "fedlama"
    assert found.tables["local"]["momentum"] == 0.5
    assert found.tables["partition"] == {
        "kind": "dirichlet",
        "clients": 6,
        "alpha": 0.5,
        "min_samples": 10,
    }
    assert found.tables["data"]["sha256"] == fedlama.data.digits().content_hash()
    assert list(found.tables["hashes"]) == [reference_to(network)]
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert {
        "config.toml",
        "partition.json",
        "rounds.jsonl",
        "timings.jsonl",
        "summary.json",
        "checkpoint",
    } <= names
    assert {"report.html", "report.png"} <= names
    page = (tmp_path / "run" / "report.html").read_text()
    assert "FedLAMA(2, 2)" in page
    assert "digits on 6 clients" in page


@pytest.mark.parametrize("workers", [1, 2])
def test_an_interrupted_run_goes_on_to_the_same_bits(tmp_path, workers):
    whole = run()
    with pytest.raises(StoppedError):
        run(
            out=tmp_path / "run",
            on_record=stop_after(5),
            checkpoint_minutes=0,
            workers=workers,
        )
    assert list((tmp_path / "run" / "checkpoint").glob("step-*.safetensors"))
    seen = []
    going_on = {"out": tmp_path / "run", "resume": True, "checkpoint_minutes": 0}
    resumed = run(**going_on, on_record=seen.append, workers=workers)
    assert resumed.records == whole.records
    assert same_weights(resumed, whole)
    assert 0 < len(seen) < len(whole.records)
    # A finished run is read back, and trains no more.
    again = run(**going_on, on_record=stop_after(1))
    assert again.records == whole.records
    assert same_weights(again, whole)
    assert (
        again.accuracy
        == whole.accuracy
        == (again.predict(fedlama.data.digits().x_test) == DIGITS_Y).double().mean()
    )


DIGITS_Y = fedlama.data.digits().y_test


def test_what_a_folder_holds_is_not_overwritten_nor_mixed(tmp_path):
    run(out=tmp_path / "run")
    with pytest.raises(
        fedlama.InputError,
        match=r"already holds a run: resume=True goes on with it, or choose another",
    ):
        run(out=tmp_path / "run")
    with pytest.raises(
        fedlama.InputError,
        match=r"another configuration: local.learning_rate \(was 0.1, is 0.2\)",
    ):
        run(out=tmp_path / "run", resume=True, local=fedlama.SGD(0.2, 16, momentum=0.5))
    other = replace(
        fedlama.data.digits(), y_train=fedlama.data.digits().y_train.flip(0)
    )
    with pytest.raises(
        fedlama.InputError, match=r"digits changed since the run in .* began"
    ):
        fedlama.simulate(network, other, **JOB, out=tmp_path / "run", resume=True)
    with pytest.raises(fedlama.InputError, match="resume=True needs out="):
        run(resume=True)
    shards = fedlama.IID(6).assign(fedlama.data.digits(), 0)
    others = fedlama.IID(6).assign(fedlama.data.digits(), 1)
    run(out=tmp_path / "shards", partition=shards)
    with pytest.raises(fedlama.InputError, match=r"partition\.sha256"):
        run(out=tmp_path / "shards", partition=others, resume=True)


@pytest.mark.parametrize(
    "wrong",
    [
        {"policy": fedlama.FedAvg},
        {"iterations": 0},
        {"weights": "equal"},
        {"layers": "layer"},
        {"participation": 1},
        {"workers": 0},
        {"device": "abacus"},
        {"seed": -1},
        {"checkpoint_minutes": -1},
        {"metric": 3},
        {"progress": 1},
    ],
)
def test_wrong_arguments_leave_no_folder(tmp_path, wrong):
    with pytest.raises(fedlama.InputError):
        run(out=tmp_path / "run", **wrong)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "options",
    [
        {"policy": fedlama.FedAvg(4)},
        {"policy": fedlama.Budget(2, 8, 0.5), "uplink": fedlama.compress.Rotate(2.0)},
        {
            "local": fedlama.FedProx(fedlama.SGD(0.1, 16), 0.1),
            "server": fedlama.server.Momentum(0.5),
        },
        {"local": fedlama.SGD(0.1, 16, decay_steps=(4, 8), steps=(1, 2))},
        {
            "uplink": fedlama.compress.Chain(
                fedlama.compress.TopK(0.1), fedlama.compress.Quantize(4)
            )
        },
        {"policy": fedlama.FedAvg(2), "window": 8, **dict.fromkeys(())},
        {"policy": fedlama.Fixed(2, {"1": 4}), "adaptive": ["1"], "layers": "module"},
        {"faults": fedlama.Faults(fail_before=0.1, norm_limit=10.0)},
        {
            "policy": fedlama.FedPart(2, groups=2),
            "evaluate": "ema",
            "weights": "samples",
        },
    ],
)
def test_every_combination_is_described_so_that_its_configuration_builds_it_again(
    tmp_path, options
):
    result = run(out=tmp_path / "run", **options)
    found = find_runs([tmp_path / "run"])[0]
    parsed = found.config
    assert parsed.policy.build() == options.get("policy", JOB["policy"])
    assert parsed.local.build() == options.get("local", JOB["local"])
    assert parsed.uplink.build() == options.get("uplink")
    if "server" in options:
        assert parsed.server.build() == options["server"]
    if "faults" in options:
        assert parsed.faults.build() == options["faults"]
    assert found.records == result.records


class Sparse:
    """A policy of the user's own: FedAvg(2) under another name."""

    def __init__(self):
        self._inner = fedlama.FedAvg(2)

    def __getattr__(self, name):
        return getattr(self._inner, name)

    base_interval = property(lambda self: 2)
    longest_cycle = property(lambda self: 2)
    uses = ()
    start = property(lambda self: self._inner.start)
    next = property(lambda self: self._inner.next)
    observe = property(lambda self: self._inner.observe)


def test_values_of_classes_of_the_users_own_are_named(tmp_path):
    result = run(out=tmp_path / "run", policy=Sparse())
    assert result.records == run(policy=fedlama.FedAvg(2)).records
    found = find_runs([tmp_path / "run"])[0]
    assert found.tables["policy"]["kind"] == f"{__name__}:Sparse"
    assert found.tables["policy"]["base_interval"] == 2
    assert found.label.startswith("Sparse(")
    show_report([tmp_path / "run"], tmp_path)


# What a result can do.


def test_a_result_prints_short_and_says_what_its_cost_is_of():
    result = run()
    text = repr(result)
    assert len(text) < 300
    assert f"cost {result.cost:.1%} of FedAvg(2)" in text
    html = result._repr_html_()
    assert html.startswith("<table>")
    assert "of FedAvg(2)" in html
    assert len(html) < 2000
    assert len(repr(fedlama.data.digits())) < 200
    assert "1,437 training samples, 360 test samples" in repr(fedlama.data.digits())
    assert "<td>1,437</td>" in fedlama.data.digits()._repr_html_()


def test_one_result_relative_to_another():
    short = run(policy=fedlama.FedAvg(2), window=8)
    long = run(policy=fedlama.FedAvg(8), window=8)
    found = long.relative_to(short)
    # 16 steps: eight averages against two, of the same size
    assert found.uplink == 0.25
    assert found.to == "FedAvg(2)"
    assert long.cost == short.cost == 1.0
    assert found.score == pytest.approx(long.accuracy - short.accuracy)
    assert str(found).startswith("25.0% of FedAvg(2)'s uplink bytes")
    assert short.relative_to(short).loss == 0
    with pytest.raises(fedlama.InputError, match="takes another result, not 3"):
        long.relative_to(3)
    assert repr(found) == str(found)
    assert len(repr(found)) < 200
    assert "<tr><th>uplink</th><td>25.0% of FedAvg(2)</td></tr>" in found._repr_html_()


def test_results_of_different_networks_are_not_compared():
    wide = fedlama.simulate(
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10)),
        fedlama.data.digits(),
        **JOB,
    )
    with pytest.raises(
        fedlama.InputError,
        match=r"of the same network: this one has 650 parameters in 2 layers",
    ):
        wide.relative_to(run())


def test_predictions_are_prepared_as_in_training():
    digits = fedlama.data.digits()
    result = run()
    predicted = result.predict(digits.x_test)
    assert (predicted == digits.y_test).double().mean() == result.accuracy
    assert torch.equal(result.predict(digits.x_test.numpy()), predicted)
    assert torch.equal(
        result.predict(digits.x_test.numpy().astype(np.int64)), predicted
    )
    assert result.outputs(digits.x_test[:3]).shape == (3, 10)
    assert result.model.training
    with pytest.raises(
        fedlama.InputError,
        match="trained on uint8 samples, which are scaled here: give them as they",
    ):
        result.predict(digits.x_test.float() / 255)
    with pytest.raises(
        fedlama.InputError, match=r"must have shape \(number of samples, 1, 8, 8\)"
    ):
        result.predict(digits.x_test[0])
    with pytest.raises(
        fedlama.InputError, match=r"such as data\.x_test, not a whole data set"
    ):
        result.predict(digits)
    with pytest.raises(fedlama.InputError, match="as an array of numbers, not"):
        result.predict([object()])
    with pytest.raises(fedlama.InputError, match="no sample to predict"):
        result.predict(digits.x_test[:0])
    x = np.linspace(-1, 1, 64, dtype="float32")[:, None]
    line = fedlama.data.arrays(x, x, x, x)
    fitted = fedlama.simulate(
        lambda: nn.Linear(1, 1),
        line,
        policy=fedlama.FedAvg(2),
        local=fedlama.SGD(0.1, 4),
        iterations=4,
        loss=nn.functional.mse_loss,
    )
    assert torch.equal(fitted.predict(x), fitted.outputs(x))


def test_a_result_as_a_picture():
    result = run()
    over_bytes, over_steps = result.plot().axes
    steps, scores = over_steps.lines[0].get_data()
    evaluated = [record for record in result.records if record.accuracy is not None]
    assert list(steps) == [record.step for record in evaluated]
    assert list(scores) == [record.accuracy for record in evaluated]
    sent = over_bytes.lines[0].get_xdata()[-1]
    assert sent == pytest.approx((result.uplink_bytes + result.downlink_bytes) / 2**20)
    assert over_bytes.get_ylabel() == "accuracy"


class Frames:
    """A stand-in for pandas."""

    @staticmethod
    def DataFrame(rows):  # noqa: N802 - its name there
        return rows


def test_a_result_as_a_frame(monkeypatch):
    result = run()
    monkeypatch.setattr("fedlama.run.result.find_spec", lambda name: None)
    with pytest.raises(
        fedlama.InputError,
        match="needs pandas, which is not installed: run `pip install pandas`",
    ):
        result.to_frame()
    monkeypatch.setattr("fedlama.run.result.find_spec", lambda name: name)
    monkeypatch.setattr("fedlama.run.result.import_module", lambda name: Frames)
    rows = result.to_frame()
    assert [row["round"] for row in rows] == [record.round for record in result.records]
    assert sum(row["uplink_bytes"] for row in rows) == result.uplink_bytes
    assert rows[-1]["accuracy"] == result.accuracy


# Clients by themselves.


def owned(**options):
    digits = fedlama.data.digits()
    return fedlama.data.arrays(
        digits.x_train,
        digits.y_train,
        digits.x_test,
        digits.y_test,
        clients=[
            f"hospital-{1 + number % 12}" for number in range(len(digits.x_train))
        ],
        **options,
    )


def by_hand(result, x, y):
    return (result.predict(x) == y).double().mean().item()


@pytest.mark.parametrize("workers", [1, 2])
def test_every_client_is_evaluated_on_its_own_samples(tmp_path, workers):
    data = owned()
    job = {
        **JOB,
        "partition": None,
        "participation": 4,
        "evaluate_clients": True,
        "workers": workers,
    }
    result = fedlama.simulate(network, data, **job, out=tmp_path / "run")
    found = result.clients
    assert found.on == "training"
    assert result.client_names[:3] == ("hospital-1", "hospital-10", "hospital-11")
    for client in range(12):
        own = data.clients == client
        assert found.scores[client] == pytest.approx(
            by_hand(result, data.x_train[own], data.y_train[own])
        )
    worst = sorted(found.scores)[:2]  # a tenth of twelve, rounded up
    assert found.worst_decile == pytest.approx(sum(worst) / 2)
    assert found.spread == pytest.approx(np.std(found.scores))
    last = result.records[-1].clients
    assert (last.worst_decile, last.spread, last.scores) == (
        found.worst_decile,
        found.spread,
        [],
    )
    assert result.records[0].clients is None
    stored = read_run(tmp_path / "run")
    assert stored.records == result.records
    assert stored.summary.clients == found
    assert (
        json.loads((tmp_path / "run" / "partition.json").read_text())["names"][1]
        == "hospital-10"
    )
    assert (
        f"worst decile of clients {found.worst_decile:.1%} (training samples)"
        in repr(result)
    )


def test_where_test_samples_have_owners_those_count():
    owners = [f"hospital-{1 + number % 11}" for number in range(359)] + ["elsewhere"]
    data = owned(test_clients=owners)
    result = fedlama.simulate(
        network, data, **{**JOB, "partition": None}, evaluate_clients=True
    )
    assert result.clients.on == "test"
    names = result.client_names
    for client, score in enumerate(result.clients.scores):
        own = torch.tensor([owner == names[client] for owner in owners])
        if names[client] == "hospital-12":
            assert score is None
        else:
            assert score == pytest.approx(
                by_hand(result, data.x_test[own], data.y_test[own])
            )
    # Dealt out otherwise, clients of the run are not those of the data.
    assert (
        fedlama.simulate(network, data, **JOB, evaluate_clients=True).clients.on
        == "training"
    )


def test_a_held_out_part_keeps_its_owners():
    held = owned().hold_out(0.2, 0)
    assert held.client_names == owned().client_names
    whole = owned()
    for number in range(len(held.x_test)):
        same = (whole.x_train == held.x_test[number]).flatten(1).all(dim=1)
        assert int(held.test_clients[number]) in whole.clients[same].tolist()


def test_evaluating_clients_changes_nothing_else():
    plain = run()
    with_clients = run(evaluate_clients=True)
    assert [
        replace(record, clients=None) for record in with_clients.records
    ] == plain.records
    assert plain.clients is None
    x = np.zeros((64, 1), "float32")
    with pytest.raises(fedlama.InputError, match="evaluate_clients needs a metric"):
        fedlama.simulate(
            lambda: nn.Linear(1, 1),
            fedlama.data.arrays(x, x, x, x),
            policy=fedlama.FedAvg(1),
            local=fedlama.SGD(0.1, 2),
            iterations=1,
            loss=nn.functional.mse_loss,
            evaluate_clients=True,
        )


def test_clients_keep_their_names_in_messages():
    data = owned()
    named = fedlama.Natural().assign(data, 0)
    assert named.name_of(1) == "client 1 (hospital-10)"
    with pytest.raises(
        fedlama.RunError,
        match=r"the (loss|weights) of client \d+ \(hospital-\d+\) (was|were) not finite",
    ):
        fedlama.simulate(
            network, data, **{**JOB, "partition": None, "local": fedlama.SGD(1e30, 16)}
        )
    plain = fedlama.data.arrays(
        data.x_train, data.y_train, data.x_test, data.y_test, clients=data.clients
    )
    assert fedlama.Natural().assign(plain, 0).name_of(1) == "client 1"
    assert plain.client_names is None


def test_functions_of_inputs_in_python():
    digits = fedlama.data.digits()
    parts = (digits.x_train, digits.y_train, digits.x_test, digits.y_test)
    seen = []

    def halved(inputs):
        return inputs / 2

    def noted(inputs):
        seen.append(len(inputs))
        return inputs + torch.randn_like(inputs)

    job = {**JOB, "iterations": 4}
    data = fedlama.data.arrays(*parts, transform=halved, augment=noted)
    result = fedlama.simulate(network, data, **job)
    assert len(seen) == 1 + 3 * 4  # tried once; three clients, four steps each
    assert result.records == fedlama.simulate(network, data, **job, workers=2).records
    by_hand = result.model.eval()(digits.x_test.float() / 255 / 2).argmax(dim=1)
    assert torch.equal(result.predict(digits.x_test), by_hand)
    with pytest.raises(
        fedlama.InputError,
        match="augment must return a tensor with as many samples as it was given",
    ):
        fedlama.simulate(
            network,
            fedlama.data.arrays(*parts, augment=lambda inputs: inputs[:1]),
            **job,
        )
    with pytest.raises(
        fedlama.InputError,
        match="transform must be a function of a batch of inputs, not 3",
    ):
        fedlama.data.arrays(*parts, transform=3)
