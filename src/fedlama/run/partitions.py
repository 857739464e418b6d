"""[partition]: which partition, its options, and what is meant where the file leaves the kind open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import model_validator

from fedlama.data import Partition, Shards
from fedlama.data.partition import DEFAULT_CLIENTS, Clients, default_kind
from fedlama.run.choice_sections import ChoiceSection
from fedlama.run.choices import PARTITIONS
from fedlama.run.chosen_keys import LEFT_OPEN
from fedlama.run.keys import Hash, OwnOptions, check_options_are_used
from fedlama.run.own_code import reference_to
from fedlama.run.own_values import takes_by_name
from fedlama.run.references import Reference
from fedlama.run.value_tables import own_values


class PartitionSection(ChoiceSection[Partition]):
    """[partition] How samples fall on clients; default: the data's own client ids, otherwise IID.

    An option that only some kinds have, given without a kind, means a kind that has it: `alpha` means Dirichlet.
    `kind` may refer to a function of the user's own that makes a partition. The other keys are handed to it by name,
    and so is what is in `options`.
    """

    table = "partition"
    protocol = Partition
    what = "a partition, which has assign(data, seed)"
    default = LEFT_OPEN
    choices = PARTITIONS
    defaults: ClassVar = {"clients": DEFAULT_CLIENTS, "alpha": 0.5}

    of_own_code = ("options", "sha256")

    # Every kind has these keys; it may give them another default.
    kind: str | None = None
    options: OwnOptions | None = None
    clients: Clients | None = None
    # Of who has which sample, for a partition of one's own
    sha256: Hash | None = None

    @model_validator(mode="after")
    def _options_for_own_code(self) -> Self:
        check_options_are_used("partition.kind", self.kind, self.options)
        for key in self.model_extra or {}:
            if key in (self.options or {}):
                raise ValueError(
                    f"partition.{key} and partition.options.{key} say the same: write one of them"
                )
        return self

    @classmethod
    def choice_of(cls, table: Any) -> str | None:
        """What this table chooses: without a kind, the first that has all of its options."""
        if not isinstance(table, Mapping) or table.get(cls.chosen_by) is not None:
            return super().choice_of(table)

        telling: list[str] = []
        for key in table:
            homes = cls._choices_with(key)
            if homes and len(homes) < len(cls.choices):
                telling.append(key)
        if not telling:
            return LEFT_OPEN

        for name in cls.choices:
            if set(telling) <= set(cls.keys_of(name)):
                return name
        # None has them all: one of them is refused beside the first.
        return cls._choices_with(telling[0])[0]

    @classmethod
    def table_of(cls, value: Partition) -> dict[str, Any]:
        """The table that describes a partition; of a class of the user's own, with `options` in a table of their own.

        Which samples each client has is all that is known of shards.
        """
        kind = type(value)
        if kind in cls.choices.values():
            return super().table_of(value)

        reference = reference_to(kind)
        table: dict[str, Any] = {cls.chosen_by: reference}
        if isinstance(value, Shards):
            return table
        table["options"] = own_values(
            value,
            choices=cls.choices,
            names=cls.names,
        )
        return table

    def _own_options(self, reference: Reference) -> dict[str, Any]:
        """The other keys and `options`; `clients` where there is an argument of that name.

        A run directory has `clients` of every partition, also of one that takes no such number.
        """
        given = super()._own_options(reference) | (self.options or {})
        own = reference.load()
        is_asked = takes_by_name(own, "clients", any_name=False)
        if self.clients is not None and is_asked:
            given.setdefault("clients", self.clients)
        return given

    @property
    def is_own_code(self) -> bool:
        """Whether a function of the user's own makes the partition."""
        return self.chosen != LEFT_OPEN and self.chosen not in self.choices

    def decided(self, has_ids: bool) -> PartitionSection:
        """This table with a kind, where the file leaves it open.

        Arguments:
            has_ids: Whether the data knows whose its samples are.
        """
        if self.chosen != LEFT_OPEN:
            return self
        meant = default_kind(has_ids)
        table = self.model_dump(exclude_none=True)
        for name, built in self.choices.items():
            if built is meant:
                table[self.chosen_by] = name
        return PartitionSection.model_validate(table)

    def build(self, has_ids: bool) -> Partition:  # type: ignore[override]
        """The partition that this table describes.

        Arguments:
            has_ids: Whether the data knows whose its samples are.
        """
        section = self.decided(has_ids)
        return super(PartitionSection, section).build()
