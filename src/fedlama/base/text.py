"""Text and values that others wrote, made fit for a message.

A file's name, a key in a file or an answer of a server can hold anything: codes that steer a terminal, line breaks that
forge a second message, megabytes, or objects that take for ever to print. Whatever was not written in this package goes
through `printable` or `shown` on its way into a sentence.
"""

from __future__ import annotations

import numbers
import os
from typing import Any, cast

MAX_TEXT = 400  # characters: a path that a person typed is shorter
MAX_VALUE = 60
MAX_ENTRIES = 6
MAX_BITS = 256  # of a whole number that is printed digit by digit
MAX_MESSAGE = 8_000  # characters: a traceback of a worker fits
CUT = "…"

_BRACKETS: dict[type, tuple[str, str]] = {
    list: ("[", "]"),
    tuple: ("(", ")"),
    set: ("{", "}"),
    frozenset: ("{", "}"),
    dict: ("{", "}"),
}


def printable(text: str | bytes | os.PathLike[str], limit: int = MAX_TEXT) -> str:
    """A name, a path or another text on one line, without control characters, and not longer than about `limit`.

    Arguments:
        text: What others wrote. Characters that do not print, surrogates of undecodable names among them, are escaped.
        limit: More characters than this are cut out of the middle: the end of a path says most.

    >>> printable("runs/\\x1b[31mred")
    'runs/\\\\x1b[31mred'
    >>> printable("0123456789", limit=4)
    '01…89'
    """
    decoded = os.fsdecode(text)
    if len(decoded) > limit:
        half = limit // 2
        decoded = decoded[:half] + CUT + decoded[-half:]
    return _escaped(decoded)


def shown(value: object, limit: int = MAX_VALUE) -> str:
    """A value that was given where another is allowed, as a message quotes it.

    Arguments:
        value: Any object. Of a container a few entries are shown, of a container inside it nothing, and of an object
            that is neither number, text nor container its type: printing it could take for ever.
        limit: About so many characters are shown.

    >>> shown("fedavgg"), shown(10**400), shown([1, [2, [3]]])
    ("'fedavgg'", 'a whole number of 1,329 bits', '[1, […]]')
    """
    kind = type(value)
    if kind in _BRACKETS:
        return printable(_shown_container(cast(Any, value)), limit)
    return printable(_shown_single(value, limit), limit + 2)  # two more for the quotes


def one_message(text: object) -> str:
    """What an error says, whatever was put into it: no character that steers a terminal, and a bounded length."""
    message = str(text)
    if len(message) > MAX_MESSAGE:
        half = MAX_MESSAGE // 2
        message = f"{message[:half]} {CUT} {message[-half:]}"
    lines = message.split("\n")
    return "\n".join(map(_escaped, lines))


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(map(_escaped_character, text))


def _escaped_character(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")


def _shown_single(value: object, limit: int) -> str:
    if isinstance(value, str):
        return _quoted(value, limit)
    if isinstance(value, bytes):
        return f"b{_quoted(value[: limit + 1].decode('latin-1'), limit)}"
    if isinstance(value, bool) or value is None:
        return repr(value)
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        return f"a whole number of {value.bit_length():,} bits"
    if isinstance(value, numbers.Number):
        return str(value)
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"a value of type {type(value).__name__}"


def _quoted(text: str, limit: int) -> str:
    if len(text) <= limit:
        return repr(text)
    return repr(text[: limit - 1] + CUT)


def _shown_container(values: Any) -> str:
    opening, closing = _BRACKETS[type(values)]
    entries: list[str] = []
    for number, entry in enumerate(values):
        if number == MAX_ENTRIES:
            entries.append(CUT)
            break
        text = _shown_inside(entry)
        if isinstance(values, dict):
            text += f": {_shown_inside(cast(Any, values)[entry])}"
        entries.append(text)
    return opening + ", ".join(entries) + closing


def _shown_inside(value: object) -> str:
    """An entry of a container; a container in a container stays closed, however deep it is."""
    if type(value) in _BRACKETS:
        opening, closing = _BRACKETS[type(value)]
        inside = CUT if value else ""
        return opening + inside + closing
    return _shown_single(value, MAX_VALUE)
