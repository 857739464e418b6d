"""The comparison, its sentence and its tables, on runs whose numbers were chosen by hand.

Layers of 80, 4 and 16 parameters, eight rounds, two clients, four bytes a number. FedAvg(6) averages all of them eight
times: C = 800, 6,400 bytes. FedAvg(24) does so twice: C = 200. FedLAMA with the 80 long: C = 160 + 32 + 128 = 320.
"""

import io
import json
import re

import pytest
from hand_made import write_run
from rich.console import Console

from fedlama.base import InputError
from fedlama.report import compare, markdown_table, terminal_table, verdict
from fedlama.report.numbers.targets import common_target, compared_curves
from fedlama.report.pictures.scores import score_charts
from fedlama.report.tables.settings import _that_fit, cells, headings
from fedlama.report.words.notes import notes
from fedlama.run.config import load_config
from fedlama.run.presets import frugal
from fedlama.run.toml import read_toml, to_toml
from fedlama.study.runs import load_run

LONG = ("conv.weight",)


@pytest.fixture
def write(tmp_path):
    """Write a run into a folder of its own."""
    return lambda *args, **options: write_run(
        tmp_path / str(len(list(tmp_path.iterdir()))), *args, **options
    )


def three_settings(write, lama, fast, slow):
    return [
        *(
            write(policy="fast", seed=seed, accuracy=accuracy)
            for seed, accuracy in enumerate(fast)
        ),
        *(
            write(policy="slow", seed=seed, accuracy=accuracy)
            for seed, accuracy in enumerate(slow)
        ),
        *(
            write(policy="fedlama", seed=seed, accuracy=accuracy, long=LONG)
            for seed, accuracy in enumerate(lama)
        ),
    ]


def shown(table):
    console = Console(file=io.StringIO(), width=100)
    console.print(table)
    return console.file.getvalue()


def test_settings_hold_means_costs_and_bytes(write):
    runs = three_settings(write, lama=(0.8, 0.9), fast=(0.9, 0.9), slow=(0.7, 0.9))
    comparison = compare(runs)
    fast, slow, lama = comparison.settings
    assert [s.label for s in comparison.settings] == [
        "FedAvg(6)",
        "FedAvg(24)",
        "FedLAMA(6, 4)",
    ]
    assert [s.relative_cost for s in comparison.settings] == pytest.approx(
        [1.0, 0.25, 0.4]
    )
    assert [s.uplink_bytes for s in comparison.settings] == [6400, 1600, 2560]
    assert comparison.baseline is fast
    assert lama.seeds == [0, 1]
    assert lama.score.mean == pytest.approx(0.85)
    # Two values ± 0.05 from their mean, n − 1 = 1
    assert lama.score.deviation == pytest.approx(0.1 / 2**0.5)
    assert [(layer.name, layer.aggregations) for layer in lama.layers] == [
        ("conv.weight", 2),
        ("conv.bias", 8),
        ("fc.weight", 8),
    ]
    assert slow.layers[0].uplink_bytes == 2 * 80 * 8


def test_curves_are_means_and_ranges_at_common_steps(write):
    curve = (
        compare(
            [
                write(seed=0, accuracy=0.8, long=LONG),
                write(seed=1, accuracy=0.9, long=LONG),
            ]
        )
        .settings[0]
        .curve
    )
    assert curve.steps == [24, 48]
    assert curve.uplink_bytes == [1280, 2560]
    assert curve.mean == pytest.approx([0.425, 0.85])
    assert curve.low == pytest.approx([0.4, 0.8])
    assert curve.high == pytest.approx([0.45, 0.9])


def test_equal_labels_are_told_apart_by_what_differs(write):
    runs = [write(local={"learning_rate": rate}) for rate in (0.1, 0.2)]
    labels = [setting.label for setting in compare(runs).settings]
    assert labels == [
        "FedLAMA(6, 4) local.learning_rate=0.1",
        "FedLAMA(6, 4) local.learning_rate=0.2",
    ]
    assert compare(runs).differences == {}


def test_seeds_versions_and_outputs_make_no_setting(write):
    other = write(seed=1, versions={"torch": "9"}, output={"tensorboard": False})
    assert len(compare([write(seed=0), other]).settings) == 1


def test_what_differs_beside_the_policy_is_said(write):
    runs = [
        write(policy="fast", participation={"window": 6}),
        write(policy="fedlama", long=LONG),
    ]
    comparison = compare(runs)
    assert comparison.differences == {"participation.window": ["6", "24"]}
    assert "The settings also differ in participation.window." in verdict(comparison)
    assert (
        "differ in more than the policy: participation.window (6, 24)"
        in markdown_table(comparison)
    )


def test_a_second_copy_of_a_run_is_not_a_second_seed(write):
    comparison = compare([write(seed=0), write(seed=0), write(seed=1)])
    assert comparison.settings[0].seeds == [0, 1]
    assert "1 run left out, as another has the same seed" in markdown_table(comparison)


def test_unfinished_run_shows_what_its_records_say(write):
    runs = [
        write(policy="fast", accuracy=0.9),
        write(policy="fedlama", accuracy=0.8, long=LONG, finished=False),
    ]
    comparison = compare(runs)
    lama = comparison.settings[1]
    assert not lama.finished
    assert (lama.step, lama.iterations) == (24, 48)
    assert lama.score.mean == pytest.approx(0.4)
    assert lama.uplink_bytes == 1280
    assert lama.relative_cost == pytest.approx(0.4)  # the finished run told the sizes
    assert "FedLAMA(6, 4) is unfinished (step 24 of 48)." in verdict(comparison)
    assert verdict(compare(runs[1:])) == (
        "Nothing is finished yet. FedLAMA(6, 4) is at step 24 of 48 and has reached 40.0 %."
    )


def test_unfinished_seeds_do_not_join_the_mean(write):
    comparison = compare(
        [write(seed=0, accuracy=0.9), write(seed=1, accuracy=0.9, finished=False)]
    )
    assert comparison.settings[0].seeds == [0]
    assert "| 1 of 2 |" in markdown_table(comparison)


def test_a_truncated_line_is_not_there_yet(write):
    run = write(finished=False)
    with (run.path / "rounds.jsonl").open("a") as file:
        file.write('{"round": 5, "st')
    assert compare([load_run(run.path)]).settings[0].step == 24


def test_a_run_without_a_round(write):
    run = write(finished=False)
    (run.path / "rounds.jsonl").unlink()
    assert (
        verdict(compare([load_run(run.path)]))
        == "Nothing is finished yet. FedLAMA(6, 4) is at step 0 of 48."
    )


def test_no_runs_are_refused():
    with pytest.raises(InputError, match="no run"):
        compare([])


@pytest.mark.parametrize("summary", [[1], {}, {"accuracy": 1.0, "layers": []}])
def test_foreign_summaries_are_refused_in_a_sentence(write, summary):
    run = write()
    (run.path / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(InputError, match="not one of a run"):
        load_run(run.path)


def test_a_configuration_is_read_once_and_kept_as_it_was_written(write):
    run = load_run(write().path)
    assert run.config == load_config(run.path / "config.toml")
    # Also what has its default now, but was not written by an earlier version
    assert "execution" not in run.tables["train"]
    assert run.config.train.execution == "auto"


def test_a_configuration_of_another_program_is_refused_in_a_sentence(write):
    run = write()
    path = run.path / "config.toml"
    path.write_text("flavour = 1\n" + path.read_text())
    with pytest.raises(InputError, match=r"config.toml: unknown key 'flavour'"):
        load_run(run.path)


def test_verdict_of_a_win(write):
    runs = three_settings(
        write, lama=(0.93, 0.94, 0.95), fast=(0.90, 0.91, 0.92), slow=(0.80, 0.81, 0.82)
    )
    assert verdict(compare(runs)) == (
        "FedLAMA(6, 4) sent 40 % of FedAvg(6)'s uplink and reached 94.0 ± 1.0 % against 91.0 ± 1.0 %. "
        "That is 3.0 points more. "
        "FedAvg(24) sent 25 % and reached 81.0 ± 1.0 %, 13.0 points less than FedLAMA(6, 4). "
        # ln(2560 / 1600) / ln(6400 / 1600) = 0.339 of the way from 81 to 91
        "At equal bytes of both directions FedLAMA(6, 4) reached 9.6 points more than "
        "a FedAvg between FedAvg(24) and FedAvg(6) (84.4 %): "
        "+9.61 ± 0.00, seed by seed (seeds 0, 1, 2). "
        "These are means over 3 seeds."
    )


def test_verdict_of_a_loss_to_both(write):
    runs = three_settings(
        write, lama=(0.80, 0.82), fast=(0.90, 0.92), slow=(0.86, 0.88)
    )
    assert verdict(compare(runs)) == (
        "FedLAMA(6, 4) sent 40 % of FedAvg(6)'s uplink and reached 81.0 ± 1.4 % against 91.0 ± 1.4 %. "
        "That is 10.0 points less. "
        "FedAvg(24) sent 25 % and reached 87.0 ± 1.4 %, 6.0 points more than FedLAMA(6, 4). "
        "At equal bytes of both directions FedLAMA(6, 4) reached 7.4 points less than "
        "a FedAvg between FedAvg(24) and FedAvg(6) (88.4 %): "
        "−7.36 ± 0.00, seed by seed (seeds 0, 1). "
        "These are means over 2 seeds."
    )


def test_verdict_within_the_spread(write):
    runs = three_settings(
        write, lama=(0.90, 0.95, 0.91), fast=(0.91, 0.93, 0.95), slow=(0.89, 0.94, 0.90)
    )
    said = verdict(compare(runs))
    assert (
        "against 93.0 ± 2.0 %. That is 1.0 points less, within the spread over seeds."
        in said
    )
    assert (
        "1.0 points less than FedLAMA(6, 4), within the spread over seeds but less with every one."
        in said
    )


def test_verdict_of_equals_and_of_single_seeds(write):
    runs = three_settings(write, lama=(0.9,), fast=(0.9,), slow=(0.5,))
    assert verdict(compare(runs[:2])) == (
        "FedAvg(24) sent 25 % of FedAvg(6)'s uplink and reached 50.0 % against 90.0 %. That is 40.0 points less. "
        "This is one seed each; without more there is no spread to judge the differences by."
    )
    assert "against 90.0 %. The two are level." in verdict(compare(runs))


def coded(write, **options):
    """A setting that averages as often as FedAvg(6), at a fraction of a bit per number."""
    codes = {"codec": "quantize", "bits": 4}
    return write(policy="fast", bits=4, uplink=codes, **options)


def test_a_code_averages_as_often_and_is_no_baseline(write):
    # As `fedlama report` finds them, in the order of their folders' names
    runs = [coded(write, accuracy=0.89), write(policy="fast", accuracy=0.9)]
    comparison = compare(runs)
    assert [setting.relative_cost for setting in comparison.settings] == [1.0, 1.0]
    assert comparison.baseline is comparison.settings[1]
    # 4 of 32 bits
    assert verdict(comparison).startswith(
        "FedAvg(6) + Quantize(4) sent 12 % of FedAvg(6)'s uplink and reached 89.0 % against 90.0 %. "
        "That is 1.0 points less. "
    )


def test_a_code_is_named_and_not_warned_of(write):
    runs = [
        coded(write, accuracy=0.89, participation={"window": 48}),
        write(policy="fast", accuracy=0.9),
    ]
    said = notes(compare(runs))
    assert (
        "Messages are coded differently: uplink.codec (quantize, none) and uplink.bits (4, default)."
        in said
    )
    assert (
        "The settings differ in more than the policy: participation.window (48, 24)."
        in said
    )


def test_the_answer_is_about_the_setting_with_a_code(write):
    runs = three_settings(write, lama=(0.85,), fast=(0.9,), slow=(0.5,))
    runs.append(coded(write, accuracy=0.89))
    assert verdict(compare(runs)).startswith(
        "FedAvg(6) + Quantize(4) sent 12 % of FedAvg(6)'s uplink and reached 89.0 % against 90.0 %. "
        "That is 1.0 points less. "
        "FedAvg(24) sent 25 % and reached 50.0 %, 39.0 points less than FedAvg(6) + Quantize(4). "
        "FedLAMA(6, 4) sent 40 % and reached 85.0 %, 4.0 points less than FedAvg(6) + Quantize(4). "
    )


def test_verdict_of_one_setting(write):
    assert verdict(compare([write(accuracy=0.9, long=LONG)])) == (
        "FedLAMA(6, 4) reached 90.0 %. Its clients sent 2.56 kB and received 2.56 kB. "
        "That is 40 % of the cost of averaging every layer every 6 steps. This is one seed."
    )


def test_verdict_of_one_setting_that_codes_its_messages(write):
    run = write(
        bits=4, uplink={"codec": "quantize", "bits": 4}, more={"uplink_share": 0.05}
    )
    said = verdict(compare([run]))
    assert (
        "That is 5.00 % of FedAvg(6)'s uplink and 100 % of the cost of averaging every layer every 6 steps."
        in said
    )


@pytest.mark.parametrize(
    ("share", "sent", "said"),
    [
        (
            0.00125,
            0.00146,
            "was to send 0.125 % of FedAvg(6)'s uplink at most, and sent 0.15 %.",
        ),
        # In the digits that are shown it is a hundredth
        (0.01, 0.01003, None),
        (0.01, 0.0097, None),
    ],
)
def test_the_conclusion_says_what_a_preset_was_to_send_where_it_sent_more(
    write, share, sent, said
):
    folder = write(policy="fast", more={"uplink_share": sent}).path
    tables = read_toml(folder / "config.toml")
    (folder / "config.toml").write_text(to_toml({**tables, **frugal(6, share)}))
    run = load_run(folder)
    for runs in ([run], [run, write(policy="slow")]):
        conclusion = verdict(compare(runs))
        if said is None:
            assert "was to send" not in conclusion
        else:
            assert f"{run.label} {said}" in conclusion


def test_verdict_by_loss_where_there_is_no_accuracy(write):
    runs = [write(policy="fast", accuracy=None), write(policy="slow", accuracy=None)]
    assert "reached a loss of 0.125 against 0.125. The two are level." in verdict(
        compare(runs)
    )
    assert markdown_table(compare(runs)).startswith("| setting | test loss | ")


def test_verdict_names_the_best_of_many(write):
    rates = {0.1: 0.80, 0.2: 0.85, 0.3: 0.70, 0.4: 0.60}
    runs = [
        write(policy="slow", accuracy=accuracy, local={"learning_rate": rate})
        for rate, accuracy in rates.items()
    ]
    said = verdict(compare([write(policy="fast", accuracy=0.9), *runs]))
    assert "FedAvg(24) local.learning_rate=0.1 sent 25 %" in said
    assert "FedAvg(24) local.learning_rate=0.2 sent 25 % and reached 85.0 %" in said
    assert "The table has 2 more settings." in said


def test_tables_in_the_terminal_and_in_markdown(write):
    comparison = compare(
        three_settings(write, lama=(0.8, 0.9), fast=(0.9, 0.9), slow=(0.7, 0.9))
    )
    line = next(
        line
        for line in shown(terminal_table(comparison)).splitlines()
        if "FedLAMA" in line
    )
    assert re.split("  +", line.strip()) == [
        "FedLAMA(6, 4)",
        "85.00 ± 7.07 %",
        "−5.00 ± 5.00",  # −10 and 0 points: deviation 7.07, divided by √2
        "40.00 %",
        "2.56 kB",
        "2.56 kB",
        "2",
    ]
    assert (
        "| FedLAMA(6, 4) | 85.00 ± 7.07 % | −5.00 ± 5.00 | 40.00 % | 2.56 kB | 2.56 kB | 2 |"
        in markdown_table(comparison)
    )
    assert "| FedAvg(6) | 90.00 ± 0.00 % | – |" in markdown_table(comparison)
    assert (
        "Differences are to FedAvg(6), points, seed by seed: mean ± standard error."
        in markdown_table(comparison)
    )
    assert "Mean ± sample standard deviation over 2 seeds (0, 1)." in markdown_table(
        comparison
    )


@pytest.mark.parametrize("width", [80, 60])
def test_a_narrow_terminal_loses_columns_and_never_a_name_or_a_digit(write, width):
    runs = three_settings(write, lama=(0.8, 0.9), fast=(0.9, 0.9), slow=(0.7, 0.9))
    coded = [
        write(seed=seed, bits=4, uplink={"codec": "topk", "share": 0.1})
        for seed in (0, 1)
    ]
    labels = {run.path: "frugal, at a tenth" for run in coded}
    comparison = compare([*runs, *coded], labels=labels)
    console = Console(file=io.StringIO(), width=width)
    console.print(terminal_table(comparison, width))
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    for setting in comparison.settings:
        (row,) = [line for line in lines if line.startswith(f"{setting.label}  ")]
        assert "…" not in row
        assert f"{100 * comparison.score(setting).mean:.2f} ±" in row
        assert row.rstrip().endswith(" 2")  # seeds
    assert any("FedAvg(6)   uplink" in line for line in lines) == (width == 80)
    assert not any("downlink" in line for line in lines[:3])


def test_settings_without_a_seed_in_common_have_no_column_of_differences(write):
    runs = [write(policy="fast", seed=0), write(policy="slow", seed=1)]
    assert "| setting | accuracy | cost, of FedAvg(6) |" in markdown_table(
        compare(runs)
    )
    assert "| setting | accuracy | cost, of FedAvg(6) |" in markdown_table(
        compare(runs[:1])
    )


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (None, ["− FedAvg(6)", "uplink", "uplink, of FedAvg(6)", "downlink"]),
        (90, ["− FedAvg(6)", "uplink", "uplink, of FedAvg(6)"]),
        (80, ["− FedAvg(6)", "uplink"]),
        (66, ["uplink"]),
        (50, []),
    ],
)
def test_differences_outlast_shares_of_the_uplink(write, width, columns):
    runs = three_settings(write, lama=(0.8, 0.9), fast=(0.9, 0.9), slow=(0.7, 0.9))
    coded = [
        write(seed=seed, bits=4, uplink={"codec": "topk", "share": 0.1})
        for seed in (0, 1)
    ]
    comparison = compare([*runs, *coded], labels={run.path: "top" for run in coded})
    names = headings(comparison)
    rows = [cells(setting, comparison) for setting in comparison.settings]
    shown = [names[number] for number in _that_fit(names, rows, width)]
    always = ["setting", "accuracy", "cost, of FedAvg(6)", "seeds"]
    assert [name for name in shown if name not in always] == columns


def test_hostile_names_neither_format_nor_command_a_table(write):
    names = ["[bold]x[/bold] | <b>", "\x1b[31mred"]
    comparison = compare([write(data={"name": name}) for name in names])
    assert "[bold]x[/bold] | <b>" in shown(terminal_table(comparison))
    assert "\x1b" not in shown(terminal_table(comparison)) + verdict(
        comparison
    ) + markdown_table(comparison)
    assert r"\[bold\]x\[/bold\] \| &lt;b&gt;" in markdown_table(comparison)


def test_settings_take_names_and_a_baseline_from_outside(write):
    runs = three_settings(write, lama=(0.8, 0.9), fast=(0.9, 0.9), slow=(0.7, 0.9))
    labels = {
        runs[2].path: "long",
        runs[3].path: "long",
        runs[4].path: "ours",
        runs[5].path: "ours",
    }
    comparison = compare(runs, labels=labels, baseline="long")
    assert [setting.label for setting in comparison.settings] == [
        "FedAvg(6)",
        "long",
        "ours",
    ]
    assert comparison.baseline.label == "long"
    assert [setting.relative_cost for setting in comparison.settings] == pytest.approx(
        [4.0, 1.0, 1.6]
    )
    assert "ours sent 160 % of long's uplink" in verdict(comparison)
    assert "100 % is long." in markdown_table(comparison)


def test_one_name_for_two_settings_does_not_make_them_one(write):
    runs = [write(local={"learning_rate": rate}) for rate in (0.1, 0.2)]
    labels = [
        setting.label
        for setting in compare(runs, labels={run.path: "ours" for run in runs}).settings
    ]
    assert labels == ["ours local.learning_rate=0.1", "ours local.learning_rate=0.2"]


def test_a_baseline_that_is_none_of_the_settings_is_refused(write):
    with pytest.raises(
        InputError, match=r"baseline 'other' is none of the settings: FedLAMA\(6, 4\)"
    ):
        compare([write()], baseline="other")


def test_the_numbers_are_those_of_the_summary(write):
    run = write(long=LONG)
    summary = json.loads((run.path / "summary.json").read_text())
    setting = compare([run]).settings[0]
    assert (setting.uplink_bytes, setting.cost) == (
        summary["uplink_bytes"],
        summary["cost"],
    )


def with_rmse(run, value):
    """The same run, judged by its RMSE in place of an accuracy."""
    lines = []
    for line in (run.path / "rounds.jsonl").read_text().splitlines():
        record = json.loads(line)
        if record["test_loss"] is not None:
            record["metrics"] = {"RMSE": value}
        lines.append(json.dumps(record))
    (run.path / "rounds.jsonl").write_text("\n".join(lines) + "\n")
    summary = json.loads((run.path / "summary.json").read_text())
    (run.path / "summary.json").write_text(
        json.dumps({**summary, "accuracy": None, "metrics": {"RMSE": value}})
    )
    return load_run(run.path)


def test_another_metric_is_called_by_its_name_and_read_in_its_direction(write):
    task = {
        "accuracy": None,
        "train": {"metric_name": "RMSE", "higher_is_better": False},
    }
    runs = [
        with_rmse(write(policy="fast", **task), 2.0),
        with_rmse(write(policy="slow", **task), 3.0),
    ]
    comparison = compare(runs)
    assert (comparison.metric, comparison.sign) == ("RMSE", -1)
    said = verdict(comparison)
    assert "accuracy" not in said
    assert (
        "FedAvg(24) sent 25 % of FedAvg(6)'s uplink and reached RMSE 3.000 against 2.000. That is 1.00 worse."
        in said
    )
    assert markdown_table(comparison).startswith(
        "| setting | RMSE | − FedAvg(6) | cost, of FedAvg(6) |"
    )
    # The best that both reach, and less is better
    assert common_target(comparison, compared_curves(comparison)) == 3.0
    charts = {chart.id: chart.title for chart in score_charts(comparison)}
    assert list(charts) == [
        "metric-over-steps",
        "metric-over-bytes",
        "test-loss-over-steps",
        "training-loss-over-steps",
    ]
    assert charts["metric-over-steps"] == "RMSE over steps"
