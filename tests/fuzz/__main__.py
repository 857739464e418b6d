"""`python -m tests.fuzz --minutes 5 [--reader NAME]`: look for inputs that a reader does not survive."""

import argparse
import sys
import time

from .campaign import Campaign
from .readers import READERS


def main() -> int:
    """Share the minutes among the readers; 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--reader", choices=sorted(READERS))
    parser.add_argument("--seed", type=int, default=int(time.time()))
    arguments = parser.parse_args()
    readers = [arguments.reader] if arguments.reader else list(READERS)
    total = 0
    for reader in readers:
        campaign = Campaign(reader, arguments.seed)
        campaign.run(seconds=60 * arguments.minutes / len(readers))
        told = f"{campaign.tried:,} inputs, {len(campaign.reached)} lines reached, {len(campaign.found)} found"
        print(f"{reader:14} {told} (--seed {arguments.seed})", flush=True)
        for kind, path in zip(campaign.found, campaign.keep_found(), strict=True):
            print(f"    {kind}\n    {path}", flush=True)
        total += len(campaign.found)
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
