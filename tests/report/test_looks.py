"""A setting has one colour in all pictures: by what it is, and not by its place in a table."""

import itertools

import pytest
from hand_made import write_run

from fedlama.paper.demo import demo_study
from fedlama.paper.recipe import FIGURES, TABLES
from fedlama.paper.reproduce import frontier_study, reproduction
from fedlama.report import compare
from fedlama.report.numbers.looks import looks_of
from fedlama.report.pictures.style import PALETTE, colour

BLUE, ORANGE, GREEN, PINK, AMBER, SKY = PALETTE


def colours(study):
    """By the name of the setting."""
    settings = [(setting.name, setting.config) for setting in study.settings]
    looks = looks_of(settings)
    return {name: colour(look) for (name, _), look in zip(settings, looks, strict=True)}


@pytest.mark.parametrize("name", [*TABLES, *FIGURES])
def test_a_name_has_one_colour_in_all_tables_and_figures(name):
    papers = {
        1: BLUE,
        2: AMBER,
        4: ORANGE,
        "2": SKY,
        "4": GREEN,
    }
    for panel in reproduction(name, "cpu").panels:
        found = colours(panel.study)
        assert len(set(found.values())) == len(found)
        for interval, (multiple, expected) in itertools.product(
            (6, 10), papers.items()
        ):
            label = f"FedLAMA({interval}, {multiple})"
            if isinstance(multiple, int):
                label = f"FedAvg({interval * multiple})"
            if label in found and f"FedAvg({interval})" in found:
                assert found[label] == expected, (name, label)


def test_the_demo_keeps_the_colours_of_its_order():
    assert colours(demo_study()) == {
        "FedAvg(6)": BLUE,
        "FedAvg(24)": ORANGE,
        "FedLAMA(6, 4)": GREEN,
        "frugal": PINK,
    }


def test_where_fedavg_has_smaller_intervals_too_fedlama_says_which_is_the_base():
    found = colours(frontier_study())
    named = ("FedAvg(6)", "FedAvg(24)", "FedLAMA(6, 4)", "frugal", "FedAvg(12)")
    assert [found[name] for name in named] == [BLUE, ORANGE, GREEN, PINK, AMBER]


def test_the_order_of_settings_does_not_matter():
    study = reproduction("table6", "cpu").panels[0].study
    settings = [(setting.name, setting.config) for setting in study.settings]
    expected = dict(
        zip([name for name, _ in settings], looks_of(settings), strict=True)
    )
    # FedLAMA(6, 8) takes what is left, and neither FedAvg(24)'s orange nor FedAvg(12)'s amber before that
    assert colour(expected["FedLAMA(6, 8)"]) == PINK
    for order in itertools.permutations(settings):
        looks = looks_of(order)
        assert {
            name: look for (name, _), look in zip(order, looks, strict=True)
        } == expected


def test_runs_that_are_compared_have_these_colours(tmp_path):
    lama = write_run(tmp_path / "lama", policy="fedlama")
    coded = write_run(
        tmp_path / "coded", policy="fast", uplink={"codec": "rotate", "bits": 1.0}
    )
    fast = write_run(tmp_path / "fast", policy="fast")
    comparison = compare([lama, coded, fast])
    found = {setting.label: colour(setting.look) for setting in comparison.settings}
    assert found.pop("FedLAMA(6, 4)") == GREEN
    # FedAvg with a code is no plain FedAvg
    assert sorted(found.values()) == sorted([BLUE, PINK])
    (plain,) = [one for one in comparison.settings if not one.adapts]
    assert colour(plain.look) == BLUE
