"""The options of a class as keys of a table, from its annotations: written once, with the class."""

from __future__ import annotations

import numbers
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from inspect import Parameter, signature
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, Field

from fedlama.base import annotated_fields, shown

T = TypeVar("T")


@dataclass(frozen=True)
class _Option:
    """An argument of a class, as a key of a section."""

    argument: str
    key: str
    annotation: Any
    default: Any  # ... if it has none


def _options(built: type[Any], names: Mapping[str, str]) -> Iterator[_Option]:
    """The arguments of a dataclass; `names` has the keys of those that a file calls otherwise."""
    annotations = annotated_fields(built)
    for parameter in signature(built).parameters.values():
        name = parameter.name
        key = names.get(name, name)
        annotation = annotations.get(name)
        if annotation is None:
            # An argument that sets the field of another name
            annotation = annotations[key]

        default = parameter.default
        if default is Parameter.empty:
            default = ...
        yield _Option(name, key, annotation, default)


def option_keys(
    built: type[Any], names: Mapping[str, str], defaults: Mapping[str, Any]
) -> dict[str, Any]:
    """A key for each option of a class: (annotation, default). Options of a class inside it are keys of their own."""
    keys: dict[str, Any] = {}
    for option in _options(built, names):
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


def option_values(
    built: type[Any], names: Mapping[str, str], value: Any
) -> dict[str, Any]:
    """What a value holds for each option of its class, by key: what `_build` is undone by."""
    found: dict[str, Any] = {}
    for option in _options(built, names):
        # The field may have the name of the argument or that of the key.
        name = option.key
        if hasattr(value, option.argument):
            name = option.argument
        given = getattr(value, name)

        annotation = option.annotation
        if is_dataclass(annotation):
            found |= option_values(annotation, names, given)  # type: ignore[arg-type]
        elif given is not None:
            found[option.key] = _plain(given)
    return found


def plain_fields(value: Any) -> dict[str, Any]:
    """The fields of a dataclass of the user's own, as a table can hold them; nothing of any other value."""
    if not is_dataclass(value):
        return {}
    found: dict[str, Any] = {}
    for field in fields(value):
        given = getattr(value, field.name)
        if given is not None:
            found[field.name] = _plain(given)
    return found


def _plain(value: Any) -> Any:
    """As TOML can hold it; what it cannot hold, as text."""
    if isinstance(value, bool | str):
        return value
    # numpy's numbers, too: TOML knows only Python's.
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)

    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}

    if not is_dataclass(value):
        return shown(value)
    return str(value)


def build_from(built: type[T], names: Mapping[str, str], section: BaseModel) -> T:
    """Call the class with what the section holds for each of its options."""
    arguments: dict[str, Any] = {}
    for option in _options(built, names):
        annotation = option.annotation
        if is_dataclass(annotation):
            inner = build_from(annotation, names, section)  # type: ignore[arg-type]
            arguments[option.argument] = inner
            continue

        value = getattr(section, option.key)
        # TOML has lists and no tuples.
        if isinstance(value, list):
            value = tuple(value)
        arguments[option.argument] = value
    return built(**arguments)
