"""Finding runs: in the folders that a user names, in the order and under the names of the study they belong to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fedlama.base import InputError
from fedlama.run.directory import CONFIG, PACKED_ROUNDS, ROUNDS, SUMMARY
from fedlama.run.recorded import RecordedRun, read_run
from fedlama.study.index import belongs, in_study_order, study_of


def load_run(path: Path) -> RecordedRun:
    """Read a run directory, finished or not, under the name that its study has for it."""
    setting, note = study_of(path)
    run = read_run(path)
    return replace(run, setting=setting, note=note)


def find_runs(paths: list[Path]) -> list[RecordedRun]:
    """The runs in these folders, or in the folders below them."""
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise InputError(f"{path}: there is no such folder")
        if not path.is_dir():
            raise InputError(f"{path} is a file; name a run's folder")

        inside = _runs_inside(path)
        # A run that its study does not show, such as a pilot, is meant if it is named itself.
        if not inside and _is_run(path):
            inside = [path]
        if not inside:
            raise InputError(
                f"{path} holds no run: no config.toml with rounds.jsonl or summary.json in it or below it"
            )
        found += inside

    without_repeats = dict.fromkeys(found)
    return [load_run(path) for path in without_repeats]


def _runs_inside(path: Path) -> list[Path]:
    """The runs in a folder and below it, without those that a study there does not show."""
    inside: list[Path] = []
    for config in path.rglob(CONFIG):
        run = config.parent
        is_shown = _is_run(run) and belongs(run, path)
        if is_shown:
            inside.append(run)
    return in_study_order(inside, path)


def _is_run(path: Path) -> bool:
    """Whether there is something to show: published results may have a summary and no records of single rounds."""
    if not (path / CONFIG).is_file():
        return False
    shown = (SUMMARY, ROUNDS, PACKED_ROUNDS)
    return any((path / name).is_file() for name in shown)
