"""The scripts that results/ quotes, on numbers that can be checked by hand."""

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from test_page import three_runs

from fedlama.report.pictures.style import PALETTE

SCRIPT = Path(__file__).parents[2] / "results" / "overview.py"
TABLE = """\
group,setting,paper_accuracy,paper_deviation,paper_cost,paper_learning_rate,accuracy,deviation,relative_cost,uplink_bytes,downlink_bytes,learning_rate,seeds
"D, g",FedAvg(6),0.88,0.001,1.0,0.4,0.5,,1.0,1600,1600,0.1,0 1
"D, g",FedAvg(24),0.76,0.001,0.25,0.4,0.4,,0.25,400,400,0.1,0 1
"D, g","FedLAMA(6, 4)",0.86,0.001,0.4,0.4,0.48,,0.55,800,800,0.1,0 1
"D, g",FedAvg(12),,,,,0.43,,0.5,800,800,0.1,0 1
"D, i",FedAvg(6),0.88,0.001,,0.4,0.5,,1.0,1600,1600,0.1,0
"D, i","FedLAMA(6, 2)",0.87,0.001,,0.4,0.49,,0.6,960,960,0.1,0
"D, h",FedAvg(6),0.88,0.001,1.0,0.4,0.5,,1.0,1600,1600,0.1,0
"D, h",FedAvg(12),0.8,0.001,0.5,0.4,0.5,,0.5,800,800,0.1,0
"D, h","FedLAMA(6, 2)",0.88,0.001,0.6,0.4,0.6,,0.6,600,600,0.1,0
"""


def test_ours_stand_beside_the_papers(tmp_path):
    (tmp_path / "table9.csv").write_text(TABLE)
    said = subprocess.run(
        [sys.executable, SCRIPT, tmp_path], capture_output=True, text=True, check=True
    ).stdout
    # 1 − 0.55 of at most 3/4 saved is 60 % long; FedAvg(12) has the same bytes; the paper's line at 40 % cost is
    # 76 + 12 · ln(1.6) / ln(4) = 80.07
    assert said.splitlines()[2:] == [
        "| table9: D, g, φ = 4 | 2 | 55.00 % (40.00 %) | 60.0 % (80.0 %) | −2.0 (−2.0) | −10.0 (−12.0) | +5.0 (+5.9) |",
        # As in the appendix: no FedAvg(φτ'), and no costs
        "| table9: D, i, φ = 2 | 1 | 60.00 % (–) | 80.0 % (–) | −1.0 (−1.0) | – (–) | – (–) |",
        # No FedAvg has as few bytes here; the paper's line at 60 % is 80 + 8 · ln(1.2) / ln(2) = 82.10
        "| table9: D, h, φ = 2 | 1 | 60.00 % (60.00 %) | 80.0 % (80.0 %) | +10.0 (+0.0) | +0.0 (−8.0) | – (+5.9) |",
    ]


PAIRED = """\
group,setting,paper_accuracy,paper_cost,accuracy,difference,difference_error,equal_bytes_difference,equal_bytes_error,relative_cost,uplink_bytes,downlink_bytes,seeds
"CNN (25,000 of 50,000), 25 % active, α = 1",FedAvg(6),0.88,1.0,0.5,,,,,1.0,1600,1600,0 1 2
"CNN (25,000 of 50,000), 25 % active, α = 1",FedAvg(24),0.76,0.25,0.4,-0.101,0.004,,,0.25,400,400,0 1 2
"CNN (25,000 of 50,000), 25 % active, α = 1","FedLAMA(6, 4)",0.86,0.4,0.51,-0.0089,0.0042,0.0506,0.0035,0.55,800,800,0 2
"""


def test_paired_differences_are_those_of_the_table(tmp_path):
    (tmp_path / "table9.csv").write_text(PAIRED)
    said = subprocess.run(
        [sys.executable, SCRIPT, tmp_path], capture_output=True, text=True, check=True
    ).stdout
    # The means differ by +1.0: they are over other seeds.
    assert said.splitlines()[2:] == [
        "| table9: 25 % active, α = 1, φ = 4 | 2 | 55.00 % (40.00 %) | 60.0 % (80.0 %) | −0.89 ± 0.42 (−2.0) "
        "| −10.10 ± 0.40 (−12.0) | +5.06 ± 0.35 (+5.9) |",
    ]


def test_means_over_different_seeds_are_not_compared(tmp_path):
    table = TABLE.replace("800,800,0.1,0 1", "800,800,0.1,0")
    (tmp_path / "table9.csv").write_text(table)
    said = subprocess.run(
        [sys.executable, SCRIPT, tmp_path], capture_output=True, text=True, check=True
    ).stdout
    assert "| – (−2.0) | −10.0 (−12.0) | – (+5.9) |" in said


def test_long_layers_counts_the_cycles_of_each_kernel(tmp_path):
    example = SCRIPT.parents[1] / "examples" / "long_layers.py"
    runs = {run.label: run.path for run in three_runs(tmp_path)}
    command = [sys.executable, example, runs["FedLAMA(6, 4)"]]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.splitlines()[1:] == [
        "cycle 2: 80.0% of the parameters long; short kernels: fc.weight",
        "",
        "Of the 2 cycles with long layers, each kernel was long in",
        "    2  conv.weight (80 parameters)",
        "    0  fc.weight (16 parameters)",
    ]


def test_crossings_tells_where_every_decision_was_taken(tmp_path):
    example = SCRIPT.parents[1] / "examples" / "crossings.py"
    runs = {run.label: run.path for run in three_runs(tmp_path)}
    picture = tmp_path / "crossings.svg"
    command = [sys.executable, example, runs["FedLAMA(6, 4)"], picture]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    # d·n is 1 (80 numbers), 2 (the bias, which is not walked) and 3 (16), 6 in all. After the first kernel 1 − λ = 20 %
    # is not below δ = 1/6; after the second 4 % is below 4/6, so both are long: 96 of 100 parameters.
    assert said.splitlines()[1:] == [
        "   24             2 of 2      0.67            96.0%",
        "   48             2 of 2      0.67            96.0%",
    ]
    drawn = picture.read_text(encoding="utf-8")
    # Two decisions, side by side under what was trained
    for words in (
        "δ and 1 − λ of FedLAMA(6, 4)",
        "digits, ",
        "48 steps, seed 0",
        "after step 24",
        "after step 48",
        # As in Figure 1 of `fedlama reproduce`
        "kernels, by ascending discrepancy",
        "dotted: the last that is averaged less often",
    ):
        assert words in drawn
    # FedLAMA(τ′, 4) is green
    assert PALETTE[2] in drawn


def test_records_are_kept_unless_that_is_not_wanted(tmp_path):
    source = tmp_path / "source"
    files = {
        "table1.md": "a table",
        "panel/study.json": "{}",
        "panel/fedavg-6/seed0/config.toml": "of a finished run",
        "panel/fedavg-6/seed0/summary.json": "{}",
        "panel/fedavg-6/seed0/rounds.jsonl": "a record",
        "panel/fedavg-6/seed0/model.safetensors": "weights",
        # One that is still going
        "panel/fedavg-6/seed1/config.toml": "of another",
        "panel/fedavg-6/seed1/rounds.jsonl": "a record",
    }
    for name, content in files.items():
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)

    def collected(target, *flags):
        script = SCRIPT.with_name("collect.py")
        done = subprocess.run(
            [sys.executable, script, source, target, *flags],
            capture_output=True,
            text=True,
            check=True,
        )
        found = {
            path.relative_to(target).as_posix()
            for path in target.rglob("*")
            if path.is_file()
        }
        return done.stdout, found

    without = {
        "table1.md",
        "panel/study.json",
        "panel/fedavg-6/seed0/config.toml",
        "panel/fedavg-6/seed0/summary.json",
    }
    target = tmp_path / "target"
    assert collected(target, "--no-records") == ("4 files\n", without)
    records = "panel/fedavg-6/seed0/rounds.jsonl.gz"
    # The others are there already.
    assert collected(target) == ("1 files\n", {*without, records})
    assert gzip.decompress((target / records).read_bytes()) == b"a record"
    assert collected(target) == ("0 files\n", {*without, records})


def test_packed_records_are_read_as_the_others(tmp_path):
    example = SCRIPT.parents[1] / "examples" / "long_layers.py"
    (run,) = [run for run in three_runs(tmp_path) if run.label == "FedLAMA(6, 4)"]

    def said():
        command = [sys.executable, example, run.path]
        return subprocess.run(
            command, capture_output=True, text=True, check=True
        ).stdout

    before = said()
    pack(run.path / "rounds.jsonl")
    assert said() == before


def pack(records):
    content = records.read_bytes()
    records.with_name("rounds.jsonl.gz").write_bytes(gzip.compress(content))
    records.unlink()


@pytest.mark.parametrize("name", ["long_layers.py", "crossings.py"])
def test_examples_need_the_records_of_rounds_and_say_so(name, tmp_path):
    example = SCRIPT.parents[1] / "examples" / name
    (run,) = [run for run in three_runs(tmp_path) if run.label == "FedLAMA(6, 4)"]
    (run.path / "rounds.jsonl").unlink()
    done = subprocess.run(
        [sys.executable, example, run.path], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    (said,) = done.stderr.splitlines()
    assert said == (
        f"{run.path} has no rounds.jsonl: the records of its rounds were not kept, or it is no run directory"
    )


def test_moving_averages_stand_beside_the_models(tmp_path):
    study = tmp_path / "study.toml"
    study.write_text(
        'data.name = "digits"\ntrain.iterations = 24\n'
        '[study]\nseeds = [0, 1]\nbaseline = "FedAvg(6)"\n'
        '[[study.setting]]\nname = "FedAvg(6)"\npolicy = { kind = "fedavg" }\n'
        '[[study.setting]]\nname = "frugal"\npreset = "frugal"\n'
        '[[study.setting]]\nname = "FedAvg(24)"\npolicy = { kind = "fedavg", base_interval = 24 }\n'
        "seeds = [1, 2]\n"
        '[[study.setting]]\nname = "FedAvg(12)"\npolicy = { kind = "fedavg", base_interval = 12 }\n'
        "seeds = [3]\n"
    )
    scores = {
        ("fedavg-6", 0): (0.70, 0.71),
        ("fedavg-6", 1): (0.72, 0.71),
        ("frugal", 0): (0.69, 0.70),
        ("frugal", 1): (0.68, 0.70),
        ("fedavg-24", 1): (0.60, 0.61),
        ("fedavg-24", 2): (0.50, 0.51),
        ("fedavg-12", 3): (0.65, 0.66),
    }
    for (setting, seed), (accuracy, average) in scores.items():
        run = tmp_path / "runs" / setting / f"seed{seed}"
        run.mkdir(parents=True)
        summary = {"accuracy": accuracy, "average_score": average}
        (run / "summary.json").write_text(json.dumps(summary))
    command = [
        sys.executable,
        SCRIPT.with_name("averages.py"),
        study,
        tmp_path / "runs",
    ]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    # −1 and −4 points: −2.5 ± 3/√2/√2 = 1.5; of the averages −1 twice
    assert said.splitlines()[2:] == [
        "| FedAvg(6) | 71.00 % | – | 71.00 % | – | 0, 1 |",
        "| frugal | 68.50 % | −2.50 ± 1.50 | 70.00 % | −1.00 ± 0.00 | 0, 1 |",
        # Seed 2 has no baseline, so it is in neither the means nor the differences.
        "| FedAvg(24) | 60.00 % | −12.00 | 61.00 % | −10.00 | 1 |",
        "| FedAvg(12) | 65.00 % | – | 66.00 % | – | 3 |",
    ]


def test_the_papers_tables_are_what_the_runs_that_are_kept_say():
    program = (
        "from paper_tables import PAGES, filled\n"
        "for page in PAGES:\n"
        "    text = page.read_text(encoding='utf-8')\n"
        "    assert '<!-- paper ' in text, page\n"
        "    assert filled(text) == text, page\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=SCRIPT.parent, check=True)


def test_a_table_of_the_paper_has_differences_with_their_errors(tmp_path):
    (tmp_path / "table4.csv").write_text(
        "setting,accuracy,difference,difference_error,average_difference,average_difference_error,"
        "paper_accuracy,equal_bytes_difference,equal_bytes_error,equal_bytes_seeds,relative_cost,paper_cost,seeds\n"
        "FedAvg(6),0.69,,,,,0.8861,,,,1.0,1.0,0 1\n"
        "FedLAMA,0.66,-0.03,0.002,-0.01,,,0.0506,0.0035,0 1,0.5,,0 1\n"
        "FedAvg(24),0.6,-0.09,,,,0.7664,,,,0.25,0.25,0\n"
    )
    program = (
        "import sys, pathlib, paper_tables\n"
        "print(paper_tables.table(pathlib.Path(sys.argv[1])))"
    )
    said = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "table4.csv"],
        cwd=SCRIPT.parent,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert said[2:] == [
        "| FedAvg(6) | 69.00 % | – | – | – | – | 100.00 % | 100.00 % | 0, 1 |",
        "| FedLAMA | 66.00 % | −3.00 ± 0.20 | −1.00 | – | +5.06 ± 0.35, without FedAvg(24) | 50.00 % | – | 0, 1 |",
        "| FedAvg(24) | 60.00 % | −9.00 | – | −11.97 | – | 25.00 % | 25.00 % | 0 |",
    ]


def test_the_seconds_on_slow_links_are_those_that_were_measured():
    seconds = {"2": _slow_link("slow-link-2.json"), "10": _slow_link("slow-link.json")}
    to_target = {
        rate: {run["setting"]: f"{run['target_seconds']:.0f}" for run in runs}
        for rate, runs in seconds.items()
    }
    per_round = {
        rate: {run["setting"]: f"{run['seconds'] / run['rounds']:.0f}" for run in runs}
        for rate, runs in seconds.items()
    }
    two, ten = to_target["2"], to_target["10"]

    readme = _words("README.md")
    assert (
        f"on links of 2 Mbit/s, Flower's FedAvg takes {two['flower']} s to 85 % accuracy and `frugal` in both "
        f"directions {two['frugal-both']} s: {per_round['2']['flower']} and {per_round['2']['frugal-both']} s per round"
    ) in readme
    assert (
        f"At 10 Mbit/s it is {ten['flower']} and {ten['frugal-both']} s, and {per_round['10']['flower']} and "
        f"{per_round['10']['frugal-both']} s per round"
    ) in readme
    assert (
        f"the uplink alone does not pay there: {two['frugal']} and {ten['frugal']} s"
        in readme
    )

    guide = _words("docs/flower.md")
    assert (
        f"took {two['frugal-both']} s at 2 Mbit/s ({ten['frugal-both']} at 10), Flower's FedAvg {two['flower']} "
        f"({ten['flower']}), FedLAMA(6, 4) {two['fedlama']} ({ten['fedlama']}), and `frugal` with a plain downlink "
        f"{two['frugal']} ({ten['frugal']})"
    ) in guide


def _slow_link(name: str) -> list[dict[str, Any]]:
    measured = json.loads(SCRIPT.with_name(name).read_text(encoding="utf-8"))
    return measured["runs"]


def _words(page: str) -> str:
    """The text without line breaks and without commas in numbers."""
    text = (SCRIPT.parents[1] / page).read_text(encoding="utf-8")
    return " ".join(text.split()).replace("1,050", "1050")


def drift_of(*runs):
    script = SCRIPT.parent / "drift.py"
    command = [sys.executable, script, *runs]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_drift_over_the_course_of_a_run(tmp_path):
    run = next(run for run in three_runs(tmp_path) if run.label == "FedAvg(6)")
    path = run.path / "rounds.jsonl"
    first = json.loads(path.read_text().splitlines()[0])
    sizes = [layer.size for layer in run.summary.layers]
    early = [4.0] + [0.0] * (len(sizes) - 1)
    late = [1.0] * len(sizes)
    lines = []
    for number in range(1, 17):
        discrepancy = early if number <= 2 else late
        record = {**first, "round": number, "discrepancy": discrepancy}
        lines.append(json.dumps(record))
    path.write_text("\n".join(lines) + "\n")

    said = drift_of(run.path)
    assert (said.returncode, said.stderr) == (0, "")
    # Only the first layer drifts in the first eighth: with p its share of the size, CV² = 4p / (2p)² − 1
    share = sizes[0] / sum(sizes)
    squared = 1 / share - 1
    equal = "CV² = 0.000, 1/(1 + CV²) = 1.000"
    assert said.stdout.splitlines() == [
        f"{run.path}: {equal}",
        f"  first eighth: CV² = {squared:.3f}, 1/(1 + CV²) = {share:.3f}",
        f"  second eighth: {equal}",
        f"  second quarter: {equal}",
        f"  third quarter: {equal}",
        f"  last quarter: {equal}",
    ]


def test_drift_of_a_run_without_records_is_one_sentence(tmp_path):
    run = next(run for run in three_runs(tmp_path) if run.label == "FedAvg(6)")
    (run.path / "rounds.jsonl").unlink()
    said = drift_of(run.path)
    assert (said.returncode, said.stdout) == (2, "")
    assert said.stderr.splitlines() == [
        f"fedlama: {run.path} has no records of its rounds (rounds.jsonl), which discrepancies are read from"
    ]
