"""Tables of a configuration file whose keys are the options of a class: written once, with the class.

`options_of(Faults)` is a table with a key for each argument of `Faults`, with its default and limits. Tables of which
one key chooses a class (`kind = "fedlama"`) are in `run/choice_sections.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
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

from fedlama.run.options import build_from, options_in

T = TypeVar("T")


class Section(BaseModel):
    """A table of the file; unknown keys and wrong types are refused."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False
    )


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
