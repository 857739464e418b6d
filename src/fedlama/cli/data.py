"""`fedlama data …`: what is there, how it is split, how to get it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer

from fedlama.cli.flags import Command, CommandGroup

app = typer.Typer(
    cls=CommandGroup,
    help="Data sets: what is there, how they fall on clients, how to get them.",
    no_args_is_help=True,
)


@app.command("list", cls=Command)
def list_sets() -> None:
    """What fedlama can read by name, what is there, and how to get the rest."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from fedlama.base import printable
    from fedlama.data import catalog

    table = Table("name", "what")
    table.add_column("where, or how to get it", overflow="fold")
    for entry in catalog():
        place = f"– {entry.how}"
        if entry.present:
            place = str(entry.where or entry.how)
        # Text, because the name of a file or a folder may look like markup.
        cells = [Text(printable(cell)) for cell in (entry.name, entry.what, place)]
        table.add_row(*cells)
    console = Console()
    console.print(table)
    console.print(
        "A path to an .npz file or to a LEAF folder works wherever a name does; see docs/data.md."
    )


@app.command(cls=Command)
def show(
    name: Annotated[
        str, typer.Argument(help="A name that `fedlama data list` shows, or a path.")
    ],
    partition: Annotated[
        Literal["iid", "dirichlet", "natural"] | None,
        typer.Option(
            help="How it falls on clients \\[default: the data's own client ids, otherwise iid]."
        ),
    ] = None,
    clients: Annotated[
        int | None, typer.Option(min=1, help="How many clients.")
    ] = None,
    alpha: Annotated[
        float | None,
        typer.Option(
            help="Of the Dirichlet draw: smaller is more uneven \\[default: 0.5]."
        ),
    ] = None,
    min_samples: Annotated[
        int | None,
        typer.Option(
            min=1, help="What a Dirichlet draw must give every client \\[default: 10]."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    out: Annotated[
        Path | None, typer.Option(help="The picture \\[default: NAME-partition.png].")
    ] = None,
) -> None:
    """Sizes, class balance and label entropy of every client, as a table and a picture."""
    from rich.console import Console

    from fedlama.data import load
    from fedlama.report.numbers.partition import view_partition
    from fedlama.report.pictures.partition import draw_partition
    from fedlama.report.tables.partition import partition_table
    from fedlama.run.config import parse_config

    options = {
        "kind": partition,
        "clients": clients,
        "alpha": alpha,
        "min_samples": min_samples,
    }
    given = {key: value for key, value in options.items() if value is not None}
    tables = {
        "data": {"name": name},
        "train": {"iterations": 1},
        "partition": given,
    }
    config = parse_config(tables, "data show")

    data = load(name)
    shape = "×".join(map(str, data.x_train.shape[1:]))
    labels = "no class labels"
    if data.classes:
        labels = f"{data.classes} classes"
    print(
        f"{data.name}: {len(data.x_train):,} training and {len(data.x_test):,} test samples of {shape}, {labels}"
    )

    has_ids = data.clients is not None
    shards = config.partition.build(has_ids).assign(data, seed)
    view = view_partition(data, shards)
    Console().print(partition_table(view))
    file = out or Path(f"{Path(name).stem}-partition.png")
    picture = draw_partition(view, file)
    print(f"picture: {picture}")


@app.command(cls=Command)
def fetch(
    name: Annotated[str, typer.Argument(help="cifar10 or cifar100.")],
    folder: Annotated[
        Path | None,
        typer.Option(help="Where to \\[default: FEDLAMA_DATA, or the user's cache]."),
    ] = None,
) -> None:
    """Download a data set, continue a partial download, and verify its SHA-256."""
    from fedlama.data import data_folder
    from fedlama.data import fetch as download

    with _download_progress(name) as progress:
        path = download(name, folder or data_folder(), progress=progress)
    print(f"{name}: {path}")


@contextmanager
def _download_progress(name: str) -> Iterator[Callable[[int, int | None], None]]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    is_log = not sys.stderr.isatty()
    with Progress(*columns, console=console, disable=is_log) as bar:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
