"""Copy what is published of finished runs: python results/collect.py reproduction/cpu results/cpu

Configurations, summaries, the studies' indices and the tables; no weights, and no records of single rounds.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

KEPT = ("config.toml", "summary.json", "study.json", "diverged.txt")


def collect(source: Path, target: Path) -> int:
    """Copy from a finished or running reproduction; the number of files that are new or changed."""
    copied = 0
    tables = [
        path for pattern in ("table*.*", "figure*.*") for path in source.glob(pattern)
    ]
    runs = [
        path for path in source.rglob("*") if path.name in KEPT and _is_finished(path)
    ]
    for path in (*tables, *runs):
        place = target / path.relative_to(source)
        if not place.exists() or place.read_bytes() != path.read_bytes():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)
            copied += 1
    return copied


def _is_finished(path: Path) -> bool:
    """A run's configuration is worth keeping once its result is there."""
    if path.name != "config.toml":
        return True
    return any(
        (path.parent / name).exists() for name in ("summary.json", "diverged.txt")
    )


if __name__ == "__main__":
    print(f"{collect(Path(sys.argv[1]), Path(sys.argv[2]))} files")
