"""The learning rate of each setting of a study: what its pilots chose, or what is known of that where they are gone.

Published studies are without their pilots, which are many and not shown. `study.json` keeps what they chose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from fedlama.base import InputError
from fedlama.run.directory import CONFIG
from fedlama.run.toml import read_toml
from fedlama.study.cells import is_done, score_of
from fedlama.study.index import Choice, StudyIndex
from fedlama.study.settings import Cell, Setting, Study, rate_text


def chosen_rates(
    study: Study, out: Path, index_there: StudyIndex | None
) -> dict[str, Choice]:
    """What pilots say of each setting whose learning rate is to be chosen, once they are finished.

    Arguments:
        study: The settings.
        out: The study's folder.
        index_there: What the folder has noted so far: it speaks for pilots that are not there.
    """
    pilots = study.pilots()
    choices: dict[str, Choice] = {}
    for setting in study.settings:
        own = [pilot for pilot in pilots if pilot.setting == setting.name]
        # Without pilots, its configuration has the rate.
        if not own:
            continue
        if all(is_done(out, pilot) for pilot in own):
            choices[setting.name] = _choose(setting, own, out)
            continue
        noted = _noted(setting, index_there)
        if noted is not None:
            choices[setting.name] = noted
    return choices


def known_rates(
    study: Study, choices: Mapping[str, Choice], out: Path
) -> dict[str, float | None]:
    """The learning rate of each setting that has one to choose; None where the training diverged at every one.

    Arguments:
        study: The settings.
        choices: What pilots say. Where they say nothing, a finished run tells which rate it was given.
        out: The study's folder.
    """
    rates: dict[str, float | None] = {}
    for setting in study.settings:
        if not setting.learning_rates:
            continue
        if setting.name in choices:
            rates[setting.name] = choices[setting.name].rate
            continue
        rate = _rate_of_its_runs(study, setting, out)
        if rate is not None:
            rates[setting.name] = rate
    return rates


def _noted(setting: Setting, index: StudyIndex | None) -> Choice | None:
    """What the folder's index says of a setting, if it was chosen among the rates that the study has now."""
    if index is None:
        return None
    choice = index.choices.get(setting.name)
    if choice is None:
        return None
    rates = {rate_text(rate) for rate in setting.learning_rates}
    if rates != set(choice.scores):
        return None
    return choice


def _rate_of_its_runs(study: Study, setting: Setting, out: Path) -> float | None:
    """The rate of the first finished run; the others are held against it with their whole configuration."""
    for cell in study.cells({}):
        if cell.setting != setting.name or not is_done(out, cell):
            continue
        path = out / cell.path / CONFIG
        # A run that diverged in its first round has none.
        if not path.is_file():
            continue
        local = read_toml(path).get("local", {})
        rate = local.get("learning_rate")
        if rate not in setting.learning_rates:
            rates = ", ".join(rate_text(tried) for tried in setting.learning_rates)
            raise InputError(
                f"{path.parent} was run at local.learning_rate = {rate}, which is not among study.learning_rates "
                f"({rates}): choose another folder (out=, on the command line --out), or delete that one"
            )
        return float(rate)
    return None


def _choose(setting: Setting, pilots: Sequence[Cell], out: Path) -> Choice:
    """The learning rate with the best mean validation metric (or loss, if there is none); of equals the smaller."""
    scores: dict[float, float | None] = {}
    for rate in setting.learning_rates:
        own = [pilot for pilot in pilots if pilot.rate == rate]
        scores[rate] = _mean_score(own, out)

    best = _best(scores)
    is_one_of_several = len(scores) > 1
    at_edge = is_one_of_several and best in (min(scores), max(scores))

    by_text: dict[str, float | None] = {}
    for rate, score in scores.items():
        text = rate_text(rate)
        by_text[text] = score
    return Choice(
        rate=best,
        scores=by_text,
        at_edge=at_edge,
    )


def _best(scores: Mapping[float, float | None]) -> float | None:
    """The rate with the highest score, of equals the smaller; None if the training diverged at every one."""
    best: float | None = None
    highest: float | None = None
    for rate in sorted(scores):
        score = scores[rate]
        if score is None:
            continue
        if highest is None or score > highest:
            best = rate
            highest = score
    return best


def _mean_score(pilots: Sequence[Cell], out: Path) -> float | None:
    """Larger is better; a rate at which one seed diverged is none to choose."""
    scores: list[float] = []
    for pilot in pilots:
        score = score_of(out, pilot)
        if score is None:
            return None
        scores.append(score)
    return fmean(scores)
