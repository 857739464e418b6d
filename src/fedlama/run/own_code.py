"""What code of the user's own is called in a configuration, and a hash that tells whether it has changed."""

from __future__ import annotations

import hashlib
import inspect
import re
import sys
from functools import partial
from types import CodeType
from typing import Any

from fedlama.data.fingerprint import file_hash
from fedlama.run.importing import source_of

# What comes with these is known by their versions
VERSIONED = ("fedlama", "torch", "builtins")
ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # which is another in every process


def reference_to(thing: Any) -> str:
    """`module:name` of a function, a class or a value of a class, as well as it can be known."""
    if not hasattr(thing, "__qualname__"):
        # What functools.partial binds arguments to
        thing = getattr(thing, "func", thing)
    if not hasattr(thing, "__qualname__"):
        thing = type(thing)

    module = getattr(thing, "__module__", None) or "unknown"
    if module == "__main__":
        source = source_of(sys.modules.get("__main__"))
        if source is not None:
            module = source.stem

    name = thing.__qualname__.replace("<locals>.", "")
    name = name.replace("<lambda>", "lambda")
    # Whatever a module is called, this is a name that a configuration may hold.
    return f"{_as_name(module)}:{_as_name(name)}"


def _as_name(text: str) -> str:
    parts: list[str] = []
    for part in text.split("."):
        word = re.sub(r"\W", "_", part)
        # No name of Python's begins with a digit, and none is empty.
        if not word or word[0].isdigit():
            word = f"_{word}"
        parts.append(word)
    return ".".join(parts)


def hash_of(thing: Any) -> str | None:
    """The SHA-256 of the user's file that a function or a class is written in, or of its own code without a file.

    What a notebook or `python -` defines is in no file. What comes with fedlama or torch is known by their versions:
    None, unless arguments of the user's are bound to it.
    """
    if isinstance(thing, partial):
        return _text_hash(_bound_text(thing))

    if not hasattr(thing, "__qualname__"):
        thing = type(thing)
    module = getattr(thing, "__module__", None) or ""
    package, _, _ = module.partition(".")
    if package in VERSIONED:
        return None

    source = source_of(sys.modules.get(module))
    if source is not None:
        return file_hash(source)
    return _text_hash(_code_text(thing))


def _bound_text(thing: partial[Any]) -> str:
    """The function of a partial and the arguments that are bound to it, one per line."""
    function: Any = thing.func
    lines = [hash_of(function) or reference_to(function)]
    for value in thing.args:
        text = _stable(value)
        lines.append(text)
    for name, value in thing.keywords.items():
        text = _stable(value)
        lines.append(f"{name}={text}")
    return "\n".join(lines)


def _code_text(thing: Any) -> str:
    """What a function or a class without a file does: its source where Python still has it, else its compiled code."""
    try:
        return inspect.getsource(thing)
    except (OSError, TypeError):
        pass

    if isinstance(thing, type):
        parts = [thing.__qualname__]
        for name, value in sorted(vars(thing).items()):
            if hasattr(value, "__code__"):
                text = _code_text(value)
                parts.append(f"{name}: {text}")
        return "\n".join(parts)

    code = getattr(thing, "__code__", None)
    if code is None:
        return _stable(thing)
    defaults: list[str] = []
    for value in getattr(thing, "__defaults__", None) or ():
        defaults.append(_stable(value))
    return f"{_compiled(code)} {defaults}"


def _compiled(code: CodeType) -> str:
    """Instructions, constants and names; functions within are constants, whose own text has their address."""
    constants: list[str] = []
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            text = _compiled(constant)
        else:
            text = _stable(constant)
        constants.append(text)
    instructions = code.co_code.hex()
    return f"{instructions} {constants} {code.co_names}"


def _stable(value: Any) -> str:
    """A value as a text that is the same in every process."""
    if isinstance(value, frozenset):
        # A constant such as {1, 2}, whose order is the process's own
        members = sorted(map(_stable, value))
        return f"frozenset({members})"
    if callable(value) and hasattr(value, "__qualname__"):
        name = reference_to(value)
        return f"{name} {hash_of(value)}"
    text = repr(value)
    return ADDRESS.sub("", text)


def _text_hash(text: str) -> str:
    # A source may hold half a surrogate pair.
    content = text.encode("utf-8", "backslashreplace")
    return hashlib.sha256(content).hexdigest()
