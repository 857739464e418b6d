"""The tables of a configuration file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field, model_validator

from fedlama.base import Positive, annotated_fields
from fedlama.core import Policy, canonical
from fedlama.local import SGD, LocalRule
from fedlama.run.choice_sections import ChoiceSection
from fedlama.run.choices import (
    DEFAULT_BASE_INTERVAL,
    LOCAL_RULES,
    POLICIES,
    SERVER_RULES,
)
from fedlama.run.keys import (
    Active,
    Hash,
    OwnCode,
    OwnOptions,
    active_of,
    check_options_are_used,
)
from fedlama.run.options import known_options
from fedlama.run.own_values import takes_by_name
from fedlama.run.partitions import PartitionSection
from fedlama.run.references import Reference
from fedlama.run.sections import (
    DerivedSection,
    Section,
    options_of,
    some_options_of,
)
from fedlama.run.value_tables import names_of
from fedlama.server import ServerRule
from fedlama.training import Faults, Participation
from fedlama.training.options import RunOptions


class DataSection(Section):
    """[data] What is learnt from; with `validation`, a share of the training samples takes the test samples' place.

    The hash of its files insists on them. `name` may refer to a function of the user's own that loads the data, and
    `transform` and `augment` to functions of a batch of inputs.
    """

    name: str
    options: OwnOptions | None = None
    sha256: Hash | None = None
    validation: Annotated[float, Field(ge=0, lt=1)] = 0.0
    transform: OwnCode | None = None
    augment: OwnCode | None = None

    @model_validator(mode="after")
    def _options_for_own_code(self) -> DataSection:
        check_options_are_used("data.name", self.name, self.options)
        return self


class NamedModelSection(DerivedSection):
    """[model] without what counts as a layer."""

    name: str | None = None
    options: OwnOptions | None = None


class ModelSection(
    some_options_of(RunOptions, "layers", "adaptive", after=NamedModelSection)
):
    """[model] What is trained: a name (default: what suits the data), and what counts as a layer of it.

    `name` may refer to a function of the user's own that builds the module.
    """

    @model_validator(mode="after")
    def _options_for_own_code(self) -> ModelSection:
        check_options_are_used("model.name", self.name, self.options)
        return self


class ParticipationSection(Section):
    """[participation] Who trains at a time, and for how many steps a cohort stays.

    `active` is a number of clients or a fraction of them. A file may write `clients` or `fraction` in its place.
    """

    active: Active = Participation().active
    window: Positive | None = Participation.window

    @model_validator(mode="before")
    @classmethod
    def _one_key(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value

        table = dict(value)
        given = [key for key in ("active", "clients", "fraction") if key in table]
        if len(given) > 1:
            first, second, *_ = given
            raise ValueError(
                f"participation.{first} and participation.{second} say the same: write one of them"
            )

        # From here on there is one key for all three.
        for key in ("clients", "fraction"):
            if key in table:
                table["active"] = active_of(key, table[key])
                del table[key]
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
    defaults: ClassVar = {
        "base_interval": DEFAULT_BASE_INTERVAL,
        "increase_factor": 4,
    }
    names: ClassVar = {"interval": "base_interval"}  # of FedAvg
    # FedAvg is FedLAMA with factor 1: --set policy.kind=fedavg is enough
    lenient: ClassVar = {"fedavg": "fedlama"}

    def _own_options(self, reference: Reference) -> dict[str, Any]:
        """A run directory has τ' of every policy, also of a class that works it out itself."""
        options = super()._own_options(reference)
        own = reference.load()
        is_worked_out = isinstance(own, type) and hasattr(own, "base_interval")
        names = names_of(own, self.choices, self.names)
        inside = known_options(own, names) or []
        is_field = "base_interval" in inside
        is_argument = takes_by_name(own, "base_interval", any_name=True)
        is_option = is_field or is_argument
        if is_worked_out and not is_option:
            options.pop("base_interval", None)
        return options

    @property
    def steps_between_averages(self) -> int:
        """τ', without running code of the user's own: where that does not tell it, 1."""
        interval = getattr(self, "base_interval", 1)
        if not isinstance(interval, int) or interval < 1:
            return 1
        return interval

    @property
    def fedavg_interval(self) -> int | None:
        """The interval of FedAvg, under whatever name; None if it is another policy, or code of the user's own."""
        section = self.canonical
        if section.chosen == "fedavg":
            return section.steps_between_averages
        return None

    @property
    def canonical(self) -> PolicySection:
        """The table by which it is compared with others: of equal policies the same one."""
        if self.chosen not in self.choices:
            return self
        policy = self.build()
        same = canonical(policy)
        if type(same) is type(policy):
            return self
        table = self.table_of(same)
        return PolicySection.model_validate(table)


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
    # As of FedProx and the like: how the SGD inside takes its steps
    in_no_label = tuple(annotated_fields(SGD))

    @property
    def rate_if_known(self) -> float | None:
        """The learning rate, where the rule has one under that name; one of the user's own need not."""
        rate = getattr(self, "learning_rate", None)
        if isinstance(rate, bool) or not isinstance(rate, int | float):
            return None
        return float(rate)


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


class MeasuredSection(
    some_options_of(
        RunOptions, "iterations", "evaluate_every", "evaluate", "average_steps"
    )
):
    """[train] without how it is computed."""

    loss: OwnCode | None = None
    metric: OwnCode | None = None
    metric_name: Annotated[str, Field(min_length=1, max_length=60)] | None = None
    higher_is_better: bool | None = None


class TrainSection(
    some_options_of(
        RunOptions,
        "weights",
        "checkpoint_minutes",
        "device",
        "execution",
        "precision",
        after=MeasuredSection,
    )
):
    """[train] How long, and what is measured on the way."""


class EvaluateSection(
    some_options_of(
        RunOptions,
        "evaluate_clients",
        "evaluate_average",
        names={"evaluate_clients": "clients", "evaluate_average": "average"},
    )
):
    """[evaluate] What else is evaluated: the global model on each client's samples, and a moving average of it."""


class OutputSection(Section):
    """[output] What is written beside the run directory's own files."""

    tensorboard: bool = True


CHOOSING: Mapping[str, type[ChoiceSection[Any]]] = {
    "partition": PartitionSection,
    "policy": PolicySection,
    "local": LocalSection,
    "server": ServerSection,
}
