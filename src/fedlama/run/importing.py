"""Where modules of the user's own are found, beside the configuration first, and what is said where one is not."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from fedlama.base import InputError, printable

MAX_LISTED = 8  # names of a module in a sentence


def make_importable(folder: Path) -> None:
    """Let modules in this folder, and after it in the working directory, be imported before all others."""
    # The last one that is inserted is the first where Python looks.
    for path in (Path.cwd(), folder.resolve()):
        text = str(path)
        if text in sys.path:
            sys.path.remove(text)
        sys.path.insert(0, text)


def forget_namesake(name: str, wrong: Callable[[str], InputError]) -> None:
    """A module of that name which was imported from elsewhere is not the one beside the configuration.

    Arguments:
        name: Of the module that is to be imported.
        wrong: The error that says what is wrong with what refers to it.
    """
    top, _, _ = name.partition(".")
    loaded = sys.modules.get(top)
    if loaded is None or not sys.path:
        return
    own = _module_file(top)
    if own is None:
        return
    source = source_of(loaded)
    if source is not None and source.samefile(own):
        return

    # Modules that Python or other packages use must stay: without them, those would break.
    is_replaceable = source is not None and "site-packages" not in source.parts
    if not is_replaceable or top in sys.stdlib_module_names:
        raise wrong(
            f"{own.name} has the name of a module that is imported already: give it another"
        )
    for known in list(sys.modules):
        if known == top or known.startswith(f"{top}."):
            del sys.modules[known]


def _module_file(top: str) -> Path | None:
    """The file of a module or a package beside the configuration, which is first where Python looks."""
    folder = _first_folder()
    candidates = (
        folder / f"{top}.py",
        folder / top / "__init__.py",
    )
    for path in candidates:
        if path.is_file():
            return path
    return None


def _first_folder() -> Path:
    """Where Python looks first; an empty entry means the working directory."""
    return Path(sys.path[0] or os.curdir)


def source_of(module: ModuleType | None) -> Path | None:
    """The file that a module was read from; None if there is no such file, as in a notebook."""
    file = getattr(module, "__file__", None)
    if file is None:
        return None
    path = Path(file)
    if not path.is_file():
        return None
    return path.resolve()


def not_found(name: str) -> str:
    """That there is no such module, where it was looked for, and which one may have been meant."""
    folder = _first_folder()
    top, _, _ = name.partition(".")
    sentence = f"there is no module {name}: looked for {top}.py in {printable(folder)} and where Python looks"

    beside = [path.stem for path in folder.glob("*.py")]
    for near in get_close_matches(top, beside, n=1):
        sentence += f"; did you mean {printable(near)!r}?"
    return sentence


def no_such_name(owner: Any, name: str) -> str:
    """That a module or a class has no such name, and which one may have been meant."""
    whose = getattr(owner, "__name__", type(owner).__name__)
    sentence = f"{whose} has no {name}"
    names: list[str] = []
    for known in dir(owner):
        if known.startswith("_"):
            continue
        # A module that was imported under a name near this one is not what anybody means.
        if callable(getattr(owner, known, None)):
            names.append(known)
    for near in get_close_matches(name, names, n=1):
        return f"{sentence}; did you mean {near!r}?"

    # What was imported into a module is not what anybody looks for in it.
    own: list[str] = []
    for known in names:
        value = getattr(owner, known, None)
        home = getattr(value, "__module__", None)
        if home == whose:
            own.append(known)
    if not own:
        return f"{sentence}, nor any function"
    listed = ", ".join(own[:MAX_LISTED])
    return f"{sentence}; it has {printable(listed)}"
