"""What a server refuses, how many clients are enough, and when it gives up, worked out by hand."""

import math

import pytest
import torch

import fedlama
from fedlama.base import InputError
from fedlama.core import Layout, TensorEntry
from fedlama.server.exclusions import NOT_FINITE, TOO_LARGE
from fedlama.server.tolerance import Tolerance, update_norms


@pytest.mark.parametrize(
    ("loss", "finite", "norm", "limit", "reason"),
    [
        (0.5, True, None, None, None),
        (math.nan, True, None, None, NOT_FINITE),
        (math.inf, True, None, None, NOT_FINITE),
        (0.5, False, None, None, NOT_FINITE),
        # The limit itself is within it.
        (0.5, True, 2.0, 2.0, None),
        (0.5, True, math.nextafter(2.0, 3.0), 2.0, TOO_LARGE),
        # What is not finite is called that, however large it is.
        (0.5, False, math.inf, 2.0, NOT_FINITE),
        (math.nan, True, 3.0, 2.0, NOT_FINITE),
        (0.5, False, math.nan, 2.0, NOT_FINITE),
        # Without a limit nothing is too large.
        (0.5, True, 1e300, None, None),
    ],
)
def test_why_an_update_is_refused(loss, finite, norm, limit, reason):
    tolerance = Tolerance(norm_limit=limit)
    refusal = tolerance.refusal(loss=loss, weights_are_finite=finite, norm=norm)
    assert refusal == reason


def test_so_many_clients_are_enough():
    tolerance = Tolerance(min_clients=3)
    assert [tolerance.suffices(clients) for clients in range(5)] == [
        False,
        False,
        False,
        True,
        True,
    ]
    assert not Tolerance().suffices(0)


def test_a_round_is_repeated_so_often_and_as_often_again_after_a_resume():
    repeating = Tolerance(on_too_few="repeat")
    stops = [n for n in range(1, 10) if repeating.gives_up(n, maximum=4)]
    assert stops == [4, 8]
    stopping = Tolerance(on_too_few="stop")
    assert stopping.gives_up(1, maximum=4)


def test_what_is_said_where_too_few_are_left():
    tolerance = Tolerance(min_clients=6)
    named = ["client 0: missed the deadline", "…"]
    assert tolerance.too_few(named, option="min_clients", round=3) == (
        "fewer than min_clients = 6 clients were left in round 3 "
        "(client 0: missed the deadline; …)"
    )
    assert "in round 3 at 5 attempts (client 0" in tolerance.too_few(
        named, option="faults.min_clients", round=3, tried=" at 5 attempts"
    )


def test_a_norm_is_of_the_due_layers_and_not_of_statistics():
    tensors = [
        TensorEntry("a.weight", 2, "a"),
        TensorEntry("b", 2),
        TensorEntry("a.bias", 1, "a"),
    ]
    layout = Layout.pack(tensors, [TensorEntry("mean", 1)])
    # Each tensor begins at a multiple of 16 numbers: a at 0 and 32, b at 16, the statistics at 48.
    assert layout.width == 64
    anchor = torch.ones(64)
    moves = torch.zeros(2, 64)
    # a: √(4 + 9 + 36) = 7, b: 8
    moves[0, [0, 1, 32]] = torch.tensor([2.0, 3.0, 6.0])
    moves[0, 16] = 8.0
    # a: 0, b: √(9 + 16) = 5
    moves[1, [16, 17]] = torch.tensor([3.0, 4.0])
    moves[:, 48] = 100.0
    rows = anchor + moves
    assert update_norms(rows, anchor, layout, [0]).tolist() == [7.0, 0.0]
    assert update_norms(rows, anchor, layout, [1]).tolist() == [8.0, 5.0]
    both = update_norms(rows, anchor, layout, [0, 1]).tolist()
    assert both == [math.sqrt(49 + 64), 5.0]


def test_the_norm_of_large_numbers_is_a_number():
    layout = Layout.pack([TensorEntry("a", 4)])
    rows = torch.zeros(1, layout.width)
    rows[0, :4] = 3e38
    norms = update_norms(rows, torch.zeros(layout.width), layout, [0])
    # √(4 · x²) = 2x, and x² is far beyond float32.
    assert norms.item() == pytest.approx(2 * 3e38, rel=1e-6)
    assert norms.dtype == torch.float64


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"min_clients": 0}, "min_clients must be at least 1, not 0"),
        ({"min_clients": 1.5}, "min_clients must be a whole number, not 1.5"),
        ({"on_too_few": "wait"}, "on_too_few must be one of repeat, stop, not 'wait'"),
        ({"norm_limit": 0.0}, "norm_limit must be above 0 and at most 1e+30, not 0.0"),
        ({"norm_limit": 1e31}, "norm_limit must be above 0 and at most 1e+30"),
        ({"norm_limit": math.nan}, "norm_limit must be above 0 and at most 1e+30"),
    ],
)
def test_both_runtimes_refuse_the_same_values(wrong, sentence):
    with pytest.raises(InputError) as refused:
        Tolerance(**wrong)
    assert str(refused.value).startswith(sentence)
    with pytest.raises(InputError) as refused_faults:
        fedlama.Faults(**wrong)
    assert str(refused_faults.value) == f"faults.{refused.value}"


def test_faults_say_what_the_server_tolerates():
    faults = fedlama.Faults(norm_limit=2.0, min_clients=3, on_too_few="stop")
    assert faults.tolerance == Tolerance(
        norm_limit=2.0, min_clients=3, on_too_few="stop"
    )
    assert fedlama.Faults().tolerance == Tolerance()


def test_more_clients_than_train_at_a_time_are_never_left():
    tolerance = Tolerance(min_clients=2)
    tolerance.check_can_be_met(2, option="min_clients")
    with pytest.raises(
        InputError, match=r"^min_clients is 2, but only 1 client trains at a time$"
    ):
        tolerance.check_can_be_met(1, option="min_clients")
