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
    "unipen62-window48",
    "unipen62-cnn",
    "cifar10",
    "momentum-digits",
    "momentum-unipen62",
    "choose-digits",
    "choose-unipen62",
    "choose-unipen62-rates",
    "screening/digits",
    "screening/unipen62",
)
# A reader's name of a data set and a network, and the study that stands for it: at learning rates that pilots chose,
# but for CIFAR-10. Those of UNIPEN-62's MLP chose the rate that its study has for all settings.
HEADLINE: Mapping[str, str] = {
    "digits, small CNN": "digits-rates",
    "UNIPEN-62 by writer, MLP": "unipen62",
    "CIFAR-10, ResNet20": "cifar10",
}


def file_of(name: str) -> Path:
    """The study file; the digits are a recipe of the package."""
    if name == "digits":
        return ROOT / "src/fedlama/paper/recipes/frontier.toml"
    return STUDIES / f"{name}.toml"


def pairs_of(name: str) -> list[Pair]:
    """Every finished setting of a study against its baseline, which comes first."""
    return paired(comparison_of(file_of(name), STUDIES / name))


def has_baseline(name: str) -> bool:
    """Whether anything can be compared.

    Arguments:
        name: of the study.
    """
    for cell in load_study(file_of(name)).cells({}):
        path = STUDIES / name / cell.path / "summary.json"
        if cell.setting == BASELINE and path.exists():
            return True
    return False
