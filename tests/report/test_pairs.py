"""Differences to the baseline, seed by seed, on numbers made by hand."""

from dataclasses import dataclass, field

import pytest

from fedlama.report.numbers.comparison import RunComparison
from fedlama.report.numbers.pairs import (
    PairedDifference,
    paired_average,
    paired_difference,
)
from fedlama.report.numbers.seeds import Spread
from fedlama.report.words.pairs import (
    average_cells,
    average_fields,
    average_notes,
    difference_heading,
    difference_notes,
    difference_text,
    unequal_seeds_notes,
)


@dataclass
class Row:
    """As much of a setting as a difference looks at."""

    label: str
    seeds: list[int]
    score: Spread | None
    finished: bool = True
    average_scores: dict[int, float] = field(default_factory=dict)


def row(label, scores, **other):
    values = tuple(scores.values())
    return Row(
        label, list(scores), Spread(sum(values) / len(values), None, values), **other
    )


def against(*settings):
    return RunComparison(settings, settings[0], "accuracy", {})


BASE = row("FedAvg(6)", {0: 0.60, 1: 0.70, 2: 0.50})


def test_seeds_that_differ_much_may_have_a_small_error_together():
    # −2, −3, −4 points: mean −3, deviation 1
    other = row("FedLAMA(6, 4)", {0: 0.58, 1: 0.67, 2: 0.46})
    found = paired_difference(other, against(BASE, other))
    assert found.mean == pytest.approx(-0.03)
    assert found.error == pytest.approx(0.01 / 3**0.5)
    # 1 / √3 = 0.577
    assert difference_text(found, "accuracy") == "−3.00 ± 0.58"


def test_only_seeds_that_both_have_count():
    other = row("FedAvg(24)", {1: 0.60, 7: 0.99})
    found = paired_difference(other, against(BASE, other))
    assert found.seeds == (1,)
    assert difference_text(found, "accuracy") == "−10.00"  # one seed has no error
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
        difference_text(PairedDifference(-0.00004, 0.006, (0, 1)), "accuracy")
        == "0.00 ± 0.60"
    )
    assert (
        difference_text(PairedDifference(-0.00006, 0.006, (0, 1)), "accuracy")
        == "−0.01 ± 0.60"
    )
    # What is no accuracy is no percentage: three digits of its own
    assert (
        difference_text(PairedDifference(-0.0006, 0.006, (0, 1)), "loss")
        == "−0.001 ± 0.006"
    )


def test_moving_averages_are_compared_with_moving_averages():
    # At seed 1: model −10 points, its average +2; seed 0 of the baseline has no average
    base = row("FedAvg(6)", {0: 0.60, 1: 0.70}, average_scores={1: 0.71})
    other = row("FedAvg(24)", {0: 0.50, 1: 0.60}, average_scores={0: 0.9, 1: 0.73})
    bare = row("FedAvg(12)", {0: 0.50})
    comparison = against(base, other, bare)
    found = paired_average(other, comparison)
    assert found.mean == pytest.approx(0.02)
    assert found.seeds == (1,)
    # (0.9 + 0.73) / 2, and 0.17 / √2
    assert average_cells(other, comparison) == ["81.50 ± 12.02 %", "+2.00"]
    assert average_cells(base, comparison) == ["71.00 %", "–"]
    assert average_cells(bare, comparison) == ["–", "–"]
    fields = average_fields(other, comparison)
    assert fields["average_score"] == pytest.approx(0.815)
    assert fields["average_difference"] == pytest.approx(0.02)
    assert fields["average_difference_error"] is None
    assert (
        average_notes(comparison)[1]
        == "None was evaluated of FedAvg(6) (seed 0), FedAvg(12) (all seeds)."
    )


def test_without_moving_averages_nothing_is_said_of_them():
    other = row("FedAvg(24)", {0: 0.5})
    assert average_notes(against(BASE, other)) == []
    assert average_fields(other, against(BASE, other)) == {}


def test_means_over_different_seeds_are_said_to_be():
    # Without its worst seed a setting's mean is 65 %, above the baseline's 60; seed by seed it is a point behind.
    other = row("FedLAMA(6, 4)", {0: 0.59, 1: 0.69})
    slow = row("FedAvg(24)", {0: 0.50, 1: 0.60, 2: 0.40})
    comparison = against(BASE, other, slow)
    found = paired_difference(other, comparison)
    assert found.mean == pytest.approx(-0.01)
    assert found.seeds == (0, 1)
    assert unequal_seeds_notes(comparison) == [
        "Means are over different seeds (FedAvg(6) and FedAvg(24): 0, 1, 2; FedLAMA(6, 4): 0, 1). "
        "Compare settings by their differences, which are over the seeds that both have."
    ]
    assert unequal_seeds_notes(against(BASE, slow)) == []


def test_without_differences_nobody_is_sent_to_them():
    first = row("FedAvg(6)", {0: 0.6})
    second = row("FedAvg(24)", {1: 0.5})
    assert unequal_seeds_notes(against(first, second)) == [
        "Means are over different seeds (FedAvg(6): 0; FedAvg(24): 1)."
    ]
