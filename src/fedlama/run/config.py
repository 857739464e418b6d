"""A run as a file: strict, frozen, and with errors that say what to write instead."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field, SerializeAsAny, ValidationError, model_validator

from fedlama.base import MAX_SEED, MAX_WHOLE, InputError, printable, read_regular, reason, shown
from fedlama.core import Policy
from fedlama.data import Partition
from fedlama.data.partition import DEFAULT_CLIENTS, Alpha, Clients, MinSamples
from fedlama.local import LocalRule
from fedlama.rows import Grouping
from fedlama.run.choices import LOCAL_RULES, PARTITIONS, POLICIES, SERVER_RULES
from fedlama.run.codecs import DownlinkSection, UplinkSection, without_other_codecs
from fedlama.run.messages import explain, nearest
from fedlama.run.presets import with_preset
from fedlama.run.references import Reference, is_reference, make_importable
from fedlama.run.sections import ChoiceSection, Section, options_of
from fedlama.server import ServerRule
from fedlama.training import Faults, Participation
from fedlama.training.simulation import Evaluated, Weighting
from fedlama.training.trainers import Execution, Precision

Positive = Annotated[int, Field(ge=1, le=MAX_WHOLE)]
MAX_FILE = 1 << 20  # bytes of a config
DEFAULT_ALPHA = 0.5
Options = dict[str, Any]  # handed to code of the user's own by name


def _hash(value: str) -> str:
    if not re.fullmatch("[0-9a-f]{64}", value):
        raise ValueError("must be 64 hexadecimal digits in lower case, as sha256sum prints them")
    return value


def _own_code(value: str) -> str:
    if not is_reference(value):
        raise ValueError("must be module:name, a function in a module of your own")
    return value


OwnCode = Annotated[str, AfterValidator(_own_code)]


def _check_options(table: str, name: str | None, options: Options | None) -> None:
    if options and (name is None or ":" not in name):
        raise ValueError(f"{table}.options means nothing unless {table}.name is module:name, a function of your own")


class DataSection(Section):
    """[data] What is learnt from; with `validation`, a share of the training samples takes the test samples' place.

    The hash of its files insists on them. `name` may refer to a function of the user's own that loads the data, and
    `transform` and `augment` to functions of a batch of inputs.
    """

    name: str
    options: Options | None = None
    sha256: Annotated[str, AfterValidator(_hash)] | None = None
    validation: Annotated[float, Field(ge=0, lt=1)] = 0.0
    transform: OwnCode | None = None
    augment: OwnCode | None = None

    @model_validator(mode="after")
    def _options_for_own_code(self) -> DataSection:
        _check_options("data", self.name, self.options)
        return self


class ModelSection(Section):
    """[model] What is trained: a name (default: what suits the data), and what counts as a layer of it.

    `name` may refer to a function of the user's own that builds the module.
    """

    name: str | None = None
    options: Options | None = None
    layers: Grouping = "tensor"
    adaptive: list[str] | None = None

    @model_validator(mode="after")
    def _options_for_own_code(self) -> ModelSection:
        _check_options("model", self.name, self.options)
        return self


def _partition_kind(value: str) -> str:
    if value in PARTITIONS or is_reference(value):
        return value
    allowed = f"must be one of {', '.join(PARTITIONS)}"
    near = nearest(value, list(PARTITIONS))
    if near is not None:
        allowed += f"; did you mean {near!r}?"
    raise ValueError(allowed)


def _number_or_fraction(value: Any) -> Any:
    try:
        Participation.from_active(value)
    except InputError:
        raise ValueError("must be a fraction above 0.0 and at most 1.0, or a whole number of clients") from None
    return value


def _plain(key: str, value: Any) -> Any:
    """Refuse what Python's class would take and a file should not, such as null."""
    try:
        if key == "clients":
            Participation(clients=value)
        else:
            Participation(fraction=value)
    except InputError as error:
        raise ValueError(str(error)) from None
    if value is None:
        raise ValueError(f"participation.{key} must be a number")
    return value


class PartitionSection(Section):
    """[partition] How samples fall on clients; default: the data's own client ids, otherwise IID.

    `alpha` and `min_samples` belong to a Dirichlet partition: given without a kind, they mean one. `kind` may refer to
    a function of the user's own that makes a partition, with `options` for it.
    """

    kind: Annotated[str, AfterValidator(_partition_kind)] | None = None
    options: Options | None = None
    clients: Clients | None = None
    alpha: Alpha | None = None
    min_samples: MinSamples | None = None
    sha256: Annotated[str, AfterValidator(_hash)] | None = None  # of who has which sample, for a partition of one's own

    @model_validator(mode="after")
    def _belongs_together(self) -> PartitionSection:
        _check_options("partition", self.kind, self.options)
        if self.kind is None:
            return self
        for name in ("alpha", "min_samples"):
            homes = [kind for kind, built in PARTITIONS.items() if name in signature(built).parameters]
            if getattr(self, name) is not None and self.kind not in homes:
                only = " or ".join(map(repr, homes))
                raise ValueError(f"partition.{name} means nothing with kind = {self.kind!r}, only with {only}")
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
        if kind not in PARTITIONS:
            return self._own(Reference("partition.kind", kind))
        given = {"clients": self.clients, "alpha": self.alpha, "min_samples": self.min_samples}
        if kind != "natural":  # where each of the data's own clients is one
            given["clients"] = self.clients or DEFAULT_CLIENTS
        given["alpha"] = self.alpha or DEFAULT_ALPHA
        arguments: dict[str, Any] = {}
        for name in signature(PARTITIONS[kind]).parameters:
            if given[name] is not None:
                arguments[name] = given[name]
        return PARTITIONS[kind](**arguments)

    def _own(self, reference: Reference) -> Partition:
        made = reference.call(options=self.options)
        if isinstance(made, type) or not hasattr(made, "assign"):
            raise reference.wrong(f"must return a partition, which has assign(data, seed), not {shown(made)}")
        return made


class ParticipationSection(Section):
    """[participation] Who trains at a time, and for how many steps a cohort stays.

    `active` is a number of clients or a fraction of them. A file may write `clients` or `fraction` in its place.
    """

    active: Annotated[Any, AfterValidator(_number_or_fraction)] = Participation().active
    window: Annotated[int, Field(ge=1, le=MAX_WHOLE)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _one_key(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        table = dict(value)
        given = [key for key in ("active", "clients", "fraction") if key in table]
        if len(given) > 1:
            raise ValueError(f"participation.{given[0]} and participation.{given[1]} say the same: write one of them")
        if "clients" in table:
            check = Participation(clients=_plain("clients", table["clients"]))
            table["active"] = check.active
        if "fraction" in table:
            check = Participation(fraction=_plain("fraction", table["fraction"]))
            table["active"] = check.active
        table.pop("clients", None)
        table.pop("fraction", None)
        return table

    def build(self) -> Participation:
        """Who trains at a time."""
        return Participation.from_active(self.active, self.window)


class PolicySection(ChoiceSection[Policy]):
    """[policy] What is averaged when."""

    table = "policy"
    protocol = Policy
    what = "a policy"
    default = "fedlama"
    choices = POLICIES
    defaults: ClassVar = {"base_interval": 6, "increase_factor": 4}
    names: ClassVar = {"interval": "base_interval"}  # of FedAvg
    lenient: ClassVar = {"fedavg": "fedlama"}  # FedAvg is FedLAMA with factor 1: --set policy.kind=fedavg is enough

    @property
    def steps_between_averages(self) -> int:
        """τ', without running code of the user's own: where that does not tell it, 1."""
        interval = getattr(self, "base_interval", 1)
        if not isinstance(interval, int) or interval < 1:
            return 1
        return interval


class LocalSection(ChoiceSection[LocalRule]):
    """[local] How a client trains."""

    table = "local"
    protocol = LocalRule
    what = "a local rule"
    chosen_by = "rule"
    former_key = "kind"
    default = "sgd"
    choices = LOCAL_RULES
    defaults: ClassVar = {"learning_rate": 0.1, "batch_size": 32}


class ServerSection(ChoiceSection[ServerRule]):
    """[server] What the server makes of an average."""

    table = "server"
    protocol = ServerRule
    what = "a server rule"
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
    loss: OwnCode | None = None
    metric: OwnCode | None = None
    metric_name: Annotated[str, Field(min_length=1, max_length=60)] | None = None
    higher_is_better: bool | None = None
    weights: Weighting = "uniform"
    checkpoint_minutes: Annotated[float, Field(ge=0)] = 5.0
    device: str = "auto"
    execution: Execution = "auto"
    precision: Precision = "float32"


class EvaluateSection(Section):
    """[evaluate] What else is evaluated: how the global model fares with each client by itself."""

    clients: bool = False


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
    evaluate: EvaluateSection = EvaluateSection()
    output: OutputSection = OutputSection()
    # Written into a run directory's config.toml; ignored when read
    hashes: dict[str, str] = Field(default={})  # of files with code of the user's own, by what refers to them
    versions: dict[str, str] = Field(default={})


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
    """The config in a file, with `key=value` overrides applied; modules beside it can be imported from now on."""
    tables = apply_overrides(read_toml(path), overrides)
    make_importable(path.parent)
    return parse_config(tables, str(path), overrides)


def parse_config(tables: Mapping[str, Any], source: str = "config", overrides: Sequence[str] = ()) -> Config:
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
        raise InputError(*explain(error, Config, expanded, source, overrides)) from None


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
