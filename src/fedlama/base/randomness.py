"""Every random draw is a function of (seed, purpose, where it happens): no generator is shared, none is saved."""

from __future__ import annotations

import hashlib


def random_key(seed: int, purpose: str, *where: int) -> int:
    """128 bits that depend on all arguments and on nothing else; seeds the generator of one draw.

    >>> random_key(0, "cohort", 3) == random_key(0, "cohort", 3) != random_key(0, "cohort", 4)
    True
    """
    text = "/".join((str(seed), purpose, *map(str, where)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "little")
