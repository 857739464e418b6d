"""Fill the tables of results/frontier.md from the summaries below results/frontier: python results/frontier_tables.py

A table stands between `<!-- table NAME -->` and `<!-- end -->`, where NAME is a key of TABLES. A study without a
finished baseline leaves its table as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from paired import comparison_of

from fedlama.report.tables.paired import paired_grid

HERE = Path(__file__).parent
PAGE = HERE / "frontier.md"
STUDIES = HERE / "frontier"
RECIPE = HERE.parent / "src/fedlama/paper/recipes/frontier.toml"
TABLES: Mapping[str, tuple[Path, Path]] = {
    "choose-digits": (STUDIES / "choose-digits.toml", STUDIES / "choose-digits"),
    "choose-unipen62": (STUDIES / "choose-unipen62.toml", STUDIES / "choose-unipen62"),
    "choose-unipen62-rates": (STUDIES / "choose-unipen62-rates.toml", STUDIES / "choose-unipen62-rates"),
    "digits": (RECIPE, STUDIES / "digits"),
    "unipen62": (STUDIES / "unipen62.toml", STUDIES / "unipen62"),
    "unipen62-window24": (STUDIES / "unipen62-window24.toml", STUDIES / "unipen62-window24"),
}


def table(name: str) -> str:
    """The rows as Markdown; the page says once what all tables have in common."""
    file, folder = TABLES[name]
    lines = paired_grid(comparison_of(file, folder)).markdown().splitlines()
    return "\n".join(line for line in lines if line.startswith("|"))


def main() -> None:
    """Every table of the page whose baseline is finished."""
    text = PAGE.read_text(encoding="utf-8")
    for name in re.findall("<!-- table (.*) -->", text):
        _, folder = TABLES[name]
        if not any(folder.glob("fedavg-6/seed*/summary.json")):
            continue
        begins = f"<!-- table {name} -->"
        before, rest = text.split(begins)
        _, after = rest.split("<!-- end -->", maxsplit=1)
        text = f"{before}{begins}\n{table(name)}\n<!-- end -->{after}"
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
