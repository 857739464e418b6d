"""The layers of all settings side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedlama.report.numbers.comparison import ComparedSetting, RunComparison
from fedlama.report.numbers.outcomes import LayerCount

MAX_LAYERS_DRAWN = 100  # of a model with more, the largest
PLAIN_BITS = 32  # of a number that is sent as it is


@dataclass(frozen=True)
class LayerRow:
    """One layer in every setting; None where a setting's model has no such layer."""

    name: str
    size: int | None
    share: float | None  # of the model's parameters
    counts: tuple[LayerCount | None, ...]

    def value(self, setting: int, of: str) -> float | None:
        """The layer's "aggregations", "uplink_bytes" or "bits" in one setting; None where that is not known."""
        count = self.counts[setting]
        if count is None:
            return None
        return getattr(count, of)


def layer_rows(comparison: RunComparison) -> list[LayerRow]:
    """The layers in order of first appearance."""
    tables: list[dict[str, LayerCount]] = []
    for setting in comparison.settings:
        by_name = {layer.name: layer for layer in setting.layers}
        tables.append(by_name)

    rows: dict[str, LayerRow] = {}
    for table in tables:
        sizes = [layer.size or 0 for layer in table.values()]
        total = sum(sizes)
        for name in table:
            if name not in rows:
                rows[name] = _row(name, total, tables)
    return list(rows.values())


def _row(name: str, total: int, tables: Sequence[Mapping[str, LayerCount]]) -> LayerRow:
    counts = tuple(table.get(name) for table in tables)

    # Any setting that knows the size will do: it belongs to the model.
    size = None
    for count in counts:
        if count is not None and count.size:
            size = count.size
            break

    share = None
    if size and total:
        share = size / total
    return LayerRow(name, size, share, counts)


def kernel_names(comparison: RunComparison) -> list[str]:
    """The layers that may be lengthened: by default the kernels, and neither biases nor norms."""
    names: list[str] = []
    for row in layer_rows(comparison):
        known = [count for count in row.counts if count is not None]
        if any(count.adaptive for count in known):
            names.append(row.name)
    return names


def drawn_rows(
    comparison: RunComparison, *, kernels_only: bool = False
) -> list[LayerRow]:
    """The layers that are drawn: all, or the largest of a very deep model, in the model's order.

    Arguments:
        comparison: the settings.
        kernels_only: only the layers that may be lengthened, if there are any.
    """
    rows = layer_rows(comparison)
    if kernels_only:
        kernels = kernel_names(comparison)
        rows = [row for row in rows if row.name in kernels] or rows

    def descending_size(place: int) -> int:
        return -(rows[place].size or 0)

    places = range(len(rows))
    largest = sorted(places, key=descending_size)
    kept = sorted(largest[:MAX_LAYERS_DRAWN])
    return [rows[place] for place in kept]


def is_coded(setting: ComparedSetting) -> bool:
    """Whether a layer was sent with other than 32 bits for each number."""
    for layer in setting.layers:
        if layer.bits is None:
            continue
        # A quotient of bytes and numbers, and a mean over seeds: not exact to the last digit
        if round(layer.bits, 2) != PLAIN_BITS:
            return True
    return False
