"""Validation errors as a person would say them: the key, the value, what is allowed, the nearest spelling."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

SHOWN = 2


def explain(error: ValidationError, root: type[BaseModel], source: str) -> str:
    """At most two lines; a third would not be read."""
    problems = error.errors()
    lines = [f"{source}: {_sentence(problem, root)}" for problem in problems[:SHOWN]]
    if len(problems) > SHOWN:
        lines[-1] += f" (and {len(problems) - SHOWN} more)"
    return "\n".join(lines)


def _sentence(error: ErrorDetails, root: type[BaseModel]) -> str:
    *tables, key = [str(part) for part in error["loc"]]
    table, path = _table(root, tables), ".".join([*tables, key])
    if error["type"] == "extra_forbidden":
        return _unknown(tables, key, table)
    if error["type"] == "missing":
        return f"{_first_required(table, key, path)} is missing; it has no default"
    if error["type"] == "value_error" and isinstance(error["input"], dict):
        return _allowed(error, table, key)
    return f"{path} = {_shown(error['input'])}: {_allowed(error, table, key)}"


def _first_required(table: type[BaseModel], key: str, path: str) -> str:
    """A missing section is missing because of a key in it."""
    section = _table(table, [key])
    required = [name for name, field in section.model_fields.items() if field.is_required()]
    return f"{path}.{required[0]}" if section is not table and required else path


def _nearest(word: str, names: list[str]) -> list[str]:
    by_lower_case = {name.lower(): name for name in names}
    return [by_lower_case[match] for match in get_close_matches(word.lower(), by_lower_case, n=1, cutoff=0.5)]


def _unknown(tables: list[str], key: str, table: type[BaseModel]) -> str:
    names = [name for name in table.model_fields if name != "versions"]
    near = _nearest(key, names)
    hint = f"did you mean {near[0]!r}? " if near else ""
    where = f"[{'.'.join(tables)}]" if tables else "a config"
    return f"unknown key {'.'.join([*tables, key])!r}; {hint}{where} takes {', '.join(names)}"


def _allowed(error: ErrorDetails, table: type[BaseModel], key: str) -> str:
    context: dict[str, Any] = error.get("ctx") or {}
    limits = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    said = [f"{word} {context[name]:g}" for name, word in limits.items() if name in context]
    if error["type"] == "literal_error":
        return _choices(error, table, key)
    if error["type"] == "value_error":
        return str(context["error"])
    return f"must be {' and '.join(said)}" if said else _wanted_type(error)


def _wanted_type(error: ErrorDetails) -> str:
    kinds = {
        "int": "a whole number",
        "float": "a number",
        "string": "a string in quotes",
        "bool": "true or false",
        "list": "a list",
        "model": "a table",
        "dict": "a table",
        "finite": "a finite number",
    }
    for start, words in kinds.items():
        if error["type"].startswith(start):
            return f"must be {words}"
    return error["msg"]


def _choices(error: ErrorDetails, table: type[BaseModel], key: str) -> str:
    choices = _literals(table.model_fields[key].annotation)
    near = _nearest(str(error["input"]), choices)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"must be one of {', '.join(choices)}{hint}"


def _literals(annotation: Any) -> list[str]:
    found: list[str] = []
    for part in get_args(annotation):
        found += [part] if isinstance(part, str) else _literals(part)
    return found


def _table(root: type[BaseModel], path: list[str]) -> type[BaseModel]:
    """The section at `path`, or the innermost one on the way to it (a list's entry belongs to its section)."""
    table = root
    for name in path:
        field = table.model_fields.get(name)
        kinds = (field.annotation, *get_args(field.annotation)) if field else ()  # a table that may be left out, too
        inner = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
        if not inner:
            break
        table = inner[0]
    return table


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
