"""Other runs of a study than all: those of the settings and seeds that were asked for, or with more seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedlama.base import MAX_SEED, InputError, shown
from fedlama.run.directory import SUMMARY
from fedlama.study.settings import Setting, Study


@dataclass(frozen=True)
class Selection:
    """What is to be trained of a study; what it does not name, all of it.

    Arguments:
        settings: Their names, as the study has them; empty: all of them.
        seeds: Empty: all of them.
    """

    settings: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()

    def includes(self, setting: str, seed: int) -> bool:
        """Whether a run was asked for.

        Arguments:
            setting: The name of its setting.
            seed: Its seed.
        """
        if self.settings and setting not in self.settings:
            return False
        return not self.seeds or seed in self.seeds


def parse_seeds(text: str | None) -> tuple[int, ...]:
    """The seeds in `0,1`, each once; none where nothing was written.

    Arguments:
        text: What the user wrote.
    """
    if text is None:
        return ()
    seeds: dict[int, None] = {}
    for part in text.split(","):
        digits = part.strip()
        if not _is_seed(digits):
            raise InputError(
                f"--seeds {shown(text)}: must be whole numbers with commas between them, such as 0,1"
            )
        seeds[int(digits)] = None
    return tuple(seeds)


def _is_seed(digits: str) -> bool:
    if not (digits.isascii() and digits.isdecimal()):
        return False
    # The length first: Python refuses to read thousands of digits.
    return len(digits) <= len(str(MAX_SEED)) and int(digits) <= MAX_SEED


def select_of(study: Study, selection: Selection) -> Study:
    """The same study, of which only these runs are to be trained.

    Arguments:
        study: The settings and their seeds.
        selection: What was asked for; a setting or seed that the study does not have is refused.
    """
    if selection == Selection():
        return study
    check_known([study], selection)
    found = selected(study, selection)
    if not found.selected:
        raise nothing_has_both()
    return found


def selected(study: Study, selection: Selection) -> Study:
    """The same study with the runs that were asked for, of which there may be none.

    Arguments:
        study: The settings and their seeds.
        selection: What was asked for.
    """
    wanted: set[tuple[str, int]] = set()
    for setting in study.settings:
        for seed in setting.seeds:
            run = (setting.name, seed)
            if selection.includes(*run):
                wanted.add(run)
    return replace(study, selected=frozenset(wanted))


def with_finished_seeds(study: Study, out: Path) -> Study:
    """The same study with the seeds, too, at which its settings are finished in a folder that others may share.

    Arguments:
        study: The settings and their seeds.
        out: The folder.
    """
    settings: list[Setting] = []
    for setting in study.settings:
        finished = _finished_seeds(out / setting.folder)
        more = sorted(finished.difference(setting.seeds))
        seeds = (*setting.seeds, *more)
        settings.append(replace(setting, seeds=seeds))
    return replace(study, settings=tuple(settings))


def _finished_seeds(folder: Path) -> set[int]:
    found: set[int] = set()
    for summary in folder.glob(f"seed*/{SUMMARY}"):
        digits = summary.parent.name.removeprefix("seed")
        if digits.isdecimal() and int(digits) <= MAX_SEED:
            found.add(int(digits))
    return found


def check_known(studies: Sequence[Study], selection: Selection) -> None:
    """Refuse a setting or seed that none of the studies has.

    Arguments:
        studies: Those of a command.
        selection: What was asked for.
    """
    names: dict[str, None] = {}  # in the order of the tables
    seeds: set[int] = set()
    for study in studies:
        for setting in study.settings:
            names[setting.name] = None
            seeds.update(setting.seeds)

    for name in selection.settings:
        if name not in names:
            listed = ", ".join(names)
            raise InputError(
                f"--setting {shown(name)}: there is no such setting; there are {listed}"
            )
    for seed in selection.seeds:
        if seed not in seeds:
            listed = ", ".join(map(str, sorted(seeds)))
            raise InputError(
                f"--seeds {seed}: there is no such seed; there are {listed}"
            )


def nothing_has_both() -> InputError:
    """What is said where settings and seeds are known, and no run has both."""
    return InputError("--setting and --seeds: no run has both")
