"""A hook of mkdocs: the site's pages are the repository's Markdown files, at their own places, and what they link to.

mkdocs knows one folder of pages; these are in several. So each page of the navigation is added from where it is, then
every file that one of them links to. A link that leads nowhere stays one, and the strict build refuses it.
"""

import json
import re
from pathlib import Path, PurePosixPath
from posixpath import normpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\(([^)\s#]+)[^)]*\)")
FOLDER_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s#:]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
TOUR = "examples/tour.ipynb"
ABBREVIATIONS = ROOT / "docs" / "site" / "abbreviations.txt"
# Files whose names say nothing of their kind get one that a browser can show.
TEXTS = {"NOTICE": "NOTICE.txt", "LICENSE": "LICENSE.txt"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the navigation, and what they link to."""
    waiting = [TOUR, *_pages(config.nav or [])]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        path = ROOT / name
        if name in seen or not path.is_file():
            continue
        seen.add(name)
        files.append(
            File.generated(config, TEXTS.get(name, name), abs_src_path=str(path))
        )
        if path.suffix == ".md":
            waiting += linked_from(name)
    files.append(File.generated(config, TOUR.replace(".ipynb", ".md"), content=tour()))
    return files


def on_page_markdown(
    markdown: str, page: Page, config: MkDocsConfig, files: Files
) -> str:
    """Name texts as they are called on the site, and explain symbols where they are pointed at."""
    for name, shown in TEXTS.items():
        markdown = re.sub(rf"\]\(((?:\.\./)*){name}\)", rf"](\1{shown})", markdown)
    folder = PurePosixPath(page.file.src_uri).parent
    markdown = FOLDER_LINK.sub(lambda link: _without_folder(link, folder), markdown)
    if page.file.src_uri == "docs/glossary.md":
        return markdown
    return f"{markdown}\n\n{ABBREVIATIONS.read_text(encoding='utf-8')}"


def tour() -> str:
    """The notebook as a page: its words, its code and what that gave."""
    notebook = json.loads((ROOT / TOUR).read_text(encoding="utf-8"))
    parts: list[str] = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            parts.append(_shown(output))
    parts.append("[The notebook itself](tour.ipynb)")
    return "\n\n".join(parts)


def _shown(output: dict) -> str:
    """What a cell gave: the best form of it that a page can show."""
    if output["output_type"] == "stream":
        return f"```text\n{''.join(output['text'])}```"
    data = output["data"]
    if "image/png" in data:
        return f'<img alt="a chart" src="data:image/png;base64,{data["image/png"]}">'
    if "text/html" in data:
        html = "".join(data["text/html"])
        return f'<div class="shown">{" ".join(html.split())}</div>'
    return f"```text\n{''.join(data['text/plain'])}\n```"


def _without_folder(link: re.Match[str], folder: PurePosixPath) -> str:
    """A folder of the repository has no page: its name alone stays."""
    text, target = link.groups()
    if (ROOT / normpath(str(folder / target))).is_dir():
        return text
    return link.group()


def linked_from(name: str) -> list[str]:
    """The repository's files that a Markdown file links to."""
    text = FENCE.sub("", (ROOT / name).read_text(encoding="utf-8"))
    folder = PurePosixPath(name).parent
    found: list[str] = []
    for target in LINK.findall(text):
        if "://" not in target and not target.startswith(("/", "mailto:")):
            found.append(normpath(str(folder / target)))
    return found


def _pages(nav: list | dict | str):
    """The files of a navigation, however deep."""
    if isinstance(nav, str):
        yield nav
        return
    entries = nav.values() if isinstance(nav, dict) else nav
    for entry in entries:
        yield from _pages(entry)
