"""The random draws of a codec: functions of the key, which both ends know and nobody sends."""

from __future__ import annotations

import numpy as np

from fedlama.base import InputError, shown

KEYS = 1 << 128  # that Philox tells apart: two words of 64 bits
WORD_RANGE = 1 << 64  # what one of them counts up to


def check_key(key: int) -> None:
    """A key is a whole number that a generator can be seeded with."""
    is_whole = isinstance(key, int | np.integer) and not isinstance(key, bool)
    if not is_whole or key < 0:
        raise InputError(
            f"key must be a whole number that is not negative, not {shown(key)}"
        )


def bit_source(key: int) -> np.random.Philox:
    """The random bits of one place; Philox takes any key, and neighbouring ones are unrelated."""
    return np.random.Philox(key=int(key) % KEYS)


def rekey(source: np.random.Philox, key: int) -> None:
    """Let a source go on as `bit_source(key)` would, which is faster than making another."""
    state = source.state
    wanted = int(key) % KEYS
    high, low = divmod(wanted, WORD_RANGE)
    position = state["state"]
    position["key"][:] = (low, high)
    position["counter"][:] = 0
    # Nothing is left of what was drawn before
    state["buffer_pos"] = 4
    state["has_uint32"] = 0
    source.state = state


def generator(key: int) -> np.random.Generator:
    """The random draws of one place."""
    source = bit_source(key)
    return np.random.Generator(source)
