"""Finding runs: in the folders that a user names, in the order and under the names of the study they belong to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fedlama.base import InputError
from fedlama.run.directory import Run, read_run
from fedlama.study.index import belongs, in_study_order, setting_of


def load_run(path: Path) -> Run:
    """Read a run directory, finished or not, under the name that its study has for it."""
    return replace(read_run(path), setting=setting_of(path))


def find_runs(paths: list[Path]) -> list[Run]:
    """The runs in these folders, or in the folders below them."""
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise InputError(f"{path}: there is no such folder")
        if not path.is_dir():
            raise InputError(f"{path} is a file; name a run's folder")
        inside = [rounds.parent for rounds in path.rglob("rounds.jsonl") if _is_run(rounds.parent)]
        inside = in_study_order([run for run in inside if belongs(run, path)], path)
        if not inside and not _is_run(path):
            raise InputError(f"{path} holds no run: no config.toml and rounds.jsonl in it or below it")
        inside = inside or [path]
        found += inside
    return [load_run(path) for path in dict.fromkeys(found)]


def _is_run(path: Path) -> bool:
    return (path / "config.toml").is_file()
