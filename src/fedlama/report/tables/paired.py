"""The table of paired differences: what each setting sends, and what that costs in points of accuracy."""

from __future__ import annotations

from fedlama.report.numbers.comparison import RunComparison
from fedlama.report.numbers.pairs import Pair, paired
from fedlama.report.tables.grids import Grid
from fedlama.report.words.formats import UNKNOWN, share_text
from fedlama.report.words.notes import warning_fields, warnings_of


def paired_grid(comparison: RunComparison) -> Grid:
    """One row per setting, the baseline first.

    Arguments:
        comparison: the study's runs.
    """
    pairs = paired(comparison)
    baseline = pairs[0].label
    return Grid(
        headings=["setting", "uplink", "both ways", "difference in points", "seeds"],
        rows=[_cells(pair, baseline) for pair in pairs],
        notes=[
            *warnings_of(comparison),
            f"Differences are to {baseline} ({100 * pairs[0].score:.1f} %) at the same seed, with the same clients, "
            f"batches and first weights: mean ± standard error over seeds.",
            f"Bytes are shares of those of {baseline}, everything that travels counted.",
        ],
        records=[{**_record(pair), **warning_fields(comparison)} for pair in pairs],
        parts={},
    )


def points(value: float) -> str:
    """A difference of accuracies for people."""
    text = f"{abs(100 * value):.2f}"
    if value < 0 and float(text):
        return f"−{text}"
    return f"+{text}"


def _cells(pair: Pair, baseline: str) -> list[str]:
    if pair.label == baseline:
        difference = UNKNOWN
    else:
        difference = points(pair.mean)
        if pair.error is not None:
            error = 100 * pair.error
            difference += f" ± {error:.2f}"
    return [
        pair.label,
        share_text(pair.uplink_share),
        share_text(pair.total_share),
        difference,
        str(len(pair.seeds)),
    ]


def _record(pair: Pair) -> dict[str, object]:
    return {
        "setting": pair.label,
        "uplink_share": pair.uplink_share,
        "total_share": pair.total_share,
        "difference": pair.mean,
        "standard_error": pair.error,
        "seeds": " ".join(map(str, pair.seeds)),
    }
