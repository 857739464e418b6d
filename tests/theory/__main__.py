"""Print how tight the statements are, and draw the pictures of docs/theory.md."""

from __future__ import annotations

import argparse
import platform
from pathlib import Path

import numpy as np

import fedlama

from .instances import discrepancy_sides, framework_sides, instance, theorem_sides
from .pictures import draw_all

IMAGES = Path(__file__).parents[2] / "docs" / "images"
SHARES = (1.0, 0.5, 0.1, 0.01)


def main() -> None:
    """Tightness over random instances as a Markdown table, then the pictures."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.theory", description=main.__doc__
    )
    parser.add_argument(
        "--instances",
        type=int,
        default=400,
        help="how many random federations (default: 400; 0: only draw)",
    )
    parser.add_argument(
        "--images",
        type=Path,
        default=IMAGES,
        help="where the pictures go (default: docs/images)",
    )
    arguments = parser.parse_args()
    print(
        f"fedlama {fedlama.__version__}, numpy {np.__version__}, {platform.machine()}"
    )
    if arguments.instances:
        print_tightness(arguments.instances)
    for path in draw_all(arguments.images):
        print(path)


def print_tightness(instances: int) -> None:
    """Left-hand side divided by right-hand side: a row for each statement and share of its largest learning rate."""
    found: dict[tuple[str, float], list[float]] = {}
    for number in range(instances):
        one = instance(number)
        sides, largest_term = framework_sides(one)
        _check(sides.holds(largest_term), "Lemma 5.1", number)
        _keep(found, "Lemma 5.1", one.share_of_limit, sides)
        for cycle in discrepancy_sides(one):
            _check(cycle.holds(), "Lemma 5.2", number)
            _keep(found, "Lemma 5.2", one.share_of_limit, cycle)
        sides = theorem_sides(one)
        _check(sides.holds(), "Theorem 5.3", number)
        _keep(found, "Theorem 5.3", one.share_of_limit, sides)
    print("| statement | η / limit | cases | median | 90 % | largest |")
    print("|---|---:|---:|---:|---:|---:|")
    for statement in ("Lemma 5.1", "Lemma 5.2", "Theorem 5.3"):
        for share in SHARES:
            values = found[statement, share]
            middle, high, largest = np.quantile(values, [0.5, 0.9, 1.0])
            print(
                f"| {statement} | {share:g} | {len(values)} | {middle:.3f} | {high:.3f} | {largest:.3f} |"
            )


def _keep(found, statement, share, sides) -> None:
    if sides.right > 1e-12:  # both sides are zero where τ = 1, or where nothing moves
        found.setdefault((statement, share), []).append(sides.share)


def _check(holds: bool, statement: str, number: int) -> None:
    if not holds:
        raise SystemExit(f"{statement} does not hold for instance {number}")


if __name__ == "__main__":
    main()
