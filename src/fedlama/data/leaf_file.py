"""One of LEAF's JSON files: its users, each with a list of samples and a list of labels.

What a file holds is not trusted: types, lengths and depths are checked before numpy sees a sample.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from fedlama.base import InputError, printable, read_regular, reason, shown

KEYS = ("users", "num_samples", "user_data")
SIDE = 28
LARGEST_LABEL = 1 << 31
# Bytes; preprocess.sh puts a hundred writers into a file, some hundred million bytes
MAX_LEAF_FILE = 1 << 30
MAX_DEPTH = 3  # of a sample: channels, rows, columns
NUMBERS = {int, float}
NO_NUMBERS = "each x must be a list of numbers, all of one length (texts are not read)"


@dataclass(frozen=True)
class Writer:
    """One user's samples, and the file they are from."""

    name: str
    file: Path
    x: np.ndarray
    y: np.ndarray


def read_leaf_file(file: Path) -> list[Writer]:
    """The users of one file, in its order."""
    content = _json(file)
    users, counts, user_data = _parts(file, content)

    writers: list[Writer] = []
    for user, count in zip(users, counts, strict=True):
        entry = user_data.get(user)
        writer = _writer(file, user, count, entry)
        writers.append(writer)
    return writers


def _json(file: Path) -> Any:
    try:
        content = read_regular(file, MAX_LEAF_FILE, "a LEAF file")
    except OSError as error:
        raise InputError(
            f"{printable(file)} is not JSON that can be read: {reason(error)}"
        ) from error

    try:
        return json.loads(content, parse_constant=_refuse_constant)
    except InputError as error:
        raise InputError(f"{printable(file)} {error}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise InputError(
            f"{printable(file)} is not JSON that can be read: {reason(error)}"
        ) from error


def _refuse_constant(constant: str) -> NoReturn:
    raise InputError(f"holds {constant}; samples and labels must be finite numbers")


def _parts(file: Path, content: Any) -> tuple[list[str], list[Any], dict[str, Any]]:
    where = printable(file)
    if not isinstance(content, dict) or not all(key in content for key in KEYS):
        keys = ", ".join(KEYS)
        raise InputError(f"{where} must hold an object with {keys}")

    users = content["users"]
    if not _is_list_of_names(users):
        raise InputError(f"{where}: users must be a list of one or more names")

    counts = content["num_samples"]
    if not isinstance(counts, list) or len(counts) != len(users):
        raise InputError(
            f"{where}: num_samples must be a list of {len(users)} numbers, one for each of users"
        )

    user_data = content["user_data"]
    if not isinstance(user_data, dict):
        raise InputError(
            f"{where}: user_data must be an object with an entry for each of users"
        )
    return users, counts, user_data


def _is_list_of_names(users: Any) -> bool:
    if not isinstance(users, list) or not users:
        return False
    kinds = set(map(type, users))
    return kinds == {str}


def _writer(file: Path, user: str, count: Any, entry: Any) -> Writer:
    where = f"{printable(file)}: user {shown_user(user)}"
    x = None
    y = None
    if isinstance(entry, dict):
        x = entry.get("x")
        y = entry.get("y")
    if not isinstance(x, list) or not isinstance(y, list):
        raise InputError(f"{where} must have lists x and y in user_data")

    if not y and not x:
        raise InputError(
            f"{where} has no samples; take such users out, with preprocess.sh -k 1 for example"
        )
    if not len(x) == len(y) == count:
        raise InputError(
            f"{where} has {len(x)} x and {len(y)} y, and num_samples says {shown(count, 20)}"
        )
    return Writer(
        name=user,
        file=file,
        x=_samples(where, x),
        y=_labels(where, y),
    )


def _samples(where: str, x: list[Any]) -> np.ndarray:
    # Before numpy sees them: a text among many numbers would make it store every number as so long a text.
    if not all(_holds_numbers(sample, MAX_DEPTH) for sample in x):
        raise InputError(f"{where}: {NO_NUMBERS}")
    try:
        values = np.array(x)
    except ValueError as error:
        raise InputError(f"{where} has samples of different lengths") from error
    except OverflowError as error:
        raise InputError(
            f"{where} has a number in x that is too large for float32"
        ) from error
    if values.dtype.kind not in "if":  # a whole number that is no 64-bit number
        raise InputError(f"{where}: {NO_NUMBERS}")

    # What is too large becomes infinite, and is noticed as such.
    with np.errstate(over="ignore"):
        values = values.astype(np.float32)
    if not np.isfinite(values).all():
        raise InputError(f"{where} has a number in x that is too large for float32")

    # Images as a model takes them, with a channel.
    if values.shape[1:] == (SIDE * SIDE,):
        return values.reshape(-1, 1, SIDE, SIDE)
    if values.ndim == 3:
        return values[:, None]
    return values


def _holds_numbers(sample: Any, depth: int) -> bool:
    """Whether it is a list of one or more numbers, or of such lists, up to `depth` of them inside each other."""
    if not isinstance(sample, list) or not sample:
        return False
    if not depth:
        return False

    # The types of a list's numbers are compared at once, because there are millions of them.
    kinds = set(map(type, sample))
    if kinds <= NUMBERS:
        return True
    return all(_holds_numbers(part, depth - 1) for part in sample)


def _labels(where: str, y: list[Any]) -> np.ndarray:
    for label in y:
        # A whole number may be written as a float, 4.0.
        if type(label) not in NUMBERS or label != label // 1:
            raise InputError(f"{where}: y must be a list of whole numbers")
        if not 0 <= label < LARGEST_LABEL:
            raise InputError(
                f"{where}: a label in y is below 0 or far too large; labels are counted from 0"
            )
    return np.array(y, dtype=np.int64)


def shown_user(user: str) -> str:
    """A user's name as messages print it."""
    return shown(user, 40)
