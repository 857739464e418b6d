"""TOML files, read with one sentence for what is wrong, and written."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from fedlama.base import InputError, printable, read_regular, reason

MAX_FILE = 1 << 20  # bytes of a config


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file."""
    where = printable(path)
    try:
        content = read_regular(path, MAX_FILE, "a config")
    except FileNotFoundError:
        raise InputError(f"{where}: there is no such file") from None
    except OSError as error:
        raise InputError(f"{where}: cannot be read ({reason(error)})") from None
    try:
        return tomllib.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InputError(
            f"{where}: is not TOML (byte {error.start} is not UTF-8)"
        ) from None
    except (ValueError, RecursionError) as error:
        # A number of thousands of digits is a plain ValueError.
        raise InputError(f"{where}: is not TOML ({reason(error)})") from None


def to_toml(tables: Mapping[str, Any]) -> str:
    """Tables of plain values as TOML; an empty table says nothing and is left out."""
    said: dict[str, Any] = {}
    for name, value in tables.items():
        is_table = isinstance(value, Mapping)
        if is_table and not value:
            continue
        said[name] = value
    return tomli_w.dumps(said)
