"""What is said on top of a configuration: `--set key=value`, and tables over tables."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from fedlama.base import InputError, printable, shown
from fedlama.run.codecs import without_other_codecs
from fedlama.run.tables import CHOOSING


def apply_overrides(tables: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """`policy.base_interval=12` and the like; the value is TOML, or a string where it is no TOML."""
    result = dict(tables)
    # By table: the keys that were set so far
    own_keys: dict[str, set[str]] = {}
    for override in overrides:
        if not _is_unicode(override):
            raise InputError(
                f"--set {shown(override)}: is not UTF-8, and a configuration is"
            )
        key, equals, text = override.partition("=")
        if not equals or not key.strip():
            raise InputError(
                f"--set {shown(override)}: write --set key=value, such as --set policy.base_interval=12"
            )

        path = key.strip().split(".")
        value = _value(text.strip())
        before = result.get(path[0])
        _set(result, path, value, override)
        if len(path) > 1:
            table, inner, *_ = path
            own = own_keys.setdefault(table, set())
            result[table] = _after_choice(table, inner, result[table], before, own)
            own.add(inner)
    return result


def merged(base: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """Tables within tables: what the second says goes, key by key.

    Where it makes another choice (`policy.kind`), the options of the choice before are not taken over.
    """
    result = dict(base)
    for name, value in override.items():
        old = result.get(name)
        if not isinstance(old, Mapping) or not isinstance(value, Mapping):
            result[name] = value
            continue

        # Key by key, as if each were set by itself: one of them may choose.
        for key in value:
            with_key = {**old, key: value[key]}
            old = _after_choice(name, key, with_key, old, value.keys())
        result[name] = merged(old, value)
    return result


def _after_choice(
    name: str, key: str, table: Any, before: Any, own_keys: Collection[str]
) -> Any:
    """A section in which a key was just set: if that key chooses, the options of other choices are dropped.

    Arguments:
        name: Of the section.
        key: That was set.
        table: The section with it.
        before: The section without it.
        own_keys: The keys that are set beside it.
    """
    if not isinstance(table, Mapping):
        return table
    if not isinstance(before, Mapping):
        before = {}
    is_codec = name in ("uplink", "downlink") and key == "codec"
    if is_codec:
        return without_other_codecs(table, before.get("codec"), own_keys)

    section = CHOOSING.get(name)
    if section is None or key != section.chosen_by:
        return table
    return section.without_other_choices(table, before, own_keys)


def _is_unicode(text: str) -> bool:
    """What is not UTF-8 on the command line arrives as surrogates, which no file can hold."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _value(text: str) -> Any:
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    if len(parsed) == 1:
        return parsed["value"]
    return text


def _set(tables: dict[str, Any], path: list[str], value: Any, override: str) -> None:
    *parents, last = path
    for parent in parents:
        inner = tables.get(parent, {})
        if not isinstance(inner, dict):
            raise InputError(
                f"--set {shown(override)}: {printable(parent)} is not a table"
            )
        # A copy: the caller's tables stay as they are.
        copy = dict(inner)
        tables[parent] = copy
        tables = copy
    tables[last] = value
