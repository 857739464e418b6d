"""`make docs`: the site is built strictly, so a broken link, an unknown page or a name that is gone fails here."""

import re
import subprocess
import sys
from html import unescape
from html.parser import HTMLParser

import pytest

from documentation.pages import ROOT

mkdocs = pytest.importorskip("mkdocs", reason="the site needs the extra fedlama[docs]")


class Page(HTMLParser):
    """What a page asks of other servers, and the anchors that it has."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.anchors: set[str] = set()
        self.feed(content)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.anchors.add(attributes.get("id") or "")
        address = attributes.get("src") if tag in ("script", "img", "iframe") else None
        if tag == "link" and attributes.get("rel") in (
            "stylesheet",
            "preconnect",
            "icon",
        ):
            address = attributes.get("href")
        if address and "//" in address and not address.startswith("data:"):
            self.asked.append(address)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    # Not with --quiet: what is not shown is not counted, and a warning passes for none
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--site-dir",
        str(folder),
    ]
    finished = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, cwd=ROOT
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return folder


@pytest.mark.slow
def test_the_site_is_built_strictly(site):
    pages = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    assert {
        "index.html",
        "docs/algorithm/index.html",
        "docs/glossary/index.html",
        "results/index.html",
    } <= pages
    assert (site / "docs" / "images" / "demo.png").exists()


@pytest.mark.slow
def test_the_reference_has_arguments(site):
    page = (site / "docs" / "reference" / "running" / "index.html").read_text(
        encoding="utf-8"
    )
    assert "fedlama.simulate" in Page(page).anchors
    for argument in ("policy", "participation", "on_record"):
        assert re.search(rf"<b>{argument}</b>|<code>{argument}</code>", page), argument


@pytest.mark.slow
def test_the_reference_shows_types_and_defaults_as_a_reader_wants_them(site):
    for path in (site / "docs" / "reference").rglob("*.html"):
        text = unescape(re.sub(r"<[^>]+>", "", path.read_text(encoding="utf-8")))
        assert "Annotated[" not in text, path
        assert not re.search(r"= DEFAULT_|= MAX_|: _\w+ ", text), path
    codecs = (site / "docs" / "reference" / "codecs" / "index.html").read_text(
        encoding="utf-8"
    )
    assert "bits: int, block: int = 1024, stochastic: bool = True" in unescape(
        re.sub(r"<[^>]+>", "", codecs)
    )


@pytest.mark.slow
def test_pages_ask_no_other_server_for_anything(site):
    for path in site.rglob("*.html"):
        assert not Page(path.read_text(encoding="utf-8")).asked, path
