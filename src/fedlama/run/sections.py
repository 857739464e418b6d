"""Tables of a configuration file whose keys are the options of a class: written once, with the class.

`options_of(Faults)` is a table with a key for each argument of `Faults`, with its default and limits;
`some_options_of(RunOptions, "seed")` one with some of them, where other tables have the rest. Tables of which one key
chooses a class (`kind = "fedlama"`) are in `run/choice_sections.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

from pydantic import BaseModel, ConfigDict, Field, create_model

from fedlama.run.options import as_plain, build_from, options_in

T = TypeVar("T")
S = TypeVar("S", bound="Section")


class Section(BaseModel):
    """A table of the file; unknown keys and wrong types are refused."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False
    )
    # Of a class whose options are in several tables: the key of each that is in this one
    keys_by_option: ClassVar[Mapping[str, str]] = {}

    def values_by_option(self) -> dict[str, Any]:
        """What this table holds of such a class, by the names of its options."""
        found: dict[str, Any] = {}
        for option, key in self.keys_by_option.items():
            found[option] = getattr(self, key)
        return found

    @classmethod
    def table_of_options(cls, value: Any) -> dict[str, Any]:
        """What this table has to hold for a value of such a class."""
        table: dict[str, Any] = {}
        for option, key in cls.keys_by_option.items():
            given = getattr(value, option)
            if given is not None:
                table[key] = as_plain(given)
        return table


class DerivedSection(Section):
    """A table with keys that are taken from a class."""

    if TYPE_CHECKING:  # the keys are known only when the program runs

        def __getattr__(self, name: str) -> Any: ...


class OptionsSection(DerivedSection, Generic[T]):
    """A table whose keys are the options of the class that it builds."""

    built: ClassVar[type[Any]]  # the class

    def build(self) -> T:
        """The value that this table describes."""
        return build_from(self.built, {}, self)


def options_of(built: type[T]) -> type[OptionsSection[T]]:
    """A section with the options of a class, to inherit from: class FaultsSection(options_of(Faults))."""
    section = create_model(
        f"{built.__name__}Options",
        __base__=OptionsSection,
        **option_keys(built, {}, {}),
    )
    section.built = built
    return section


def some_options_of(
    built: type[Any],
    *options: str,
    names: Mapping[str, str] | None = None,
    after: type[S] = DerivedSection,
) -> type[S]:
    """A section with some options of a class, to inherit from: class Config(some_options_of(RunOptions, "seed")).

    Arguments:
        built: The class.
        options: Which of its options.
        names: The keys of those that a file calls otherwise.
        after: A section whose keys come before these.
    """
    names = names or {}
    every = option_keys(built, names, {})
    keys = {option: names.get(option, option) for option in options}
    section = create_model(
        f"{built.__name__}Part",
        __base__=after,
        **{key: every[key] for key in keys.values()},
    )
    section.keys_by_option = {**after.keys_by_option, **keys}
    return section


def option_keys(
    built: type[Any], names: Mapping[str, str], defaults: Mapping[str, Any]
) -> dict[str, Any]:
    """A key for each option of a class: (annotation, default). Options of a class inside it are keys of their own."""
    keys: dict[str, Any] = {}
    for option in options_in(built, names):
        annotation = option.annotation
        if is_dataclass(annotation):
            keys |= option_keys(annotation, names, defaults)  # type: ignore[arg-type]
            continue

        default = option.default
        if default is ...:
            default = defaults.get(option.key, ...)
        keys[option.key] = _as_in_toml(annotation, default)
    return keys


def _as_in_toml(annotation: Any, default: Any) -> tuple[Any, Any]:
    """TOML has lists and no tuples."""
    kind = get_origin(annotation)
    parts = get_args(annotation)
    if kind is Sequence:
        return list[parts[0]], default
    if kind in (Union, UnionType):
        alternatives: list[Any] = []
        for part in parts:
            alternative, _ = _as_in_toml(part, ...)
            alternatives.append(alternative)
        # A subscript, because the alternatives are known only here
        return Union[tuple(alternatives)], default  # noqa: UP007
    if kind is not tuple:
        return annotation, default

    # An option that is a tuple has entries of one type: tuple[int, ...]
    entry = parts[0]
    if default is ...:
        return list[entry], default
    return list[entry], Field(default=list(default))
