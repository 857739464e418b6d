"""The page of measured runs, and the file of their numbers beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.slow_link.prediction import predict
from benchmarks.slow_link.runs import Run

SETTINGS = {
    "frugal-both": "frugal, coded downlink",
    "frugal": "frugal",
    "fedlama": "FedLAMA(6, 4)",
    "flower": "Flower's FedAvg",
}
# Flower cuts what it sends into pieces of so many bytes, sends two at a time, and gives up on one after 30 seconds.
# Pieces of its own 5 MB are lost on links below 2.8 Mbit/s, and sent again, for ever.
CHUNK_VARIABLE = "FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE"
LIMIT = 0.15  # how far a prediction may be from what was measured
ABOUT = "* "  # begins a line of what it was measured with, the last lines of a page
HEADINGS = (
    "link",
    "setting",
    "rounds",
    "s per round",
    "predicted",
    "off by",
    "left out",
    "up, MB",
    "down, MB",
    "to target",
    "pred.",
)


@dataclass
class Measurement:
    """The runs of one call, and what their page says of it."""

    command: str
    target: float  # accuracy
    about: dict[str, object]
    runs: list[Run]


def publish(measurement: Measurement, write: Path | None, notes: str = "") -> str:
    """The table of the runs so far, in a file if one was named.

    Arguments:
        measurement: The runs.
        write: The file; the JSON goes beside it.
        notes: What stands below the table.
    """
    overheads = predict(measurement.runs)
    text = table(measurement, overheads) + notes
    if write:
        write.write_text(text)
        plain = {
            "round_overhead": {
                _link(rate): overhead for rate, overhead in overheads.items()
            },
            **asdict(measurement),
        }
        json_file = write.with_suffix(".json")
        json_file.write_text(json.dumps(plain, indent=2) + "\n")
    return text


def notes_below(path: Path) -> str:
    """What was written by hand below a page: all after the list of what it was measured with.

    Arguments:
        path: The page, which need not be there.
    """
    if not path.exists():
        return ""
    lines = path.read_text().splitlines(keepends=True)
    in_list = [number for number, line in enumerate(lines) if line.startswith(ABOUT)]
    if not in_list:
        return ""
    end = in_list[0]
    while end < len(lines) and lines[end].startswith(ABOUT):
        end += 1
    return "".join(lines[end:])


def load(path: Path, *, command: str, target: float, chunk: int | None) -> Measurement:
    """What was measured earlier.

    Arguments:
        path: Its JSON file.
        command: What to say where an early file does not name the command.
        target: The accuracy where an early file does not name it.
        chunk: Bytes of Flower's pieces where an early file does not name them.
    """
    plain = json.loads(path.read_text())
    runs: list[Run] = []
    for values in plain["runs"]:
        run = Run(**{"chunk": chunk, **values})
        # Flower's own FedAvg sends the same in every round, also where only the sum was kept.
        if run.setting == "flower" and not run.round_up:
            run.round_up = [run.ledger_up / run.rounds] * run.rounds
            run.round_down = [run.ledger_down / run.rounds] * run.rounds
        runs.append(run)
    return Measurement(
        command=plain.get("command", command),
        target=plain.get("target", target),
        about=plain["about"],
        runs=runs,
    )


def table(measurement: Measurement, overheads: Mapping[float, float]) -> str:
    """Markdown.

    Arguments:
        measurement: The runs, with their predictions.
        overheads: The fixed time per round that they were predicted with, by rate.
    """
    runs = measurement.runs
    lines = [
        "# A slow link, measured",
        "",
        f"`{measurement.command}`",
        "",
        f"The LEAF CNN (26 MB) on the embedded digits, two clients, both in every round, {runs[0].rounds} rounds of",
        "six steps. Each client has a link of its own (`tbf`, burst 32k, latency 50 ms, the same rate both ways).",
        f"Bytes are those of one client, counted at its cable. The target is an accuracy of {measurement.target:g}.",
        "TLS is on.",
        "",
        *_prediction_lines(overheads),
        *_chunk_lines(runs),
        "",
        f"| {' | '.join(HEADINGS)} |",
        f"|{'---|' * len(HEADINGS)}",
    ]
    for run in runs:
        cells = [
            _link(run.rate),
            SETTINGS[run.setting],
            str(run.rounds),
            f"{run.seconds / run.rounds:.1f}",
            f"{run.predicted / run.rounds:.1f}",
            f"{run.off:+.1%}",
            _share(run.off_by_others),
            f"{run.up / 1e6:.2f}",
            f"{run.down / 1e6:.2f}",
            _seconds(run.target_seconds),
            _seconds(run.predicted_target),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += _closing_lines(runs)
    lines.append("")
    for name, value in measurement.about.items():
        lines.append(f"{ABOUT}{name}: {value}")
    return "\n".join(lines) + "\n"


def _prediction_lines(overheads: Mapping[float, float]) -> list[str]:
    """How the predictions were made."""
    options: list[str] = []
    for rate, overhead in overheads.items():
        option = f"`--round-overhead {overhead:.1f}s`"
        if len(overheads) > 1:
            option = f"{option} at {_link(rate)}"
        options.append(option)
    return [
        f"The prediction is the network replay with {', '.join(options)}.",
        "This fixed time per round is fitted to the runs of this page, all of one rate: it is the one whose",
        'largest relative error is the smallest. "Left out" is the error of a run that is predicted with the time',
        "fitted to the other runs of its rate.",
    ]


def _closing_lines(runs: Sequence[Run]) -> list[str]:
    """How many predictions came close; none where nothing was predicted by other runs."""
    by_others: list[float] = []
    for run in runs:
        if run.off_by_others is not None:
            by_others.append(abs(run.off_by_others))
    if not by_others:
        return []
    fitted_errors = [abs(run.off) for run in runs]
    return [
        "",
        f"Within {LIMIT:.0%} of what was measured: {_close(fitted_errors)} of {len(runs)} with the time fitted to all,",
        f"{_close(by_others)} of {len(by_others)} where a run is left out of the fit; the largest errors are "
        f"{max(fitted_errors):.1%} and {max(by_others):.1%}.",
    ]


def _close(errors: Sequence[float]) -> int:
    close = [error for error in errors if error <= LIMIT]
    return len(close)


def _chunk_lines(runs: Sequence[Run]) -> list[str]:
    """What was changed about Flower, and on which links."""
    chunks = {run.rate: run.chunk for run in runs}
    lines: list[str] = []
    for rate, chunk in chunks.items():
        if chunk is None:
            continue
        lines.append("")
        lines.append(f"At {_link(rate)} every process has `{CHUNK_VARIABLE}={chunk}`.")
    return lines


def _link(rate: float) -> str:
    return f"{rate / 1e6:g} Mbit/s"


def _share(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:+.1%}"


def _seconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.0f} s"
