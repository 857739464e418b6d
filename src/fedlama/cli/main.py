"""The command line: its commands are put together here, and errors become exit codes."""

from __future__ import annotations

import re
import sys
from typing import Annotated, NoReturn

import typer

from fedlama.base import InputError, RunError
from fedlama.cli import data
from fedlama.cli.demo import demo
from fedlama.cli.diagnose import diagnose
from fedlama.cli.flags import Command, CommandGroup
from fedlama.cli.report import report
from fedlama.cli.reproduce import reproduce
from fedlama.cli.run import run
from fedlama.cli.study import study
from fedlama.version import __version__

HELP = "\n\n".join(
    [
        "Federated learning that averages each layer only as often as it needs.",
        "FedLAMA measures how far the clients' copies of a layer drift apart, and averages the layers that drift "
        "least, usually the largest, φ times less often than the rest.",
        "[bold]Start here[/bold]",
        "  fedlama demo                FedAvg against FedLAMA and frugal on embedded data",
        "  fedlama run CONFIG.toml     one run of your own",
        "  fedlama diagnose CONFIG.toml   before a long run: noise, curvature, drift; what each policy would send",
        # Of a configuration with a preset, its code and the rest would stay beside the policy.
        "  fedlama run CONFIG.toml --set preset=none --set policy.kind=fedavg --set participation.window=24 "
        "--out runs/fedavg",
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

app = typer.Typer(
    cls=CommandGroup,
    help=HELP,
    rich_markup_mode="rich",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
)
app.add_typer(data.app, name="data")
app.command(cls=Command)(diagnose)
app.command(cls=Command)(study)
app.command(cls=Command)(reproduce)
app.command(cls=Command)(demo)
app.command(cls=Command)(run)
app.command(cls=Command)(report)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"fedlama {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Options that come before a command."""


INTERRUPTED = 130  # 128 + SIGINT, as shells count
# typer does not export it under its own name
UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def main() -> None:
    """Run the command line; errors become one sentence and an exit code."""
    try:
        code = app(standalone_mode=False)
    except UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error)
            sys.exit(2)
        said = getattr(error, "format_message", error.__str__)()
        _fail(f"{_without_repeats(said)} (see fedlama --help)", 2)
    except InputError as error:
        _fail(error, 2)
    except (RunError, OSError) as error:
        _fail(error, 1)
    except MemoryError:
        _fail("the memory did not suffice", 1)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    if code == INTERRUPTED:  # typer, too, turns Ctrl-C into this
        _fail(
            "interrupted; the rounds that were finished are on disk, and --resume goes on",
            INTERRUPTED,
        )
    sys.exit(code)


def _without_repeats(said: str) -> str:
    """Some versions of typer and of what it is built on both add the same suggestion."""
    return re.sub(r"(Did you mean [^?]*\?)(\s+\1)+", r"\1", said)


def _fail(problem: Exception | str, code: int) -> NoReturn:
    print(f"fedlama: {problem}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
