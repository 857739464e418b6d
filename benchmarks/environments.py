"""Other simulators get virtual environments of their own, with the same torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".venv-bench"
REQUIREMENTS = {"flower": "flwr[simulation]==1.41.0", "pfl": "pfl[pytorch]==0.6.0"}
INSTALL_SECONDS = 1200


def python_for(environment: str | None) -> Path:
    """The interpreter of an environment, which is made on first use; None is the one that runs this."""
    if environment is None:
        return Path(sys.executable)
    python = FOLDER / environment / "bin" / "python"
    complete = FOLDER / environment / ".complete"
    wanted = [
        f"torch=={torch.__version__.partition('+')[0]}",
        REQUIREMENTS[environment],
    ]
    if not complete.is_file() or complete.read_text(encoding="utf-8").split() != wanted:
        print(
            f"installing {' '.join(wanted)} into {python.parent.parent} (once)",
            file=sys.stderr,
        )
        _run(sys.executable, "-m", "venv", "--clear", str(FOLDER / environment))
        # One command for both: so pip takes the torch at hand instead of the newest one, with CUDA.
        _run(
            str(python),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            *wanted,
        )
        complete.write_text("\n".join(wanted), encoding="utf-8")
    return python


def _run(*command: str) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise RuntimeError(f"{' '.join(command[1:4])} failed: {lines[-1]}")
