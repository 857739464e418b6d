"""What each table takes: the speeds are chosen here, so every time is a sum by hand."""

import io

import pytest
from rich.console import Console

from fedlama.paper import costs
from fedlama.paper.costs import cost_lines
from fedlama.report.tables.costs import cost_table
from fedlama.study.speed import Speed


@pytest.fixture
def lines(monkeypatch):
    monkeypatch.setattr(
        costs,
        "measured",
        lambda runs, budget: [Speed(step=1.0, exchange=0.0, sample=0.0) for _ in runs],
    )
    return {line.name: line for line in cost_lines(workers=2)}


def test_every_table_and_figure_has_a_time_at_each_scale(lines):
    assert len(lines) == 12 + 6 + 1
    for name, line in lines.items():
        scales = ["smoke", "cpu"] if name == "frontier" else ["smoke", "cpu", "paper"]
        assert list(line.costs) == scales
        assert all(cost.seconds > 0 for cost in line.costs.values())


def test_a_time_is_the_steps_of_all_clients_over_the_processes(lines):
    # Table 1 at the paper's scale: 5 settings × 3 seeds × 3,600 steps × 128 clients, on 2 processes
    paper = lines["table1"].costs["paper"]
    assert (paper.runs, paper.seconds) == (15, 5 * 3 * 3600 * 128 / 2)
    # at the scale of two cores: three seeds, 3,000 steps, 8 clients
    cpu = lines["table1"].costs["cpu"]
    assert (cpu.runs, cpu.seconds) == (15, 5 * 3 * 3000 * 8 / 2)
    # and where the recipe has one seed
    cpu = lines["table2"].costs["cpu"]
    assert (cpu.runs, cpu.seconds) == (5, 5 * 3000 * 8 / 2)


def test_groups_that_share_their_runs_count_once(lines):
    # Table 4: α = 0.1 counts as 0.5, so groups 1 and 3 share theirs, as 2 and 4 do: three seeds of four settings each
    assert lines["table4"].costs["cpu"].runs == 2 * 3 * 4


def test_a_scale_that_was_not_measured_in_time_says_so(monkeypatch):
    monkeypatch.setattr(
        costs,
        "measured",
        lambda runs, budget: [Speed(1e-6, 0.0, 0.0), *[None] * (len(runs) - 1)],
    )
    lines = cost_lines(workers=1)
    console = Console(file=io.StringIO(), width=100)
    console.print(cost_table(lines))
    shown = console.file.getvalue()
    assert "very long" in shown
    (row,) = [line for line in shown.splitlines() if line.startswith("table1 ")]
    assert "< 1 min" in row


def test_runs_are_told_for_each_scale(lines):
    console = Console(file=io.StringIO(), width=80)
    console.print(cost_table([lines["table1"]]))
    counted = " ".join(console.file.getvalue().split())
    for cost in lines["table1"].costs.values():
        assert f"{cost.runs} runs" in counted
    assert "15 runs" in counted  # the paper's three seeds
