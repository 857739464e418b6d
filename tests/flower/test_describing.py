"""A Flower run as a configuration: by the tables that describe a run of the simulator."""

import json
from dataclasses import dataclass

import pytest

import fedlama
from fedlama.compress import Chain, ErrorFeedback, Quantize, Rotate, TopK
from fedlama.flower import LayerwiseStrategy
from fedlama.flower.codes import rule_to_plain
from fedlama.flower.describing import config_of, local_options
from fedlama.flower.queries import Member
from fedlama.run.choices import LOCAL_RULES

SGD = fedlama.SGD(0.1, 8, momentum=0.5, decay_steps=(3,))
RULES = [
    SGD,
    fedlama.FedProx(SGD, mu=0.1),
    fedlama.Scaffold(fedlama.SGD(0.1, 8)),
    fedlama.FedNova(SGD),
    fedlama.FedDyn(SGD, alpha=0.1),
]


def described(local=None, **options):
    strategy = LayerwiseStrategy(options.pop("policy", fedlama.FedAvg(2)), **options)
    return config_of(
        strategy.options,
        population=4,
        iterations=8,
        evaluate_every=4,
        local=local or {},
    )


def member(options):
    return Member(node=1, client=0, clients=1, samples=1, local="", options=options)


def said_by_clients(rule):
    said = json.dumps(rule_to_plain(rule))
    return local_options([member(said)])


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_how_clients_train_is_recorded_as_a_configuration_says_it(rule):
    assert {type(one) for one in RULES} == set(LOCAL_RULES.values())
    assert described(local=said_by_clients(rule)).local.build() == rule


@pytest.mark.parametrize("said", [{"rule": ["SGD"]}, {"rule": {}}, {"rule": "Mine"}])
def test_what_clients_say_may_be_anything(said):
    assert local_options([member(json.dumps(said))]) == said
    # Not the defaults of a configuration, which nobody set
    assert described(local=said).local is None


CODES = [
    None,
    Rotate(1.6),
    ErrorFeedback(Rotate(1.6), profile=(0.25, 0.75)),
    Chain(TopK(0.1), Quantize(4)),
]


@pytest.mark.parametrize("code", CODES)
def test_codes_are_recorded_as_those_of_the_simulator(code):
    options = {}
    if isinstance(code, ErrorFeedback):
        options["window"] = 4
    assert described(uplink=code, **options).uplink.build() == code


@dataclass(frozen=True)
class Slower(fedlama.FedLAMA):
    """A policy of the user's own."""


@pytest.mark.parametrize(
    "policy",
    [
        fedlama.FedLAMA(3, 2),
        fedlama.FedAvg(3),
        fedlama.FedLUAR(3, 1),
        fedlama.Budget(6, 24, 0.5),
        fedlama.Fixed(3, {"*.bias": 6}),
    ],
)
def test_policies_are_recorded_as_those_of_the_simulator(policy):
    found = described(policy=policy).policy.build()
    assert found == policy
    assert type(found) is type(policy)


def test_a_policy_of_my_own_is_named():
    found = described(policy=Slower(3, 2)).policy
    assert found.kind.endswith(":Slower")
    assert found.model_dump()["increase_factor"] == 2
