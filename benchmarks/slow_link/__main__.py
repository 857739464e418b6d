"""Measure rounds on a slow link, and put what the network replay predicts beside them.

    python -m benchmarks.slow_link --rates 10 --rounds 8 --write results/slow-link.md
    python -m benchmarks.slow_link --rates 2 --rounds 4 --write results/slow-link-2.md
    python -m benchmarks.slow_link --from results/slow-link-2.json

Needs root and iproute2: SuperLink and SuperNodes run in network namespaces whose cables are limited by tc. TLS is on.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.slow_link.links import Links, missing
from benchmarks.table import hardware

sys.path.append(str(Path(__file__).parents[2] / "examples" / "flower"))

from federation import Federation

from fedlama.report.numbers.network import Demand, Network

APP = Path(__file__).parent / "app"
CLIENTS = 2
SETTINGS = {
    "frugal-both": "frugal, coded downlink",
    "frugal": "frugal",
    "fedlama": "FedLAMA(6, 4)",
    "flower": "Flower's FedAvg",
}
# Flower cuts what it sends into pieces of so many bytes, sends two at a time, and gives up on one after 30 seconds.
# Pieces of its own 5 MB are lost on links below 2.8 Mbit/s, and sent again, for ever.
CHUNK_VARIABLE = "FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE"
SMALL_CHUNK = 1_048_576
SLOW = 3e6  # bits per second: links below it get small pieces
LIMIT = 0.15  # how far a prediction may be from what was measured
HEADINGS = (
    "link",
    "setting",
    "rounds",
    "s per round",
    "predicted",
    "off by",
    "up, MB",
    "down, MB",
    "to target",
    "pred.",
)


@dataclass
class Run:
    """One run, as it was measured; bytes are those of one client."""

    rate: float
    setting: str
    rounds: int
    seconds: float  # of all rounds
    up: float  # at the cable
    down: float
    ledger_up: float
    ledger_down: float
    # Of the ledger, in each round. Empty in the files of earlier measurements, which kept the sums only.
    round_up: list[float] = field(default_factory=list)
    round_down: list[float] = field(default_factory=list)
    chunk: int | None = None  # bytes of Flower's pieces; None for its own choice
    target_rounds: int | None = None
    target_seconds: float | None = None
    predicted: float = 0.0
    predicted_target: float | None = None

    def demand(self) -> Demand:
        """What the replay is given of the whole run."""
        return _demand(self.rounds, self.ledger_up, self.ledger_down)

    def demand_until(self, last: int) -> Demand | None:
        """What the replay is given of the rounds up to this one; None where nobody knows what they moved."""
        if last == self.rounds:
            return self.demand()
        # No even share of the sum: FedLAMA sends everything in its first cycle, and frugal in its first round.
        if not self.round_up:
            return None
        up = sum(self.round_up[:last])
        down = sum(self.round_down[:last])
        return _demand(last, up, down)


def _demand(rounds: int, up: float, down: float) -> Demand:
    return Demand(
        step=0,
        rounds=rounds,
        uplink_bytes=up,
        downlink_bytes=down,
        clients=CLIENTS,
    )


@dataclass
class Measurement:
    """The runs of one call, and what their page says of it."""

    command: str
    target: float  # accuracy
    about: dict[str, object]
    runs: list[Run]


def main() -> None:
    options = parse()
    if options.source:
        print(publish(load(options.source, options), options.write))
        return
    if problem := missing():
        raise SystemExit(f"slow_link cannot run here: {problem}")
    signal.signal(signal.SIGTERM, end_everything)
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


def end_everything(*_: object) -> None:
    """Leave by an exception: SIGTERM itself would leave SuperLink, SuperNodes and namespaces behind."""
    # A second signal must not break off the ending.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(128 + signal.SIGTERM)


def publish(measurement: Measurement, write: Path | None) -> str:
    """The table of the runs so far, in a file if one was named."""
    overhead = predict(measurement.runs)
    text = table(measurement, overhead)
    if write:
        write.write_text(text)
        plain = {"round_overhead": overhead, **asdict(measurement)}
        json_file = write.with_suffix(".json")
        json_file.write_text(json.dumps(plain, indent=2) + "\n")
    return text


def load(path: Path, options: argparse.Namespace) -> Measurement:
    """What was measured earlier; what its file does not say is taken from the options."""
    plain = json.loads(path.read_text())
    runs: list[Run] = []
    for values in plain["runs"]:
        run = Run(**{"chunk": options.chunk, **values})
        # Flower's own FedAvg sends the same in every round, also where only the sum was kept.
        if run.setting == "flower" and not run.round_up:
            run.round_up = [run.ledger_up / run.rounds] * run.rounds
            run.round_down = [run.ledger_down / run.rounds] * run.rounds
        runs.append(run)
    return Measurement(
        command=plain.get("command", _command()),
        target=plain.get("target", options.target),
        about=plain["about"],
        runs=runs,
    )


def _command() -> str:
    return " ".join(["python -m benchmarks.slow_link", *sys.argv[1:]])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rates",
        type=float,
        nargs="+",
        default=[10.0, 2.0],
        help="Mbit/s of every client's link",
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
        "--settings", nargs="+", default=list(SETTINGS), choices=list(SETTINGS)
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
        help="measure nothing: make the page anew from this JSON file, without notes that "
        "were added by hand. If it is an early one, --target and --chunk say what it was "
        "measured with",
    )
    return parser.parse_args()


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


def predict(runs: list[Run]) -> float:
    """The fixed time per round is that of the run that moves the fewest bytes; the others are predicted with it."""
    first = calibration(runs)
    moving = first.demand().seconds(_network(first.rate, 0.0))
    overhead = (first.seconds - moving) / first.rounds
    for run in runs:
        network = _network(run.rate, overhead)
        run.predicted = run.demand().seconds(network)
        run.predicted_target = None
        if run.target_rounds is None:
            continue
        until_target = run.demand_until(run.target_rounds)
        if until_target is not None:
            run.predicted_target = until_target.seconds(network)
    return overhead


def calibration(runs: list[Run]) -> Run:
    """The run that the fixed time per round is taken from: bytes take the least of its time."""
    return min(runs, key=lambda run: (run.ledger_up + run.ledger_down) / run.rate)


def _network(rate: float, overhead: float) -> Network:
    # The overhead holds all that bytes do not take: process starts, steps, the server's work and the latency.
    return Network(
        uplink=rate, downlink=rate, latency=0.0, step_time=0.0, round_overhead=overhead
    )


def table(measurement: Measurement, overhead: float) -> str:
    """Markdown."""
    runs = measurement.runs
    lines = [
        "# A slow link, measured",
        "",
        f"`{measurement.command}`",
        "",
        f"The LEAF CNN (26 MB) on the embedded digits, two clients, both in every round, {runs[0].rounds} rounds of",
        "six steps. Each client has a link of its own (`tbf`, burst 32k, latency 50 ms, the same rate both ways).",
        f"Bytes are those of one client, counted at its cable. The target is an accuracy of {measurement.target:g}.",
        "",
        f"TLS is on. The prediction is the replay with `--round-overhead {overhead:.1f}s`, taken from the run that",
        "moves the fewest bytes.",
        *_chunk_lines(runs),
        "",
        f"| {' | '.join(HEADINGS)} |",
        f"|{'---|' * len(HEADINGS)}",
    ]
    for run in runs:
        off = run.predicted / run.seconds - 1
        cells = [
            f"{run.rate / 1e6:g} Mbit/s",
            SETTINGS[run.setting],
            str(run.rounds),
            f"{run.seconds / run.rounds:.1f}",
            f"{run.predicted / run.rounds:.1f}",
            f"{off:+.0%}",
            f"{run.up / 1e6:.2f}",
            f"{run.down / 1e6:.2f}",
            _seconds(run.target_seconds),
            _seconds(run.predicted_target),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += _closing_lines(runs)
    lines.append("")
    for name, value in measurement.about.items():
        lines.append(f"* {name}: {value}")
    return "\n".join(lines) + "\n"


def _closing_lines(runs: list[Run]) -> list[str]:
    """How many predictions came close; none where nothing was predicted."""
    first = calibration(runs)
    # That run's own time is where the overhead comes from, so it is met by construction.
    predicted = [run for run in runs if run is not first]
    if not predicted:
        return []
    close = [run for run in predicted if abs(run.predicted / run.seconds - 1) <= LIMIT]
    return [
        "",
        f"Predicted within {LIMIT:.0%} of what was measured: {len(close)} of {len(predicted)},",
        "not counting the run that the overhead is taken from.",
    ]


def _chunk_lines(runs: list[Run]) -> list[str]:
    """What was changed about Flower, and on which links."""
    chunks = {run.rate: run.chunk for run in runs}
    lines: list[str] = []
    for rate, chunk in chunks.items():
        if chunk is None:
            continue
        lines.append("")
        lines.append(
            f"At {rate / 1e6:g} Mbit/s every process has `{CHUNK_VARIABLE}={chunk}`."
        )
    return lines


def _seconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.0f} s"


def _lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


if __name__ == "__main__":
    main()
