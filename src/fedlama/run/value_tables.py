"""The table that describes a value: what chooses its class, and the options of that class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any

from fedlama.base import InputError
from fedlama.run.options import (
    known_options,
    option_values,
    options_in,
    plain_fields,
)
from fedlama.run.own_code import reference_to


def table_of(
    value: Any,
    *,
    chosen_by: str,
    choices: Mapping[str, type[Any]],
    names: Mapping[str, str],
) -> dict[str, Any]:
    """The table that describes a value; one of a class of the user's own refers to it.

    Arguments:
        value: What a table chooses.
        chosen_by: The key that chooses.
        choices: The classes that a configuration has a name for.
        names: The keys of arguments that a file calls otherwise.
    """
    for name, built in choices.items():
        if type(value) is built and holds_only_options(built, names, value):
            options = option_values(built, names, value)
            return {chosen_by: name, **options}

    options = own_values(value, choices=choices, names=names)
    refuse_keys(value, options, [chosen_by])
    own = reference_to(type(value))
    return {chosen_by: own, **options}


def own_values(
    value: Any, *, choices: Mapping[str, type[Any]], names: Mapping[str, str]
) -> dict[str, Any]:
    """What a value of a class of the user's own holds for each option, by key; nothing of one that is no dataclass.

    Options of a class inside it are keys beside the others, as they are for a class that has a name. Where that would
    not give the value back, it stands there as text.

    Arguments:
        value: Of a class that no configuration has a name for.
        choices: The classes that have one.
        names: The keys of arguments of those classes that a file calls otherwise.
    """
    kind = type(value)
    own_names = names_of(kind, choices, names)
    if known_options(kind, own_names) is None:
        return plain_fields(value)
    if not holds_only_options(kind, own_names, value):
        return plain_fields(value)
    return option_values(kind, own_names, value)


def names_of(
    kind: Any, choices: Mapping[str, type[Any]], names: Mapping[str, str]
) -> Mapping[str, str]:
    """What a file calls arguments of this class otherwise: nothing, unless it is made from one that has a name.

    Arguments:
        kind: A class of the user's own.
        choices: The classes that have a name.
        names: The keys of their arguments.
    """
    if isinstance(kind, type) and issubclass(kind, tuple(choices.values())):
        return names
    return {}


def holds_only_options(built: type[Any], names: Mapping[str, str], value: Any) -> bool:
    """Whether options tell all of a value: what it is built around must not be of a class derived from the one there.

    Arguments:
        built: The class of the value.
        names: The keys of arguments that a file calls otherwise.
        value: Any of it.
    """
    for option in options_in(built, names):
        annotation: Any = option.annotation
        if not is_dataclass(annotation):
            continue
        given = getattr(value, option.argument)
        if type(given) is not annotation:
            return False
        if not holds_only_options(annotation, names, given):  # type: ignore[arg-type]
            return False
    return True


def refuse_keys(value: Any, options: Mapping[str, Any], taken: Sequence[str]) -> None:
    """Refuse a class of the user's own with an option that has the name of a key with a meaning of its own.

    Arguments:
        value: Of that class.
        options: Its options by key.
        taken: The keys that have a meaning.
    """
    for key in taken:
        if key in options:
            kind = type(value).__name__
            raise InputError(
                f"{kind} has a field {key}, and a configuration has another meaning for that key: "
                "give the field another name"
            )
