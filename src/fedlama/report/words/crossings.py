"""What Algorithm 2 decided, in a sentence."""

from __future__ import annotations

from fedlama.report.numbers.crossings import Crossing
from fedlama.report.words.formats import percent, plural, unbroken


def crossing_sentence(crossing: Crossing) -> str:
    """What the latest decision was."""
    lengthened = sum(crossing.lengthened)
    layers = plural(len(crossing.names), "layer")
    share = unbroken(percent(crossing.lengthened_share, 1))
    return (
        f"Seed {crossing.seed}, after step {crossing.step}: {lengthened} of {layers}, {share} "
        f"of the parameters, to be averaged every {crossing.long_interval} steps, the others every "
        f"{crossing.base_interval}."
    )
