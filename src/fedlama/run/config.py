"""A run as a file: strict, frozen, and with errors that say what to write instead."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, SerializeAsAny, ValidationError, model_validator

from fedlama.base import MAX_SEED, MAX_WHOLE, InputError, printable, read_regular, reason, shown
from fedlama.core import Policy
from fedlama.data import IID, Dirichlet, Natural, Partition
from fedlama.data.partition import Alpha, Clients, MinSamples
from fedlama.local import LocalRule
from fedlama.rows import Grouping
from fedlama.run.choices import LOCAL_RULES, POLICIES, SERVER_RULES
from fedlama.run.codecs import DownlinkSection, UplinkSection, without_other_codecs
from fedlama.run.messages import explain
from fedlama.run.presets import with_preset
from fedlama.run.sections import ChoiceSection, Section, options_of
from fedlama.server import ServerRule
from fedlama.training import Faults, Participation
from fedlama.training.simulation import Evaluated, Weighting
from fedlama.training.trainers import Execution, Precision

Positive = Annotated[int, Field(ge=1, le=MAX_WHOLE)]
MAX_FILE = 1 << 20  # bytes of a config
DEFAULT_CLIENTS = 32
DEFAULT_ALPHA = 0.5


def _hash(value: str) -> str:
    if not re.fullmatch("[0-9a-f]{64}", value):
        raise ValueError("must be 64 hexadecimal digits in lower case, as sha256sum prints them")
    return value


class DataSection(Section):
    """[data] What is learnt from; with `validation`, a share of the training samples takes the test samples' place.

    The hash of its files insists on them.
    """

    name: str
    sha256: Annotated[str, AfterValidator(_hash)] | None = None
    validation: Annotated[float, Field(ge=0, lt=1)] = 0.0


class ModelSection(Section):
    """[model] What is trained: a name (default: what suits the data), and what counts as a layer of it."""

    name: str | None = None
    layers: Grouping = "tensor"
    adaptive: list[str] | None = None


class PartitionSection(Section):
    """[partition] How samples fall on clients; default: the data's own client ids, otherwise IID.

    `alpha` and `min_samples` belong to a Dirichlet partition: given without a kind, they mean one.
    """

    kind: Literal["iid", "dirichlet", "natural"] | None = None
    clients: Clients | None = None
    alpha: Alpha | None = None
    min_samples: MinSamples | None = None

    @model_validator(mode="after")
    def _belongs_together(self) -> PartitionSection:
        for name in ("alpha", "min_samples"):
            if getattr(self, name) is not None and self.kind in ("iid", "natural"):
                raise ValueError(f"partition.{name} means nothing with kind = {self.kind!r}, only with 'dirichlet'")
        return self

    def resolved_kind(self, has_ids: bool) -> str:
        """The kind, where the file leaves it open; `has_ids` says whether the data knows whose its samples are."""
        if self.kind is not None:
            return self.kind
        if self.alpha is not None or self.min_samples is not None:
            return "dirichlet"
        return "natural" if has_ids else "iid"

    def build(self, has_ids: bool) -> Partition:
        """The partition this section describes."""
        kind = self.resolved_kind(has_ids)
        if kind == "natural":
            return Natural(self.clients)
        clients = self.clients or DEFAULT_CLIENTS
        if kind == "iid":
            return IID(clients)
        alpha = self.alpha or DEFAULT_ALPHA
        if self.min_samples is None:
            return Dirichlet(clients, alpha)
        return Dirichlet(clients, alpha, self.min_samples)


def _number_or_fraction(value: Any) -> Any:
    try:
        Participation(active=value)
    except InputError:
        raise ValueError("must be a fraction above 0.0 and at most 1.0, or a whole number of clients") from None
    return value


class ParticipationSection(options_of(Participation)):
    """[participation] Who trains at a time, and for how many steps a cohort stays."""

    active: Annotated[Any, AfterValidator(_number_or_fraction)] = Participation.active


class PolicySection(ChoiceSection[Policy]):
    """[policy] What is averaged when."""

    table = "policy"
    default = "fedlama"
    choices = POLICIES
    defaults: ClassVar = {"base_interval": 6, "increase_factor": 4}
    names: ClassVar = {"interval": "base_interval"}  # of FedAvg
    lenient: ClassVar = {"fedavg": "fedlama"}  # FedAvg is FedLAMA with factor 1: --set policy.kind=fedavg is enough


class LocalSection(ChoiceSection[LocalRule]):
    """[local] How a client trains."""

    table = "local"
    chosen_by = "rule"
    former_key = "kind"
    default = "sgd"
    choices = LOCAL_RULES
    defaults: ClassVar = {"learning_rate": 0.1, "batch_size": 32}


class ServerSection(ChoiceSection[ServerRule]):
    """[server] What the server makes of an average."""

    table = "server"
    chosen_by = "rule"
    default = "mean"
    choices = SERVER_RULES


class FaultsSection(options_of(Faults)):
    """[faults] What may happen to clients, and what the server tolerates. Without this table: nothing."""


class TrainSection(Section):
    """[train] How long, and what is measured on the way."""

    iterations: Positive
    evaluate_every: Positive | None = None
    evaluate: Evaluated = "model"
    average_steps: Positive = 120
    weights: Weighting = "uniform"
    checkpoint_minutes: Annotated[float, Field(ge=0)] = 5.0
    device: str = "auto"
    execution: Execution = "auto"
    precision: Precision = "float32"


class OutputSection(Section):
    """[output] What is written beside the run directory's own files."""

    tensorboard: bool = True


class Config(Section):
    """A whole run. Only data.name and train.iterations have no default."""

    seed: Annotated[int, Field(ge=0, le=MAX_SEED)] = 0
    data: DataSection
    model: ModelSection = ModelSection()
    partition: PartitionSection = PartitionSection()
    participation: ParticipationSection = ParticipationSection()
    policy: SerializeAsAny[PolicySection] = PolicySection.of_choice(PolicySection.default)()
    local: SerializeAsAny[LocalSection] = LocalSection.of_choice(LocalSection.default)()
    server: SerializeAsAny[ServerSection] = ServerSection.of_choice(ServerSection.default)()
    uplink: UplinkSection = UplinkSection()
    downlink: DownlinkSection = DownlinkSection()
    faults: FaultsSection | None = None
    train: TrainSection
    output: OutputSection = OutputSection()
    versions: dict[str, str] = Field(default={})  # written into a run directory's config.toml; ignored when read


CHOOSING: Mapping[str, type[ChoiceSection[Any]]] = {
    "policy": PolicySection,
    "local": LocalSection,
    "server": ServerSection,
}


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file."""
    where = printable(path)
    try:
        content = read_regular(path, MAX_FILE, "a config")
    except FileNotFoundError:
        raise InputError(f"{where}: there is no such file") from None
    except OSError as error:
        raise InputError(f"{where}: cannot be read ({reason(error)})") from None
    try:
        return tomllib.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: is not TOML (byte {error.start} is not UTF-8)") from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is a plain ValueError
        raise InputError(f"{where}: is not TOML ({reason(error)})") from None


def load_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """The config in a file, with `key=value` overrides applied."""
    return parse_config(apply_overrides(read_toml(path), overrides), str(path))


def parse_config(tables: Mapping[str, Any], source: str = "config") -> Config:
    """A config from nested tables; what is wrong is said in one or two lines."""
    try:
        expanded = with_preset(tables)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None
    try:
        return Config.model_validate(expanded)
    except ValidationError as error:
        raise InputError(*explain(error, Config, expanded, source)) from None


def as_written_today(tables: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration that an earlier version may have written, with the keys and defaults of this one.

    Keys that this version does not know leave it as it is.
    """
    try:
        return parse_config(tables).model_dump(exclude_none=True)
    except InputError:
        return dict(tables)


def apply_overrides(tables: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """`policy.base_interval=12` and the like; the value is TOML, or a string where it is no TOML."""
    result = dict(tables)
    for override in overrides:
        if not _is_unicode(override):
            raise InputError(f"--set {shown(override)}: is not UTF-8, and a configuration is")
        key, equals, text = override.partition("=")
        if not equals or not key.strip():
            raise InputError(f"--set {shown(override)}: write --set key=value, such as --set policy.base_interval=12")
        path = key.strip().split(".")
        _set(result, path, _value(text.strip()), override)
        if len(path) > 1:
            result[path[0]] = _after_choice(path[0], path[1], result[path[0]])
    return result


def merged(base: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """Tables within tables: what the second says goes, key by key.

    Where it makes another choice (`policy.kind`), the options of the choice before are not taken over.
    """
    result = dict(base)
    for name, value in override.items():
        old = result.get(name)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            for key in value:
                old = _after_choice(name, key, {**old, key: value[key]})
            result[name] = merged(old, value)
        else:
            result[name] = value
    return result


def _after_choice(name: str, key: str, table: Any) -> Any:
    """A section in which a key was just set: if that key chooses, the options of other choices are dropped."""
    if not isinstance(table, Mapping):
        return table
    if name in ("uplink", "downlink") and key == "codec":
        return without_other_codecs(table)
    section = CHOOSING.get(name)
    if section is None or key != section.chosen_by:
        return table
    return section.without_other_choices(table)


def _is_unicode(text: str) -> bool:
    """What is not UTF-8 on the command line arrives as surrogates, which no file can hold."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _value(text: str) -> Any:
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return parsed["value"] if len(parsed) == 1 else text


def _set(tables: dict[str, Any], path: list[str], value: Any, override: str) -> None:
    *parents, last = path
    for parent in parents:
        inner = tables.get(parent, {})
        if not isinstance(inner, dict):
            raise InputError(f"--set {shown(override)}: {printable(parent)} is not a table")
        tables[parent] = dict(inner)
        tables = tables[parent]
    tables[last] = value
