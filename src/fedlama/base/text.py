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
MAX_DEPTH = 2
MAX_BITS = 256  # of a whole number that is printed digit by digit
MAX_LINE = 4000  # characters of a message
MAX_LINES = 200  # of a message: a traceback fits
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
        value: Any object. Of a container a few entries are shown, of one deep inside it nothing, and of an object that
            is neither number, text nor container its type: printing it could take for ever.
        limit: About so many characters are shown.

    >>> shown("fedavgg"), shown(10**400), shown([1, [[[2]]]])
    ("'fedavgg'", 'a whole number of 1,329 bits', '[1, [[…]]]')
    """
    if type(value) in _BRACKETS:
        return printable(_shown_inside(value, MAX_DEPTH), limit)
    # For the quotes, and the b of bytes
    return printable(_shown_single(value, limit), limit + 3)


def message_of(lines: tuple[object, ...]) -> str:
    """What an error says, whatever was put into it: so many lines as were given, all of them print, none is endless."""
    texts = [printable(str(line), MAX_LINE) for line in lines]
    if len(texts) > MAX_LINES:
        half = MAX_LINES // 2
        texts = [*texts[:half], CUT, *texts[-half:]]
    return "\n".join(texts)


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


def _shown_inside(value: object, depth: int) -> str:
    """A value, of a container a few entries, and of a container `depth` levels further inside none."""
    if type(value) not in _BRACKETS:
        return _shown_single(value, MAX_VALUE)
    values = cast(Any, value)
    opening, closing = _BRACKETS[type(value)]
    entries: list[str] = []
    for entry in values:
        if len(entries) == MAX_ENTRIES or not depth:
            entries.append(CUT)
            break
        text = _shown_inside(entry, depth - 1)
        if isinstance(value, dict):
            text += f": {_shown_inside(values[entry], depth - 1)}"
        entries.append(text)
    return opening + ", ".join(entries) + closing
