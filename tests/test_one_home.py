"""A fact has one home: what is written here stands in one module, and others take it from there."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "fedlama"

HOMES = {
    "so lower local.learning_rate": "base/errors.py",
    "more than 1 value per channel": "training/modules.py",
    '"failed before the cycle"': "server/exclusions.py",
    '"missed the deadline"': "server/exclusions.py",
    '"norm beyond the limit"': "server/exclusions.py",
    '"too few clients left"': "server/exclusions.py",
    " clients were left ": "server/tolerance.py",
    'Literal["repeat", "stop"]': "server/tolerance.py",
    "maximum=1e30": "server/tolerance.py",
    "TORCHELASTIC_RUN_ID": "processes/world.py",
}


def modules_with(text: str) -> list[str]:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if text in path.read_text(encoding="utf-8"):
            found.append(path.relative_to(PACKAGE).as_posix())
    return found


@pytest.mark.parametrize("text", HOMES)
def test_a_fact_has_one_home(text):
    assert modules_with(text) == [HOMES[text]]


@pytest.mark.parametrize(
    "module", ["training/memory.py", "study/side_by_side.py", "averager/messages.py"]
)
def test_how_large_a_number_is_stands_in_the_ledger(module):
    text = (PACKAGE / module).read_text(encoding="utf-8")
    assert "BYTES_PER_NUMBER" in text
    assert "FLOAT32" not in text


def test_how_a_full_disk_shows_stands_in_base():
    assert "errno.ENOSPC" not in (PACKAGE / "run/files.py").read_text(encoding="utf-8")
    assert "base/files.py" in modules_with("errno.ENOSPC")


def test_no_two_classes_have_the_same_name():
    homes: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        module = path.relative_to(PACKAGE).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(module)
    assert {"Comparison", "RunComparison"} <= set(homes)

    shared = {name: modules for name, modules in homes.items() if len(modules) > 1}
    assert shared == {}
