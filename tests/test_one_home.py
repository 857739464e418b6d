"""A fact has one home: what is written here stands in one module, and others take it from there."""

import ast
import re
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


def constants() -> dict[str, dict[str, list[str]]]:
    """Name → value as written → modules, of all constants and aliases at the top of a module."""
    homes: dict[str, dict[str, list[str]]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        module = path.relative_to(PACKAGE).as_posix()
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign):
                names = [each.id for each in node.targets if isinstance(each, ast.Name)]
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names = [node.target.id]
            else:
                continue
            for name in names:
                value = ast.unparse(node.value)
                homes.setdefault(name, {}).setdefault(value, []).append(module)
    return homes


def functions() -> dict[str, list[str]]:
    """Name → modules, of all functions at the top of a module that others may use."""
    homes: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        module = path.relative_to(PACKAGE).as_posix()
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(module)
    return {name: modules for name, modules in homes.items() if len(modules) > 1}


# Two facts that have a name and a value in common, and why they are two
ALIKE_BY_CHANCE = {
    "CHUNK": "bytes read at a time: of an archive, and of a file of MNIST's format",
    "LOSS": "a key of what a Flower user's evaluate_fn returns, and what a report calls a score",
    "MAX_DIMENSIONS": "of CIFAR's arrays, and of a tensor in a checkpoint",
    "MAX_NAME": "characters of a client's name, and of a metric's",
    "MAX_NAMED": "layers or clients that a sentence names, in rooms apart",
    "MAX_REASON": "characters of a client's error, and of a reason not to resume",
    "SERVER": "where slots are in the state of an averager, and in a checkpoint of the simulator",
    "SIDE": "of FEMNIST's pictures: neither of models and data imports the other",
    "SMALL_SHARE": "of bytes, as printed; of a message, for small tensors",
    "T": "a type variable",
}


def test_no_two_constants_or_aliases_say_the_same():
    assert constants()["BYTES_PER_NUMBER"] == {"4": ["core/ledger.py"]}
    shared = {
        name: modules
        for name, values in constants().items()
        for modules in values.values()
        if len(modules) > 1 and not name.startswith("__")
    }
    assert sorted(shared) == sorted(ALIKE_BY_CHANCE)


def modules_imported() -> dict[str, set[str]]:
    """Name → modules that others import it from, of all constants."""
    found: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or node.module is None:
                continue
            module = node.module.removeprefix("fedlama.").replace(".", "/")
            for alias in node.names:
                if alias.name.isupper():
                    found.setdefault(alias.name, set()).add(f"{module}.py")
    return found


def test_a_constant_that_others_import_has_no_namesake_in_its_room():
    """Who has seen it in one module of a room need not look it up in the next."""
    imported = modules_imported()
    namesakes: dict[str, list[str]] = {}
    for name, values in constants().items():
        homes = {module for modules in values.values() for module in modules}
        shared = homes & imported.get(name, set())
        rooms = {home.partition("/")[0] for home in shared}
        alike = sorted(home for home in homes if home.partition("/")[0] in rooms)
        if len(alike) > 1 and name not in ALIKE_BY_CHANCE:
            namesakes[name] = alike
    assert namesakes == {}


# Functions of one name in several modules: a step of a room below that a room above goes through again, or another
# subject
NAMESAKES = {
    "channel_of": "of an averager's arguments; of what a Flower message says",
    "check_finite": "of a tensor to be coded; what a client reports",
    "compare": "fedlama.compare; settings side by side",
    "diagnose": "the command; what it calls",
    "fetch": "the command; what it calls",
    "frugal": "as values; as tables",
    "joined": "words; slices side by side; neighbouring slices as one",
    "kind_of": "of a pickled object; of a configuration's speed",
    "message_of": "what an error says; a message from a checkpoint; from a table of figures",
    "network_text": "of a model; of cables",
    "rate_text": "of a setting in a table; exact, for folders",
    "result_of": "of a Flower run; of workers; as users get it",
    "score": "of a layer for FedLUAR; how a chart prints one",
    "shortened": "a label; a configuration",
    "simulate": "fedlama.simulate; the loop below it",
    "squared_norm": "in slabs, as codecs add up; of a gradient",
}


def test_no_two_functions_have_the_same_name_unless_it_is_said_why():
    assert sorted(functions()) == sorted(NAMESAKES)


@pytest.mark.parametrize(
    ("name", "home"),
    [
        ("config.toml", "run/directory.py"),
        ("rounds.jsonl", "run/directory.py"),
        ("timings.jsonl", "run/directory.py"),
        ("summary.json", "run/directory.py"),
        ("partition.json", "run/partition_file.py"),
        ("study.json", "study/index.py"),
    ],
)
def test_the_name_of_a_file_stands_beside_what_writes_it(name, home):
    assert modules_with(f'"{name}"') == [home]


def test_how_a_choice_is_refused_stands_in_base():
    sentence = re.compile(r"must be one of \{.*, not ")
    found = [
        path.relative_to(PACKAGE).as_posix()
        for path in sorted(PACKAGE.rglob("*.py"))
        if sentence.search(path.read_text(encoding="utf-8"))
    ]
    # Two of them take something else as well, and say so
    assert found == ["base/checks.py", "data/dataset.py", "run/codecs.py"]
