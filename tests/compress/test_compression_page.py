"""docs/compression.md: its Python runs, and its table is what the package computes."""

import re
from pathlib import Path

import pytest

from fedlama.compress.normal import distortion

PAGE = (Path(__file__).parents[2] / "docs" / "compression.md").read_text()
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
ROWS = re.findall(
    r"^\| ([\d.]+) \| [\d.]+ % \| ([\d.]+) \| ([\d.]+) \|$", PAGE, re.MULTILINE
)


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_snippets_run(snippet):
    exec(compile(snippet, "docs/compression.md", "exec"), {})


@pytest.mark.parametrize(("bits", "noise", "lost"), ROWS)
def test_the_table_of_rates(bits, noise, lost):
    exact = distortion(float(bits))
    assert float(lost) == pytest.approx(exact, rel=2e-3)
    assert float(noise) == pytest.approx(exact / (1 - exact), rel=2e-3)


def test_the_page_has_both():
    assert len(SNIPPETS) == 3
    assert len(ROWS) == 7
