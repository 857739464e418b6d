"""A run for each door, each ended by SIGKILL in the middle of a cycle.

    python -m doors.killed_program FOLDER   # in tests/

Each is a process of its own, forked after what takes longest, which is to import torch.
"""

import os
import signal
import sys
from pathlib import Path

import fedlama
from doors.examples import Counting, Halves, HeavyBall, Rotating, Spring, TurningInPlace
from doors.harness import run_in_folder

# Of three rounds in a cycle and six in a window, the second of the second: slots are saved, and two rounds are lost.
KILLED_IN = 11

DOORS = {
    "local": {"local": Spring(fedlama.SGD(0.05, 4, momentum=0.5))},
    "policy": {"policy": Rotating()},
    "policy in place": {"policy": TurningInPlace()},
    "server": {"server": HeavyBall()},
    "codec": {"uplink": fedlama.compress.ErrorFeedback(Halves())},
    "run slot": {"local": Counting(fedlama.SGD(0.05, 4))},
}


def kill_in_the_middle(record: fedlama.Record) -> None:
    if record.round == KILLED_IN:
        os.kill(os.getpid(), signal.SIGKILL)


def main(folder: Path) -> None:
    for name, options in DOORS.items():
        child = os.fork()
        if child == 0:
            run_in_folder(folder / name, [kill_in_the_middle], **options)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, name


if __name__ == "__main__":
    main(Path(sys.argv[1]))
