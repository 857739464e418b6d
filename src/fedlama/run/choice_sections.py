"""Tables that choose a class by name: the value that each describes, and the table that describes a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, ClassVar, Generic, TypeVar

from fedlama.base import shown
from fedlama.run.chosen_keys import ChosenKeys
from fedlama.run.options import build_from, option_values, plain_fields
from fedlama.run.references import Reference, reference_to

T = TypeVar("T")

# What tables were built into, by their content: a run, its progress and its report ask for the same ones
BUILT: dict[tuple[str, str, str], Any] = {}


class ChoiceSection(ChosenKeys, Generic[T]):
    """A table of which one key chooses what is built; the options of that class are its other keys.

    A reference to code of the user's own (`kind = "mymodule:MyPolicy"`) is a choice, too: the other keys are handed to
    it by name, and what it returns must be a `protocol`, which messages call `what`.
    """

    protocol: ClassVar[type[Any]]
    what: ClassVar[str]

    @classmethod
    def table_of(cls, value: T) -> dict[str, Any]:
        """The table that describes a value; one of a class of the user's own refers to it."""
        for name, built in cls.choices.items():
            if type(value) is built:
                options = option_values(built, cls.names, value)
                return {cls.chosen_by: name, **options}

        own = reference_to(type(value))
        options = cls._own_table(value)
        return {cls.chosen_by: own, **options}

    @classmethod
    def _own_table(cls, value: T) -> dict[str, Any]:
        """The keys beside the reference to the class of a value of the user's own."""
        return plain_fields(value)

    def build(self) -> T:
        """The value that this table describes; of equal tables the same one, because it never changes."""
        assert self.chosen is not None
        if self.chosen not in self.choices:
            return self._own()

        content = self.model_dump_json()
        key = (self.chosen, content, type(self).table)
        if key not in BUILT:
            built = self.choices[self.chosen]
            BUILT[key] = build_from(built, self.names, self)
        return BUILT[key]

    def _own(self) -> T:
        key = f"{self.table}.{self.chosen_by}"
        reference = Reference(key, str(self.chosen))
        made: Any = reference.call(options=self._own_options())

        # A class has all methods of a protocol, too.
        is_class = isinstance(made, type)
        if is_class or not isinstance(made, self.protocol):
            raise reference.wrong(f"must return {self.what}, not {shown(made)}")
        return made

    def _own_options(self) -> Mapping[str, Any] | None:
        """What is handed to code of the user's own by name."""
        return self.model_extra

    @property
    def label(self) -> str:
        """The value in a few words, without running code of the user's own: its name and its options."""
        if self.chosen in self.choices:
            return str(self.build())

        _, _, name = str(self.chosen).rpartition(":")
        given = self.model_extra or {}
        options: list[str] = []
        for key, value in given.items():
            options.append(f"{key}={shown(value)}")
        arguments = ", ".join(options)
        return f"{name}({arguments})"

    @property
    def short_label(self) -> str:
        """The value by its name and by what was chosen for it, such as Momentum(0.5) or Momentum(0.5, nesterov)."""
        if self.chosen not in self.choices:
            return self.label

        value = self.build()
        chosen: list[str] = []
        for field in fields(value):  # type: ignore[arg-type]
            option = getattr(value, field.name)
            if is_dataclass(option) or option == field.default:
                continue
            if field.default is MISSING:
                chosen.append(f"{option:g}")
            elif option is True:
                chosen.append(field.name)
            else:
                chosen.append(f"{field.name}={option}")
        name = type(value).__name__
        arguments = ", ".join(chosen)
        return f"{name}({arguments})"
