"""How figures look, and how they become a file or a part of a page.

In a page the colours are variables of its style sheet, so that one drawing serves light and dark.
"""

from __future__ import annotations

import io
import os
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from fedlama.report.numbers.comparison import ComparedSetting

INK = "#1c2430"
MUTED = "#667080"
GRID = "#e3e6ea"
# Okabe and Ito's colours that stand out on white and on black; colour-blind readers tell them apart.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
DASHES = ("solid", (0, (5, 1.5)), (0, (1.5, 1.2)))
FONT = "DejaVu Sans"
NAME_LENGTH = 36
LABEL_LENGTH = 80
MATPLOTLIB_SETTINGS: dict[Any, Any] = {
    "font.family": FONT,
    "font.size": 10,
    "text.color": INK,
    "text.parse_math": False,  # a "$" in a name is a dollar
    "axes.facecolor": "none",  # the page shows through
    "axes.edgecolor": MUTED,
    "axes.labelcolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.axisbelow": True,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "ytick.labelcolor": INK,
    "ytick.left": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "fedlama",  # the same numbers give the same file
}

P = ParamSpec("P")


def styled(make: Callable[P, Figure]) -> Callable[P, Figure]:
    """Make a figure under these settings, whatever the user's own matplotlibrc says."""

    @wraps(make)
    def inner(*args: P.args, **kwargs: P.kwargs) -> Figure:
        # "default" first: it undoes what the user's own file says.
        settings = ["default", MATPLOTLIB_SETTINGS]
        with style.context(settings):
            return make(*args, **kwargs)

    return inner


def colour_number(look: int) -> int:
    """Which colour of the palette a setting has: `--c0` … of the page's style sheet."""
    return look % len(PALETTE)


def dash_number(look: int) -> int:
    """Beyond the palette, lines differ in their dashes."""
    return look // len(PALETTE) % len(DASHES)


def colour(look: int) -> str:
    """The colour of a setting, the same in every picture."""
    return PALETTE[colour_number(look)]


def dashes(look: int) -> Any:
    """The dashes of a setting's line, as matplotlib takes them."""
    return DASHES[dash_number(look)]


def marker(adapts: bool) -> str:
    """A diamond for what is compared with FedAvg, a dot for FedAvg."""
    if adapts:
        return "D"
    return "o"


def legend_label(setting: ComparedSetting) -> str:
    """A setting's name in a legend."""
    label = shortened(setting.label, LABEL_LENGTH)
    if setting.finished:
        return label
    return f"{label} (unfinished)"


def shortened(name: str, length: int = NAME_LENGTH) -> str:
    """A name that leaves room for the drawing beside it: its middle is what says least."""
    if len(name) <= length:
        return name
    half = (length - 1) // 2
    return f"{name[:half]}…{name[-half:]}"


def titled(axes: Axes, title: str) -> None:
    """A title where reading starts."""
    axes.set_title(
        title,
        loc="left",
        fontsize=11,
        fontweight="bold",
        color=INK,
        pad=10,
    )


def say_nothing(axes: Axes, why: str) -> None:
    """A panel without data says so."""
    axes.text(
        0.5,
        0.5,
        why,
        transform=axes.transAxes,
        ha="center",
        color=MUTED,
    )
    axes.set(xticks=[], yticks=[], xlabel="")
    axes.spines["bottom"].set_visible(False)


def show_percentages(axes: Axes) -> None:
    """A vertical axis of shares is labelled in percent."""

    def text(share: float, _: object) -> str:
        return f"{100 * share:g} %"

    axes.yaxis.set_major_formatter(FuncFormatter(text))


def png(figure: Figure) -> bytes:
    """The figure on white, sharp enough for a slide."""
    return _saved(
        figure,
        format="png",
        dpi=150,
        facecolor="white",
        metadata={"Software": None},
    )


def svg(figure: Figure) -> str:
    """The figure as an SVG file with its own colours, on white."""
    # Without the date, the same numbers give the same file.
    nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
    content = _saved(figure, format="svg", facecolor="white", metadata=nothing)
    return content.decode()


def inline_svg(figure: Figure, name: str, description: str) -> str:
    """The figure as an element of a page, in the page's colours and font.

    Arguments:
        figure: what is drawn.
        name: keeps the ids of its parts apart from those of other figures.
        description: what a reader hears who does not see it.
    """
    figure.patch.set_alpha(0.0)
    text = svg(figure)
    # Without the declarations in front of it, which have no place in a page.
    start = text.index("<svg")
    text = text[start:]
    text = text.replace(f"'{FONT}'", "inherit")
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", text)
    for fixed, variable in colour_variables().items():
        text = text.replace(fixed, f"var({variable})")

    # The page decides how large it is.
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    return text.replace("<svg", f'<svg role="img" aria-label="{description}"', 1)


def colour_variables() -> dict[str, str]:
    """Fixed colour → the page's variable for it."""
    variables = {INK: "--ink", MUTED: "--muted", GRID: "--grid"}
    for number, fixed in enumerate(PALETTE):
        variables[fixed] = f"--c{number}"
    return variables


@contextmanager
def without_dates() -> Iterator[None]:
    """Inside, matplotlib does not look for a date in the environment: no picture has one, and it may be no number."""
    given = os.environ.pop("SOURCE_DATE_EPOCH", None)
    try:
        yield
    finally:
        if given is not None:
            os.environ["SOURCE_DATE_EPOCH"] = given


def _saved(figure: Figure, **options: Any) -> bytes:
    buffer = io.BytesIO()
    with style.context(["default", MATPLOTLIB_SETTINGS]), warnings.catch_warnings():
        # A layer may be named in a script that the font lacks; the name is also in the page's table.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        with without_dates():
            figure.savefig(buffer, **options)
    return buffer.getvalue()
