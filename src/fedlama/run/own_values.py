"""Values that code of the user's own makes of the other keys of a table."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from typing import Any, get_origin

from fedlama.run.options import Option, known_options, options_in
from fedlama.run.references import Reference
from fedlama.run.value_tables import names_of


def own_value(
    reference: Reference,
    given: Mapping[str, Any],
    *,
    choices: Mapping[str, type[Any]],
    names: Mapping[str, str],
    defaults: Mapping[str, Any],
) -> Any:
    """What a function or a class of the user's own makes of the other keys of a table.

    They are handed over by name. Where a dataclass is built around another one (`base: SGD`), the options of that one
    are keys as well.

    Arguments:
        reference: The function or the class.
        given: The other keys.
        choices: The classes that the table has a name for.
        names: The keys of their arguments that a file calls otherwise.
        defaults: Of options that those classes leave without one.
    """
    own = reference.load()
    own_names = names_of(own, choices, names)
    if known_options(own, own_names) is None:
        return reference.call(options=given)

    # What no option takes stays, and the class refuses it in its own words.
    left = dict(given)
    arguments: dict[str, Any] = {}
    for option in options_in(own, own_names):
        if option.key in left:
            arguments[option.argument] = _as_argument(option, left.pop(option.key))
        elif is_dataclass(option.annotation):
            inside = _inside(option, own_names, defaults, left)
            if inside is not None:
                built: Any = option.annotation
                arguments[option.argument] = reference.guarded(built, options=inside)
    return reference.call(options={**arguments, **left})


def takes_by_name(function: Callable[..., Any], name: str, *, any_name: bool) -> bool:
    """Whether a function or a class has an argument of this name.

    Arguments:
        function: Of the user's own.
        name: Of the argument.
        any_name: What is said of one that takes arguments of any name, and of one that does not tell.
    """
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return any_name
    if name in parameters:
        return True
    for parameter in parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            return any_name
    return False


def _inside(
    outer: Option,
    names: Mapping[str, str],
    defaults: Mapping[str, Any],
    left: dict[str, Any],
) -> dict[str, Any] | None:
    """The arguments of a class inside the user's own, taken from `left`; None where its default is meant."""
    has_default = outer.default is not ...
    given: dict[str, Any] = {}
    missing: dict[str, Any] = {}
    for option in options_in(outer.annotation, names):
        argument = option.argument
        if option.key in left:
            value = left.pop(option.key)
            given[argument] = _as_argument(option, value)
            continue
        if has_default:
            # One key alone must not reset the others
            missing[argument] = getattr(outer.default, argument)
            continue
        must_be_given = option.default is ...
        if must_be_given and option.key in defaults:
            missing[argument] = defaults[option.key]

    if has_default and not given:
        return None
    return {**missing, **given}


def _as_argument(option: Option, value: Any) -> Any:
    """TOML has lists and no tuples."""
    if get_origin(option.annotation) is tuple and isinstance(value, list):
        return tuple(value)
    return value
