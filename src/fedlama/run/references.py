"""Code of the user's own, named in a configuration: `name = "mymodule:build"`.

The folder of the configuration is importable, then the working directory. Nothing is imported while a file is read:
only `resolve` does that, so that a report about a run of somebody else never runs that person's code.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from fedlama.base import InputError, printable, shown
from fedlama.data.fingerprint import file_hash

NAME = r"[^\W\d]\w*"
REFERENCE = re.compile(rf"({NAME}(?:\.{NAME})*):({NAME}(?:\.{NAME})*)")
VERSIONED = ("fedlama", "torch", "builtins")
MAX_LISTED = 8  # names of a module in a sentence
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
                raise self.wrong(_missing(found, part)) from None
            except Exception as error:  # a module may compute its attributes
                raise self.wrong(f"looking up {part} {_raised(error)}") from None
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
        taken = arguments[: _positions(function, options or {})]
        try:
            return function(*taken, **(options or {}))
        except InputError as error:
            raise self.wrong(str(error)) from None
        except (Exception, SystemExit) as error:
            raise self.wrong(_raised(error)) from error

    def file_hash(self) -> str | None:
        """The SHA-256 of the user's code that this names; None for what comes with fedlama or torch."""
        return hash_of(self.load())

    def _imported(self) -> ModuleType:
        name = self.module
        _forget_namesake(self, name)
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise self.wrong(f"importing {name} {_raised(error)}") from None
            raise self.wrong(_not_found(name)) from None
        except (Exception, SystemExit) as error:
            raise self.wrong(f"importing {name} {_raised(error)}") from error


def is_reference(text: str) -> bool:
    """Whether a text names something in a module; one with a colon that is the path of a file does not."""
    return REFERENCE.fullmatch(text) is not None and not Path(text).exists()


def reference_to(thing: Any) -> str:
    """`module:name` of a function, a class or a value of a class, as well as it can be told."""
    if not hasattr(thing, "__qualname__"):
        thing = getattr(thing, "func", thing)  # functools.partial
    if not hasattr(thing, "__qualname__"):
        thing = type(thing)
    module = getattr(thing, "__module__", None) or "unknown"
    if module == "__main__":
        source = _source(sys.modules.get("__main__"))
        if source is not None:
            module = source.stem
    name = thing.__qualname__.replace("<locals>.", "").replace("<lambda>", "lambda")
    # Whatever a module is called, this is a name that a configuration may hold.
    return f"{_as_name(module)}:{_as_name(name)}"


def _as_name(text: str) -> str:
    parts = [re.sub(r"\W", "_", part) for part in text.split(".")]
    return ".".join(
        part if part and not part[0].isdigit() else f"_{part}" for part in parts
    )


def hash_of(thing: Any) -> str | None:
    """The SHA-256 of the user's file that a function or a class is written in, or of its own code without a file.

    What a notebook or `python -` defines is in no file. What comes with fedlama or torch is told by their versions:
    None, unless arguments of the user's are bound to it.
    """
    if isinstance(thing, partial):
        function: Any = thing.func
        bound = [hash_of(function) or reference_to(function)]
        bound += [_stable(value) for value in thing.args]
        bound += [f"{name}={_stable(value)}" for name, value in thing.keywords.items()]
        return _text_hash("\n".join(bound))
    if not hasattr(thing, "__qualname__"):
        thing = type(thing)
    module = getattr(thing, "__module__", None) or ""
    if module.partition(".")[0] in VERSIONED:
        return None
    source = _source(sys.modules.get(module))
    if source is not None:
        return file_hash(source)
    return _text_hash(_code_text(thing))


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
                parts.append(f"{name}: {_code_text(value)}")
        return "\n".join(parts)
    code = getattr(thing, "__code__", None)
    if code is None:
        return _stable(thing)
    defaults = [_stable(value) for value in getattr(thing, "__defaults__", None) or ()]
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
    # a constant such as {1, 2}, in an order of the process's own
    if isinstance(value, frozenset):
        return f"frozenset({sorted(map(_stable, value))})"
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{reference_to(value)} {hash_of(value)}"
    return ADDRESS.sub("", repr(value))


def _text_hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()


def make_importable(folder: Path) -> None:
    """Let modules in this folder, and after it in the working directory, be imported before all others."""
    for path in (Path.cwd(), folder.resolve()):
        text = str(path)
        if text in sys.path:
            sys.path.remove(text)
        sys.path.insert(0, text)


def _forget_namesake(reference: Reference, name: str) -> None:
    """A module of that name which was imported from elsewhere is not the one beside the configuration."""
    top = name.partition(".")[0]
    loaded = sys.modules.get(top)
    if loaded is None or not sys.path:
        return
    own = _module_file(top)
    if own is None:
        return
    source = _source(loaded)
    if source is not None and source.samefile(own):
        return

    is_replaceable = source is not None and "site-packages" not in source.parts
    if not is_replaceable or top in sys.stdlib_module_names:
        raise reference.wrong(
            f"{own.name} has the name of a module that is imported already: give it another"
        )
    for known in list(sys.modules):
        if known == top or known.startswith(f"{top}."):
            del sys.modules[known]


def _module_file(top: str) -> Path | None:
    """The file of a module or a package beside the configuration, which is first where Python looks."""
    folder = Path(sys.path[0] or os.curdir)
    for path in (folder / f"{top}.py", folder / top / "__init__.py"):
        if path.is_file():
            return path
    return None


def _source(module: ModuleType | None) -> Path | None:
    file = getattr(module, "__file__", None)
    if file is None or not Path(file).is_file():
        return None
    return Path(file).resolve()


def _not_found(name: str) -> str:
    folder = Path(sys.path[0] or os.curdir)
    top = name.partition(".")[0]
    sentence = f"there is no module {name}: looked for {top}.py in {printable(folder)} and where Python looks"
    beside = [path.stem for path in folder.glob("*.py")]
    similar = get_close_matches(top, beside, n=1)
    if similar:
        sentence += f"; did you mean {printable(similar[0])!r}?"
    return sentence


def _missing(owner: Any, name: str) -> str:
    whose = getattr(owner, "__name__", type(owner).__name__)
    sentence = f"{whose} has no {name}"
    names: list[str] = []
    for known in dir(owner):
        # A module that was imported under a name near this one is not what anybody means.
        if not known.startswith("_") and callable(getattr(owner, known, None)):
            names.append(known)
    for near in get_close_matches(name, names, n=1):
        return f"{sentence}; did you mean {near!r}?"

    # What was imported into a module is not what anybody looks for in it.
    own: list[str] = []
    for known in names:
        home = getattr(getattr(owner, known, None), "__module__", None)
        if home == whose:
            own.append(known)
    if not own:
        return f"{sentence}, nor any function"
    listed = ", ".join(own[:MAX_LISTED])
    return f"{sentence}; it has {printable(listed)}"


def _raised(error: BaseException) -> str:
    """What the user's code raised, and in which line."""
    said = type(error).__name__
    reason_given = " ".join(str(error).split())
    if reason_given:
        said += f": {printable(reason_given, MAX_REASON)}"
    if isinstance(error, SyntaxError) and error.filename:
        return f"raised {said}"  # which names the file and the line

    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not _is_ours(frame.filename)]
    if not own:
        return f"raised {said}"
    last = own[-1]
    file = Path(last.filename).name
    return f"raised {said} ({printable(file)}, line {last.lineno})"


def _is_ours(filename: str) -> bool:
    return filename == __file__ or filename.startswith("<frozen")


def _positions(function: Callable[..., Any], options: Mapping[str, Any]) -> int:
    """How many arguments a function must be given by position."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # written in C
        return 0
    needed = 0
    for parameter in parameters:
        by_position = parameter.kind in (
            parameter.POSITIONAL_ONLY,
            parameter.POSITIONAL_OR_KEYWORD,
        )
        if (
            by_position
            and parameter.default is parameter.empty
            and parameter.name not in options
        ):
            needed += 1
    return needed
