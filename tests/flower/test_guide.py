"""The commands of Flower's that our guides tell a reader to type."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="fedlama[flower] is not installed")

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
