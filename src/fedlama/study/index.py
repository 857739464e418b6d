"""What a study's folder holds: run directories, and the setting that each of them belongs to."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, ValidationError
from pydantic_core import from_json

from fedlama.base import InputError
from fedlama.run.sections import Section

INDEX = "study.json"


class Choice(Section):
    """How a setting came by its learning rate: the mean validation score at each rate tried, None if it diverged."""

    rate: float | None  # None: the training diverged at every one
    scores: dict[str, float | None]  # rate as text, as JSON has it
    at_edge: bool  # whether a rate outside of those tried might have been better


class StudyIndex(Section):
    """Kept as `study.json`; runs are named by their folder below the study's. Pilots are not among them."""

    baseline: str | None
    labels: dict[str, str]  # run → setting
    choices: dict[str, Choice]  # setting → learning rate
    diverged: dict[str, str]  # run → what happened
    note: str | None = None  # what a reader of any of its numbers must know
    # data set → how many training samples it had, of which a configuration says nothing
    samples: dict[str, int] = Field(default={})


def read_index(folder: Path) -> StudyIndex | None:
    """The index of a study's folder; None if this is none."""
    path = folder / INDEX
    if not path.is_file():
        return None

    try:
        content = path.read_bytes()
        return StudyIndex.model_validate_json(content)
    except (OSError, ValidationError) as error:
        first_line = str(error).splitlines()[0]
        raise InputError(f"{path} is not the index of a study ({first_line})") from None


def index_if_ours(folder: Path) -> StudyIndex | None:
    """The index of a folder that is only looked at: a study.json of another program is none of our business."""
    try:
        return read_index(folder)
    except InputError:
        return None


def is_json(folder: Path) -> bool:
    """Whether a folder's study.json is whole: what is whole and not ours is another program's, and stays."""
    try:
        from_json((folder / INDEX).read_bytes())
    except (OSError, ValueError):
        return False
    return True


def study_of(run: Path) -> tuple[str | None, str | None]:
    """The setting that a study above this run directory has it under, and what that study notes."""
    path = run.resolve()
    for folder in path.parents:
        index = index_if_ours(folder)
        if index is None:
            continue
        name = path.relative_to(folder).as_posix()
        setting = index.labels.get(name)
        return setting, index.note
    return None, None


def belongs(run: Path, named: Path) -> bool:
    """Whether this run is meant when the user names a folder above it: a study's pilots are not."""
    for folder in run.parents:
        index = index_if_ours(folder)
        if index is not None:
            name = run.relative_to(folder).as_posix()
            return name in index.labels
        if folder == named:
            break
    return True


def in_study_order(runs: list[Path], named: Path) -> list[Path]:
    """As the study has them, if the folder that the user named is one; otherwise by name."""
    index = index_if_ours(named)
    if index is None:
        return sorted(runs)

    places: dict[Path, int] = {}
    for number, name in enumerate(index.labels):
        places[named / name] = number

    def place_and_name(run: Path) -> tuple[int, Path]:
        return places.get(run, 0), run

    return sorted(runs, key=place_and_name)
