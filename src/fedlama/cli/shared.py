"""What several commands use: options that they have in common, and what they print at their end."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedlama.base import InputError

if TYPE_CHECKING:
    from fedlama.report.numbers.comparison import RunComparison
    from fedlama.report.page.draw import View

Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Processes that share the work \\[default: one per GPU, or per core].",
    ),
]
StudyWorkers = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Processes: runs go side by side, one worker each \\[default: one per GPU, or per core].",
    ),
]
Minutes = Annotated[
    float | None,
    typer.Option(
        min=0,
        help="Stop after so many, with checkpoints saved; the same command goes on from there.",
    ),
]
Checkpoints = Annotated[
    Path | None,
    typer.Option(
        help="Where unfinished runs are kept, with their checkpoints \\[default: the folder of the run]."
    ),
]
SelectedSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--setting",
        metavar="NAME",
        help='Train only this setting, by its name in the table: --setting "FedAvg(6)". Repeatable.',
    ),
]
SelectedSeeds = Annotated[
    str | None,
    typer.Option(metavar="0,1", help="Train only these seeds."),
]
PLAN_ONLY = "Print what it would take, and stop."
FINISHED_ONLY = "Train nothing: show what is finished so far."
RESUME_STUDY = "Accepted for symmetry: a study always goes on where it stopped."


def show_report(folders: list[Path], out: Path, view: View | None = None) -> None:
    """Print the table of the runs in these folders and what follows from it, and draw their page.

    Arguments:
        folders: run directories, or folders above them.
        out: where the page is written.
        view: the network that runs are replayed on; without it nothing is said of it.
    """
    from rich.console import Console

    from fedlama.report import compare_groups, draw_report, terminal_table, verdict
    from fedlama.report.page.studies import baseline_among
    from fedlama.study.index import index_if_ours
    from fedlama.study.runs import find_runs

    runs = find_runs(folders)
    for folder in folders:
        _warn_of_foreign(folder)
    index = index_if_ours(folders[0])
    baseline = None
    if index:
        baseline = baseline_among(runs, index)
    page = draw_report(runs, out, baseline=baseline, view=view)
    console = Console()
    is_named = False  # the network
    for group in compare_groups(runs, baseline=baseline):
        if group.title:
            print(f"\n{group.title}")
        console.print(terminal_table(group.comparison, console.width))
        print(verdict(group.comparison))
        if view is not None:
            is_named = _print_replay(group.comparison, view, is_named)
    print(f"report: {page}")


def _warn_of_foreign(folder: Path) -> None:
    """A report does without the study.json of another program, and says so."""
    from fedlama.study.index import read_index

    try:
        read_index(folder)
    except InputError as error:
        print(f"fedlama: {error}; the report ignores it", file=sys.stderr)


def _print_replay(comparison: RunComparison, view: View, is_named: bool) -> bool:
    """On the network that was asked for, how long each setting would have taken; whether the network is named now."""
    from fedlama.report.numbers.network import replay
    from fedlama.report.tables.network import network_rows
    from fedlama.report.words.network import network_text, payoff_sentences, target_text

    played = replay(comparison, view.network, view.target)
    if played is None:
        return is_named
    if not is_named:
        print(f"The network: {network_text(played.network)}.")
    for row in network_rows(played, comparison):
        print(
            f"{row.label}: {row.time} to {target_text(played, comparison)} on this network"
        )
    for sentence in payoff_sentences(played, comparison):
        print(sentence)
    return True


def print_lines(notes: Sequence[str], files: Sequence[str]) -> None:
    """What is to be said about a table, then the files that were written."""
    for note in notes:
        print(f"* {note}")
    for line in files:
        print(line)
