"""A study file: how it is expanded into runs, and what is said when it is wrong."""

import pytest

from fedlama.base import InputError
from fedlama.study.study_file import parse_study

BASE = {
    "data": {"name": "digits"},
    "train": {"iterations": 96},
    "participation": {"active": 4},
    "policy": {"base_interval": 6},
}
FEDAVG = {"policy": {"kind": "fedavg"}}
FEDLAMA = {"policy": {"kind": "fedlama", "increase_factor": 4}}


def study(*settings, **options):
    return parse_study(
        {**BASE, "study": {**options, "setting": list(settings or (FEDAVG, FEDLAMA))}},
        "s.toml",
    )


def refusal(*settings, **options):
    with pytest.raises(InputError) as refused:
        study(*settings, **options)
    return str(refused.value)


def test_settings_override_the_base_key_by_key():
    first, second = study().settings
    assert (first.name, second.name) == ("FedAvg(6)", "FedLAMA(6, 4)")
    # The base's, beside the setting's own keys
    assert second.config.policy.base_interval == 6
    assert [cell.path.as_posix() for cell in study(seeds=[3, 5]).cells({})] == [
        "fedavg-6/seed3",
        "fedlama-6-4/seed3",
        "fedavg-6/seed5",
        "fedlama-6-4/seed5",
    ]


def test_a_cohort_stays_for_the_least_common_multiple_of_the_cycles():
    # FedAvg(6) has cycles of 6 steps, FedLAMA(6, 4) of 24 and FedAvg(9) of 9: lcm(6, 24, 9) = 72
    settings = study(
        FEDAVG, FEDLAMA, {"policy": {"kind": "fedavg", "base_interval": 9}}
    ).settings
    assert [setting.config.participation.window for setting in settings] == [72, 72, 72]
    own = study(FEDAVG, {**FEDLAMA, "participation": {"window": 48}}).settings
    assert [setting.config.participation.window for setting in own] == [24, 48]


def test_pilots_never_see_the_test_samples():
    pilots = study(
        learning_rates=[0.2, 0.1], pilot_seeds=[7], pilot_iterations=48, validation=0.25
    ).pilots()
    assert [(pilot.setting, pilot.rate) for pilot in pilots] == [
        ("FedAvg(6)", 0.1),
        ("FedAvg(6)", 0.2),
        ("FedLAMA(6, 4)", 0.1),
        ("FedLAMA(6, 4)", 0.2),
    ]
    for pilot in pilots:
        assert pilot.config.data.validation == 0.25
        assert (pilot.config.seed, pilot.config.train.iterations) == (7, 48)
        assert pilot.config.local.learning_rate == pilot.rate
    assert all(
        cell.config.data.validation == 0
        for cell in study(learning_rates=[0.1]).cells({"FedAvg(6)": 0.1})
    )


def test_a_setting_with_a_learning_rate_of_its_own_needs_no_pilot():
    fixed = study(
        {**FEDAVG, "local": {"learning_rate": 0.3}}, FEDLAMA, learning_rates=[0.1, 0.2]
    )
    assert [pilot.setting for pilot in fixed.pilots()] == ["FedLAMA(6, 4)"] * 2
    assert [
        cell.config.local.learning_rate for cell in fixed.cells({"FedLAMA(6, 4)": 0.2})
    ][:2] == [0.3, 0.2]


def test_intervals_for_the_frontier_are_added_once():
    assert [
        setting.name for setting in study(fedavg_intervals=[6, 12, 12]).settings
    ] == [
        "FedAvg(6)",
        "FedLAMA(6, 4)",
        "FedAvg(12)",
    ]


def test_seeds_of_a_setting():
    counts = study({**FEDAVG, "seeds": [0]}, FEDLAMA, seeds=[0, 1]).cells({})
    assert [(cell.setting, cell.config.seed) for cell in counts] == [
        ("FedAvg(6)", 0),
        ("FedLAMA(6, 4)", 0),
        ("FedLAMA(6, 4)", 1),
    ]


@pytest.mark.parametrize(
    ("settings", "options", "said"),
    [
        ((FEDAVG, FEDAVG), {}, "two settings are called FedAvg(6)"),
        (
            (FEDAVG,),
            {"baseline": "FedAvg(7)"},
            "study.baseline = 'FedAvg(7)' is no setting; there are FedAvg(6)",
        ),
        (
            ({"polcy": {}},),
            {},
            "s.toml, setting 1: unknown key 'polcy'; did you mean 'policy'?",
        ),
        ((FEDAVG,), {"sedes": [1]}, "unknown key 'study.sedes'; did you mean 'seeds'?"),
        ((FEDAVG,), {"seeds": []}, "study.seeds"),
        ((FEDAVG,), {"learning_rates": [-1.0]}, "above 0"),
        (({**FEDAVG, "seeds": "all"},), {}, "s.toml, setting 1: seeds"),
        (({**FEDAVG, "name": 3},), {}, "s.toml, setting 1: name"),
        (({**FEDAVG, "name": "pilots"},), {}, "cannot be called pilots"),
        ((FEDAVG,), {"validation": 1.0}, "below 1"),
    ],
)
def test_what_is_wrong_is_said(settings, options, said):
    assert said in refusal(*settings, **options)


def test_a_file_whose_name_is_a_key_keeps_its_name_in_what_is_said():
    tables = {**BASE, "study": {"setting": [{**FEDAVG, "name": 3}]}}
    with pytest.raises(
        InputError, match=r"^runs/baseline-study.toml, setting 1: name = 3: must be a"
    ):
        parse_study(tables, "runs/baseline-study.toml")


def test_a_study_needs_settings():
    with pytest.raises(InputError, match="at least one"):
        parse_study({**BASE, "study": {}}, "s.toml")
    with pytest.raises(InputError, match=r"needs a \[study\] table"):
        parse_study(BASE, "s.toml")


def test_single_brackets():
    with pytest.raises(InputError, match="double brackets"):
        parse_study({**BASE, "study": {"setting": FEDAVG}}, "s.toml")


def named(name, interval=6):
    return {"name": name, "policy": {"kind": "fedavg", "base_interval": interval}}


@pytest.mark.parametrize(
    "name", ["\x1b[31mred", "a\u2028b", "a\nb", "\u202eback", "tab\t"]
)
def test_a_name_that_does_not_print_is_refused(name):
    said = refusal(named(name), FEDLAMA)
    assert "do not print" in said
    assert said.isprintable()


def test_names_in_any_script_have_folders_of_their_own():
    settings = study(named("平均", 6), named("分层", 12), named("Größe_1", 18)).settings
    assert [setting.folder for setting in settings] == ["平均", "分层", "grösse-1"]


def test_names_that_differ_too_little_for_two_folders_are_both_named():
    said = refusal(named("a b", 6), named("a-b", 12))
    assert "'a b' and 'a-b' would share the folder a-b" in said
    assert "'!' and '?' would share the folder setting" in refusal(
        named("!", 6), named("?", 12)
    )


@pytest.mark.parametrize(
    "name",
    ["report.html", "Table.md", "study.json", "report.png", "study.json.partial"],
)
def test_a_setting_cannot_take_a_file_of_the_study(name):
    assert "has a file of its own by such a name" in refusal(named(name), FEDLAMA)
    assert study(named("report"), FEDLAMA).settings[0].folder == "report"


def test_long_names():
    assert "300 characters; 200 are allowed" in refusal(named("x" * 300), FEDLAMA)
    first, second = study(
        named("长" * 199 + "一", 6), named("长" * 199 + "二", 12)
    ).settings
    assert first.folder != second.folder
    assert max(len(one.folder.encode()) for one in (first, second)) <= 120


def test_learning_rates_that_are_equal_in_six_digits_are_two():
    pilots = study(
        FEDAVG, learning_rates=[0.1, 0.10000001, 1e-7], pilot_seeds=[0]
    ).pilots()
    assert [pilot.path.parent.name for pilot in pilots] == [
        "rate1e-07",
        "rate0.1",
        "rate0.10000001",
    ]
    assert pilots[2].label == "FedAvg(6), pilot at 0.10000001, seed 0"
