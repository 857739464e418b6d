"""docs/theory.md: its Python runs, and its pictures are those that `python -m tests.theory` draws."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "theory.md"
SNIPPETS = re.findall(
    r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL
)


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_the_snippets_run(number, capsys):
    exec(compile(SNIPPETS[number], str(PAGE), "exec"), {})


def test_there_are_snippets_and_pictures():
    assert len(SNIPPETS) == 2
    for name in re.findall(r"!\[[^]]*\]\((.*?)\)", PAGE.read_text(encoding="utf-8")):
        assert (PAGE.parent / name).read_bytes().startswith(b"\x89PNG")
