"""Tables that choose a class by name: the value that each describes, and the table that describes a value."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar, Generic, TypeVar

from fedlama.base import InputError, missing_members, shown
from fedlama.run.chosen_keys import ChosenKeys
from fedlama.run.options import build_from, in_short
from fedlama.run.own_values import own_value
from fedlama.run.references import Reference
from fedlama.run.value_tables import table_of

T = TypeVar("T")

# What tables were built into, by their content: a run, its progress and its report ask for the same ones. They are a
# few numbers each, and as many as there are different tables.
BUILT: dict[tuple[str, str, str], Any] = {}


class ChoiceSection(ChosenKeys, Generic[T]):
    """A table of which one key chooses what is built; the options of that class are its other keys.

    A reference to code of the user's own (`kind = "mymodule:MyPolicy"`) is a choice, too: the other keys are handed to
    it by name, and what it returns must be a `protocol`, which messages call `what`.
    """

    protocol: ClassVar[type[Any]]
    what: ClassVar[str]
    # Options that code of the user's own may share with all others, so that they tell nothing of it
    in_no_label: ClassVar[Collection[str]] = ()

    @classmethod
    def table_of(cls, value: T) -> dict[str, Any]:
        """The table that describes a value; one of a class of the user's own refers to it."""
        return table_of(
            value,
            chosen_by=cls.chosen_by,
            choices=cls.choices,
            names=cls.names,
        )

    def build(self) -> T:
        """The value that this table describes; of equal tables the same one, because it never changes."""
        assert self.chosen is not None
        if self.chosen not in self.choices:
            return self._own()

        content = self.model_dump_json()
        key = (self.chosen, content, type(self).table)
        if key not in BUILT:
            built = self.choices[self.chosen]
            try:
                BUILT[key] = build_from(built, self.names, self)
            except InputError as error:
                raise InputError(*self._with_place(error)) from None
        return BUILT[key]

    def _with_place(self, error: InputError) -> list[str]:
        """What a class says of its options, which it knows by their names only, with the table they are from."""
        lines: list[str] = []
        for line in error.args:
            sentence = str(line)
            name, _, _ = sentence.partition(" ")
            if name in type(self).keys_of(str(self.chosen)):
                sentence = f"{self.table}.{sentence}"
            lines.append(sentence)
        return lines

    def _own(self) -> T:
        key = f"{self.table}.{self.chosen_by}"
        reference = Reference(key, str(self.chosen))
        made = own_value(
            reference,
            self._own_options(reference),
            choices=self.choices,
            names=self.names,
            defaults=self.defaults,
        )

        # A class has all methods of a protocol, too.
        is_class = isinstance(made, type)
        if is_class or not isinstance(made, self.protocol):
            lacks = missing_members(made, self.protocol)
            said = f"must return {self.what}, not {shown(made)}"
            if lacks:
                said += f", which has no {lacks}"
            raise reference.wrong(said)
        return made

    def _own_options(self, reference: Reference) -> dict[str, Any]:
        """What is handed to code of the user's own by name."""
        return dict(self.model_extra or {})

    @property
    def label(self) -> str:
        """The value in a few words, without running code of the user's own: its name and its options."""
        if self.chosen in self.choices:
            return str(self.build())
        return self._own_label(without=())

    @property
    def short_label(self) -> str:
        """The value by its name and by what was chosen for it, such as Momentum(0.5) or Momentum(0.5, nesterov)."""
        if self.chosen in self.choices:
            return in_short(self.build())
        return self._own_label(self.in_no_label)

    def _own_label(self, without: Collection[str]) -> str:
        _, _, name = str(self.chosen).rpartition(":")
        given = self.model_extra or {}
        options: list[str] = []
        for key, value in given.items():
            if key in without:
                continue
            text = shown(value)
            options.append(f"{key}={text}")
        arguments = ", ".join(options)
        return f"{name}({arguments})"
