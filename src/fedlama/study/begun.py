"""Runs that were begun and are not finished: how far they are, and a note at home of where they are kept elsewhere."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from fedlama.base import InputError, read_regular
from fedlama.run.directory import CHECKPOINTS, CONFIG
from fedlama.run.files import write_atomically, writing
from fedlama.run.sections import Section

# Where a run will be once it is finished, while it is kept in another folder
BEGUN = "begun.json"
CHECKPOINTS_OPTION = "--checkpoints"  # what names that folder on the command line
MAX_NOTE = 1 << 16  # bytes


class BegunNote(Section):
    """Kept as `begun.json`; without it, a folder that is gone could not be told from a run that was never begun."""

    checkpoints: str  # the folder that the user named for unfinished runs
    folder: str  # the run's own


def is_begun(folder: Path) -> bool:
    """Whether a run was begun here, whatever came of it."""
    return (folder / CONFIG).is_file() or steps_at(folder) > 0


def steps_at(folder: Path) -> int:
    """The step of a run's last checkpoint, from which it would go on; 0 where there is none."""
    latest = 0
    for file in folder.glob(f"{CHECKPOINTS}/step-*.json"):
        digits = file.stem.removeprefix("step-")
        # Somebody may have put another file there.
        if digits.isdecimal():
            latest = max(latest, int(digits))
    return latest


def write_note(home: Path, folder: Path, checkpoints: Path) -> None:
    """Note where a run is kept that was begun.

    Arguments:
        home: Where it will be when it is finished.
        folder: Where it is until then.
        checkpoints: The folder for unfinished runs, as the user named it.
    """
    note = BegunNote(
        checkpoints=str(checkpoints.absolute()),
        folder=str(folder.absolute()),
    )
    with writing(home / BEGUN):
        home.mkdir(parents=True, exist_ok=True)
    write_atomically(home / BEGUN, note.model_dump_json(indent=2) + "\n")


def read_note(home: Path) -> BegunNote | None:
    """Where a run is kept that was begun; None where nothing says so, and for a note that cannot be read."""
    path = home / BEGUN
    if not path.is_file():
        return None
    try:
        content = read_regular(path, MAX_NOTE, "a note of where a run is kept")
        return BegunNote.model_validate_json(content)
    except (OSError, InputError, ValidationError):
        return None


def drop_note(home: Path) -> None:
    """The run is at home."""
    with writing(home / BEGUN):
        (home / BEGUN).unlink(missing_ok=True)
