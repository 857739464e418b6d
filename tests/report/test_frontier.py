"""Accuracy at equal bytes. FedAvg(24) moves 3,200 bytes up and down, FedLAMA 5,120, FedAvg(6) 12,800."""

import math

import pytest
from hand_made import write_run

from fedlama.report import compare
from fedlama.report.numbers.frontier import (
    FrontierPoint,
    Reached,
    fedavg_line,
    frontier_points,
    standing,
)
from fedlama.report.pictures.charts import round_axis
from fedlama.report.pictures.frontier import frontier_chart
from fedlama.report.words.frontier import equal_bytes

LONG = ("conv.weight",)


def point(total, mean, *, adapts=False, label="x", runs=None):
    reached = {}
    for seed, (sent, score) in (runs or {}).items():
        reached[seed] = Reached(sent, score)
    return FrontierPoint(0, label, total, mean, None, adapts, reached)


def runs(folder, lama, fast=(0.9, 0.9), slow=(0.7, 0.7)):
    scores = {"fast": fast, "slow": slow, "fedlama": lama}
    return [
        write_run(
            folder / f"{policy}{seed}",
            policy=policy,
            seed=seed,
            accuracy=score,
            long=LONG if policy == "fedlama" else (),
        )
        for policy, values in scores.items()
        for seed, score in enumerate(values)
    ]


def test_the_line_is_read_off_a_logarithmic_axis():
    line = [point(100, 0.6, label="few"), point(400, 0.8, label="many")]
    half = standing(point(200, 0.75, adapts=True), line)
    assert half.expected == pytest.approx(0.7)  # 200 is half way from 100 to 400
    assert half.gap == pytest.approx(0.05)
    # Of which seeds these means are is not known.
    assert half.difference.seeds == ()
    assert half.difference.error is None
    assert standing(point(400, 0.9, adapts=True), line).between == ("many",)


FEW = point(100, 0.6, label="few", runs={0: (100, 0.5), 1: (100, 0.7)})
MANY = point(400, 0.8, label="many", runs={0: (400, 0.9), 1: (400, 0.7)})


def test_the_gap_is_taken_seed_by_seed():
    own = {0: (200, 0.8), 1: (100 * 2**1.5, 0.76)}
    stands = standing(point(241, 0.78, adapts=True, runs=own), [FEW, MANY])
    # Half way from 50 to 90 % is 70 %; at the other seed the line is level: +10 and +6 points, 8 ± (4 / √2) / √2
    assert stands.difference.mean == pytest.approx(0.08)
    assert stands.difference.error == pytest.approx(0.02)
    assert stands.difference.seeds == (0, 1)
    assert stands.expected == pytest.approx(0.7)
    assert stands.between == ("few", "many")
    assert stands.left_out == ()


def test_a_fedavg_that_lacks_a_seed_is_left_out_of_the_line():
    own = {0: (200, 0.8), 1: (200, 0.76)}
    middle = point(200, 0.75, label="middle", runs={0: (200, 0.75)})
    stands = standing(point(200, 0.78, adapts=True, runs=own), [FEW, middle, MANY])
    assert stands.difference.mean == pytest.approx(0.08)
    assert stands.between == ("few", "many")
    assert stands.left_out == ("middle",)
    # At seed 0 it has the same bytes: 80 − 75
    assert stands.through_all.mean == pytest.approx(0.05)
    assert stands.through_all.seeds == (0,)


def test_where_only_fewer_seeds_are_shared_those_count():
    own = {0: (200, 0.8), 1: (200, 0.76), 2: (200, 0.9)}
    stands = standing(point(200, 0.82, adapts=True, runs=own), [FEW, MANY])
    assert stands.difference.seeds == (0, 1)
    assert stands.difference.mean == pytest.approx(0.08)
    assert stands.left_out == ()


def test_without_a_shared_seed_means_are_compared():
    stands = standing(point(200, 0.75, adapts=True, runs={7: (200, 0.75)}), [FEW, MANY])
    assert stands.gap == pytest.approx(0.05)
    assert stands.difference.seeds == ()


def test_beyond_the_line_there_is_nothing_to_compare_with():
    line = [point(100, 0.6), point(400, 0.8)]
    assert standing(point(99, 0.7, adapts=True), line) is None
    assert standing(point(401, 0.7, adapts=True), line) is None
    assert standing(point(200, 0.7, adapts=True), line[:1]) is None


def test_of_fedavg_settings_with_the_same_bytes_the_best_counts(tmp_path):
    rates = {0.1: 0.6, 0.2: 0.7, 0.3: 0.65}
    made = [
        write_run(
            tmp_path / str(r), policy="slow", accuracy=a, local={"learning_rate": r}
        )
        for r, a in rates.items()
    ]
    comparison = compare(made)
    assert [
        one.mean for one in fedavg_line(frontier_points(comparison), comparison)
    ] == [0.7]


def test_sentences_name_the_better_one_and_the_spread(tmp_path):
    """ln(5120 / 3200) / ln(12800 / 3200) = 0.339 of the way from 70 to 90 %: 76.8 %."""
    share = math.log(1.6) / math.log(4)
    assert 0.7 + share * 0.2 == pytest.approx(0.7678, abs=1e-4)
    beside = "a FedAvg between FedAvg(24) and FedAvg(6) (76.8 %)"
    better = equal_bytes(compare(runs(tmp_path / "a", (0.79, 0.81))))
    # 79 and 81 − 76.78: 3.22 ± 2 / √2 / √2
    assert better == [
        f"At equal bytes of both directions FedLAMA(6, 4) reached 3.2 points more than {beside}: "
        "+3.22 ± 1.00, seed by seed (seeds 0, 1)."
    ]
    worse = equal_bytes(compare(runs(tmp_path / "b", (0.70, 0.80))))
    assert worse == [
        f"At equal bytes of both directions FedLAMA(6, 4) reached 1.8 points less than {beside}: "
        "−1.78 ± 5.00, seed by seed (seeds 0, 1)."
    ]
    single = equal_bytes(compare(runs(tmp_path / "c", (0.8,), (0.9,), (0.7,))))
    assert single[0].endswith(f"{beside}; one seed has no error.")


def test_sentences_name_what_the_line_leaves_out(tmp_path):
    made = runs(tmp_path, (0.79, 0.81))
    middle = write_run(
        tmp_path / "middle",
        policy="slow",
        accuracy=0.75,
        more={"uplink_bytes": 2560, "downlink_bytes": 2560},
    )
    comparison = compare([*made, middle], labels={middle.path: "FedAvg(12)"})
    (said,) = equal_bytes(comparison)
    # It has FedLAMA's bytes: 79 − 75
    assert said.endswith(
        "seed by seed (seeds 0, 1). FedAvg's line leaves out FedAvg(12), which lacks some of these seeds; "
        "through all of its settings it is +4.00 (seed 0)."
    )


def test_no_fedavg_no_sentence_and_fewer_bytes_than_any(tmp_path):
    lama = write_run(tmp_path / "lama", long=LONG)
    assert equal_bytes(compare([lama])) == []
    assert equal_bytes(
        compare([lama, write_run(tmp_path / "fast", policy="fast")])
    ) == [
        "FedLAMA(6, 4) moved fewer bytes in both directions than any FedAvg setting here, "
        "so there is no FedAvg at equal bytes to compare it with."
    ]


def test_chart_has_points_error_bars_and_the_line(tmp_path):
    chart = frontier_chart(compare(runs(tmp_path, (0.7, 0.9))))
    assert [row[:3] for row in chart.rows] == [
        ["FedAvg(6)", 12800, 0.9],
        ["FedAvg(24)", 3200, 0.7],
        ["FedLAMA(6, 4)", 5120, pytest.approx(0.8)],
    ]
    spread = 0.2 / math.sqrt(2)  # two values 0.1 from their mean, n − 1 = 1
    assert chart.rows[2][3:] == pytest.approx([spread, 0.8 - spread, 0.8 + spread])
    assert chart.drawing["through"] == ["FedAvg(24)", "FedAvg(6)"]
    assert frontier_chart(compare([write_run(tmp_path / "alone")])) is None


def test_axes_begin_and_end_with_round_numbers():
    assert [
        round_axis("", "number", 0.813, 0.934)[key]
        for key in ("min", "max", "interval")
    ] == [0.8, 0.95, 0.05]
    assert round_axis("", "number", 0.5, 0.99, maximum=1.0)["max"] == 1.0
    flat = round_axis("", "number", 0.9, 0.9)
    assert flat["min"] <= 0.9 <= flat["max"]
    assert flat["min"] < flat["max"]
