"""What is installed, as the packages' own metadata tell it, beside what is pinned, allowed and known."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "audit" / "dependencies.md"
ADVISORIES = ROOT / "audit" / "advisories.toml"
NATIVE = (".so", ".pyd", ".dylib")

# Licences under which a package may be used beside Apache-2.0, as they call themselves.
ALLOWED = (
    "Apache",
    "BSD",
    "MIT",
    "ISC",
    "PSF",
    "Python Software Foundation",
    "Zlib",
    "BSL-1.0",
    "0BSD",
    "CC0-1.0",
)
# What only extras and tests bring may be under a file-level copyleft: none of its files are changed or passed on.
ALLOWED_BESIDE = (*ALLOWED, "MPL-2.0", "Mozilla Public License 2.0")

HEAD = """# Dependencies

`python -m audit --write` writes this page from the metadata of the installed packages and from `advisories.toml`;
`tests/test_audit.py` holds it against `constraints.txt`, `pyproject.toml` and the installed packages. Neither needs a
network.

What it can say: which versions are pinned, under which licences they call themselves, which of them bring compiled
code, through whom they are needed, and that no pin is below a version in which an advisory of `advisories.toml` was
repaired.

What it cannot say: that there is no other advisory. The list is kept by hand and was made without a network, from what
was published until the end of 2025; most pins are newer than that. With a network, run `pip-audit -r constraints.txt`
before a release and add what it finds. Nor does it look into the packages: compiled code in a wheel is trusted, as is
whoever published it.

"""


@dataclass(frozen=True)
class Package:
    """One installed package."""

    name: str
    version: str
    needed: str
    licence: str
    native: bool
    advisories: tuple[str, ...]


def table() -> str:
    """The page."""
    advisories = _advisories()
    lines = [
        f"The list of advisories was last changed on {advisories['changed']}.",
        "",
        "| package | version | needed | licence | compiled | advisories repaired |",
        "|---|---|---|---|---|---|",
    ]
    for package in packages():
        compiled = "yes" if package.native else "–"
        known = ", ".join(package.advisories) or "–"
        cells = (
            package.name,
            package.version,
            package.needed,
            package.licence,
            compiled,
            known,
        )
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "## Advisories, and whether fedlama calls the code", ""]
    for advisory in advisories["advisory"]:
        lines.append(
            f"* **{advisory['id']}** ({advisory['package']}, repaired in {advisory['fixed_in']}): "
            f"{advisory['about']}. Reach: {advisory['reach']}."
        )
    return HEAD + "\n".join(lines) + "\n"


def packages() -> list[Package]:
    """What fedlama needs, directly or through others, to run or to be tested; in the order of names."""
    needed = _needed()
    known = _advisories()["advisory"]
    found: list[Package] = []
    for name in sorted(needed):
        distribution = metadata.distribution(name)
        package = Package(
            name=name,
            # Without +cpu, which says where a build runs
            version=Version(distribution.version).public,
            needed=needed[name],
            licence=_licence(distribution),
            native=_has_native_code(name),
            advisories=tuple(one["id"] for one in known if one["package"] == name),
        )
        found.append(package)
    return found


def problems() -> list[str]:
    """What is wrong with the pins, the licences or the page."""
    pins = constraints()
    found: list[str] = []
    for package in packages():
        if pins.get(package.name) != package.version:
            found.append(
                f"{package.name}: {package.version} is installed, {pins.get(package.name)} is pinned"
            )
        allowed = ALLOWED if package.needed.startswith("run") else ALLOWED_BESIDE
        if not any(word in package.licence for word in allowed):
            found.append(
                f"{package.name}: licence {package.licence!r} is not among those allowed"
            )
    for advisory in _advisories()["advisory"]:
        pin = pins.get(advisory["package"])
        if pin is None or Version(pin) < Version(advisory["fixed_in"]):
            found.append(
                f"{advisory['package']}: {advisory['id']} is repaired in {advisory['fixed_in']}, pinned is {pin}"
            )
    if not RESULT.exists() or RESULT.read_text(encoding="utf-8") != table():
        found.append(
            "audit/dependencies.md is not what is installed: run python -m audit --write"
        )
    return found


def constraints() -> dict[str, str]:
    """Names and versions in constraints.txt."""
    pins: dict[str, str] = {}
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, _, version = line.partition("==")
            pins[canonicalize_name(name)] = version
    return pins


def _advisories() -> dict[str, Any]:
    return tomllib.loads(ADVISORIES.read_text(encoding="utf-8"))


def _needed() -> dict[str, str]:
    """For each package why it is there; what is needed to run comes before what is needed for tests."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    extras = project["optional-dependencies"]
    groups = {
        "run": project["dependencies"],
        "TensorBoard": extras["tensorboard"],
        "the site": extras["docs"],
        "tests": extras["dev"],
    }
    needed: dict[str, str] = {}
    for group, texts in groups.items():
        direct = [Requirement(text) for text in texts]
        direct = [
            requirement for requirement in direct if requirement.name != "fedlama"
        ]
        for requirement in direct:
            needed.setdefault(canonicalize_name(requirement.name), group)
        for requirement in direct:
            _follow(requirement, group, needed)
    return needed


def _follow(requirement: Requirement, group: str, needed: dict[str, str]) -> None:
    name = canonicalize_name(requirement.name)
    for inner in _requirements(name, requirement.extras):
        inner_name = canonicalize_name(inner.name)
        if inner_name not in needed:
            needed[inner_name] = f"{group}, through {name}"
            _follow(inner, group, needed)


def _requirements(name: str, extras: set[str]) -> Iterator[Requirement]:
    for text in metadata.requires(name) or []:
        requirement = Requirement(text)
        marker = requirement.marker
        environments = [{"extra": extra} for extra in ("", *sorted(extras))]
        wanted = marker is None or any(
            marker.evaluate(environment) for environment in environments
        )
        if wanted and _is_installed(requirement.name):
            yield requirement


def _is_installed(name: str) -> bool:
    """A requirement may be met by the build at hand: torch for CPUs needs no CUDA packages."""
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _licence(distribution: metadata.Distribution) -> str:
    """The expression, or else the classifier, or else the first line of a text of its own."""
    told = distribution.metadata
    expression = told.get("License-Expression")
    if expression:
        return expression
    for classifier in told.get_all("Classifier") or []:
        if classifier.startswith("License ::"):
            return classifier.rpartition(" :: ")[2]
    text = (told.get("License") or "").strip()
    return text.partition("\n")[0] or "not told"


@cache
def _has_native_code(name: str) -> bool:
    """Kept, because torch alone lists tens of thousands of files."""
    files = metadata.distribution(name).files or []
    return any(str(file).endswith(NATIVE) for file in files)
