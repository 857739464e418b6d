"""The commands of Flower's that our guides tell a reader to type."""

import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="fedlama[flower] is not installed")

from flwr.supercore.object_ref import validate

import fedlama
from flower.grid import MemoryGrid

ROOT = Path(__file__).parents[2]
GUIDES = [
    "docs/flower.md",
    "examples/flower/README.md",
    "examples/flower_secagg/README.md",
]
PROGRAMS = ("flower-superlink", "flower-supernode")


def commands(guide):
    """Every command line of these programs in a block of a guide."""
    text = (ROOT / guide).read_text()
    found = []
    for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line)
            if words and words[0] in PROGRAMS:
                found.append(words)
    return found


def options_of(program):
    path = Path(sys.executable).parent / program
    printed = subprocess.run(
        [str(path), "--help"], capture_output=True, text=True, check=True
    )
    return set(re.findall(r"--[a-z-]+", printed.stdout))


@pytest.mark.parametrize("program", PROGRAMS)
def test_flower_knows_the_options_that_the_guides_name(program):
    known = options_of(program)
    named = set()
    for guide in GUIDES:
        for words in commands(guide):
            if words[0] == program:
                named |= {word for word in words if word.startswith("--")}
    assert named
    assert named <= known


@pytest.mark.parametrize("guide", GUIDES)
def test_no_superlink_fetches_what_an_app_depends_on(guide):
    """Flower does so by default, in every run, which then fails: no index has fedlama."""
    superlinks = [words for words in commands(guide) if words[0] == "flower-superlink"]
    assert superlinks
    for words in superlinks:
        assert "--disable-runtime-dependency-installation" in words


def client_apps():
    """The modules of the guide that have an app for clients."""
    text = (ROOT / "docs" / "flower.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    return [block for block in blocks if "fedlama.flower." in block]


@pytest.mark.parametrize("number", range(2))
def test_the_client_apps_of_the_guide_are_found_by_flower_and_train(number, tmp_path):
    apps = client_apps()
    assert len(apps) == 2
    name = f"app_of_the_guide_{number}"
    path = tmp_path / f"{name}.py"
    path.write_text(apps[number])
    # What `flwr run` asks, without importing the module
    found, why = validate(f"{name}:app", project_dir=tmp_path)
    assert found, why

    module = runpy.run_path(str(path))
    plan = fedlama.flower.LayerwiseStrategy(fedlama.FedAvg(20), wait=5.0)
    plan.start(
        MemoryGrid(module["app"], range(4)),
        fedlama.flower.initial_arrays(module["build_model"]),
        iterations=60,
    )
    assert not any(record.excluded for record in plan.records)
    assert plan.records[-1].loss < plan.records[0].loss
