"""`fedlama run`: one configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedlama.cli.shared import Workers, show_report


def run(
    config: Annotated[
        Path,
        typer.Argument(help="A TOML file; see `fedlama --help` for the smallest one."),
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change a key: --set policy.base_interval=12. Repeatable.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The run directory \\[default: runs/NAME-OF-CONFIG]."),
    ] = None,
    workers: Workers = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Go on from the run directory's last checkpoint."
        ),
    ] = False,
) -> None:
    """Train one configuration and write its run directory and report.

    The result does not depend on the number of workers. Over several machines: torchrun … -m fedlama run CONFIG.toml.
    """
    from fedlama.processes.world import torchrun_rank
    from fedlama.run.config import load_config
    from fedlama.run.execute import execute
    from fedlama.run.labels import asked_share, run_label
    from fedlama.run.progress import progress
    from fedlama.run.resolve import resolve

    loaded = load_config(config, overrides or [])
    path = out or Path("runs") / config.stem
    planned = resolve(loaded)
    with progress(loaded.train.iterations) as display:
        display.begin(
            run_label(loaded),
            planned.policy.base_interval,
            asked=asked_share(loaded),
        )
        execute(
            planned,
            path,
            [display],
            workers=workers,
            resume=resume,
        )
    if torchrun_rank() == 0:
        show_report([path], path)
