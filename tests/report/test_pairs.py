"""Differences to the baseline, seed by seed, on numbers made by hand."""

from dataclasses import dataclass

import pytest

from fedlama.report.numbers.comparison import Comparison
from fedlama.report.numbers.pairs import PairedDifference, paired_difference
from fedlama.report.numbers.seeds import Spread
from fedlama.report.words.pairs import (
    difference_heading,
    difference_notes,
    difference_text,
)


@dataclass
class Row:
    """As much of a setting as a difference looks at."""

    label: str
    seeds: list[int]
    score: Spread | None
    finished: bool = True


def row(label, scores, **other):
    values = tuple(scores.values())
    return Row(
        label, list(scores), Spread(sum(values) / len(values), None, values), **other
    )


def against(*settings):
    return Comparison(settings, settings[0], "accuracy", {})


BASE = row("FedAvg(6)", {0: 0.60, 1: 0.70, 2: 0.50})


def test_seeds_that_differ_much_may_have_a_small_error_together():
    # −2, −3, −4 points: mean −3, deviation 1
    other = row("FedLAMA(6, 4)", {0: 0.58, 1: 0.67, 2: 0.46})
    found = paired_difference(other, against(BASE, other))
    assert found.mean == pytest.approx(-0.03)
    assert found.error == pytest.approx(0.01 / 3**0.5)
    assert difference_text(found, "accuracy") == "−3.0 ± 0.6"


def test_only_seeds_that_both_have_count():
    other = row("FedAvg(24)", {1: 0.60, 7: 0.99})
    found = paired_difference(other, against(BASE, other))
    assert found.seeds == (1,)
    assert difference_text(found, "accuracy") == "−10.0"  # one seed has no error
    alone = row("FedAvg(24)", {7: 0.99})
    assert paired_difference(alone, against(BASE, alone)) is None


def test_the_baseline_and_what_is_unfinished_have_none():
    going = row("FedAvg(24)", {0: 0.3}, finished=False)
    comparison = against(BASE, going)
    assert paired_difference(BASE, comparison) is None
    assert paired_difference(going, comparison) is None
    assert difference_text(None, "accuracy") == "–"
    assert difference_notes(comparison) == []


def test_the_note_says_what_the_error_is():
    one, three = (
        row("FedAvg(12)", {0: 0.5}),
        row("FedAvg(24)", {0: 0.5, 1: 0.5, 2: 0.5}),
    )
    assert difference_heading(against(BASE, one)) == "− FedAvg(6)"
    assert difference_notes(against(BASE, one)) == [
        "Differences are to FedAvg(6), points, seed by seed; one seed has no error."
    ]
    assert difference_notes(against(BASE, one, three)) == [
        "Differences are to FedAvg(6), points, seed by seed: mean ± standard error."
    ]


def test_a_difference_that_rounds_to_nothing_has_no_sign():
    assert (
        difference_text(PairedDifference(-0.0004, 0.006, (0, 1)), "accuracy")
        == "0.0 ± 0.6"
    )
    assert (
        difference_text(PairedDifference(-0.0006, 0.006, (0, 1)), "accuracy")
        == "−0.1 ± 0.6"
    )
