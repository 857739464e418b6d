"""`python -m audit [--write]`: compare what is installed with what was audited, or write audit/dependencies.md anew."""

from __future__ import annotations

import argparse
import sys

from audit.dependencies import RESULT, problems, table


def main() -> int:
    """Print what is wrong; 1 if anything is."""
    parser = argparse.ArgumentParser(prog="python -m audit", description=__doc__)
    parser.add_argument(
        "--write",
        action="store_true",
        help="write audit/dependencies.md from what is installed",
    )
    if parser.parse_args().write:
        RESULT.write_text(table(), encoding="utf-8")
    found = problems()
    for problem in found:
        print(problem)
    print(f"{RESULT.name}: {len(found)} problems")
    return min(len(found), 1)


if __name__ == "__main__":
    sys.exit(main())
