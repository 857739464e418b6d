"""Paired differences: numbers by hand, the table, the picture, and `fedlama reproduce frontier`'s study."""

import pytest

from fedlama.base import InputError
from fedlama.paper.reproduce import frontier_study
from fedlama.report.numbers.comparison import compare
from fedlama.report.numbers.pairs import paired
from fedlama.report.pictures.paired import draw_paired
from fedlama.report.tables.paired import paired_grid, points
from fedlama.report.words.formats import share_text
from fedlama.run.config import parse_config
from fedlama.run.execute import execute
from fedlama.study.runs import load_run

SETTINGS = {
    "plain": {},
    "coded": {"uplink": {"codec": "quantize", "bits": 8}},
    "both": {
        "uplink": {"codec": "quantize", "bits": 8},
        "downlink": {"codec": "quantize", "bits": 8},
    },
}


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    folder = tmp_path_factory.mktemp("paired")
    labels, runs = {}, []
    for name, tables in SETTINGS.items():
        for seed in range(2):
            config = {
                "seed": seed,
                "data": {"name": "digits"},
                "model": {"name": "mlp"},
                "partition": {"kind": "iid", "clients": 4},
                "participation": {"window": 8},
                "policy": {"kind": "fedavg", "base_interval": 4},
                "train": {"iterations": 16},
                "output": {"tensorboard": False},
                **tables,
            }
            path = folder / name / f"seed{seed}"
            execute(parse_config(config), path, workers=1)
            runs.append(load_run(path))
            labels[path] = name
    return compare(runs, labels=labels, baseline="plain")


def accuracies(comparison, label):
    (setting,) = (setting for setting in comparison.settings if setting.label == label)
    return [run.summary.accuracy for run in setting.runs]


def test_differences_are_taken_seed_by_seed(comparison):
    pairs = {pair.label: pair for pair in paired(comparison)}
    first, second = (
        ours - theirs
        for ours, theirs in zip(
            accuracies(comparison, "coded"),
            accuracies(comparison, "plain"),
            strict=True,
        )
    )
    coded = pairs["coded"]
    assert coded.seeds == (0, 1)
    assert coded.mean == pytest.approx((first + second) / 2)
    # Two values: their standard deviation is |a − b|/√2, and the mean's error that over √2.
    assert coded.error == pytest.approx(abs(first - second) / 2)
    assert pairs["plain"].mean == 0.0
    assert pairs["plain"].uplink_share == pairs["plain"].total_share == 1.0
    assert 0.25 < coded.uplink_share < 0.3  # 8 of 32 bits, scales
    assert 0.62 < coded.total_share < 0.66
    assert pairs["both"].total_share < coded.total_share


def test_the_baseline_comes_first_and_is_needed(comparison):
    assert paired(comparison)[0].label == "plain"
    alone = compare([comparison.settings[0].runs[0]])
    assert alone.baseline is None or [pair.label for pair in paired(alone)]
    with pytest.raises(InputError, match="need a baseline"):
        paired(type(comparison)(comparison.settings, None, "accuracy", {}))


def test_only_plain_fedavg_is_fedavg(comparison):
    assert [setting.adapts for setting in comparison.settings] == [False, True, True]


def test_the_table_and_the_picture(comparison, tmp_path):
    pairs = paired(comparison)
    grid = paired_grid(comparison)
    assert [row[0] for row in grid.rows] == ["plain", "coded", "both"]
    assert grid.rows[0][1:] == ["100.0 %", "100.0 %", "–", "2"]
    assert f"Differences are to plain ({100 * pairs[0].score:.1f} %)" in grid.markdown()
    path = draw_paired(comparison, tmp_path)
    assert "uplink bytes as a share of those of plain" in path.read_text()
    assert (tmp_path / "paired.png").read_bytes().startswith(b"\x89PNG")
    assert [pair.is_plain for pair in pairs] == [True, False, False]


def test_numbers_for_people():
    assert [points(value) for value in (0.0123, -0.0043, 0.0, -0.000001)] == [
        "+1.23",
        "−0.43",
        "+0.00",
        "+0.00",
    ]
    assert [share_text(value) for value in (1.0, 0.405, 0.0107, 0.00432)] == [
        "100.0 %",
        "40.5 %",
        "1.07 %",
        "0.43 %",
    ]


def test_the_frontier_is_a_study():
    study = frontier_study()
    assert study.settings[0].name == study.options.baseline == "FedAvg(6)"
    assert {setting.config.data.name for setting in study.settings} == {"digits"}
    assert len({setting.config.participation.window for setting in study.settings}) == 1


def test_a_run_is_called_by_its_policy_and_its_code(comparison):
    setting = comparison.settings[2]
    assert setting.runs[0].label == "FedAvg(4) + Quantize(8), downlink Quantize(8)"
