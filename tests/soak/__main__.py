"""Try one configuration after the other until the time is up."""

import argparse
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

from .drawing import draw
from .trials import try_out


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0, help="the first trial's number")
    parser.add_argument("--trials", type=int, help="how many at most")
    options = parser.parse_args()
    deadline = time.monotonic() + 60 * options.minutes
    number, ran, refused = options.seed, 0, 0
    while time.monotonic() < deadline and (
        options.trials is None or number < options.seed + options.trials
    ):
        done = soak(number)
        if done is None:
            print(f"{ran} runs were right before this one")
            return 1
        ran, refused, number = ran + done, refused + (not done), number + 1
        print(f"trial {number - 1}: {'right' if done else 'cannot be run'}", flush=True)
    print(
        f"soak: {ran} configurations run and checked, {refused} drawn that cannot be run; nothing was found"
    )
    return 0


def soak(number: int) -> bool | None:
    """Whether the trial could be run; None if something is wrong, and the folder is kept then."""
    trial, folder = draw(number), Path(tempfile.mkdtemp(prefix="fedlama-soak-"))
    try:
        possible = try_out(trial, folder)
    except Exception:
        traceback.print_exc(file=sys.stdout)
        print(f"trial {number} failed: {trial}\nits files: {folder}")
        print(f"to repeat it: python -m tests.soak --seed {number} --trials 1")
        return None
    shutil.rmtree(folder)
    return possible


if __name__ == "__main__":
    sys.exit(main())
