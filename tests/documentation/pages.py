"""The Markdown files of the repository, as the tests of the documentation read them."""

import re
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^( *)(`{3,}|~{3,})[^\n]*\n.*?^ *\2 *$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(`+).+?\1")
LINK = re.compile(r"\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@cache
def tracked() -> frozenset[str]:
    """The files of the repository, also those that are not committed yet, without what is ignored."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return frozenset(
        name for name in listed.stdout.splitlines() if (ROOT / name).is_file()
    )


def markdown_files() -> list[str]:
    return sorted(name for name in tracked() if name.endswith(".md"))


def prose(text: str) -> str:
    """A page without its code."""
    return CODE.sub("", FENCE.sub("", text))


def links(text: str) -> list[str]:
    return LINK.findall(prose(text))


def anchors(text: str) -> set[str]:
    """What headings are called in links, as GitHub and the site make it of them."""
    found: set[str] = set()
    for heading in HEADING.findall(FENCE.sub("", text)):
        name = slug(heading)
        number = 1
        while name in found:
            name = f"{slug(heading)}-{number}"
            number += 1
        found.add(name)
    return found


def slug(heading: str) -> str:
    shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    kept = re.sub(r"[^\w\- ]", "", shown.lower())
    return kept.strip().replace(" ", "-")


def python_blocks(page: str) -> list[str]:
    return PYTHON.findall((ROOT / page).read_text(encoding="utf-8"))
