"""`fedlama demo`: FedAvg against FedLAMA and the preset `frugal` on the embedded digits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedlama.cli.shared import StudyWorkers, show_report

DEFAULT_FOLDER = Path("fedlama-demo")


def demo(
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where to write the runs and the report \\[default: fedlama-demo, and what options differ]."
        ),
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=1, help="How many seeds to average over.")
    ] = 4,
    iterations: Annotated[
        int, typer.Option(min=24, help="Steps every client takes.")
    ] = 480,
    learning_rate: Annotated[float, typer.Option(help="Of every client's SGD.")] = 0.1,
    workers: StudyWorkers = None,
) -> None:
    """The main job on the embedded digits: four settings, a table, a report.

    What it takes is printed before it starts. Finished runs are not trained again.
    """
    from fedlama.paper.demo import demo_folder, demo_study
    from fedlama.study.execute import run_study
    from fedlama.study.plan import announce
    from fedlama.study.progress import study_progress

    study = demo_study(seeds, iterations, learning_rate)
    folder = out or demo_folder(DEFAULT_FOLDER, iterations, learning_rate)
    announce([(study, folder)], workers)
    with study_progress([(study, folder)]) as display:
        run_study(study, folder, workers, display)
    show_report([folder], folder)
