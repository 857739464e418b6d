"""The audit of dependencies: without a network, the pins, the installed packages and the committed page agree."""

import tomllib

import pytest
from audit import dependencies
from audit.dependencies import ADVISORIES, ROOT, constraints, packages, problems
from packaging.requirements import Requirement
from packaging.version import Version


def test_nothing_is_wrong():
    assert problems() == []


def test_everything_that_is_needed_is_pinned_and_nothing_else():
    assert {package.name for package in packages()} == set(constraints())


def test_direct_dependencies_are_needed_to_run():
    needed = {package.name: package.needed for package in packages()}
    assert needed["torch"] == "run"
    assert needed["markupsafe"] == "run, through jinja2"
    assert needed["werkzeug"] == "TensorBoard, through tensorboard"
    assert needed["pytest"] == "tests"


def test_lower_bounds_are_above_advisories_within_reach():
    bounds = {}
    for text in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "dependencies"
    ]:
        requirement = Requirement(text)
        (bounds[requirement.name],) = requirement.specifier
    for advisory in tomllib.loads(ADVISORIES.read_text())["advisory"]:
        if not advisory["reach"].startswith("none"):
            assert Version(bounds[advisory["package"]].version) >= Version(
                advisory["fixed_in"]
            ), advisory["id"]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            "torch==2.",
            "torch==1.",
            "torch: CVE-2022-45907 is repaired in 1.13.1, pinned is 1",
        ),
        ("torch==2.", "torch==1.", "is installed, 1"),
        ("numpy==", "numpyy==", "None is pinned"),
    ],
)
def test_the_audit_can_fail(old, new, problem, tmp_path, monkeypatch):
    for name in ("pyproject.toml", "constraints.txt"):
        text = (ROOT / name).read_text()
        (tmp_path / name).write_text(
            text.replace(old, new) if name == "constraints.txt" else text
        )
    monkeypatch.setattr(dependencies, "ROOT", tmp_path)
    assert any(problem in found for found in problems())


def test_an_unknown_licence_is_found(monkeypatch):
    monkeypatch.setattr(dependencies, "ALLOWED", ("MIT",))
    assert any("numpy" not in found and "licence" in found for found in problems())
