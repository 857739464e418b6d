"""The command line: it reads what the user typed, calls the rooms below, and turns errors into exit codes."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from fedlama.base import InputError, RunError
from fedlama.cli import data as data_commands
from fedlama.cli import study as study_commands
from fedlama.version import __version__

if TYPE_CHECKING:
    from fedlama.report.numbers.comparison import Comparison
    from fedlama.report.page.draw import View

HELP = "\n\n".join(
    [
        "Federated learning that averages each layer only as often as it needs.",
        "FedLAMA measures how far the clients' copies of a layer drift apart, and averages the layers that drift "
        "least, usually the largest, φ times less often than the rest.",
        "[bold]Start here[/bold]",
        "  fedlama demo                FedAvg against FedLAMA on embedded data",
        "  fedlama run CONFIG.toml     one run of your own",
        "  fedlama run CONFIG.toml --set policy.kind=fedavg --set participation.window=24 --out runs/fedavg",
        "  fedlama report runs/        a page that compares them, also while they are going (--watch)",
        "  fedlama study STUDY.toml    settings × seeds: a table with mean ± standard deviation, and a report",
        "  fedlama reproduce table4    a table of the paper beside ours, scaled down to two cores (--scale cpu)",
        "  fedlama data list           data sets: what is there, how to get the rest",
        "[bold]A configuration[/bold] needs two keys; everything else has a default:",
        '  \\[data]\n  name = "digits"\n  \\[train]\n  iterations = 480',
        "[bold]Exit codes[/bold]: 0 done · 1 the run failed, what was finished is on disk · 2 the input is wrong, "
        "and the message says what to write instead.",
    ]
)

Workers = Annotated[int | None, typer.Option(min=1, help="Processes that share the work \\[default: one a core].")]

app = typer.Typer(
    help=HELP, rich_markup_mode="rich", no_args_is_help=True, pretty_exceptions_enable=False, add_completion=True
)


app.add_typer(data_commands.app, name="data")
app.command()(study_commands.study)
app.command()(study_commands.reproduce)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"fedlama {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options that come before a command."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where to write the runs and the report.")] = Path("fedlama-demo"),
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds to average over.")] = 4,
    iterations: Annotated[int, typer.Option(min=24, help="Steps every client takes.")] = 480,
    learning_rate: Annotated[float, typer.Option(help="Of every client's SGD.")] = 0.1,
    workers: Workers = None,
) -> None:
    """The main job on the embedded digits: three settings, a table, a report."""
    from fedlama.paper.demo import POLICIES, run_demo
    from fedlama.run.progress import progress

    with progress(iterations, len(POLICIES) * seeds) as display:
        paths = run_demo(out, seeds, iterations, learning_rate, workers, display)
    _report(paths, out)


@app.command()
def run(
    config: Annotated[Path, typer.Argument(help="A TOML file; see `fedlama --help` for the smallest one.")],
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a key: --set policy.base_interval=12. Repeatable."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run directory \\[default: runs/NAME-OF-CONFIG].")] = None,
    workers: Workers = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the run directory's last checkpoint.")] = False,
) -> None:
    """Train one configuration and write its run directory and report.

    The result does not depend on the number of workers. Over several machines: torchrun … -m fedlama run CONFIG.toml.
    """
    from fedlama.processes.world import torchrun_rank
    from fedlama.run.config import load_config
    from fedlama.run.execute import execute
    from fedlama.run.progress import progress

    loaded = load_config(config, overrides or [])
    path = out or Path("runs") / config.stem
    with progress(loaded.train.iterations) as display:
        display.begin(str(loaded.policy.build()))
        execute(loaded, path, [display], workers=workers, resume=resume)
    if torchrun_rank() == 0:
        _report([path], path)


@app.command()
def report(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR…", help="Run directories, or folders above them.")],
    out: Annotated[Path | None, typer.Option(help="Where to write it \\[default: the first DIR].")] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Draw again whenever a run's files change, until all runs are finished.")
    ] = False,
    uplink: Annotated[str, typer.Option(help="Network replay: bandwidth at which each client sends.")] = "10Mbit",
    downlink: Annotated[str, typer.Option(help="Bandwidth at which each client receives.")] = "50Mbit",
    latency: Annotated[str, typer.Option(help="Time of a round trip, charged once a round.")] = "50ms",
    step_time: Annotated[str, typer.Option(help="Time of one local step.")] = "20ms",
    round_overhead: Annotated[
        str, typer.Option(help="Fixed time of every round, such as for starting a client's process.")
    ] = "0s",
    stragglers: Annotated[
        str | None,
        typer.Option(metavar="lognormal:SIGMA", help="Clients differ in speed; a round waits for the slowest."),
    ] = None,
    target: Annotated[
        float | None, typer.Option(help="Accuracy to get to, 0 to 1 \\[default: the best that every setting reaches].")
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
    (_follow if watch else _report)(folders, out or folders[0], View(network, target))


def _report(folders: list[Path], out: Path, view: View | None = None) -> None:
    from rich.console import Console

    from fedlama.report import compare, draw_report, terminal_table, verdict
    from fedlama.study.index import read_index
    from fedlama.study.runs import find_runs

    runs, index = find_runs(folders), read_index(folders[0])
    baseline = index.baseline if index else None
    comparison = compare(runs, baseline=baseline)
    page = draw_report(runs, out, baseline=baseline, view=view)
    Console().print(terminal_table(comparison))
    print(verdict(comparison))
    if view is not None:
        _tell_replay(comparison, view)
    print(f"report: {page}")


def _tell_replay(comparison: Comparison, view: View) -> None:
    """On the network that was asked for, how long each setting would have taken."""
    from fedlama.report.numbers.network import replay
    from fedlama.report.tables.network import network_rows
    from fedlama.report.words.network import payoff_sentences, target_text

    played = replay(comparison, view.network, view.target)
    if played is None:
        return
    for row in network_rows(played, comparison):
        print(f"{row.label}: {row.time} to {target_text(played, comparison)} on this network")
    for sentence in payoff_sentences(played, comparison):
        print(sentence)


def _follow(folders: list[Path], out: Path, view: View) -> None:
    """Draw while runs are going, with a line for each drawing, and at the end as always."""
    import time

    from fedlama.report import compare, draw_report, verdict
    from fedlama.report.page.watch import watch
    from fedlama.run.directory import Run

    def draw(runs: list[Run], refresh: int | None) -> None:
        if refresh is None:
            _report(folders, out, view)
            return
        page = draw_report(runs, out, view=replace(view, refresh=refresh))
        print(f"{time.strftime('%H:%M:%S')} {page}: {verdict(compare(runs))}", flush=True)

    print(f"following the runs in {', '.join(map(str, folders))} until they are finished; Ctrl-C ends it", flush=True)
    watch(folders, draw)


INTERRUPTED = 130  # 128 + SIGINT, as shells count
UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # typer does not export it under its own name


def main() -> None:
    """Run the command line; errors become one sentence and an exit code."""
    try:
        code = app(standalone_mode=False)
    except UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error)
            sys.exit(2)
        _fail(f"{getattr(error, 'format_message', error.__str__)()} (see fedlama --help)", 2)
    except InputError as error:
        _fail(error, 2)
    except (RunError, OSError) as error:
        _fail(error, 1)
    except MemoryError:
        _fail("the memory did not suffice", 1)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    if code == INTERRUPTED:  # typer, too, turns Ctrl-C into this
        _fail("interrupted; the rounds that were finished are on disk, and --resume goes on", INTERRUPTED)
    sys.exit(code)


def _fail(problem: Exception | str, code: int) -> NoReturn:
    print(f"fedlama: {problem}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
