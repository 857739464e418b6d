"""Who may import what, where import-linter cannot see it: parts of a package."""

import ast
from pathlib import Path

import fedlama

ROOT = Path(fedlama.__file__).parent


def importers_of(prefix: str) -> set[str]:
    found = set()
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else []
            )
            if any(name == prefix or name.startswith(f"{prefix}.") for name in names):
                found.add(path.relative_to(ROOT).as_posix())
    return found


def test_only_the_world_and_the_averager_know_torch_distributed():
    assert importers_of("torch.distributed") == {
        "processes/world.py",
        "averager/averager.py",
        "averager/ranks.py",
    }


def test_nothing_unpickles():
    assert not importers_of("pickle")
    assert all("torch.load" not in path.read_text() for path in ROOT.rglob("*.py"))
