"""examples/tour.ipynb runs from its first cell to its last, and shows what it showed when it was written."""

import json
import shutil
import subprocess
import sys

import pytest

from documentation.notebook import code_cells, read
from documentation.pages import ROOT

TOUR = ROOT / "examples" / "tour.ipynb"


@pytest.fixture(scope="module")
def again(tmp_path_factory):
    """The notebook, run once more."""
    copy = tmp_path_factory.mktemp("tour") / "tour.ipynb"
    shutil.copy(TOUR, copy)
    command = [sys.executable, "-m", "tests.documentation.notebook", str(copy)]
    finished = subprocess.run(
        command, capture_output=True, text=True, timeout=400, check=False, cwd=ROOT
    )
    assert finished.returncode == 0, finished.stderr
    return read(copy)


def kinds(notebook) -> list[list[list[str]]]:
    """In which forms the outputs of every code cell are."""
    return [
        [sorted(output.get("data", ["text"])) for output in cell["outputs"]]
        for cell in code_cells(notebook)
    ]


@pytest.mark.slow
def test_every_cell_runs_and_shows_what_it_did(again):
    assert kinds(again) == kinds(read(TOUR))
    # Of the data: the same on any machine
    assert again["cells"][1]["outputs"] == read(TOUR)["cells"][1]["outputs"]


def test_it_is_a_notebook_with_outputs():
    notebook = read(TOUR)
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    names = [cell["id"] for cell in notebook["cells"]]
    assert len(names) == len(set(names))
    for number, cell in enumerate(code_cells(notebook), start=1):
        assert cell["execution_count"] == number
        assert cell["outputs"]
    shown = json.dumps([cell["outputs"] for cell in code_cells(notebook)])
    assert "/tmp/" not in shown


def test_it_is_short():
    lines = [
        line
        for cell in code_cells(read(TOUR))
        for line in cell["source"]
        if line.strip()
    ]
    assert len(lines) <= 80
