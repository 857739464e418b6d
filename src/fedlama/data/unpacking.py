"""How much a compressed file may unpack to before it counts as an attack on the memory."""

# No deflate stream unpacks to more bytes than this for each of its own
LARGEST_DEFLATE_RATIO = 1032
# Images have 2 to 20; labels that are all alike may have more, but those are small
LARGEST_RATIO = 100
ALWAYS_ADMITTED = 64 << 20  # bytes


def largest_unpacked(packed: int) -> int:
    """The most bytes that so many packed ones are unpacked to."""
    possible = LARGEST_DEFLATE_RATIO * packed
    plausible = max(ALWAYS_ADMITTED, LARGEST_RATIO * packed)
    return min(possible, plausible)
