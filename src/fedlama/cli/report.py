"""`fedlama report`: runs side by side, as a table and a page, also while they are going."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedlama.cli.shared import show_report

if TYPE_CHECKING:
    from fedlama.report.page.draw import View


def report(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="DIR…", help="Run directories, or folders above them."),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Where to write it \\[default: the first DIR].")
    ] = None,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            help="Draw again whenever a run's files change, until all runs are finished.",
        ),
    ] = False,
    uplink: Annotated[
        str, typer.Option(help="Network replay: bandwidth at which each client sends.")
    ] = "10Mbit",
    downlink: Annotated[
        str, typer.Option(help="Bandwidth at which each client receives.")
    ] = "50Mbit",
    latency: Annotated[
        str, typer.Option(help="Time of a round trip, charged once a round.")
    ] = "50ms",
    step_time: Annotated[str, typer.Option(help="Time of one local step.")] = "20ms",
    round_overhead: Annotated[
        str,
        typer.Option(
            help="Fixed time of every round, such as for starting a client's process."
        ),
    ] = "0s",
    stragglers: Annotated[
        str | None,
        typer.Option(
            metavar="lognormal:SIGMA",
            help="Clients differ in speed; a round waits for the slowest.",
        ),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(
            help="Accuracy to get to, 0 to 1 \\[default: the best that every setting reaches]."
        ),
    ] = None,
) -> None:
    """Draw the report of finished or running runs (again): a table here, and a page with charts.

    The page replays the runs on a network: how long each setting would have taken to an accuracy, from the rounds and
    bytes it recorded. Bandwidths are written as 10Mbit (bit, kbit, Mbit, Gbit), times as 50ms (ms, s).
    """
    from fedlama.report.numbers.network import Network
    from fedlama.report.page.draw import View
    from fedlama.report.words.units import bandwidth, duration, straggling

    network = Network(
        uplink=bandwidth(uplink, "--uplink"),
        downlink=bandwidth(downlink, "--downlink"),
        latency=duration(latency, "--latency"),
        step_time=duration(step_time, "--step-time"),
        straggling=straggling(stragglers),
        round_overhead=duration(round_overhead, "--round-overhead"),
    )
    view = View(network, target)
    page_folder = out or folders[0]
    if watch:
        _follow(folders, page_folder, view)
    else:
        show_report(folders, page_folder, view)


def _follow(folders: list[Path], out: Path, view: View) -> None:
    """Draw while runs are going, with a line for each drawing, and at the end as always."""
    from fedlama.report import compare_groups, draw_report, verdict
    from fedlama.report.page.watch import watch
    from fedlama.run.recorded import RecordedRun

    def draw(runs: list[RecordedRun], refresh: int | None) -> None:
        if refresh is None:
            show_report(folders, out, view)
            return

        refreshing = replace(view, refresh=refresh)
        page = draw_report(runs, out, view=refreshing)
        now = time.strftime("%H:%M:%S")
        for group in compare_groups(runs):
            said = verdict(group.comparison)
            if group.title:
                said = f"{group.title}: {said}"
            print(f"{now} {page}: {said}", flush=True)

    named = ", ".join(map(str, folders))
    print(
        f"following the runs in {named} until they are finished; Ctrl-C ends it",
        flush=True,
    )
    watch(folders, draw)
