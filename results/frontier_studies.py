"""The studies of results/frontier.md by name, and which of them the README's first picture and table show."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from paired import comparison_of

from fedlama.report.numbers.pairs import Pair, paired
from fedlama.study.study_file import load_study

HERE = Path(__file__).parent
ROOT = HERE.parent
STUDIES = HERE / "frontier"
BASELINE = "FedAvg(6)"
NAMES = (
    "digits",
    "digits-rates",
    "unipen62",
    "unipen62-rates",
    "unipen62-window24",
    "cifar10",
    "choose-digits",
    "choose-unipen62",
    "choose-unipen62-rates",
    "screening/digits",
    "screening/unipen62",
)
# A reader's name of a data set, and its studies: the first that has its baseline at every seed is shown.
# Learning rates by pilots come before one rate for all.
HEADLINE: Mapping[str, tuple[str, ...]] = {
    "digits, small CNN": ("digits-rates", "digits"),
    "UNIPEN-62 by writer, MLP": ("unipen62-rates", "unipen62"),
    "CIFAR-10, ResNet20": ("cifar10",),
}


def file_of(name: str) -> Path:
    """The study file; the digits are a recipe of the package."""
    if name == "digits":
        return ROOT / "src/fedlama/paper/recipes/frontier.toml"
    return STUDIES / f"{name}.toml"


def pairs_of(name: str) -> list[Pair]:
    """Every finished setting of a study against its baseline, which comes first."""
    return paired(comparison_of(file_of(name), STUDIES / name))


def has_baseline(name: str, *, at_every_seed: bool = False) -> bool:
    """Whether anything can be compared.

    Arguments:
        name: of the study.
        at_every_seed: Whether one seed of the baseline is not enough.
    """
    found: list[bool] = []
    for cell in load_study(file_of(name)).cells({}):
        if cell.setting == BASELINE:
            path = STUDIES / name / cell.path / "summary.json"
            found.append(path.exists())
    return all(found) if at_every_seed else any(found)


def headline_studies() -> dict[str, str]:
    """The study that stands for each data set, by the data set's name."""
    shown: dict[str, str] = {}
    for title, names in HEADLINE.items():
        *preferred, last = names
        shown[title] = last
        for name in preferred:
            if has_baseline(name, at_every_seed=True):
                shown[title] = name
                break
    return shown
