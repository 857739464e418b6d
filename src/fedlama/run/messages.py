"""Validation errors as a person would say them: the key, the value, what is allowed, the nearest spelling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from fedlama.base import printable, shown
from fedlama.run.choice_sections import ChoiceSection
from fedlama.run.presets import OPTIONS, PRESET

SHOWN = 2  # lines: a third would not be read
MAX_LINE = 1000  # characters
MAX_KEY = 200

LIMITS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
TYPES = {
    "int": "a whole number",
    "float": "a number",
    "string": "a string in quotes",
    "bool": "true or false",
    "list": "a list",
    "model": "a table",
    "dict": "a table",
    "finite": "a finite number",
}


def explain(
    error: ValidationError,
    root: type[BaseModel],
    tables: Mapping[str, Any],
    source: str,
    overrides: Sequence[str] = (),
) -> list[str]:
    """What is wrong, in at most two lines.

    `root` is the model that refused `tables`, and `source` names the file that they are from, but for the keys that
    `overrides` (`key=value`) set.
    """
    problems = error.errors()
    lines: list[str] = []
    for problem in problems[:SHOWN]:
        where = _set_by(problem, overrides) or source
        sentence = _sentence(problem, root, tables)
        line = printable(f"{where}: {sentence}", MAX_LINE)
        lines.append(line)

    more = len(problems) - SHOWN
    if more > 0:
        lines[-1] += f" (and {more} more)"
    return lines


def _set_by(problem: ErrorDetails, overrides: Sequence[str]) -> str | None:
    """The override that a problem is about: of the same key, of one inside it, or of the table that holds it."""
    place = [str(part) for part in problem["loc"]]
    is_missing = problem["type"] == "missing"
    # Of several overrides of one key, the last one counts.
    for override in reversed(overrides):
        name, _, _ = override.partition("=")
        key = name.strip().split(".")
        common = min(len(key), len(place))
        is_of_its_key = common > 0 and key[:common] == place[:common]

        # What is missing may have been dropped by an override of any key beside it, such as one that chooses.
        is_of_its_table = is_missing and key[:1] == place[:1]
        if is_of_its_table or is_of_its_key:
            return f"--set {printable(override)}"
    return None


def _sentence(
    error: ErrorDetails, root: type[BaseModel], tables: Mapping[str, Any]
) -> str:
    # A key that is no text, such as half a surrogate pair, has no place in the tables.
    names = [str(part) for part in error["loc"]] or ["a key"]
    path = ".".join(names)
    *sections, key = names
    section = _section(root, sections, tables)

    kind = error["type"]
    value = error["input"]
    if kind == "extra_forbidden":
        return _unknown(sections, key, section)
    if kind == "missing":
        required = _first_required(section, key, path)
        return f"{required} is missing; it has no default"
    if kind == "value_error" and isinstance(value, Mapping):
        # About several keys of a table: it names them
        return _reason(error)
    allowed = _allowed(error, section, key)
    return f"{path} = {shown(value)}: {allowed}"


def _section(
    root: type[BaseModel], path: Sequence[str], tables: Any
) -> type[BaseModel]:
    """The section at `path`, or the innermost one on the way to it: an entry of a list belongs to its section."""
    section = root
    for name in path:
        inner = _section_in(section, name)
        if inner is None:
            return section
        if isinstance(tables, Mapping):
            tables = tables.get(name)
        else:
            tables = None
        section = inner
        if issubclass(inner, ChoiceSection):
            section = inner.section_for(tables)
    return section


def _section_in(section: type[BaseModel], key: str) -> type[BaseModel] | None:
    """The section that a key of another one holds; it may be one that can be left out."""
    field = section.model_fields.get(key)
    if field is None:
        return None
    alternatives = get_args(field.annotation)
    for kind in (field.annotation, *alternatives):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
    return None


def _first_required(section: type[BaseModel], key: str, path: str) -> str:
    """A section is missing because of a key in it."""
    inner = _section_in(section, key)
    if inner is None:
        return path
    for name, field in inner.model_fields.items():
        if field.is_required():
            return f"{path}.{name}"
    return path


def _unknown(sections: Sequence[str], key: str, section: type[BaseModel]) -> str:
    names = list(section.model_fields)
    # These two fedlama writes itself, into a run directory.
    for own in ("hashes", "versions"):
        if own in names:
            names.remove(own)
    if sections and _belongs_at_the_top(key, section):
        path = ".".join([*sections, key])
        return f"unknown key {shown(path, MAX_KEY)}: {key} belongs at the top of the file, before the first table"
    if not sections:
        # Taken out before the rest is read, so that no section has them
        names += [PRESET, *OPTIONS]
    return unknown_key(sections, key, names)


def _belongs_at_the_top(key: str, section: type[BaseModel]) -> bool:
    """Whether a key that a table does not have is of a preset; policies and codecs have a share of their own."""
    if key == PRESET:
        return True
    return key in OPTIONS and not issubclass(section, ChoiceSection)


def unknown_key(sections: Sequence[str], key: str, names: Sequence[str]) -> str:
    """What is said of a key that a table does not have.

    Arguments:
        sections: The names of the table, from the outermost; none for the whole file.
        key: In it.
        names: The keys that it has.
    """
    path = ".".join([*sections, key])
    where = "a config"
    if sections:
        table = ".".join(sections)
        where = f"[{table}]"
    listed = ", ".join(names)
    allowed = f"{where} takes {listed}"

    near = nearest(key, names)
    if near is None:
        return f"unknown key {shown(path, MAX_KEY)}; {allowed}"
    return f"unknown key {shown(path, MAX_KEY)}; did you mean {near!r}? {allowed}"


def _allowed(error: ErrorDetails, section: type[BaseModel], key: str) -> str:
    kind = error["type"]
    if kind == "literal_error":
        return _choices(error, section, key)
    if kind == "value_error":
        return _reason(error)

    context: dict[str, Any] = error.get("ctx") or {}
    limits: list[str] = []
    for name, words in LIMITS.items():
        if name in context:
            limit = _limit(context[name])
            limits.append(f"{words} {limit}")
    if limits:
        all_limits = " and ".join(limits)
        return f"must be {all_limits}"

    for start, words in TYPES.items():
        if kind.startswith(start):
            return f"must be {words}"
    return error["msg"]


def _reason(error: ErrorDetails) -> str:
    """What a validator of ours said."""
    context = error.get("ctx") or {}
    reason = context["error"]
    return str(reason)


def _choices(error: ErrorDetails, section: type[BaseModel], key: str) -> str:
    if issubclass(section, ChoiceSection) and key == section.former_key:
        key = section.chosen_by
    field = section.model_fields[key]
    choices = _literals(field.annotation)
    listed = ", ".join(choices)
    allowed = f"must be one of {listed}"

    given = str(error["input"])
    near = nearest(given, choices)
    if near is None:
        return allowed
    return f"{allowed}; did you mean {near!r}?"


def _literals(annotation: Any) -> list[str]:
    """The strings of a Literal, also of one that may be None."""
    found: list[str] = []
    for part in get_args(annotation):
        if isinstance(part, str):
            found.append(part)
        else:
            found += _literals(part)
    return found


def nearest(word: str, names: Sequence[str]) -> str | None:
    """The name that this may be a misspelling of, if there is one."""
    by_lower_case = {name.lower(): name for name in names}
    matches = get_close_matches(
        word.lower(),
        by_lower_case,
        n=1,
        cutoff=0.5,
    )
    if not matches:
        return None
    return by_lower_case[matches[0]]


def _limit(number: float) -> str:
    """Whole numbers digit by digit."""
    if isinstance(number, int):
        return f"{number:,}"
    return f"{number:g}"
