"""What the keys of a configuration may hold, beyond the types of TOML."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator

from fedlama.base import InputError
from fedlama.run.references import is_reference
from fedlama.training import Participation

OwnOptions = dict[str, Any]  # handed to code of the user's own by name


def _hash(value: str) -> str:
    if not re.fullmatch("[0-9a-f]{64}", value):
        raise ValueError(
            "must be 64 hexadecimal digits in lower case, as sha256sum prints them"
        )
    return value


def _own_code(value: str) -> str:
    if not is_reference(value):
        raise ValueError("must be module:name, a function in a module of your own")
    return value


def _number_or_fraction(value: Any) -> Any:
    try:
        Participation.from_active(value)
    except InputError:
        raise ValueError(
            "must be a fraction above 0.0 and at most 1.0, or a whole number of clients"
        ) from None
    return value


Hash = Annotated[str, AfterValidator(_hash)]
OwnCode = Annotated[str, AfterValidator(_own_code)]
Active = Annotated[Any, AfterValidator(_number_or_fraction)]


def check_options_are_used(
    key: str, value: str | None, options: OwnOptions | None
) -> None:
    """Refuse options where no code of the user's own, named by this key, takes them."""
    if options and (value is None or ":" not in value):
        table, _, _ = key.partition(".")
        raise ValueError(
            f"{table}.options means nothing unless {key} is module:name, a function of your own"
        )


def active_of(key: str, value: Any) -> float | int:
    """Who trains at a time, as `participation.active` has it.

    Arguments:
        key: `clients` or `fraction`, whichever the file has in its place.
        value: What the file has there.
    """
    try:
        if key == "clients":
            made = Participation(clients=value)
        else:
            made = Participation(fraction=value)
    except InputError as error:
        raise ValueError(str(error)) from None

    # Python's class takes it for an argument that was not given.
    if value is None:
        raise ValueError(f"participation.{key} must be a number")
    return made.active
