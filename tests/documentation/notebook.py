"""Runs a notebook cell by cell, without Jupyter, and keeps what its cells print and show.

    python -m tests.documentation.notebook examples/tour.ipynb    # run it, and write its outputs anew

What a cell's last line gives is shown as Jupyter would show it: as HTML where it has that, a matplotlib figure as a
picture, anything else by its `repr`.
"""

from __future__ import annotations

import ast
import base64
import io
import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def run(notebook: dict[str, Any], name: str) -> list[list[dict[str, Any]]]:
    """The outputs of every code cell, run in order in one namespace."""
    import matplotlib as mpl

    mpl.use("agg")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    outputs: list[list[dict[str, Any]]] = []
    for number, cell in enumerate(code_cells(notebook), start=1):
        outputs.append(
            _run_cell(
                "".join(cell["source"]), f"{name}, cell {number}", namespace, number
            )
        )
    return outputs


def _run_cell(
    source: str, name: str, namespace: dict[str, Any], number: int
) -> list[dict[str, Any]]:
    body = ast.parse(source, name).body
    last = None
    if body and isinstance(body[-1], ast.Expr):
        last = ast.Expression(body.pop().value)
    printed = io.StringIO()
    value = None
    with redirect_stdout(printed):
        exec(compile(ast.Module(body, []), name, "exec"), namespace)
        if last is not None:
            value = eval(compile(last, name, "eval"), namespace)
    found: list[dict[str, Any]] = []
    if printed.getvalue():
        found.append(
            {
                "output_type": "stream",
                "name": "stdout",
                "text": _lines(printed.getvalue()),
            }
        )
    if value is not None:
        shown = {
            "output_type": "execute_result",
            "execution_count": number,
            "metadata": {},
            "data": _shown(value),
        }
        found.append(shown)
    return found


def _shown(value: Any) -> dict[str, Any]:
    data: dict[str, Any] = {"text/plain": _lines(repr(value))}
    html = value._repr_html_() if hasattr(value, "_repr_html_") else None
    if html:
        data["text/html"] = _lines(html)
    figure = getattr(value, "figure", value)
    if hasattr(figure, "savefig"):
        picture = io.BytesIO()
        figure.savefig(
            picture,
            format="png",
            dpi=100,
            bbox_inches="tight",
            metadata={"Software": None},
        )
        data["image/png"] = base64.b64encode(picture.getvalue()).decode()
    return data


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main(path: Path) -> None:
    notebook = read(path)
    for number, (cell, outputs) in enumerate(
        zip(code_cells(notebook), run(notebook, path.name), strict=True), start=1
    ):
        cell["outputs"] = outputs
        cell["execution_count"] = number
    path.write_text(
        json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
