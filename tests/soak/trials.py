"""One trial: an uninterrupted run in this process, then the same through the command line, interrupted and resumed."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch

from fedlama.base import InputError, RunError
from fedlama.run.checkpoints import checksum_of, hash_of_records
from fedlama.run.config import parse_config
from fedlama.run.execute import execute
from fedlama.run.toml import to_toml
from fedlama.training.checkpointing import Control
from fedlama.training.rounds import Rounds

from .checks import check_run, contents, require
from .disk import TrialDisk, children_of, trial_disk
from .drawing import Trial

MOST_RESUMES = 60  # of a run that stops wherever too few clients are left
PATIENCE = 300.0  # seconds without an end: it hangs
MARK = "FEDLAMA_SOAK"  # in the environment of all that a trial starts


def try_out(trial: Trial, folder: Path) -> bool:
    """Whether the configuration could be run at all; BrokenError if something did not hold."""
    try:
        config = parse_config(trial.tables)
    except InputError:  # choices that do not go together
        return False
    whole = folder / "whole"
    disk_folder = folder / "disk"
    interrupted = disk_folder / "interrupted"
    temporary = disk_folder / "temporary"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "config.toml"
    file.write_text(to_toml(config.model_dump(exclude_none=True)))
    # For the first one Python opens a piece of shared memory, which it keeps for all that follow
    Control()
    held = resources()
    try:
        with synchronised_rows_checked():
            finish_in_process(config, whole)
    except InputError:
        # A draw that does not fit, such as BatchNorm with a batch of one
        return False
    check_run(whole)
    require_no_more_than(held, "in this process")
    mark = f"{os.getpid()}-{trial.number}"
    with trial_disk(disk_folder, will_be_filled=trial.fills_a_disk) as disk:
        temporary.mkdir()
        finish_interrupted(
            trial,
            file,
            interrupted,
            disk,
            {**os.environ, "TMPDIR": str(temporary), MARK: mark},
        )
    require(
        contents(interrupted) == contents(whole),
        "a resumed run differs from the uninterrupted one",
    )
    require(
        not list(temporary.iterdir()),
        f"temporary files were left: {sorted(map(str, temporary.iterdir()))}",
    )
    wait_for_the_end_of(mark)
    require_no_more_than(held, "by the command")
    return True


def finish_in_process(config, folder: Path) -> None:
    for attempt in range(MOST_RESUMES):
        try:
            execute(config, folder, workers=1, resume=attempt > 0)
        except RunError as error:
            require("with new clients" in str(error), f"the run failed: {error}")
        else:
            return
    require(False, f"{MOST_RESUMES} resumes were not enough")


@contextlib.contextmanager
def synchronised_rows_checked():
    """Let every cycle's end look at the rows: all clients' copies of all layers are the global row.

    At a window's end the copies are left alone, because those who come next are given the whole row.
    """
    close = Rounds.close

    def checked(self, current, verdict, downloads=None):
        played = close(self, current, verdict, downloads)
        after = played.position
        if current.plan.ends_cycle:
            require(
                bool(after.row.isfinite().all()),
                f"the global row is not finite after cycle {after.policy_state.cycle}",
            )
        if current.plan.ends_cycle and after.step % self.job.window_steps:
            rows = current.cohort.rows
            same = torch.equal(rows, after.row.expand_as(rows))
            require(
                same,
                f"rows differ from the global one at the end of cycle {after.policy_state.cycle}",
            )
        return played

    Rounds.close = checked
    try:
        yield
    finally:
        Rounds.close = close


def finish_interrupted(
    trial: Trial, file: Path, folder: Path, disk: TrialDisk, environment: dict[str, str]
) -> None:
    for interruption in trial.interruptions:
        process = start(trial, file, folder, environment)
        wait_for_rounds(folder, process, rounds_of(folder) + interruption.rounds)
        if interruption.kind == "full disk":
            run_out_of_room(process, folder, disk)
        elif interruption.kind == "stop":
            stop(process, has_begun=interruption.rounds > 0)
        else:
            kill(process, a_worker=interruption.kind == "kill a worker")
    if trial.forges:
        forge_newest_checkpoint(folder)
    for _ in range(MOST_RESUMES):
        process = start(trial, file, folder, environment)
        try:
            said = process.communicate(timeout=PATIENCE)[1]
        except subprocess.TimeoutExpired:
            process.kill()
            require(False, "the command hangs")
        if process.returncode == 0:
            return
        require(
            process.returncode == 1 and "with new clients" in said,
            f"exit {process.returncode}: {said}",
        )
        require("Traceback" not in said, said)
    require(False, f"{MOST_RESUMES} resumes were not enough")


def start(
    trial: Trial, file: Path, folder: Path, environment: dict[str, str]
) -> subprocess.Popen:
    command = [
        sys.executable,
        "-m",
        "fedlama",
        "run",
        str(file),
        "--out",
        str(folder),
        "--resume",
    ]
    command += ["--workers", str(trial.workers)]
    return subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env=environment,
        cwd=file.parent,
    )


def kill(process: subprocess.Popen, *, a_worker: bool) -> None:
    victims = children_of(process.pid) if a_worker else []
    with contextlib.suppress(ProcessLookupError):
        os.kill(victims[-1] if victims else process.pid, signal.SIGKILL)
    process.communicate(timeout=PATIENCE)


def stop(process: subprocess.Popen, *, has_begun: bool) -> None:
    """Ask it to stop, and once more: it saves and ends, or ends at once, or was finished already."""
    for _ in range(2):
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        time.sleep(0.05)
    said = process.communicate(timeout=PATIENCE)[1]
    codes = (0, 1, 130)
    if not has_begun:
        codes += (-signal.SIGTERM,)  # Python itself was still starting
    require(
        process.returncode in codes, f"exit {process.returncode} after SIGTERM: {said}"
    )
    require("Traceback" not in said, said)


def run_out_of_room(process: subprocess.Popen, folder: Path, disk: TrialDisk) -> None:
    """Fill the disk and see the command end: with one sentence about it, or because it needed no more room."""
    disk.fill(process)
    try:
        said = process.communicate(timeout=PATIENCE)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        require(False, "the command hangs on a full disk")
    disk.make_room()
    require("Traceback" not in said, said)
    require(
        process.returncode in (0, 1, 2),
        f"exit {process.returncode} on a full disk: {said}",
    )
    if process.returncode != 0:
        is_told = "cannot be written" in said and "no space left" in said
        if not disk.is_real:  # a limit on files holds for shared memory, too
            is_told = is_told or "File too large" in said
        require(
            is_told or "with new clients" in said,
            f"exit {process.returncode} on a full disk, but it is not told: {said}",
        )
    left = sorted(str(path) for path in folder.rglob("*.partial"))
    require(not left, f"half a file was left on a full disk: {left}")


def forge_newest_checkpoint(folder: Path) -> None:
    """Under a right checksum: a run that ends with the same bits has not used it."""
    manifests = sorted((folder / "checkpoint").glob("step-*.json"))
    if len(manifests) < 2 or (folder / "summary.json").exists():
        return
    path = manifests[-1]
    manifest = json.loads(path.read_text())
    del manifest["checksum"]
    manifest["round"] += 1
    manifest["records"] = hash_of_records(
        (folder / "rounds.jsonl").read_bytes().split(b"\n")[: manifest["round"]]
    )
    manifest["checksum"] = checksum_of(manifest)
    path.write_text(json.dumps(manifest))


def rounds_of(folder: Path) -> int:
    path = folder / "rounds.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def wait_for_rounds(folder: Path, process: subprocess.Popen, rounds: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while rounds_of(folder) < rounds and process.poll() is None:
        require(time.monotonic() < deadline, "the command hangs")
        time.sleep(0.01)


# Shared values of multiprocessing open an arena once a process, which is no leak
_FIRST = Control()


def resources() -> dict[str, int]:
    """Open files, children and shared memory, as far as they are this process's or named like ours."""
    return {
        "files": len(list(Path("/proc/self/fd").iterdir())),
        "children": len(children_of(os.getpid())),
        "shared memory": len(
            [*Path("/dev/shm").glob("sem.*"), *Path("/dev/shm").glob("torch_*")]
        ),
    }


def require_no_more_than(held: dict[str, int], where: str) -> None:
    """Look a few times: another program of this machine may hold shared memory for a moment."""
    for _ in range(50):
        now = resources()
        if all(now[name] <= held[name] for name in held):
            return
        time.sleep(0.1)
    require(False, f"left behind {where}: {held} became {now}")


def wait_for_the_end_of(mark: str) -> None:
    """Workers of a killed parent end by themselves, within seconds."""
    deadline = time.monotonic() + 20
    while running := [
        path for path in Path("/proc").glob("[0-9]*") if _is_marked(path, mark)
    ]:
        require(time.monotonic() < deadline, f"processes were left: {running}")
        time.sleep(0.05)


def _is_marked(process: Path, mark: str) -> bool:
    with contextlib.suppress(OSError):
        return f"{MARK}={mark}".encode() in (process / "environ").read_bytes().split(
            b"\0"
        )
    return False
