"""The random draws of a codec: functions of the key, which both ends know and nobody sends."""

from __future__ import annotations

import numpy as np

from fedlama.base import InputError, shown


def check_key(key: int) -> None:
    """A key is a whole number that a generator can be seeded with."""
    if not isinstance(key, int | np.integer) or isinstance(key, bool) or key < 0:
        raise InputError(
            f"key must be a whole number that is not negative, not {shown(key)}"
        )


def bit_source(key: int) -> np.random.Philox:
    """The random bits of one place; Philox takes any key, and neighbouring ones are unrelated."""
    return np.random.Philox(key=int(key) % (1 << 128))


def rekey(source: np.random.Philox, key: int) -> None:
    """Let a source go on as `bit_source(key)` would, which is faster than making another."""
    state = source.state
    wanted = int(key) % (1 << 128)
    state["state"]["key"][:] = (wanted % (1 << 64), wanted >> 64)
    state["state"]["counter"][:] = 0
    state["buffer_pos"] = 4  # nothing is left of what was drawn before
    state["has_uint32"] = 0
    source.state = state


def generator(key: int) -> np.random.Generator:
    """The random draws of one place."""
    return np.random.Generator(bit_source(key))
