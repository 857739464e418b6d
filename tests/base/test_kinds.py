"""What is not of the kind that is needed is refused with what it lacks."""

from typing import Protocol, runtime_checkable

import pytest

import fedlama
from fedlama.base import InputError, check_made, missing_members


@runtime_checkable
class Named(Protocol):
    first: int

    @property
    def second(self) -> int: ...

    def third(self) -> None: ...


class Whole:
    first = 1
    second = 2

    def third(self) -> None: ...


class Short:
    first = 1


class Shorter:
    second = 2

    def third(self) -> None: ...


def said(value, kind=Named):
    with pytest.raises(InputError) as caught:
        check_made("this", value, kind, "make(…)")
    return str(caught.value)


def test_what_has_all_of_it_is_taken():
    check_made("this", Whole(), Named, "make(…)")
    check_made("this", 3, int, "int(…)")


def test_what_is_missing_is_named():
    start = "this must be made with make(…), or have what those have: "
    assert said(Short()) == f"{start}Short has no second and third"
    assert said(Shorter()) == f"{start}Shorter has no first"


@pytest.mark.parametrize(
    ("value", "given"),
    [(0.1, "0.1"), ("iid", "'iid'"), (Whole, "the class Whole"), (None, "None")],
)
def test_what_was_meant_to_be_something_else_is_shown(value, given):
    assert said(value) == f"this must be made with make(…), not {given}"
    assert missing_members(value, Named) == ""


class WithoutUses:
    base_interval = 2
    longest_cycle = 2

    def start(self, layers): ...

    def next(self, state, iterations): ...

    def observe(self, state, plan, evidence, layers): ...


class WithoutSlots:
    def apply(self, anchor, mean, own, *, count, periods): ...


def simulated(**options):
    given = {
        "policy": fedlama.FedAvg(2),
        "local": fedlama.SGD(0.1, 8),
        "iterations": 2,
        **options,
    }
    return fedlama.simulate(
        lambda: fedlama.models.mlp(10, inputs=64), fedlama.data.digits(), **given
    )


def compared():
    return fedlama.compare(
        {"mine": {"policy": WithoutUses()}},
        out="nowhere",
        model=lambda: fedlama.models.mlp(10, inputs=64),
        data=fedlama.data.digits(),
        local=fedlama.SGD(0.1, 8),
        iterations=2,
    )


def averaged():
    module = fedlama.models.mlp(10, inputs=64)
    return fedlama.LayerwiseModelAverager(module, policy=WithoutUses())


@pytest.mark.parametrize(
    ("door", "lack"),
    [
        (lambda: simulated(policy=WithoutUses()), "WithoutUses has no uses"),
        (lambda: simulated(server=WithoutSlots()), "WithoutSlots has no slots"),
        (
            lambda: fedlama.flower.LayerwiseStrategy(WithoutUses()),
            "WithoutUses has no uses",
        ),
        (
            lambda: fedlama.flower.LayerwiseStrategy(
                fedlama.FedAvg(2), server=WithoutSlots()
            ),
            "WithoutSlots has no slots",
        ),
        (
            lambda: fedlama.flower.client_app(
                fedlama.models.mlp, fedlama.data.digits(), local=WithoutSlots()
            ),
            "local must be made with",
        ),
        (averaged, "WithoutUses has no uses"),
        (compared, "'mine': policy must be made with .* WithoutUses has no uses"),
    ],
)
def test_every_door_says_so(door, lack):
    with pytest.raises(InputError, match=lack):
        door()
