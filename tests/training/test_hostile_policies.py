"""Policies whose memory is no plain JSON, or whose plans cannot be played: one sentence that names them."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch

import fedlama
from doors.examples import Rotating
from doors.harness import run, run_in_folder, run_in_pieces, same_bits
from fedlama.base import InputError
from fedlama.core import RoundPlan
from fedlama.core.policy_checks import check_own, check_plan


@dataclass(frozen=True, eq=False)
class Remembers(fedlama.FedLAMA):
    """FedLAMA with a memory: `first` before the first step, and `later` after every round."""

    first: object = None
    later: object = None

    def start(self, layers):
        """The state before the first step."""
        return replace(super().start(layers), own=self.first)

    def observe(self, state, plan, evidence, layers):
        """The state after a round."""
        return replace(super().observe(state, plan, evidence, layers), own=self.later)


class Plans(fedlama.FedAvg):
    """FedAvg with something else in its plans."""

    changes: ClassVar = {}

    def next(self, state, iterations):
        """The next round."""
        return replace(super().next(state, iterations), **self.changes)


itself = []
itself.append(itself)
NO_JSON = [
    (torch.zeros(2), "a value of type Tensor"),
    ({"seen": {1, 2}}, "a value of type set"),
    ({1: "a"}, "the key 1"),
    ([{"rounds": {3: 4}}], "the key 3"),
    (b"bytes", "a value of type bytes"),
    (itself, "lists or dicts more than 100 deep"),
]


@pytest.mark.parametrize(("own", "what"), NO_JSON, ids=type)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_memory_that_is_no_json_is_refused_before_the_first_step(own, what, workers):
    said = f"^Remembers keeps {what} in PolicyState.own, which must be plain JSON"
    with pytest.raises(InputError, match=said):
        run(policy=Remembers(2, 3, first=own), workers=workers)


@pytest.mark.parametrize(("own", "what"), NO_JSON, ids=type)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_memory_that_becomes_no_json_is_refused_after_that_round(own, what, workers):
    records = []
    with pytest.raises(InputError, match=f"^Remembers keeps {what} in PolicyState.own"):
        run(
            policy=Remembers(2, 3, later=own),
            workers=workers,
            on_record=records.append,
        )
    assert not records


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_memory_that_cannot_be_saved_is_said_where_it_is_to_be(tmp_path, number):
    policy = Remembers(2, 3, later={"scores": [1.0, number]})
    # Without checkpoints it is nobody's business
    run(policy=policy)
    with pytest.raises(
        InputError, match=f"^Remembers keeps {number} in PolicyState.own"
    ):
        run_in_folder(tmp_path / "run", policy=policy)


def test_any_plain_json_is_kept_and_tuples_may_come_back_as_lists():
    own = {"a": (1, 2.5, None), "b": {"c": [True, "text", []]}, "": {}}
    policy = Remembers(2, 3, first=own, later=own)
    whole = run(policy=policy)
    pieces, stops = run_in_pieces(policy=policy)
    assert stops > 1
    assert same_bits(whole, pieces)


def test_plain_json_is_any_of_its_types():
    for own in (None, True, 3, 1.5, "text", [], {}, [[{"a": (1, 2)}]]):
        check_own(fedlama.FedAvg(2), own)


PLANS = [
    ({"steps": 0}, "plans a round of 0 steps"),
    ({"steps": -2}, "plans a round of -2 steps"),
    ({"steps": 1.5}, "plans a round of 1.5 steps"),
    ({"steps": 49}, "plans a round of 49 steps: .* the 48 that are left"),
    ({"due": (99,)}, "plans to average layer 99, and there are 8, counted from 0"),
    ({"due": (0, -1)}, "plans to average layer -1, and there are 8"),
    ({"due": ("0.weight",)}, "plans to average layer '0.weight', and there are 8"),
    ({"recycled": (8,)}, "plans to recycle layer 8, and there are 8"),
    ({"trained": (8,)}, "plans to train layer 8, and there are 8"),
    ({"due": (0, 1, 0)}, "plans to average layer 0 twice in a round"),
    ({"recycled": (1, 1)}, "plans to recycle layer 1 twice"),
    ({"trained": (1, 1)}, "plans to train layer 1 twice"),
    ({"recycled": (2,)}, "plans to average and to recycle layer 2: "),
    (
        {"due": (0,), "recycled": (2,)},
        "plans to recycle layers, and its `uses` must name 'recycled'",
    ),
    (
        {"trained": (2,)},
        "plans to train some layers only, and its `uses` must name 'frozen'",
    ),
]


@pytest.mark.parametrize(("changes", "said"), PLANS, ids=lambda value: str(value)[:20])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_plan_that_cannot_be_played_is_refused(monkeypatch, changes, said, workers):
    monkeypatch.setattr(Plans, "changes", changes)
    with pytest.raises(InputError, match=f"^Plans {said}"):
        run(policy=Plans(2), workers=workers)


def test_plans_at_the_limits_are_played():
    # Three steps are left, and there are two layers
    plan = RoundPlan(3, (0, 1), range(3), ends_cycle=True)
    check_plan(fedlama.FedAvg(2), plan, steps_left=3, layers=2)
    check_plan(fedlama.FedAvg(2), replace(plan, due=()), steps_left=3, layers=2)
    of_numpy = replace(plan, steps=np.int64(3), due=tuple(np.arange(2)))
    check_plan(fedlama.FedAvg(2), of_numpy, steps_left=3, layers=2)
    recycles = fedlama.FedLUAR(2, 1)
    check_plan(recycles, replace(plan, due=(0,), recycled=(1,)), steps_left=3, layers=2)
    freezes = fedlama.FedPart(2, groups=2)
    check_plan(freezes, replace(plan, trained=(1,)), steps_left=3, layers=2)


class Answers(fedlama.FedAvg):
    """FedAvg whose methods return what they should not."""

    first: ClassVar = None
    planned: ClassVar = None
    observed: ClassVar = None

    def start(self, layers):
        """The state before the first step."""
        start = super().start(layers)
        return type(self).first(start) if self.first else start

    def next(self, state, iterations):
        """The next round."""
        plan = super().next(state, iterations)
        return type(self).planned(state, plan) if self.planned else plan

    def observe(self, state, plan, evidence, layers):
        """The state after a round."""
        after = super().observe(state, plan, evidence, layers)
        return type(self).observed(state, after) if self.observed else after


def nothing(*states):
    """What a method without a return gives back."""


def remember(start):
    return replace(start, own=[0])


def count_in_next(state, plan):
    state.own.append(1)
    return plan


ANSWERS = [
    ({"first": nothing}, "must return a PolicyState from `start`, not None"),
    ({"planned": nothing}, "must return a RoundPlan from `next`, not None"),
    ({"observed": nothing}, "must return a PolicyState from `observe`, not None"),
    (
        {"first": lambda start: replace(start, intervals=(2,))},
        r"returns a state from `start` whose intervals has not one entry .* 8 layers: \(2\)",
    ),
    (
        {"observed": lambda state, after: replace(after, synchronised_at=None)},
        "returns a state from `observe` whose synchronised_at has not one entry",
    ),
    (
        {"observed": lambda state, after: replace(after, discrepancy=(0.0,) * 9)},
        "returns a state from `observe` whose discrepancy has not one entry",
    ),
    # It would play the first round for ever
    (
        {"observed": lambda state, after: state},
        "returns a state of step 0 and round 0 from `observe`, and the run is at step 2 and round 1",
    ),
    (
        {"first": lambda start: replace(start, step=3)},
        "returns a state of step 3 and round 0 from `start`, and the run is at step 0",
    ),
    (
        {"first": remember, "planned": count_in_next},
        "changes PolicyState.own in `next`, which only plans",
    ),
]


@pytest.mark.parametrize(
    ("answers", "said"), ANSWERS, ids=lambda value: str(value)[:20]
)
def test_what_a_method_must_not_return_is_refused(monkeypatch, answers, said):
    for name, function in answers.items():
        monkeypatch.setattr(Answers, name, function)
    with pytest.raises(InputError, match=f"^Answers {said}"):
        run(policy=Answers(2))


FACTS = [
    ({"base_interval": 0}, "policy.base_interval must be at least 1, not 0"),
    ({"base_interval": 1.5}, "policy.base_interval must be a whole number, not 1.5"),
    ({"longest_cycle": None}, "policy.longest_cycle must be a whole number, not None"),
    ({"uses": ("move",)}, "policy.uses may name spread, .*, not 'move'"),
    ({"uses": "moved"}, "policy.uses must be a tuple of texts, not 'moved'"),
    ({"uses": None}, "policy.uses must be a tuple of texts, not None"),
]


@pytest.mark.parametrize(("facts", "said"), FACTS, ids=lambda value: str(value)[:20])
def test_what_a_policy_says_of_itself_is_checked_once(facts, said):
    policy = replace(Rotating(), **facts)
    with pytest.raises(InputError, match=f"^{said}"):
        run(policy=policy)
