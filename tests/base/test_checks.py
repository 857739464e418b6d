"""Every number has bounds, and a number outside them is named, however many digits it has."""

import numpy as np
import pytest
import torch

import fedlama
from fedlama.base import (
    MAX_SEED,
    MAX_WHOLE,
    InputError,
    check_number,
    check_whole,
    shown,
)


@pytest.mark.parametrize("value", [1, 7, MAX_WHOLE, np.int64(3), torch.tensor(3)])
def test_whole_numbers(value):
    check_whole("n", value, minimum=1)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (0, "n must be at least 1, not 0"),
        (-(10**5000), "n must be at least 1, not a whole number of 16,610 bits"),
        (MAX_WHOLE + 1, "n must be at most 1,000,000,000, not 1000000001"),
        (
            10**5000,
            "n must be at most 1,000,000,000, not a whole number of 16,610 bits",
        ),
        (3.0, "n must be a whole number, not 3.0"),
        (True, "n must be a whole number, not True"),
        (None, "n must be a whole number, not None"),
        ("\x1b", r"n must be a whole number, not '\x1b'"),
        ("9" * 10**6, "n must be a whole number, not '" + "9" * 59 + "…'"),
        (torch.zeros(3), "n must be a whole number, not a value of type Tensor"),
    ],
    ids=shown,
)
def test_other_values_are_named(value, sentence):
    with pytest.raises(InputError) as caught:
        check_whole("n", value, minimum=1)
    assert str(caught.value) == sentence


def test_another_upper_bound():
    check_whole("seed", MAX_SEED, minimum=0, maximum=MAX_SEED)
    with pytest.raises(InputError, match="at most 4,611,686,018,427,387,904"):
        check_whole("seed", MAX_SEED + 1, minimum=0, maximum=MAX_SEED)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (1, "x must be at least 0 and below 1, not 1"),
        (
            10**5000,
            "x must be at least 0 and below 1, not a whole number of 16,610 bits",
        ),
        (
            -(10**5000),
            "x must be at least 0 and below 1, not a whole number of 16,610 bits",
        ),
        (float("nan"), "x must be at least 0 and below 1, not nan"),
        ("0.5", "x must be at least 0 and below 1, not '0.5'"),
        (b"0.5", "x must be at least 0 and below 1, not b'0.5'"),
        (False, "x must be at least 0 and below 1, not False"),
        ([0.5], "x must be at least 0 and below 1, not [0.5]"),
    ],
    ids=shown,
)
def test_numbers_within_limits(value, sentence):
    check_number("x", 0.5, minimum=0, below=1)
    with pytest.raises(InputError) as caught:
        check_number("x", value, minimum=0, below=1)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    "huge", [10**9 + 1, 10**18, 10**400, 2**63, int("f" * 6000, 16)], ids=shown
)
def test_no_whole_number_of_the_package_is_without_an_upper_bound(huge):
    for build in (
        lambda: fedlama.FedAvg(huge),
        lambda: fedlama.FedLAMA(6, huge),
        lambda: fedlama.FedLAMA(6, 4, warmup_rounds=huge),
        lambda: fedlama.SGD(0.1, batch_size=huge),
        lambda: fedlama.SGD(0.1, 32, warmup_steps=huge),
        lambda: fedlama.SGD(0.1, 32, decay_steps=(huge,)),
        lambda: fedlama.IID(huge),
        lambda: fedlama.Dirichlet(huge, 0.5),
        lambda: fedlama.Dirichlet(4, 0.5, min_samples=huge),
        lambda: fedlama.Natural(huge),
        lambda: fedlama.Participation(huge),
        lambda: fedlama.Participation(window=huge),
        lambda: fedlama.Faults(min_clients=huge),
    ):
        with pytest.raises(InputError, match="at most 1,000,000,000"):
            build()
