"""The command line: it reads what the user typed, calls the rooms below, and turns errors into exit codes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from fedlama import data_commands
from fedlama.core import InputError, RunError
from fedlama.version import __version__

HELP = "\n\n".join(
    [
        "Federated learning that averages each layer only as often as it needs.",
        "FedLAMA measures how far the clients' copies of a layer drift apart, and averages the layers that drift "
        "least, usually the largest, φ times less often than the rest.",
        "[bold]Start here[/bold]",
        "  fedlama demo                FedAvg against FedLAMA on embedded data",
        "  fedlama run CONFIG.toml     one run of your own",
        "  fedlama run CONFIG.toml --set policy.kind=fedavg --set participation.window=24 --out runs/fedavg",
        "  fedlama report runs/        a page that compares them",
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
    from fedlama.experiment.demo import POLICIES, run_demo
    from fedlama.experiment.progress import progress

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
    from fedlama.experiment.config import load_config
    from fedlama.experiment.execute import execute
    from fedlama.experiment.progress import progress
    from fedlama.training.world import torchrun_rank

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
) -> None:
    """Draw the report of finished or running runs (again)."""
    _report(folders, out or folders[0])


def _report(folders: list[Path], out: Path) -> None:
    from rich.console import Console

    from fedlama.experiment.run_directory import find_runs
    from fedlama.report import compare, draw_report, terminal_table, verdict

    runs = find_runs(folders)
    comparison = compare(runs)
    page = draw_report(runs, out)
    Console().print(terminal_table(comparison))
    print(verdict(comparison))
    print(f"report: {page}")


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
