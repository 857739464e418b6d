"""No link of the documentation leads nowhere: files, folders and headings are there."""

from pathlib import PurePosixPath
from posixpath import normpath

import pytest

from documentation.pages import (
    ROOT,
    anchors,
    links,
    markdown_files,
    prose,
    slug,
    tracked,
)

PAGES = markdown_files()


def seen_from(page: str, target: str) -> str:
    """The path in the repository that a page's link leads to."""
    return normpath(str(PurePosixPath(page).parent / target))


def problems(page: str, text: str) -> list[str]:
    """The links of a page that lead nowhere. Addresses of other servers are not asked for."""
    found: list[str] = []
    for link in links(text):
        if link.startswith(("https://", "http://", "mailto:")):
            continue
        target, _, anchor = link.partition("#")
        path = seen_from(page, target) if target else page
        is_folder = any(name.startswith(f"{path}/") for name in tracked())
        if path not in tracked() and not is_folder:
            found.append(f"{link}: there is no {path}")
        elif anchor and anchor not in anchors(
            (ROOT / path).read_text(encoding="utf-8")
        ):
            found.append(f"{link}: {path} has no heading for it")
    return found


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    assert not problems(page, (ROOT / page).read_text(encoding="utf-8"))


def test_every_page_is_linked_from_another():
    linked: set[str] = set()
    for page in PAGES:
        for link in links((ROOT / page).read_text(encoding="utf-8")):
            target = link.partition("#")[0]
            linked.add(seen_from(page, target))
    alone = [page for page in PAGES if page.startswith("docs/") and page not in linked]
    assert not alone


def test_every_word_of_the_glossary_is_explained_where_a_link_leads():
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    words = [line[4:] for line in text.splitlines() if line.startswith("### ")]
    for word in (
        "round",
        "cycle",
        "window",
        "cohort",
        "τ′",
        "φ",
        "d_l",
        "δ",
        "λ",
        "C, cost",
        "anchor",
        "slot",
    ):
        assert word in words
    assert len(words) == len(set(words))
    for part in text.split("### ")[1:]:
        word, _, explanation = part.partition("\n")
        assert len(explanation.strip()) > 20, f"{word} is not explained"


# The check itself, on pages of our own


def test_broken_links_are_noticed():
    text = "[a](README.md) [b](NOWHERE.md) [c](docs/) [d](README.md#no-such-heading) [e](#here)\n## Here\n"
    assert problems("x.md", text) == [
        "NOWHERE.md: there is no NOWHERE.md",
        "README.md#no-such-heading: README.md has no heading for it",
        "#here: there is no x.md",
    ]


def test_code_has_no_links():
    assert links("`[a](b)` and\n```python\nx[0](c)\n```\n[d](e.md)") == ["e.md"]
    assert "x" not in prose("```\nx\n```")


def test_headings_are_named_as_the_site_names_them():
    assert (
        slug("Your own program: `LayerwiseModelAverager`")
        == "your-own-program-layerwisemodelaverager"
    )
    assert slug("τ_l") == "τ_l"
    assert slug("C, cost") == "c-cost"
    assert anchors("# A\n## A\n```\n# B\n```\n") == {"a", "a-1"}
