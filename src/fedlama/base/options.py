"""Options that a person sets: what each may be is written once, in the annotation of a dataclass's field.

The dataclass checks itself with `check_options`, and the section of a configuration file takes its keys, defaults and
limits from the same fields, so that a class and its section cannot disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from fedlama.base.checks import (
    MAX_SEED,
    MAX_WHOLE,
    check_choice,
    check_flag,
    check_number,
    check_whole,
)
from fedlama.base.errors import InputError
from fedlama.base.text import shown


@dataclass(frozen=True)
class Limits:
    """What a number may be, as `Annotated[float, Limits(minimum=0, below=1)]`.

    Arguments:
        minimum: The smallest number that is allowed.
        above: A limit that is itself too small.
        maximum: The largest number that is allowed. A whole number without one has that of all whole numbers.
        below: A limit that is itself too large.
    """

    minimum: float | None = None
    above: float | None = None
    maximum: float | None = None
    below: float | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> dict[str, Any]:
        """The same limits in pydantic's words: it asks this of whatever stands in an annotation."""
        schema = dict(handler(source))
        maximum = self.maximum
        if maximum is None and schema.get("type") == "int":
            maximum = MAX_WHOLE
        words = {
            "ge": self.minimum,
            "gt": self.above,
            "le": maximum,
            "lt": self.below,
        }
        for word, limit in words.items():
            if limit is not None:
                schema[word] = limit
        return schema


Seed = Annotated[int, Limits(minimum=0, maximum=MAX_SEED)]
Positive = Annotated[int, Limits(minimum=1)]


@dataclass(frozen=True)
class Checked:
    """What a function says of a value, as `Annotated[int | str, Checked(check_steps)]`: it raises InputError or not.

    The class itself calls the function; the annotation lets a configuration file refuse the same values.

    Arguments:
        check: Takes a value and raises InputError where it is not allowed.
    """

    check: Callable[[Any], object]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> dict[str, Any]:
        """The same check in pydantic's words."""

        def unchanged(value: Any) -> Any:
            self.check(value)
            return value

        # Nothing else looks at the value: pydantic's own errors would name each alternative as if it were a key.
        return {
            "type": "function-plain",
            "function": {"type": "no-info", "function": unchanged},
        }


def check_options(options: object, prefix: str = "") -> None:
    """Raise InputError unless every field of a dataclass holds what its annotation allows.

    Checked are numbers, with their `Limits`, choices (`Literal`), and whether something is so (`bool`), each of them
    alone, in a tuple, as values of a mapping or beside None; and keys of a mapping that are texts.

    Arguments:
        options: The dataclass.
        prefix: What comes before the names in messages, such as `faults.`.
    """
    annotations = annotated_fields(type(options))
    for field in fields(options):  # type: ignore[arg-type] - it is a dataclass
        name = field.name
        value = getattr(options, name)
        _check(prefix + name, value, annotations[name])


def check_option(
    kind: type, option: str, value: Any, *, name: str | None = None
) -> None:
    """Raise InputError unless a value is what one field of a dataclass allows, as `check_options` does for all.

    Arguments:
        kind: The dataclass.
        option: The field.
        value: What was given for it elsewhere.
        name: What it is called there (default: as the field).
    """
    annotation = annotated_fields(kind)[option]
    _check(name or option, value, annotation)


@cache
def annotated_fields(kind: type) -> Mapping[str, Any]:
    """The annotation of each field of a dataclass of this `kind`, `Annotated` included."""
    return get_type_hints(kind, include_extras=True)


def _check(name: str, value: Any, annotation: Any) -> None:
    limits = Limits()
    if get_origin(annotation) is Annotated:
        annotation, *details = get_args(annotation)
        for detail in details:
            if isinstance(detail, Limits):
                limits = detail
    if get_origin(annotation) in (Union, UnionType):
        _check_alternatives(name, value, get_args(annotation))
    elif get_origin(annotation) in (tuple, Mapping):
        _check_entries(name, value, annotation)
    elif get_origin(annotation) is Literal:
        check_choice(name, value, get_args(annotation))
    elif annotation is bool:
        check_flag(name, value)
    elif annotation is int:
        maximum = limits.maximum
        if maximum is None:
            maximum = MAX_WHOLE
        check_whole(name, value, minimum=limits.minimum, maximum=maximum)
    elif annotation is float:
        check_number(
            name,
            value,
            minimum=limits.minimum,
            above=limits.above,
            maximum=limits.maximum,
            below=limits.below,
        )


def _check_entries(name: str, value: Any, annotation: Any) -> None:
    """Every entry of a tuple, every value of a mapping."""
    if get_origin(annotation) is tuple:
        kind, *_ = get_args(annotation)
        for entry in value:
            _check(f"an entry of {name}", entry, kind)
    else:
        key_kind, kind = get_args(annotation)
        for key, entry in value.items():
            if key_kind is str and not isinstance(key, str):
                raise InputError(f"a key of {name} must be a text, not {shown(key)}")
            _check(f"{name} of {shown(key)}", entry, kind)


def _check_alternatives(name: str, value: Any, alternatives: tuple[Any, ...]) -> None:
    """An option that may be None; of other alternatives the class knows itself which is meant."""
    if value is None:
        return
    others = [one for one in alternatives if one is not NoneType]
    if len(others) == 1:
        (other,) = others
        _check(name, value, other)
