"""Values that must be of a class or a protocol, refused in one sentence that says what they lack."""

from __future__ import annotations

from typing import Any, Protocol

from fedlama.base.errors import InputError
from fedlama.base.text import printable, shown


def check_made(name: str, value: object, kind: Any, example: str) -> None:
    """Raise InputError unless `value` was made with what makes such values.

    Arguments:
        name: What the value is called where it was given, for the sentence.
        value: Anything; a class has all methods of its values, and is none.
        kind: A class, or a protocol that can be checked when the program runs.
        example: What makes one, for the sentence.
    """
    if isinstance(value, kind) and not isinstance(value, type):
        return
    missing = missing_members(value, kind)
    if not missing:
        given = shown(value)
        raise InputError(f"{name} must be made with {example}, not {given}")
    own = printable(type(value).__name__)
    raise InputError(
        f"{name} must be made with {example}, or have what those have: {own} has no {missing}"
    )


def missing_members(value: object, kind: Any) -> str:
    """What a value of the user's own lacks of a protocol, as "uses and next"; empty where it was not meant to be one.

    Arguments:
        value: Anything. What has nothing of the protocol was meant to be something else, and so was a class.
        kind: A class, or a protocol.
    """
    if isinstance(value, type):
        return ""
    members = _members(kind)
    missing = [member for member in members if not hasattr(value, member)]
    if not missing or len(missing) == len(members):
        return ""
    *others, last = missing
    if not others:
        return last
    return ", ".join(others) + f" and {last}"


def _members(kind: Any) -> list[str]:
    """The names that a protocol asks for; none of a class that is no protocol."""
    classes: tuple[type, ...] = kind.__mro__
    members: dict[str, None] = {}
    for base in classes:
        is_protocol = Protocol in base.__bases__
        if not is_protocol:
            continue
        annotated: dict[str, Any] = getattr(base, "__annotations__", {})
        for name in (*annotated, *vars(base)):
            if not name.startswith("_"):
                members[name] = None
    return list(members)
