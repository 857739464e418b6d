"""Code of the user's own, named in a configuration: `name = "mymodule:build"`.

The folder of the configuration is importable, then the working directory. Nothing is imported while a file is read:
only `resolve` does that, so that a report about a run of somebody else never runs that person's code.
"""

from __future__ import annotations

import importlib
import inspect
import re
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from fedlama.base import InputError, printable, shown
from fedlama.run.importing import forget_namesake, no_such_name, not_found
from fedlama.run.own_code import hash_of

NAME = r"[^\W\d]\w*"
REFERENCE = re.compile(rf"({NAME}(?:\.{NAME})*):({NAME}(?:\.{NAME})*)")
MAX_REASON = 300  # characters of what the user's code raised


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
