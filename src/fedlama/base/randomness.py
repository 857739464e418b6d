"""Every random draw is a function of (seed, purpose, where it happens): no generator is shared, none is saved."""

from __future__ import annotations

import hashlib


def random_key(seed: int, purpose: str, *where: int) -> int:
    """128 bits that depend on all arguments and on nothing else; seeds the generator of one draw.

    Arguments:
        seed: The run's.
        purpose: What is drawn, in a word or two.
        where: The place of the draw: numbers such as those of the client and the step.

    >>> random_key(0, "cohort", 3) == random_key(0, "cohort", 3) != random_key(0, "cohort", 4)
    True
    """
    parts = [str(seed), purpose]
    for number in where:
        parts.append(str(number))
    # Names of purposes have no slash, so different places are different texts.
    text = "/".join(parts)
    hashed = hashlib.blake2b(text.encode(), digest_size=16)
    return int.from_bytes(hashed.digest(), "little")
