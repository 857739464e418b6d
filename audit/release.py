"""`make release-check`: could this checkout be released as it is?

Builds the sdist and the wheel, installs each into an empty environment, and runs the demo there from another folder.
Versions must agree, and what a user needs must be in the files that are built.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from packaging.version import Version

ROOT = Path(__file__).parents[1]
# What a user would miss, and would not notice before it is needed.
IN_WHEEL = (
    "data/digits.npz",
    "report/page/static/echarts.js",
    "py.typed",
    "__main__.py",
)
IN_SDIST = (
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "NOTICE",
    "CITATION.cff",
    "CHANGELOG.md",
    "tests/conftest.py",
)
DEMO = ("demo", "--seeds", "1", "--iterations", "48", "--workers", "1")


def version() -> str:
    """The version that would be released."""
    text = (ROOT / "src" / "fedlama" / "version.py").read_text(encoding="utf-8")
    (found,) = re.findall(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    return found


def version_problems(found: str, changelog: str, citation: str) -> list[str]:
    """Where another version is written than the package has."""
    problems: list[str] = []
    parsed = Version(found)
    if parsed.is_devrelease or parsed.local:
        problems.append(f"version.py has {found}, which is not one to release")
    newest = re.findall(r"^## (.+)$", changelog, re.MULTILINE)[0]
    if found not in re.findall(r"\d+\.\d+\.\d+[\w.]*", newest):
        problems.append(f"CHANGELOG.md begins with {newest!r}, not with {found}")
    cited = re.findall(r"^version: (.+)$", citation, re.MULTILINE)
    if cited != [found]:
        problems.append(
            f"CITATION.cff has version {', '.join(cited) or 'none'}, not {found}"
        )
    return problems


def built(folder: Path) -> tuple[Path, Path]:
    """The sdist and the wheel, freshly built; the wheel from the sdist, as installers do it."""
    _run(sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT))
    (sdist,) = folder.glob("*.tar.gz")
    (wheel,) = folder.glob("*.whl")
    return sdist, wheel


def missing_files(sdist: Path, wheel: Path) -> list[str]:
    """What should be in the built files and is not."""
    with tarfile.open(sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    missing = [f"{sdist.name} has no {name}" for name in IN_SDIST if name not in names]
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    missing += [
        f"{wheel.name} has no fedlama/{name}"
        for name in IN_WHEEL
        if f"fedlama/{name}" not in names
    ]
    foreign = [name for name in names if not name.startswith(("fedlama/", "fedlama-"))]
    return missing + [f"{wheel.name} would install {name}" for name in foreign]


def try_out(artefact: Path, folder: Path) -> None:
    """Install into an empty environment, and run the demo from a folder that is none of ours."""
    environment = folder / "environment"
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir(parents=True)
    _run(sys.executable, "-m", "venv", str(environment))
    python = environment / "bin" / "python"
    _run(
        str(python),
        "-m",
        "pip",
        "install",
        "--quiet",
        "-c",
        str(ROOT / "constraints.txt"),
        str(artefact),
    )
    fedlama = str(environment / "bin" / "fedlama")
    said = _run(fedlama, "--version", cwd=elsewhere)
    assert said.strip() == f"fedlama {version()}", said
    _run(fedlama, *DEMO, cwd=elsewhere)
    assert (elsewhere / "fedlama-demo" / "report.html").is_file(), (
        "the demo wrote no report"
    )
    summaries = list((elsewhere / "fedlama-demo").rglob("summary.json"))
    assert summaries, "the demo finished no run"
    for path in summaries:
        json.loads(path.read_text(encoding="utf-8"))
    where = _run(
        str(python), "-c", "import fedlama; print(fedlama.__file__)", cwd=elsewhere
    )
    assert where.startswith(str(environment)), (
        f"{where.strip()} is not the installed package"
    )


def main() -> int:
    """Check everything; 0 if this can be released."""
    found = version()
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    problems = version_problems(found, changelog, citation)
    with tempfile.TemporaryDirectory(prefix="fedlama-release-") as name:
        folder = Path(name)
        sdist, wheel = built(folder / "dist")
        print(f"built {sdist.name} ({_size(sdist)}) and {wheel.name} ({_size(wheel)})")
        problems += missing_files(sdist, wheel)
        for artefact in (wheel, sdist):
            if problems:
                break
            try_out(artefact, folder / f"from-{artefact.suffix[1:]}")
            print(
                f"{artefact.name}: installed into an empty environment; the demo ran from another folder"
            )
    for problem in problems:
        print(f"release-check: {problem}", file=sys.stderr)
    if problems:
        return 1
    print(f"fedlama {found} can be released")
    return 0


def _size(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.1f} MB"


def _run(*command: str, cwd: Path = ROOT) -> str:
    # Without PYTHONPATH: the package must be the installed one
    environment = {
        name: value for name, value in os.environ.items() if name != "PYTHONPATH"
    }
    finished = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=cwd, env=environment
    )
    if finished.returncode != 0:
        raise SystemExit(
            f"release-check: {' '.join(command)} failed:\n{finished.stdout}{finished.stderr}"
        )
    return finished.stdout


if __name__ == "__main__":
    raise SystemExit(main())
