"""Clients one by one: numbers chosen by hand, from the summary to the page."""

import pytest
from hand_made import write_run
from test_page import drawn

from fedlama.report import compare
from fedlama.report.numbers.fairness import fairness
from fedlama.report.pictures.fairness import MAX_POINTS, fairness_chart
from fedlama.report.tables.fairness import fairness_rows
from fedlama.report.words.fairness import fairness_sentence
from fedlama.study.runs import load_run


def scores(values, *, mean=0.7, worst=0.4, spread=0.125, on="test"):
    return {
        "clients": {
            "on": on,
            "mean": mean,
            "worst_decile": worst,
            "spread": spread,
            "scores": values,
        }
    }


@pytest.fixture
def runs(tmp_path):
    return [
        write_run(tmp_path / "a", policy="fedavg", more=scores([0.9, None, 0.4, 0.8])),
        write_run(
            tmp_path / "b",
            policy="fedavg",
            seed=1,
            more=scores([0.1], mean=0.8, worst=0.5, spread=0.175),
        ),
        write_run(tmp_path / "c", policy="slow"),
    ]


def test_means_are_over_seeds_and_scores_of_the_first(runs):
    (one,) = fairness(compare(runs))
    assert (one.label, one.index, one.on) == ("FedAvg(6)", 0, "test")
    # The worst first, without the client that has no samples
    assert one.scores == (0.4, 0.8, 0.9)
    assert one.mean.mean == pytest.approx(0.75)
    assert one.worst_decile.mean == pytest.approx(0.45)
    assert one.spread.mean == pytest.approx(0.15)


def test_the_table_and_the_chart(runs):
    comparison = compare(runs)
    found = fairness(comparison)
    (row,) = fairness_rows(found, comparison)
    assert row.numbers == ["75.00 ± 7.07 %", "45.00 ± 7.07 %", "15.0 points"]
    chart = fairness_chart(found, comparison)
    assert chart.title == "Accuracy of every client, the worst first"
    assert chart.rows == [
        ["FedAvg(6)", pytest.approx(1 / 3), 0.4],
        ["FedAvg(6)", pytest.approx(2 / 3), 0.8],
        ["FedAvg(6)", 1.0, 0.9],
    ]


def test_the_page_has_a_section_for_it(runs, tmp_path):
    page = drawn(runs, tmp_path / "out")
    assert "Client by client" in page.words
    assert "on each client's own test samples" in page.words
    assert "15.0 points" in page.words
    assert "clients" in page.charts
    without = drawn(runs[2:], tmp_path / "without")
    assert "Client by client" not in without.words


def test_where_less_is_better_the_largest_is_the_worst(tmp_path):
    metric = {"metric_name": "RMSE", "higher_is_better": False}
    more = {**scores([0.2, 3.0]), "accuracy": None, "metrics": {"RMSE": 1.5}}
    comparison = compare(
        [write_run(tmp_path / "run", accuracy=None, train=metric, more=more)]
    )
    (one,) = fairness(comparison)
    assert one.scores == (3.0, 0.2)
    assert fairness_rows([one], comparison)[0].numbers[2] == "0.125"


def test_very_many_clients_are_thinned_and_the_best_one_stays(tmp_path):
    values = [place / 5000 for place in range(5001)]
    comparison = compare([write_run(tmp_path / "run", more=scores(values))])
    rows = fairness_chart(fairness(comparison), comparison).rows
    assert len(rows) <= MAX_POINTS + 1
    assert rows[-1][1:] == [1.0, 1.0]


def test_samples_that_were_trained_on_are_said_to_flatter(tmp_path):
    trained = write_run(tmp_path / "a", more=scores([0.9], on="training"))
    tested = write_run(tmp_path / "b", policy="fedavg", more=scores([0.9]))
    assert "flatters" in fairness_sentence(fairness(compare([trained])))
    assert "do not compare" in fairness_sentence(fairness(compare([trained, tested])))


def test_a_run_that_is_going_has_its_latest_numbers(tmp_path):
    run = write_run(tmp_path / "run", finished=False)
    rounds = run.path / "rounds.jsonl"
    lines = rounds.read_text().splitlines()
    clients = (
        '"clients": {"on": "test", "mean": 0.6, "worst_decile": 0.3, "spread": 0.1}'
    )
    lines[-1] = lines[-1].removesuffix("}") + f", {clients}}}"
    rounds.write_text("\n".join(lines) + "\n")
    comparison = compare([load_run(run.path)])
    (one,) = fairness(comparison)
    assert (one.worst_decile.mean, one.scores) == (0.3, ())
    assert fairness_chart([one], comparison) is None
