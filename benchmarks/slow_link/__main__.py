"""Measure rounds on a slow link, and put what the network replay predicts beside them.

    python -m benchmarks.slow_link --rates 10 --rounds 8 --write results/slow-link.md
    python -m benchmarks.slow_link --rates 2 --rounds 4 --write results/slow-link-2.md
    python -m benchmarks.slow_link --from results/slow-link-2.json --write results/slow-link-2.md

Needs root and iproute2: SuperLink and SuperNodes run in network namespaces whose cables are limited by tc. TLS is on.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.slow_link.links import Links, missing
from benchmarks.slow_link.page import (
    CHUNK_VARIABLE,
    SETTINGS,
    Measurement,
    load,
    notes_below,
    publish,
)
from benchmarks.slow_link.runs import CLIENTS, Run
from benchmarks.table import hardware

sys.path.append(str(Path(__file__).parents[2] / "examples" / "flower"))

from federation import Federation, leave_when_asked

APP = Path(__file__).parent / "app"
SMALL_CHUNK = 1_048_576
SLOW = 3e6  # bits per second: links below it get small pieces


def main() -> None:
    options = parse()
    if options.source:
        remake(options)
        return
    if problem := missing():
        raise SystemExit(f"slow_link cannot run here: {problem}")
    leave_when_asked()
    started = time.monotonic()
    measurement = Measurement(_command(), options.target, hardware(), runs=[])
    for rate in options.rates:
        with (
            Links(CLIENTS, rate * 1e6) as links,
            tempfile.TemporaryDirectory(prefix="fedlama-slow-") as folder,
        ):
            for run in measure(links, Path(folder), options):
                measurement.runs.append(run)
                minutes = (time.monotonic() - started) / 60
                measurement.about["took"] = f"{minutes:.0f} minutes"
                # After every run: what an hour has measured must outlive the next one.
                text = publish(measurement, options.write)
    print(text)


def remake(options: argparse.Namespace) -> None:
    """Make the page of an earlier measurement anew."""
    measurement = load(
        options.source,
        command=_command(),
        target=options.target,
        chunk=options.chunk,
    )
    notes = ""
    if options.write:
        notes = notes_below(options.write)
    print(publish(measurement, options.write, notes))


def _command() -> str:
    return " ".join(["python -m benchmarks.slow_link", *sys.argv[1:]])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.slow_link",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--rates",
        type=float,
        nargs="+",
        default=[10.0, 2.0],
        metavar="RATE",
        help="Mbit/s of every client's link, one series of runs for each (default: 10 2)",
    )
    parser.add_argument(
        "--rounds", type=int, default=8, help="of every run (default: %(default)s)"
    )
    parser.add_argument(
        "--chunk",
        type=int,
        help=f"bytes: {CHUNK_VARIABLE} of all processes (default: Flower's own, 5 MB; "
        f"{SMALL_CHUNK} on links below {SLOW / 1e6:g} Mbit/s, where those do not pass)",
    )
    parser.add_argument(
        "--settings",
        nargs="+",
        default=list(SETTINGS),
        choices=list(SETTINGS),
        metavar="SETTING",
        help=f"what to run, of {', '.join(SETTINGS)}; flower is Flower's own FedAvg (default: all)",
    )
    parser.add_argument(
        "--target", type=float, default=0.85, help="accuracy (default: %(default)s)"
    )
    parser.add_argument(
        "--write", type=Path, help="a Markdown file; the JSON goes beside it"
    )
    parser.add_argument(
        "--from",
        dest="source",
        type=Path,
        help="measure nothing: make the page anew from this JSON file; what was written by hand "
        "below the page that --write names stays there. If the file is an early one, --target "
        "and --chunk say what it was measured with",
    )
    options = parser.parse_args()
    check(parser, options)
    return options


def check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Refuse numbers that no run can have, before an hour is spent on them."""
    for rate in options.rates:
        if not (0 < rate < math.inf):
            parser.error(f"--rates must be above 0, not {rate:g}")
    if options.rounds < 1:
        parser.error(f"--rounds must be at least 1, not {options.rounds}")
    if options.chunk is not None and options.chunk < 1:
        parser.error(f"--chunk must be at least 1, not {options.chunk}")
    if not (0 < options.target < 1):
        parser.error(f"--target must be above 0 and below 1, not {options.target:g}")


def measure(links: Links, folder: Path, options: argparse.Namespace) -> Iterator[Run]:
    """All settings on these links, in one federation."""
    federation = Federation(
        folder, seconds=14_400, inside=links.server, addresses=links.addresses
    )
    chunk = chunk_for(links.rate, options.chunk)
    # Pieces of another rate, or of the shell that this was started from, would not be those that the table names.
    federation.environment.pop(CHUNK_VARIABLE, None)
    if chunk is not None:
        federation.environment[CHUNK_VARIABLE] = str(chunk)
    with federation:
        for index in range(CLIENTS):
            federation.start_supernode(
                index,
                CLIENTS,
                superlink=f"{links.address(index)}:{federation.port}",
                inside=links.client(index),
                state_folder=folder / f"state-{index}",
            )
        for setting in options.settings:
            before = links.passed()
            out = folder / setting
            run = federation.run(
                APP, setting=setting, rounds=options.rounds, save_to=str(out)
            )
            federation.wait_for(run, out / "summary.json")
            after = links.passed()
            measured = read(out, setting, links.rate, before, after, options.target)
            measured.chunk = chunk
            print(
                f"{links.rate / 1e6:g} Mbit/s, {setting}: {measured.seconds:.0f} s",
                file=sys.stderr,
            )
            yield measured


def chunk_for(rate: float, wanted: int | None) -> int | None:
    """The bytes of Flower's pieces on links of this rate; None for its own choice."""
    if wanted is not None:
        return wanted
    if rate < SLOW:
        return SMALL_CHUNK
    return None


def read(
    folder: Path,
    setting: str,
    rate: float,
    before: tuple[int, int],
    after: tuple[int, int],
    target: float,
) -> Run:
    """What a run's folder and the counters of the cables say."""
    records = _lines(folder / "rounds.jsonl")
    ends = [line["seconds"] for line in _lines(folder / "timings.jsonl")]
    summary = json.loads((folder / "summary.json").read_text())
    run = Run(
        rate=rate,
        setting=setting,
        rounds=len(records),
        seconds=ends[-1],
        up=(after[0] - before[0]) / CLIENTS,
        down=(after[1] - before[1]) / CLIENTS,
        ledger_up=summary["uplink_bytes"] / CLIENTS,
        ledger_down=summary["downlink_bytes"] / CLIENTS,
        round_up=[record["uplink_bytes"] / CLIENTS for record in records],
        round_down=[record["downlink_bytes"] / CLIENTS for record in records],
    )
    for record, seconds in zip(records, ends, strict=True):
        accuracy = record.get("accuracy")
        if accuracy is not None and accuracy >= target:
            run.target_rounds = record["round"]
            run.target_seconds = seconds
            break
    return run


def _lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


if __name__ == "__main__":
    main()
