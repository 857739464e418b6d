"""Values of classes of one's own in a configuration: written as they are, and built again from what was written."""

import sys
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

import fedlama
from fedlama.base import InputError
from fedlama.local import FedProx, OnSGD
from fedlama.run.codecs import UplinkSection
from fedlama.run.config import parse_config
from fedlama.run.labels import run_label
from fedlama.run.recorded import read_run
from fedlama.run.resolve import resolve
from fedlama.run.tables import LocalSection, PolicySection, ServerSection

MODULE = """
from dataclasses import dataclass

import numpy

import fedlama
from fedlama.local import FedProx
from fedlama.local import OnSGD


@dataclass(frozen=True)
class MyProx(OnSGD):
    mu: float

    correct = FedProx.correct


@dataclass(frozen=True)
class Around:
    inner: fedlama.FedLAMA
    uses: tuple[str, ...] = ()

    @property
    def base_interval(self):
        return self.inner.base_interval

    @property
    def longest_cycle(self):
        return self.inner.longest_cycle

    def start(self, layers):
        return self.inner.start(layers)

    def next(self, state, iterations):
        return self.inner.next(state, iterations)

    def observe(self, state, plan, evidence, layers):
        return self.inner.observe(state, plan, evidence, layers)


@dataclass(frozen=True)
class Every:
    steps: int

    uses = ()

    @property
    def base_interval(self):
        return self.steps

    @property
    def longest_cycle(self):
        return self.steps

    def start(self, layers):
        return fedlama.FedAvg(self.steps).start(layers)

    def next(self, state, iterations):
        return fedlama.FedAvg(self.steps).next(state, iterations)

    def observe(self, state, plan, evidence, layers):
        return fedlama.FedAvg(self.steps).observe(state, plan, evidence, layers)


class Part:
    def __init__(self, clients, first=0.5):
        self.clients = clients
        self.first = first

    def assign(self, data, seed):
        owners = numpy.arange(len(data.x_train)) % self.clients
        return fedlama.data.Shards.by_owner(owners, self.clients)


class Pairs:
    def __init__(self, alpha):
        self.alpha = alpha

    def assign(self, data, seed):
        owners = numpy.arange(len(data.x_train)) % 2
        return fedlama.data.Shards.by_owner(owners, 2)
"""

SMALLEST = {
    "data": {"name": "digits"},
    "model": {"name": "mlp"},
    "partition": {"kind": "iid", "clients": 4},
    "policy": {"kind": "fedavg", "base_interval": 2},
    "train": {"iterations": 4},
    "output": {"tensorboard": False},
}


@pytest.fixture
def mine(tmp_path, monkeypatch):
    (tmp_path / "myvalues.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "myvalues", raising=False)
    import myvalues

    yield myvalues
    sys.modules.pop("myvalues", None)


def read(**tables):
    return parse_config({**SMALLEST, **tables})


# A value, its table, and the value again.


def test_options_of_the_sgd_inside_a_rule_of_my_own_are_keys(mine):
    rule = mine.MyProx(fedlama.SGD(0.05, 16, momentum=0.5, decay_steps=(3,)), mu=0.2)
    table = LocalSection.table_of(rule)
    assert table == {
        "rule": "myvalues:MyProx",
        "learning_rate": 0.05,
        "batch_size": 16,
        "momentum": 0.5,
        "weight_decay": 0.0,
        "warmup_steps": 0,
        "decay_steps": [3],
        "decay_factor": 0.1,
        "decayed": "all",
        "mu": 0.2,
    }
    assert read(local=table).local.build() == rule
    short = {"rule": "myvalues:MyProx", "learning_rate": 0.05, "mu": 0.2}
    assert read(local=short).local.build() == mine.MyProx(fedlama.SGD(0.05, 32), 0.2)


def test_a_run_with_a_rule_of_my_own_can_be_run_again(mine, tmp_path):
    settings = {
        "policy": fedlama.FedAvg(2),
        "partition": fedlama.IID(4),
        "iterations": 4,
    }
    data = fedlama.data.digits()

    def model():
        return fedlama.models.mlp(10, inputs=64)

    own = mine.MyProx(fedlama.SGD(0.05, 16), mu=0.2)
    result = fedlama.simulate(model, data, local=own, out=tmp_path / "run", **settings)
    found = read_run(tmp_path / "run")
    assert found.label == "FedAvg(2) + MyProx(mu=0.2)"
    again = parse_config(
        {**found.tables, "data": {"name": "digits"}, "model": {"name": "mlp"}}
    )
    resolved = resolve(again)
    assert resolved.local == own
    built_in = FedProx(fedlama.SGD(0.05, 16), mu=0.2)
    same = fedlama.simulate(model, data, local=built_in, **settings)
    assert [record.loss for record in same.records] == [
        record.loss for record in result.records
    ]


def test_a_policy_of_my_own_around_another_and_one_that_works_its_interval_out(mine):
    around = mine.Around(fedlama.FedLAMA(3, 2))
    table = PolicySection.table_of(around)
    assert table["base_interval"] == 3
    assert table["increase_factor"] == 2
    assert read(policy=table).policy.build() == around
    # A run directory has τ' beside the class's own options
    every = {"kind": "myvalues:Every", "steps": 3, "base_interval": 3}
    assert read(policy=every).policy.build() == mine.Every(3)


@dataclass(frozen=True)
class TwoRates(OnSGD):
    momentum: float = 0.5
    seen: int = field(default=0, init=False)


def test_what_keys_cannot_tell_apart_stands_as_text():
    rule = TwoRates(fedlama.SGD(0.05, 16))
    table = LocalSection.table_of(rule)
    assert table["momentum"] == 0.5
    assert table["base"].startswith("SGD(learning_rate=0.05")
    assert "seen" not in table


@dataclass(frozen=True)
class MySGD(fedlama.SGD):
    pass


def test_a_rule_around_an_sgd_of_my_own_is_not_recorded_as_one_around_ours():
    table = LocalSection.table_of(FedProx(MySGD(0.05, 16), mu=0.2))
    assert table["rule"] == "fedlama.local.fedprox:FedProx"
    assert table["base"].startswith("MySGD(")


@pytest.mark.parametrize(
    ("local", "sentence"),
    [
        ({"mu": 0.1, "momentum": 2}, "momentum must be at least 0 and below 1, not 2"),
        ({"mu": 0.1, "mus": 2}, "unexpected keyword argument 'mus'"),
        ({}, "missing 1 required positional argument: 'mu'"),
    ],
)
def test_what_is_wrong_inside_is_said_of_the_rule(mine, local, sentence):
    config = read(local={"rule": "myvalues:MyProx", **local})
    with pytest.raises(InputError, match=sentence) as caught:
        config.local.build()
    assert str(caught.value).startswith("local.rule = 'myvalues:MyProx': ")


def test_the_label_of_a_rule_of_my_own_leaves_the_sgd_out_as_that_of_ours_does(mine):
    local = {"rule": "myvalues:MyProx", "learning_rate": 0.05, "mu": 0.2}
    assert run_label(read(local=local)) == "FedAvg(2) + MyProx(mu=0.2)"


# What was recorded is what ran.


@dataclass(frozen=True)
class Kinded(fedlama.FedLAMA):
    kind: str = "fedavg"


@dataclass(frozen=True)
class Ruled(fedlama.server.Momentum):
    rule: str = "mean"


@dataclass(frozen=True)
class RuledLocal(fedlama.SGD):
    rule: str = "sgd"


@dataclass(frozen=True)
class Coded(fedlama.compress.TopK):
    codec: str = "none"


@dataclass(frozen=True)
class Gaining(fedlama.compress.TopK):
    gain: bool = True


@pytest.mark.parametrize(
    ("section", "value", "name"),
    [
        (PolicySection, Kinded(4, 2), "Kinded has a field kind"),
        (ServerSection, Ruled(0.5), "Ruled has a field rule"),
        (LocalSection, RuledLocal(0.1, 8), "RuledLocal has a field rule"),
        (UplinkSection, Coded(0.1), "Coded has a field codec"),
        (UplinkSection, Gaining(0.1), "Gaining has a field gain"),
    ],
)
def test_a_field_with_the_name_of_the_choosing_key_is_refused(section, value, name):
    with pytest.raises(InputError, match=name) as caught:
        section.table_of(value)
    assert len(str(caught.value).splitlines()) == 1


def test_it_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(InputError, match="Kinded has a field kind"):
        fedlama.simulate(
            lambda: fedlama.models.mlp(10, inputs=64),
            fedlama.data.digits(),
            policy=Kinded(2, 2),
            local=fedlama.SGD(0.1, 8),
            partition=fedlama.IID(4),
            iterations=4,
            out=tmp_path / "run",
        )
    assert not (tmp_path / "run").exists()


# [partition]


def test_other_keys_are_handed_to_a_partition_of_my_own(mine):
    def made(**table) -> Any:
        return read(partition=table).partition.build(has_ids=False)

    part = made(kind="myvalues:Part", clients=8, first=0.25)
    assert part.clients == 8
    assert part.first == 0.25
    part = made(kind="myvalues:Part", options={"clients": 8, "first": 0.25})
    assert part.clients == 8
    assert part.first == 0.25
    assert made(kind="myvalues:Pairs", alpha=3).alpha == 3


def test_a_number_of_clients_that_is_not_dealt_is_refused(mine):
    table = {"kind": "myvalues:Part", "clients": 5, "options": {"clients": 8}}
    sentence = "partition.clients = 5: myvalues:Part deals the samples to 8 clients"
    with pytest.raises(InputError, match=sentence):
        resolve(read(partition=table))
    # A run directory has the number also of a partition that takes none
    table = {"kind": "myvalues:Pairs", "clients": 2, "options": {"alpha": 3}}
    assert len(resolve(read(partition=table)).shards) == 2


def test_a_partition_of_my_own_is_written_out_and_read_again(mine):
    config = resolve(read(partition={"kind": "myvalues:Part", "clients": 8})).config
    written = config.model_dump(exclude_none=True)["partition"]
    assert written["clients"] == 8
    again = resolve(read(partition=written))
    assert torch.equal(again.shards.sizes, resolve(config).shards.sizes)
