"""A disk of a few megabytes that can be filled: a tmpfs in a mount namespace of a forked process.

Where the system does not allow that, the folder is a plain one, and files that were growing are cut off by a limit on
their size instead: the same errors from the same calls.
"""

import io
import json
import resource
import signal
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout, suppress
from multiprocessing import get_context
from pathlib import Path

from fedlama.cli import main
from soak.disk import mounted


class Disk:
    """The small disk at work, inside the forked process."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.is_real = folder, mounted(folder)

    def fill(self) -> None:
        """From now on nothing more can be written."""
        if not self.is_real:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
            return
        with (self.folder / "filler").open("ab", buffering=0) as file:
            for size in (1 << 20, 1 << 12, 1):
                with suppress(OSError):
                    while file.write(bytes(size)) == size:
                        pass

    def make_room(self) -> None:
        """Undo that."""
        resource.setrlimit(
            resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        )
        (self.folder / "filler").unlink(missing_ok=True)


def command(*words: object) -> tuple[int, str]:
    """The command line in this process: its exit code and what it says to the user."""
    said = io.StringIO()
    sys.argv = ["fedlama", *map(str, words)]
    with redirect_stderr(said), redirect_stdout(io.StringIO()):
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0), said.getvalue()
    raise AssertionError("main always exits")


def in_a_fork(scenario, *arguments, answers: Path) -> dict:
    """What a scenario returns (as JSON), run in a process of its own."""
    process = get_context("fork").Process(
        target=_scenario, args=(scenario, arguments, answers)
    )
    process.start()
    process.join(timeout=900)  # a busy machine may take its time
    assert process.exitcode == 0, (
        f"the scenario ended with {process.exitcode}: {_read(answers)}"
    )
    return json.loads(answers.read_text())


def _scenario(scenario, arguments, answers: Path) -> None:
    try:
        answer = scenario(*arguments)
    except BaseException:
        with suppress(OSError):
            answers.write_text(traceback.format_exc())
        raise
    answers.write_text(json.dumps(answer))


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else "nothing told"
