"""Rules of the user's own that are nearly right: one sentence that says what is wrong, instead of other numbers."""

from dataclasses import dataclass

import pytest
import torch

import fedlama
from doors.examples import HeavyBall
from doors.harness import run
from fedlama.base import InputError
from fedlama.rows import Slot


@dataclass(frozen=True)
class Kept(HeavyBall):
    """A server rule with other slots."""

    slots: object = ()


@dataclass(frozen=True)
class Sends(fedlama.SGD):
    """A local rule that has the server send something."""

    slots: object = ()
    server_slots: object = ()
    sends: object = ()


@pytest.mark.parametrize(
    ("name", "lifetime", "said"),
    [
        ("x", "forever", "the lifetime of slot 'x' must be 'window' or 'run', not"),
        ("x", None, "the lifetime of slot 'x' must be 'window' or 'run', not None"),
        (3, "run", "a slot's name must be a text, not 3"),
        ("", "run", "a slot's name must be a text, not ''"),
    ],
)
def test_a_slot_that_is_none_is_refused_where_it_is_made(name, lifetime, said):
    with pytest.raises(InputError, match=f"^{said}"):
        Slot(name, lifetime)


@pytest.mark.parametrize(
    ("slots", "said"),
    [
        (("ball",), r"must hold slots, such as \(Slot\(.*, not 'ball'$"),
        ("ball", "must be a tuple of slots, such as .*, not 'ball'$"),
        (None, "must be a tuple of slots, such as .*, not None$"),
        (
            Slot("ball"),
            "must be a tuple of slots, such as .*, not a value of type Slot$",
        ),
    ],
)
def test_what_is_no_slot_is_refused(slots, said):
    with pytest.raises(InputError, match=rf"^server\.slots {said}"):
        run(server=Kept(slots))
    with pytest.raises(InputError, match=rf"^local\.slots {said}"):
        run(local=Sends(0.1, 4, slots=slots))
    with pytest.raises(InputError, match=rf"^local\.server_slots {said}"):
        run(local=Sends(0.1, 4, server_slots=slots))


@pytest.mark.parametrize(
    ("kept", "sends", "said"),
    [
        ((), ("control",), r"\(none\), not 'control'"),
        ((Slot("mine", "run"),), ("control",), r"\('mine'\), not 'control'"),
    ],
)
def test_a_rule_can_send_only_what_the_server_keeps(kept, sends, said):
    rule = Sends(0.1, 4, server_slots=kept, sends=sends)
    with pytest.raises(
        InputError, match=rf"^local\.sends must name slots of local.server_slots {said}"
    ):
        run(local=rule)


class Answers:
    """A rule that gives back something else than numbers of the shape that it was given."""

    slots = ()

    def __init__(self, answer):
        self.answer = answer

    def apply(self, anchor, mean, own, *, count, periods):
        """The answer."""
        return self.answer


@dataclass(frozen=True)
class MergesTo(fedlama.SGD):
    """A local rule whose server part does so."""

    answer: object = None

    def merge(self, anchor, mean, own, *, steps, taken, share):
        """The answer."""
        return self.answer


@pytest.mark.parametrize(
    ("answer", "given"),
    [
        (torch.tensor(0.5), r"one of shape \(\)$"),
        (torch.zeros(7), r"one of shape \(7,\)$"),
        (None, "None$"),
        (0.5, "0.5$"),
    ],
    ids=str,
)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_rule_returns_as_many_numbers_as_it_was_given(answer, given, workers):
    # The first layer is a matrix of 12 × 6 numbers.
    said = r"must return a tensor of shape \(72,\) from"
    with pytest.raises(InputError, match=f"^Answers {said} `apply`, not {given}"):
        run(server=Answers(answer), workers=workers)
    with pytest.raises(InputError, match=f"^MergesTo {said} `merge`, not {given}"):
        run(local=MergesTo(0.1, 4, answer=answer), workers=workers)
