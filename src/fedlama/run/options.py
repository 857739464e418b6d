"""The options of a class and what a value holds for each, from the annotations: written once, with the class."""

from __future__ import annotations

import numbers
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from inspect import Parameter, signature
from typing import Any, TypeVar

from fedlama.base import annotated_fields, shown

T = TypeVar("T")


@dataclass(frozen=True)
class Option:
    """An argument of a class, as a key of a section."""

    argument: str
    key: str
    annotation: Any
    default: Any  # ... if it has none


def options_in(built: type[Any], names: Mapping[str, str]) -> Iterator[Option]:
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
        yield Option(name, key, annotation, default)


def known_options(built: Any, names: Mapping[str, str]) -> list[str] | None:
    """The keys for the options of a class of the user's own, those of classes inside it included.

    None where annotations do not tell them, or where two have one key: of no dataclass, of one that takes any option by
    name, of one with an option that the class inside it has, too.
    """
    if not isinstance(built, type) or not is_dataclass(built):
        return None
    own_fields = [field.name for field in fields(built)]
    keys: list[str] = []
    try:
        for option in options_in(built, names):
            if option.argument not in own_fields and option.key not in own_fields:
                return None
            inner = [option.key]
            if is_dataclass(option.annotation):
                inner = known_options(option.annotation, names)
            if inner is None:
                return None
            keys += inner
    except Exception:
        # Annotations of the user's own may name anything.
        return None
    if len(set(keys)) < len(keys):
        return None
    return keys


def option_values(
    built: type[Any], names: Mapping[str, str], value: Any
) -> dict[str, Any]:
    """What a value holds for each option of its class, by key: what `build_from` is undone by."""
    found: dict[str, Any] = {}
    for option in options_in(built, names):
        # The field may have the name of the argument or that of the key.
        name = option.key
        if hasattr(value, option.argument):
            name = option.argument
        given = getattr(value, name)

        annotation = option.annotation
        if is_dataclass(annotation):
            found |= option_values(annotation, names, given)  # type: ignore[arg-type]
        elif given is not None:
            found[option.key] = as_plain(given)
    return found


def plain_fields(value: Any) -> dict[str, Any]:
    """The fields of a dataclass of the user's own, as a table can hold them; nothing of any other value."""
    if not is_dataclass(value):
        return {}
    found: dict[str, Any] = {}
    for field in fields(value):
        # What the class works out itself is no option.
        if not field.init:
            continue
        given = getattr(value, field.name)
        if given is not None:
            found[field.name] = as_plain(given)
    return found


def as_plain(value: Any) -> Any:
    """As TOML can hold it; what it cannot hold, as text."""
    if isinstance(value, bool | str):
        return value
    # numpy's numbers, too: TOML knows only Python's.
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)

    if isinstance(value, list | tuple):
        return [as_plain(one) for one in value]
    if isinstance(value, Mapping):
        return {str(key): as_plain(one) for key, one in value.items()}

    if not is_dataclass(value):
        return shown(value)
    return str(value)


def in_short(value: Any, *, leading: bool = False) -> str:
    """A value by its name and by what was chosen for it, such as Momentum(0.5) or Momentum(0.5, nesterov).

    Arguments:
        value: Of a dataclass; what it is built around is left out.
        leading: Whether its first option is named where it has its default, too.
    """
    chosen: list[str] = []
    for number, field in enumerate(fields(value)):
        option = getattr(value, field.name)
        if is_dataclass(option):
            continue
        is_leading = leading and number == 0
        if option == field.default and not is_leading:
            continue

        if field.default is MISSING:
            chosen.append(f"{option:g}")
        elif is_leading:
            chosen.append(str(option))
        elif option is True:
            chosen.append(field.name)
        else:
            chosen.append(f"{field.name}={option}")
    name = type(value).__name__
    arguments = ", ".join(chosen)
    return f"{name}({arguments})"


def build_from(built: type[T], names: Mapping[str, str], section: Any) -> T:
    """Call the class with what the section holds for each of its options."""
    arguments: dict[str, Any] = {}
    for option in options_in(built, names):
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
