"""`fedlama diagnose`: look at a configuration before a long run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedlama.cli.shared import Workers

if TYPE_CHECKING:
    from fedlama.compress import Codec
    from fedlama.core import Policy
    from fedlama.run.resolve import Resolved

DIAGNOSED_ON = "auto"  # the device of the first cycles, whatever train.device says


def diagnose(
    config: Annotated[Path, typer.Argument(help="A TOML file, as for `fedlama run`.")],
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
        typer.Option(help="The picture \\[default: NAME-OF-CONFIG-diagnosis.png]."),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print everything as JSON in place of the page."),
    ] = False,
    workers: Workers = None,
) -> None:
    """Estimate what the theory needs, and what each policy would send, before a long run.

    Runs the first cycles with a few clients, takes a few gradients and Hessian-vector products, and prints L, σ², β²
    and κ², the theorem's largest learning rate beside yours, its terms, every layer's drift, and a recommendation.
    """
    import json

    from fedlama.diagnose import diagnose as look_at
    from fedlama.processes.devices import default_workers
    from fedlama.report.pictures.diagnosis import draw_diagnosis
    from fedlama.report.words.diagnosis import diagnosis_text
    from fedlama.run.config import load_config
    from fedlama.run.resolve import resolve

    loaded = load_config(config, overrides or [])
    planned = resolve(loaded)
    coded = _coded(planned)
    model_keys = planned.config.model
    with _progress() as progress:
        found = look_at(
            planned.model,
            planned.data,
            policy=planned.policy,
            local=planned.local,
            iterations=planned.config.train.iterations,
            partition=planned.shards,
            participation=planned.participation,
            seed=planned.config.seed,
            layers=model_keys.layers,
            adaptive=model_keys.adaptive,
            workers=workers or default_workers(DIAGNOSED_ON),
            coded=coded,
            progress=progress,
        )

    file = out or Path(f"{config.stem}-diagnosis.png")
    picture = draw_diagnosis(found, file)
    if as_json:
        everything = {**found.to_plain(), "picture": str(picture)}
        print(json.dumps(everything, indent=2))
        return
    print(diagnosis_text(found))
    print(f"picture: {picture}")


def _coded(planned: Resolved) -> dict[str, tuple[Policy, Codec]]:
    """What is planned, if it has a code, and the preset."""
    from fedlama.paper.presets import frugal
    from fedlama.run.labels import run_label

    coded: dict[str, tuple[Policy, Codec]] = {}
    if planned.uplink is not None:
        coded[run_label(planned.config)] = (planned.policy, planned.uplink)
    preset = frugal(planned.policy.base_interval)
    combination = (preset["policy"], preset["uplink"])
    if combination not in coded.values():
        coded.setdefault("frugal", combination)
    return coded


@contextmanager
def _progress() -> Iterator[Callable[[float, str], None]]:
    """A bar on a terminal, nothing in a log: it is a matter of a minute."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description:<26}"),
        BarColumn(),
        TimeRemainingColumn(compact=True),
    )
    console = Console(stderr=True)
    is_log = not sys.stderr.isatty()
    with Progress(*columns, console=console, disable=is_log) as bar:
        task = bar.add_task("reading", total=1.0)
        yield lambda share, what: bar.update(task, completed=share, description=what)
