"""Copy what is published of finished runs: python results/collect.py reproduction/cpu results/cpu

Configurations, summaries, the studies' indices, the tables and the figures, and the records of rounds, from which
learning curves and the crossing of Algorithm 2 are drawn again; no weights. Records are packed (`rounds.jsonl.gz`),
which makes them five times smaller: 0.7 kB per round of a ResNet20. --no-records leaves them out.
"""

from __future__ import annotations

import argparse
import gzip
import shutil
from pathlib import Path

KEPT = ("config.toml", "summary.json", "study.json", "diverged.txt")
RECORDS = "rounds.jsonl"
PACKED = f"{RECORDS}.gz"
# What a run has once nothing of it is to come
ENDED = ("summary.json", "diverged.txt")


def collect(source: Path, target: Path, *, records: bool = True) -> int:
    """Copy from a finished or running reproduction; the number of files that are new or changed.

    Arguments:
        source: The folder that it was written to.
        target: The folder of what is published.
        records: Whether the records of rounds are kept, too.
    """
    files: list[Path] = []
    for pattern in ("table*.*", "figure*.*"):
        files += source.glob(pattern)
    for path in source.rglob("*"):
        if _is_kept(path, records=records):
            files.append(path)

    copied = 0
    for path in files:
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        if path.name == RECORDS:
            copied += pack(path, place.with_name(PACKED))
            continue
        if place.exists() and place.read_bytes() == path.read_bytes():
            continue
        shutil.copyfile(path, place)
        copied += 1
    return copied


def pack(path: Path, place: Path) -> bool:
    """Write the records of a run packed; whether there was something to write.

    Arguments:
        path: The records.
        place: Where they go.
    """
    content = path.read_bytes()
    # Another version of zlib may pack the same content otherwise
    if place.exists() and gzip.decompress(place.read_bytes()) == content:
        return False
    # Without the time the same records give the same file
    place.write_bytes(gzip.compress(content, mtime=0))
    return True


def _is_kept(path: Path, *, records: bool) -> bool:
    """A run's configuration and its records are worth keeping once its result is there."""
    if path.name in (RECORDS, PACKED):
        return records and _has_ended(path.parent)
    if path.name == "config.toml":
        return _has_ended(path.parent)
    return path.name in KEPT


def _has_ended(run: Path) -> bool:
    return any((run / name).exists() for name in ENDED)


def main() -> None:
    """Read the command line and copy."""
    parser = argparse.ArgumentParser(description="Copy what is published of runs.")
    parser.add_argument("source", type=Path, help="the folder of a reproduction")
    parser.add_argument("target", type=Path, help="where it is kept")
    parser.add_argument(
        "--records",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="whether the records of rounds are kept, which learning curves need",
    )
    given = parser.parse_args()
    copied = collect(given.source, given.target, records=given.records)
    print(f"{copied} files")


if __name__ == "__main__":
    main()
