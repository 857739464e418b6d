"""What a study is: settings with their seeds, and the runs that follow from them."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from fedlama.base import Positive, Seed
from fedlama.local import LearningRate
from fedlama.run.config import Config
from fedlama.run.kept import Kept
from fedlama.run.resolve import Resolved
from fedlama.run.sections import Section

Seeds = Annotated[list[Seed], Field(min_length=1)]
Rates = list[LearningRate]
MAX_FOLDER = 120  # bytes: file systems admit 255
PILOTS = "pilots"


class StudySection(Section):
    """[study] What is compared, over which seeds, and how learning rates are chosen."""

    seeds: Seeds = Field(default=[0, 1, 2])
    baseline: str | None = None
    learning_rates: Rates = Field(default=[])
    pilot_seeds: Seeds = Field(default=[0])
    pilot_iterations: Positive | None = None
    validation: Annotated[float, Field(gt=0, lt=1)] = 0.1
    fedavg_intervals: list[Positive] = Field(default=[])
    setting: list[dict[str, Any]] = Field(default=[])


@dataclass(frozen=True)
class Setting:
    """One row of the study's table; `config` has the first of its seeds, and no learning rate chosen yet."""

    name: str
    config: Config
    seeds: tuple[int, ...]
    learning_rates: tuple[float, ...]  # to choose among; empty: the configuration's own
    # Of a study in Python: the first seed's run, built already
    planned: Resolved | None = None

    @property
    def folder(self) -> str:
        """The name as a folder's: FedLAMA(6, 4) is fedlama-6-4. Letters of every script stay."""
        plain = unicodedata.normalize("NFKC", self.name).casefold()
        words_joined = re.sub(r"[^\w.]+|_+", "-", plain)
        folder = words_joined.strip("-.") or "setting"

        content = folder.encode("utf-8")
        if len(content) <= MAX_FOLDER:
            return folder
        # Two long names may begin alike.
        digest = hashlib.sha256(content).hexdigest()
        start = content[: MAX_FOLDER - 20].decode("utf-8", "ignore")
        return f"{start}-{digest[:12]}"


@dataclass(frozen=True)
class Cell:
    """One run of a study: where it is written, and what it is for."""

    setting: str
    path: Path  # below the study's folder
    config: Config
    rate: float | None = None  # of a pilot: the learning rate that it tries
    planned: Resolved | None = None  # of a study in Python: the run, built already
    # What its study built so far: processes that are forked for its runs inherit it
    kept: Kept[Resolved] = field(default_factory=Kept, compare=False, repr=False)

    @property
    def label(self) -> str:
        """What a progress display calls it."""
        seed = f"seed {self.config.seed}"
        if self.rate is None:
            return f"{self.setting}, {seed}"
        rate = rate_text(self.rate)
        return f"{self.setting}, pilot at {rate}, {seed}"


@dataclass(frozen=True)
class Study:
    """Settings with their seeds; `options` says how learning rates are chosen, `note` what a reader must know of it."""

    settings: tuple[Setting, ...]
    options: StudySection
    note: str | None = None
    # Setting and seed of the runs that may be trained; None: all of them
    selected: frozenset[tuple[str, int]] | None = None
    # What its runs are built of, for its plan, its progress and the runs themselves
    kept: Kept[Resolved] = field(default_factory=Kept, compare=False, repr=False)

    def selected_of(self, cells: Sequence[Cell]) -> list[Cell]:
        """Those of these cells that may be trained: pilots, too, if a run of their setting may."""
        if self.selected is None:
            return list(cells)

        settings = {name for name, _ in self.selected}
        found: list[Cell] = []
        for cell in cells:
            is_pilot = cell.rate is not None
            place = (cell.setting, cell.config.seed)
            if place in self.selected or (is_pilot and cell.setting in settings):
                found.append(cell)
        return found

    def pilots(self) -> list[Cell]:
        """The runs that choose a learning rate: on a validation split, never on the test samples."""
        pilots: list[Cell] = []
        for setting in self.settings:
            for rate in setting.learning_rates:
                for seed in self.options.pilot_seeds:
                    pilot = self._pilot(setting, rate, seed)
                    pilots.append(pilot)
        return pilots

    def cells(self, chosen: Mapping[str, float | None]) -> list[Cell]:
        """The runs of the table, at the learning rates that the pilots chose; first seeds come first."""
        most_seeds = max(len(setting.seeds) for setting in self.settings)
        cells: list[Cell] = []
        for number in range(most_seeds):
            for setting in self.settings:
                if number >= len(setting.seeds):
                    continue
                seed = setting.seeds[number]
                # Where no pilot chose one, the configuration's own
                rate = chosen.get(setting.name)
                cell = self._cell(setting, seed, rate)
                cells.append(cell)
        return cells

    def _pilot(self, setting: Setting, rate: float, seed: int) -> Cell:
        config = with_rate(setting.config, rate)
        config = shortened(config, self.options.pilot_iterations)
        split = {"validation": self.options.validation}
        # Only the model at the end is judged.
        only_at_the_end = {"evaluate_every": config.train.iterations}
        config = config.model_copy(
            update={
                "seed": seed,
                "data": config.data.model_copy(update=split),
                "train": config.train.model_copy(update=only_at_the_end),
            }
        )

        folder = Path(PILOTS) / setting.folder / f"rate{rate_text(rate)}"
        path = folder / f"seed{seed}"
        return Cell(setting.name, path, config, rate, kept=self.kept)

    def _cell(self, setting: Setting, seed: int, rate: float | None) -> Cell:
        config = setting.config.model_copy(update={"seed": seed})
        if rate is not None:
            config = with_rate(config, rate)

        folder = Path(setting.folder)
        path = folder / f"seed{seed}"
        return Cell(setting.name, path, config, kept=self.kept)


def rate_text(rate: float) -> str:
    """A learning rate in as few digits as tell it from every other: rates that are equal in six digits are two."""
    short = f"{rate:g}"
    if float(short) == rate:
        return short
    return repr(rate)


def with_rate(config: Config, rate: float) -> Config:
    """The same configuration with another learning rate."""
    keys = {"learning_rate": rate}
    local = config.local.model_copy(update=keys)
    return config.model_copy(update={"local": local})


def shortened(config: Config, iterations: int | None) -> Config:
    """The same configuration over at most so many steps; warm-up and decay come at the same shares of the run."""
    whole = config.train.iterations
    if iterations is None or iterations >= whole:
        return config

    local = config.local
    schedule: dict[str, Any] = {}
    # A rule of the user's own may have no schedule.
    if hasattr(local, "warmup_steps"):
        schedule["warmup_steps"] = local.warmup_steps * iterations // whole
    if hasattr(local, "decay_steps"):
        steps: list[int] = []
        for step in local.decay_steps:
            steps.append(max(1, step * iterations // whole))
        schedule["decay_steps"] = steps

    train = config.train.model_copy(update={"iterations": iterations})
    return config.model_copy(
        update={
            "local": local.model_copy(update=schedule),
            "train": train,
        }
    )
