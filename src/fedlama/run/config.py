"""A run as a file: strict, frozen, and with errors that say what to write instead."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedlama.base import InputError
from fedlama.core import FedAvg, FedLAMA, Policy
from fedlama.data import IID, Dirichlet, Natural, Partition
from fedlama.local import SGD
from fedlama.run.messages import explain
from fedlama.training import Faults, Participation
from fedlama.training.faults import LARGEST_LIMIT

Positive = Annotated[int, Field(ge=1)]
DEFAULT_CLIENTS, DEFAULT_ALPHA, DEFAULT_MIN_SAMPLES = 32, 0.5, 10


class Section(BaseModel):
    """A table of the file; unknown keys and wrong types are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


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
    layers: Literal["tensor", "module"] = "tensor"
    adaptive: list[str] | None = None


class PartitionSection(Section):
    """[partition] How samples fall on clients; default: the data's own client ids, otherwise IID.

    `alpha` and `min_samples` belong to a Dirichlet partition: given without a kind, they mean one.
    """

    kind: Literal["iid", "dirichlet", "natural"] | None = None
    clients: Positive | None = None
    alpha: Annotated[float, Field(gt=0)] | None = None
    min_samples: Positive | None = None

    @model_validator(mode="after")
    def _belongs_together(self) -> PartitionSection:
        for name in ("alpha", "min_samples"):
            if getattr(self, name) is not None and self.kind in ("iid", "natural"):
                raise ValueError(f"partition.{name} means nothing with kind = {self.kind!r}, only with 'dirichlet'")
        return self

    def resolved_kind(self, has_ids: bool) -> str:
        """The kind, where the file leaves it open."""
        skewed = self.alpha is not None or self.min_samples is not None
        return self.kind or ("dirichlet" if skewed else "natural" if has_ids else "iid")

    def build(self, has_ids: bool) -> Partition:
        """The partition this section describes."""
        kind = self.resolved_kind(has_ids)
        if kind == "natural":
            return Natural(self.clients)
        clients = self.clients or DEFAULT_CLIENTS
        if kind == "iid":
            return IID(clients)
        return Dirichlet(clients, self.alpha or DEFAULT_ALPHA, self.min_samples or DEFAULT_MIN_SAMPLES)


def _number_or_fraction(value: Any) -> Any:
    whole = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    if not whole and not (isinstance(value, float) and 0 < value <= 1):
        raise ValueError("must be a fraction above 0.0 and at most 1.0, or a whole number of clients")
    return value


class ParticipationSection(Section):
    """[participation] Who trains at a time, and for how many steps a cohort stays."""

    active: Annotated[Any, AfterValidator(_number_or_fraction)] = 1.0
    window: Positive | None = None

    def build(self) -> Participation:
        """The participation this section describes."""
        return Participation(self.active, self.window)


class PolicySection(Section):
    """[policy] What is averaged when. With kind "fedavg" only base_interval counts: it is the interval."""

    kind: Literal["fedlama", "fedavg"] = "fedlama"
    base_interval: Positive = 6
    increase_factor: Positive = 4
    rule: Literal["crossing", "released", "printed", "accelerate"] = "crossing"
    warmup_rounds: Annotated[int, Field(ge=0)] = 0

    def build(self) -> Policy:
        """The policy this section describes."""
        if self.kind == "fedavg":
            return FedAvg(self.base_interval)
        return FedLAMA(self.base_interval, self.increase_factor, self.rule, self.warmup_rounds)


class LocalSection(Section):
    """[local] How a client trains."""

    kind: Literal["sgd"] = "sgd"
    learning_rate: Annotated[float, Field(gt=0)] = 0.1
    batch_size: Positive = 32
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    decayed: Literal["all", "kernels"] = "all"
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    decay_steps: list[Positive] = []
    decay_factor: Annotated[float, Field(gt=0, le=1)] = 0.1

    def build(self) -> SGD:
        """The local rule this section describes."""
        values = self.model_dump(exclude={"kind"})
        return SGD(**{**values, "decay_steps": tuple(self.decay_steps)})


Probability = Annotated[float, Field(ge=0, le=1)]


class FaultsSection(Section):
    """[faults] What may happen to clients, and what the server tolerates. Without this table: nothing."""

    fail_before: Probability = 0.0
    fail_during: Probability = 0.0
    straggle: Probability = 0.0
    corrupt: Probability = 0.0
    exclude_nonfinite: bool = True
    norm_limit: Annotated[float, Field(gt=0, le=LARGEST_LIMIT)] | None = None
    min_clients: Positive = 1
    on_too_few: Literal["repeat", "stop"] = "repeat"

    def build(self) -> Faults:
        """The faults this section describes."""
        return Faults(**self.model_dump())


class TrainSection(Section):
    """[train] How long, and what is measured on the way."""

    iterations: Positive
    evaluate_every: Positive | None = None
    weights: Literal["uniform", "samples"] = "uniform"
    checkpoint_minutes: Annotated[float, Field(ge=0)] = 5.0
    device: str = "auto"
    execution: Literal["auto", "stacked", "one-by-one"] = "auto"
    precision: Literal["float32", "bfloat16"] = "float32"


class OutputSection(Section):
    """[output] What is written beside the run directory's own files."""

    tensorboard: bool = True


class Config(Section):
    """A whole run. Only data.name and train.iterations have no default."""

    seed: Annotated[int, Field(ge=0, le=2**62)] = 0
    data: DataSection
    model: ModelSection = ModelSection()
    partition: PartitionSection = PartitionSection()
    participation: ParticipationSection = ParticipationSection()
    policy: PolicySection = PolicySection()
    local: LocalSection = LocalSection()
    faults: FaultsSection | None = None
    train: TrainSection
    output: OutputSection = OutputSection()
    versions: dict[str, str] = {}  # written into a run directory's config.toml; ignored when read


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file."""
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not TOML (byte {error.start} is not UTF-8)") from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is a plain ValueError
        raise InputError(f"{path}: is not TOML ({error})") from None


def load_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """The config in a file, with `key=value` overrides applied."""
    return parse_config(apply_overrides(read_toml(path), overrides), str(path))


def parse_config(tables: Mapping[str, Any], source: str = "config") -> Config:
    """A config from nested tables; what is wrong is said in one or two lines."""
    try:
        return Config.model_validate(dict(tables))
    except ValidationError as error:
        raise InputError(explain(error, Config, source)) from None


def apply_overrides(tables: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """`policy.base_interval=12` and the like; the value is TOML, or a string where it is no TOML."""
    result = dict(tables)
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key.strip():
            raise InputError(f"--set {override!r}: write --set key=value, such as --set policy.base_interval=12")
        _set(result, key.strip().split("."), _value(text.strip()), override)
    return result


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
            raise InputError(f"--set {override!r}: {parent} is not a table")
        tables[parent] = dict(inner)
        tables = tables[parent]
    tables[last] = value
