"""The Python on the page about data runs, and prints what the page says."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "data.md"


def test_the_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    program = "".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL))
    exec(compile(program, str(PAGE), "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    promised = re.findall(r"print\(.*\)  # ([\[(\d].*)", program)
    assert len(promised) == 5
    assert [line for line in printed if line in promised] == promised
