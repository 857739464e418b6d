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
    # Cut before it is escaped: megabytes are never walked through character by character.
    if len(decoded) > limit:
        half = limit // 2
        start = decoded[:half]
        end = decoded[-half:]
        decoded = start + CUT + end
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
        entries = _shown_inside(value, MAX_DEPTH)
        return printable(entries, limit)

    text = _shown_single(value, limit)
    # Three more for the quotes, and the b of bytes
    return printable(text, limit + 3)


def message_of(lines: tuple[object, ...]) -> str:
    """What an error says, whatever was put into it: so many lines as were given, all of them print, none is endless."""
    texts: list[str] = []
    for line in lines:
        text = printable(str(line), MAX_LINE)
        texts.append(text)
    if len(texts) > MAX_LINES:
        # As of a long text, the middle is left out.
        half = MAX_LINES // 2
        start = texts[:half]
        end = texts[-half:]
        texts = [*start, CUT, *end]
    return "\n".join(texts)


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    characters = map(_escaped_character, text)
    return "".join(characters)


def _escaped_character(character: str) -> str:
    if character.isprintable():
        return character
    escaped = character.encode("unicode_escape")
    return escaped.decode("ascii")


def _shown_single(value: object, limit: int) -> str:
    if isinstance(value, str):
        return _quoted(value, limit)
    if isinstance(value, bytes):
        # One more than is shown, so that it is seen to be cut
        start = value[: limit + 1]
        text = start.decode("latin-1")
        return "b" + _quoted(text, limit)
    # Before the numbers, since True is one of them
    if isinstance(value, bool) or value is None:
        return repr(value)
    if isinstance(value, int):
        # Python takes a time that grows with the square of the digits, and refuses beyond some thousand.
        bits = value.bit_length()
        if bits > MAX_BITS:
            return f"a whole number of {bits:,} bits"
    if isinstance(value, numbers.Number):
        return str(value)
    if isinstance(value, type):
        return f"the class {value.__name__}"
    kind = type(value)
    return f"a value of type {kind.__name__}"


def _quoted(text: str, limit: int) -> str:
    if len(text) <= limit:
        return repr(text)
    start = text[: limit - 1]
    return repr(start + CUT)


def _shown_inside(value: object, depth: int) -> str:
    """A value, of a container a few entries, and of a container `depth` levels further inside none."""
    # Exactly these types: what a subclass does when it is iterated over, nobody knows.
    if type(value) not in _BRACKETS:
        return _shown_single(value, MAX_VALUE)
    values = cast(Any, value)
    opening, closing = _BRACKETS[type(value)]
    entries: list[str] = []
    for entry in values:
        is_enough = len(entries) == MAX_ENTRIES or not depth
        if is_enough:
            entries.append(CUT)
            break
        text = _shown_inside(entry, depth - 1)
        if isinstance(value, dict):
            # What is iterated over are the keys.
            content = _shown_inside(values[entry], depth - 1)
            text += f": {content}"
        entries.append(text)
    inside = ", ".join(entries)
    return opening + inside + closing
