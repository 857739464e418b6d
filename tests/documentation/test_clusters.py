"""docs/clusters.md and examples/slurm.sh: the script's command is one that torchrun and fedlama take."""

import os
import subprocess
from pathlib import Path

import pytest
from torch.distributed.run import get_args_parser

from documentation.pages import ROOT
from test_readme import arguments_of, blocks, check_fedlama, check_shell

PAGE = (ROOT / "docs" / "clusters.md").read_text(encoding="utf-8")
SCRIPT = ROOT / "examples" / "slurm.sh"
SLURM = {
    "SLURM_JOB_NODELIST": "node[7-8]",
    "SLURM_CPUS_PER_TASK": "16",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_JOB_ID": "42",
}


def stand_in(folder: Path, name: str, content: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/bash\n{content}\n")
    path.chmod(0o755)


@pytest.fixture
def started(tmp_path):
    """What the script hands to srun, with Slurm's two programs as stand-ins."""
    # More lines than a pipe holds: whoever reads only the first of them must not end the script
    stand_in(
        tmp_path,
        "scontrol",
        '[ "$*" = "show hostnames node[7-8]" ] && printf "node%d\\n" $(seq 7 9999)',
    )
    stand_in(tmp_path, "srun", 'printf "%s\\n" "$@"')

    def start(**more: str) -> list[str]:
        environment = {**SLURM, **more, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        finished = subprocess.run(
            ["bash", str(SCRIPT)],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return finished.stdout.splitlines()

    return start


def test_the_page_has_the_script_as_it_is():
    assert f"```bash\n{SCRIPT.read_text(encoding='utf-8')}```" in PAGE


@pytest.mark.parametrize(
    ("more", "processes"), [({}, "16"), ({"SLURM_GPUS_ON_NODE": "4"}, "4")]
)
def test_the_script_starts_a_command_that_exists(started, more, processes):
    first, launcher, *words = started(**more)
    assert (first, launcher) == ("--kill-on-bad-exit=1", "torchrun")
    options = get_args_parser().parse_args(words)
    assert (options.nnodes, options.nproc_per_node) == ("2", processes)
    assert (options.rdzv_backend, options.rdzv_id, options.rdzv_endpoint) == (
        "c10d",
        "42",
        "node7:29500",
    )
    assert (options.module, options.training_script) == (True, "fedlama")
    arguments = arguments_of("fedlama", words)
    assert arguments == options.training_script_args
    check_fedlama(arguments)


def test_the_commands_of_the_page_exist():
    checked = [
        check_shell(block, set()) for block in blocks(PAGE) if block.language == "sh"
    ]
    assert sum(checked) == 1
