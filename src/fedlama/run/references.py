"""Code of the user's own, named in a configuration: `name = "mymodule:build"`.

The folder of the configuration is importable, then the working directory. Nothing is imported while a file is read:
only `resolve` does that, so that a report about a run of somebody else never runs that person's code.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from fedlama.base import InputError, printable, shown
from fedlama.data.fingerprint import file_hash
from fedlama.run.importing import (
    forget_namesake,
    no_such_name,
    not_found,
    source_of,
)

NAME = r"[^\W\d]\w*"
REFERENCE = re.compile(rf"({NAME}(?:\.{NAME})*):({NAME}(?:\.{NAME})*)")
VERSIONED = ("fedlama", "torch", "builtins")
MAX_REASON = 300  # characters of what the user's code raised
ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # which is another in every process


@dataclass(frozen=True)
class Reference:
    """A name in a module of the user's.

    Arguments:
        key: The key of the configuration that has it, such as `model.name`: sentences begin with it.
        text: `module:name`.
    """

    key: str
    text: str

    @property
    def module(self) -> str:
        """What is imported."""
        return self.text.partition(":")[0]

    @property
    def name(self) -> str:
        """What is looked up in it; a dot leads into a class."""
        return self.text.partition(":")[2]

    def wrong(self, what: str) -> InputError:
        """An error that names the key and the reference."""
        return InputError(f"{self.key} = {shown(self.text, 200)}: {what}")

    def load(self) -> Any:
        """The object itself: the module is imported, once per process."""
        found: Any = self._imported()
        for part in self.name.split("."):
            try:
                found = getattr(found, part)
            except AttributeError:
                raise self.wrong(no_such_name(found, part)) from None
            except Exception as error:
                # A module may compute its attributes.
                said = _raised(error)
                raise self.wrong(f"looking up {part} {said}") from None

        if not callable(found):
            raise self.wrong(f"is {shown(found)}, not a function or a class")
        return found

    def call(self, *arguments: Any, options: Mapping[str, Any] | None = None) -> Any:
        """What the object gives for these arguments; whatever it raises becomes a sentence.

        Arguments:
            arguments: By position; those that it does not take are left out.
            options: By name.
        """
        function = self.load()
        by_name = options or {}
        taken = _positions(function, by_name)
        return self.guarded(function, *arguments[:taken], options=by_name)

    def guarded(
        self, function: Callable[..., Any], *arguments: Any, options: Mapping[str, Any]
    ) -> Any:
        """What a function gives that belongs to the object; whatever it raises becomes a sentence about this name.

        Arguments:
            function: The object itself, or what one of its arguments is made with.
            arguments: By position.
            options: By name.
        """
        try:
            return function(*arguments, **options)
        except InputError as error:
            raise self.wrong(str(error)) from None
        except (Exception, SystemExit) as error:
            said = _raised(error)
            raise self.wrong(said) from error

    def file_hash(self) -> str | None:
        """The SHA-256 of the user's code that this names; None for what comes with fedlama or torch."""
        return hash_of(self.load())

    def _imported(self) -> ModuleType:
        name = self.module
        forget_namesake(name, self.wrong)
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            # The module itself, or a package that it is in: any other is what the user's module imports.
            missing = error.name
            if missing is not None and f"{name}.".startswith(f"{missing}."):
                raise self.wrong(not_found(name)) from None
            said = _raised(error)
            raise self.wrong(f"importing {name} {said}") from None
        except (Exception, SystemExit) as error:
            said = _raised(error)
            raise self.wrong(f"importing {name} {said}") from error


def is_reference(text: str) -> bool:
    """Whether a text names something in a module; one with a colon that is the path of a file does not."""
    return REFERENCE.fullmatch(text) is not None and not Path(text).exists()


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


def _raised(error: BaseException) -> str:
    """What the user's code raised, and in which line."""
    said = type(error).__name__
    reason_given = " ".join(str(error).split())
    if reason_given:
        said += f": {printable(reason_given, MAX_REASON)}"
    if isinstance(error, SyntaxError) and error.filename:
        # Its text names the file and the line.
        return f"raised {said}"

    last = None
    for frame in traceback.extract_tb(error.__traceback__):
        if not _is_ours(frame.filename):
            last = frame
    if last is None:
        return f"raised {said}"
    file = Path(last.filename).name
    return f"raised {said} ({printable(file)}, line {last.lineno})"


def _is_ours(filename: str) -> bool:
    return filename == __file__ or filename.startswith("<frozen")


def _positions(function: Callable[..., Any], options: Mapping[str, Any]) -> int:
    """How many arguments a function must be given by position."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        # Not every function that is written in C tells its signature.
        return 0

    needed = 0
    for parameter in parameters:
        by_position = parameter.kind in (
            parameter.POSITIONAL_ONLY,
            parameter.POSITIONAL_OR_KEYWORD,
        )
        has_default = parameter.default is not parameter.empty
        is_given_by_name = parameter.name in options
        if by_position and not has_default and not is_given_by_name:
            needed += 1
    return needed
