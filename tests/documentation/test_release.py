"""`make release-check`, as far as it needs no network; and that CITATION.cff, README and the package agree."""

import io
import tarfile
import tomllib
import zipfile

import pytest
from audit.release import (
    IN_SDIST,
    IN_WHEEL,
    ROOT,
    missing_files,
    version,
    version_problems,
)

CHANGELOG = "# Changelog\n\n## Unreleased (0.2.0)\n\n### Added\n\n## 0.1.0\n"


def test_this_checkout_has_one_version():
    texts = [
        (ROOT / name).read_text(encoding="utf-8")
        for name in ("CHANGELOG.md", "CITATION.cff")
    ]
    assert version_problems(version(), *texts) == []
    assert f"version = {{{version()}}}" in (ROOT / "README.md").read_text(
        encoding="utf-8"
    )


@pytest.mark.parametrize(
    ("found", "citation", "problems"),
    [
        ("0.2.0", "version: 0.2.0", []),
        (
            "0.1.0",
            "version: 0.1.0",
            ["CHANGELOG.md begins with 'Unreleased (0.2.0)', not with 0.1.0"],
        ),
        ("0.2.0", "version: 0.1.0", ["CITATION.cff has version 0.1.0, not 0.2.0"]),
        ("0.2.0", "", ["CITATION.cff has version none, not 0.2.0"]),
        (
            "0.2.0.dev1",
            "version: 0.2.0.dev1",
            ["version.py has 0.2.0.dev1, which is not one to release"],
        ),
    ],
)
def test_versions_that_disagree_are_named(found, citation, problems):
    assert (
        version_problems(found, CHANGELOG, f"title: x\n{citation}\n")[
            : len(problems) or 1
        ]
        == problems
    )


def test_files_that_are_missing_are_named(tmp_path):
    sdist, wheel = tmp_path / "fedlama-1.tar.gz", tmp_path / "fedlama-1.whl"
    with tarfile.open(sdist, "w:gz") as archive:
        for name in IN_SDIST[1:]:
            archive.addfile(tarfile.TarInfo(f"fedlama-1/{name}"), io.BytesIO())
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in (*IN_WHEEL[1:], "x"):
            archive.writestr(f"fedlama/{name}", "")
        archive.writestr("fedlama-1.dist-info/METADATA", "")
        archive.writestr("tests/x.py", "")
    assert missing_files(sdist, wheel) == [
        "fedlama-1.tar.gz has no pyproject.toml",
        "fedlama-1.whl has no fedlama/data/digits.npz",
        "fedlama-1.whl would install tests/x.py",
    ]


def test_the_citation_is_that_of_the_readme():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]["urls"]
    doi = "10.1609/aaai.v37i7.26023"
    assert doi in citation
    assert doi in readme
    assert urls["Paper"].endswith(doi)
