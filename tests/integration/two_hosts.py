"""Two hosts on one machine: network namespaces with one cable between them, which can be pulled.

A namespace has interfaces, addresses and routes of its own. Processes in two of them can reach each other through the
cable only, so losing it is what it is between real hosts: nothing is closed, and no packet arrives any more. Files are
shared, as they are on a cluster with a common file system.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
INTERFACE = "cable"
SECONDS = 480  # for any one program: a busy machine may take its time
PORT = 29500  # every namespace has all ports to itself


def why_not() -> str | None:
    """Why there can be no namespaces here, if that is so."""
    if not sys.platform.startswith("linux"):
        return "network namespaces need Linux"
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need iproute2's `ip`"
    name = f"fedlama-{os.getpid()}-try"
    made = subprocess.run(
        ["ip", "netns", "add", name], capture_output=True, text=True, check=False
    )
    if made.returncode != 0:
        return f"this system allows no network namespaces: {made.stderr.strip()}"
    entered = subprocess.run(
        ["ip", "netns", "exec", name, "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    ip("netns", "del", name)
    if entered.returncode != 0:
        return f"this system lets nobody into a network namespace: {entered.stderr.strip()}"
    return None


def ip(*words: str) -> str:
    finished = subprocess.run(
        ["ip", *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert finished.returncode == 0, f"ip {' '.join(words)}: {finished.stderr}"
    return finished.stdout


class TwoHosts:
    """The hosts 0 and 1. What was started on them is ended when they are left, and nothing of them stays."""

    def __init__(self) -> None:
        self.names = [f"fedlama-{os.getpid()}-{host}" for host in (0, 1)]
        self.addresses = ["10.213.0.1", "10.213.0.2"]
        self.started: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "TwoHosts":
        try:
            for name in self.names:
                ip("netns", "add", name)
                ip("-n", name, "link", "set", "lo", "up")
            first, second = self.names
            ip(
                "-n",
                first,
                "link",
                "add",
                INTERFACE,
                "type",
                "veth",
                "peer",
                "name",
                INTERFACE,
                "netns",
                second,
            )
            for name, address in zip(self.names, self.addresses, strict=True):
                ip("-n", name, "addr", "add", f"{address}/24", "dev", INTERFACE)
            self.mend()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.end_everything()
        for name in self.names:
            subprocess.run(
                ["ip", "netns", "del", name], capture_output=True, check=False
            )

    def cut(self) -> None:
        """From now on nothing passes, and nobody is told."""
        ip("-n", self.names[1], "link", "set", INTERFACE, "down")

    def mend(self) -> None:
        """Packets pass again."""
        for name in self.names:
            ip("-n", name, "link", "set", INTERFACE, "up")

    def torchrun(
        self,
        *arguments: str,
        folder: Path,
        numbered: bool,
        processes: int = 1,
        silence: float | None = None,
    ) -> list[subprocess.Popen[bytes]]:
        """The same command on both hosts; what each says goes to host0.log and host1.log of `folder`.

        Either the hosts are `numbered` by us, or they meet and torchrun numbers them.
        """
        started: list[subprocess.Popen[bytes]] = []
        for host in (0, 1):
            options = ["--nnodes", "2", "--nproc-per-node", str(processes)]
            if numbered:
                options += self._numbered(host)
            else:
                options += self._meeting(host)
            started.append(
                self._start(
                    host, [*options, *arguments], folder / f"host{host}.log", silence
                )
            )
        return started

    def _numbered(self, host: int) -> list[str]:
        return [
            "--node-rank",
            str(host),
            "--master-addr",
            self.addresses[0],
            "--master-port",
            str(PORT),
        ]

    def _meeting(self, host: int) -> list[str]:
        # The machine's own name leads to no address of a namespace, so torchrun has to be told which one it is on
        own = [
            "--local-addr",
            self.addresses[host],
            "--rdzv-conf",
            f"is_host={int(host == 0)}",
        ]
        return [
            "--rdzv-backend",
            "c10d",
            "--rdzv-id",
            "42",
            "--rdzv-endpoint",
            f"{self.addresses[0]}:{PORT}",
            *own,
        ]

    def _start(
        self, host: int, words: Sequence[str], log: Path, silence: float | None
    ) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "GLOO_SOCKET_IFNAME": INTERFACE,
            "OMP_NUM_THREADS": "1",
        }
        if silence is not None:
            environment["FEDLAMA_SILENCE"] = str(silence)
        launcher = [sys.executable, "-m", "torch.distributed.run"]
        with log.open("wb") as said:
            process = subprocess.Popen(
                ["ip", "netns", "exec", self.names[host], *launcher, *words],
                stdout=said,
                stderr=said,
                env=environment,
                cwd=REPOSITORY,
            )
        self.started.append(process)
        return process

    def processes_on(self, host: int) -> list[int]:
        """Those that are in the host's namespace: all of them are ours."""
        listed = subprocess.run(
            ["ip", "netns", "pids", self.names[host]],
            capture_output=True,
            text=True,
            check=False,
        )
        return [int(line) for line in listed.stdout.split()]

    def end_everything(self) -> None:
        """Kill what is still going on both hosts."""
        for _ in range(50):  # a launcher may have started something meanwhile
            left = [*self.processes_on(0), *self.processes_on(1)]
            if not left:
                break
            for process in left:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.1)
        for process in self.started:
            with suppress(ProcessLookupError):
                process.kill()
            process.wait(timeout=30)
        self.started.clear()
