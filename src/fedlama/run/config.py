"""A run as a file: strict, frozen, and with errors that say what to write instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, SerializeAsAny, ValidationError

from fedlama.base import InputError
from fedlama.run.codecs import DownlinkSection, UplinkSection
from fedlama.run.importing import make_importable
from fedlama.run.messages import explain
from fedlama.run.overrides import apply_overrides
from fedlama.run.partitions import PartitionSection
from fedlama.run.presets import with_preset
from fedlama.run.sections import Section, some_options_of
from fedlama.run.tables import (
    DataSection,
    EvaluateSection,
    FaultsSection,
    LocalSection,
    ModelSection,
    OutputSection,
    ParticipationSection,
    PolicySection,
    ServerSection,
    TrainSection,
)
from fedlama.run.toml import read_toml
from fedlama.training.options import RunOptions


class Config(some_options_of(RunOptions, "seed", after=Section)):
    """A whole run. Only data.name and train.iterations have no default."""

    if TYPE_CHECKING:
        seed: int

    data: DataSection
    model: ModelSection = ModelSection()
    partition: SerializeAsAny[PartitionSection] = PartitionSection.of_choice(
        PartitionSection.default
    )()
    participation: ParticipationSection = ParticipationSection()
    policy: SerializeAsAny[PolicySection] = PolicySection.of_choice(
        PolicySection.default
    )()
    local: SerializeAsAny[LocalSection] = LocalSection.of_choice(LocalSection.default)()
    server: SerializeAsAny[ServerSection] = ServerSection.of_choice(
        ServerSection.default
    )()
    uplink: UplinkSection = UplinkSection()
    downlink: DownlinkSection = DownlinkSection()
    faults: FaultsSection | None = None
    train: TrainSection
    evaluate: EvaluateSection = EvaluateSection()
    output: OutputSection = OutputSection()
    # Written into a run directory's config.toml; ignored when read
    # of files with code of the user's own, by what refers to them
    hashes: dict[str, str] = Field(default={})
    versions: dict[str, str] = Field(default={})

    @property
    def options(self) -> RunOptions:
        """The options of the run that are numbers, texts and flags, from all tables that have some."""
        sections = (self, self.model, self.train, self.evaluate)
        found: dict[str, Any] = {}
        for section in sections:
            of_section = section.values_by_option()
            found.update(of_section)
        return RunOptions(**found)


def load_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """The config in a file, with `key=value` overrides applied; modules beside it can be imported from now on."""
    tables = read_toml(path)
    tables = apply_overrides(tables, overrides)
    make_importable(path.parent)
    return parse_config(tables, str(path), overrides)


def parse_config(
    tables: Mapping[str, Any], source: str = "config", overrides: Sequence[str] = ()
) -> Config:
    """A config from nested tables; what is wrong is said in one or two lines.

    Arguments:
        tables: As TOML has them.
        source: Where they are from, for messages.
        overrides: What `--set` changed in them: that is where a mistake in such a key was made.
    """
    try:
        expanded = with_preset(tables)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None
    try:
        return Config.model_validate(expanded)
    except ValidationError as error:
        lines = explain(
            error=error,
            root=Config,
            tables=expanded,
            source=source,
            overrides=overrides,
        )
        raise InputError(*lines) from None


def as_written_today(tables: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration that an earlier version may have written, with the keys and defaults of this one.

    Keys that this version does not know leave it as it is.
    """
    try:
        config = parse_config(tables)
        config = comparable(config)
    except InputError:
        return dict(tables)
    return config.model_dump(exclude_none=True)


def comparable(config: Config) -> Config:
    """The configuration by which a run is compared with others: FedLAMA with factor 1 is FedAvg there.

    Arguments:
        config: As the user wrote it, which is also how a run directory keeps it.
    """
    policy = config.policy.canonical
    return config.model_copy(update={"policy": policy})
