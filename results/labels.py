"""Labels of points in a chart, each where it hides least: every label takes the best of a few places, one by one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox

# Offsets in points, and the label's side that is at the point: near places first, they are better if nothing is hidden
PLACES = (
    (8, 4, "left", "bottom"),
    (-8, 4, "right", "bottom"),
    (8, -4, "left", "top"),
    (-8, -4, "right", "top"),
    (9, 0, "left", "center"),
    (-9, 0, "right", "center"),
    (0, 10, "center", "bottom"),
    (0, -10, "center", "top"),
    (10, 14, "left", "bottom"),
    (-10, 14, "right", "bottom"),
    (10, -14, "left", "top"),
    (-10, -14, "right", "top"),
    (10, 26, "left", "bottom"),
    (-10, 26, "right", "bottom"),
    (10, -26, "left", "top"),
    (-10, -26, "right", "top"),
)
OVERLAP = 10.0  # worse than any distance
OUTSIDE = 100.0
AMBIGUOUS = 40.0  # another point is nearer
MARKER = 6.0  # half of a marker's height, in points
LINE = 2.5  # half of a line's width, with some room, in pixels
SAMPLES = 40  # of a line between two points


@dataclass(frozen=True)
class Label:
    """What is written beside a point; without a text the point is only to be left free."""

    text: str
    across: float
    up: float
    error: float | None
    style: dict[str, Any]


def place_labels(
    axes: Axes, labels: Sequence[Label], lines: Sequence[Sequence[tuple[float, float]]]
) -> None:
    """Write the labels; call it when the limits and the size of the axes are final.

    Arguments:
        axes: where the points are drawn.
        labels: in the order in which they choose a place.
        lines: the corners of every line, which labels should not cross.
    """
    canvas = FigureCanvasAgg(axes.figure)  # type: ignore[arg-type]
    canvas.draw()
    renderer = canvas.get_renderer()
    scale = axes.figure.dpi / 72  # type: ignore[union-attr]
    taken = [_box_of_point(axes, label, scale) for label in labels]
    taken += [box for line in lines for box in _boxes_of_line(axes, line)]
    frame = axes.get_window_extent(renderer)
    for label in labels:
        if not label.text:
            continue
        best: Annotation | None = None
        best_cost = float("inf")
        for number, place in enumerate(PLACES):
            text = _write(axes, label, place)
            box = text.get_window_extent(renderer)
            hidden = sum(_overlap(box, other) for other in taken)
            outside = box.width * box.height - _overlap(box, frame)
            cost = number + (OVERLAP * hidden + OUTSIDE * outside) / box.height
            if _nearest(axes, labels, box) is not label:
                cost += AMBIGUOUS
            if cost < best_cost:
                if best is not None:
                    best.remove()
                best, best_cost = text, cost
            else:
                text.remove()
        assert best is not None
        taken.append(best.get_window_extent(renderer))


def _write(
    axes: Axes, label: Label, place: tuple[float, float, str, str]
) -> Annotation:
    across, up, side, edge = place
    return axes.annotate(
        label.text,
        (label.across, label.up),
        xytext=(across, up),
        textcoords="offset points",
        ha=side,
        va=edge,
        in_layout=False,
        **label.style,
    )


def _box_of_point(axes: Axes, label: Label, scale: float) -> Bbox:
    """Marker and error bar."""
    error = label.error or 0.0
    ends = [(label.across, label.up - error), (label.across, label.up + error)]
    (x, low), (_, high) = axes.transData.transform(ends)
    half = MARKER * scale
    low = min(low, (low + high) / 2 - half)
    high = max(high, (low + high) / 2 + half)
    return Bbox([[x - half, low], [x + half, high]])


def _boxes_of_line(axes: Axes, line: Sequence[tuple[float, float]]) -> list[Bbox]:
    """Small boxes along the line."""
    boxes: list[Bbox] = []
    corners = axes.transData.transform(line) if line else []
    for (x0, y0), (x1, y1) in pairwise(corners):
        for step in range(SAMPLES):
            part = step / SAMPLES
            x = x0 + part * (x1 - x0)
            y = y0 + part * (y1 - y0)
            boxes.append(Bbox([[x - LINE, y - LINE], [x + LINE, y + LINE]]))
    return boxes


def _nearest(axes: Axes, labels: Sequence[Label], box: Bbox) -> Label:
    """Whose point is nearest to a label."""

    def distance(label: Label) -> float:
        x, y = axes.transData.transform((label.across, label.up))
        aside = max(box.x0 - x, 0.0, x - box.x1)
        above = max(box.y0 - y, 0.0, y - box.y1)
        return math.hypot(aside, above)

    return min(labels, key=distance)


def _overlap(one: Bbox, other: Bbox) -> float:
    """The area that both have."""
    both = Bbox.intersection(one, other)
    if both is None:
        return 0.0
    return both.width * both.height
