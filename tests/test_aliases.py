"""One name per thing: no type alias is called like another one, or like a class."""

import ast
from collections import Counter
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "fedlama"


def is_type_name(name: str) -> bool:
    """Whether it is written like a class: `Weighting`, and neither `WEIGHTS` nor `T`."""
    plain = name.lstrip("_")
    return plain[:1].isupper() and any(letter.islower() for letter in plain)


def aliases_in(tree: ast.Module) -> list[str]:
    """What is assigned at the top of a module to a name like that of a class."""
    found = []
    for node in tree.body:
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        for target in targets:
            if isinstance(target, ast.Name) and is_type_name(target.id):
                found.append(target.id)
    return found


def classes_in(tree: ast.Module) -> list[str]:
    return [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]


def test_no_two_aliases_have_the_same_name_nor_that_of_a_class():
    aliases: Counter[str] = Counter()
    classes: set[str] = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        aliases.update(aliases_in(tree))
        classes.update(classes_in(tree))
    assert {"Weighting", "Execution", "OnRecord"} <= set(aliases)

    assert [name for name, count in aliases.items() if count > 1] == []
    assert sorted(classes & set(aliases)) == []


def test_what_is_from_torch_has_no_namesake():
    names = {"Tensor", "Module", "Generator", "Optimizer"}
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert names.isdisjoint(classes_in(tree) + aliases_in(tree)), path
