"""`fedlama demo`: FedAvg against FedLAMA on the embedded digits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedlama.cli.shared import Workers, show_report


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
    show_report(paths, out)
