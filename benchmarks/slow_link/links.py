"""Network namespaces joined by virtual cables of a limited rate. Needs root and iproute2."""

from __future__ import annotations

import os
import shutil
import subprocess
from types import TracebackType

BURST = "32k"
LATENCY = "50ms"


def missing() -> str:
    """What is missing to make namespaces; empty if nothing is."""
    for program in ("ip", "tc"):
        if shutil.which(program) is None:
            return f"{program} is not installed (iproute2)"
    if os.geteuid() != 0:
        return "network namespaces need root"
    return ""


class Links:
    """One namespace for the server and one for each client, each joined to the server's by a cable of its own.

    Arguments:
        clients: How many.
        rate: Bits per second of each cable, in both directions.
    """

    def __init__(self, clients: int, rate: float) -> None:
        self.clients = clients
        self.rate = rate
        self.name = f"fedlama{os.getpid()}"

    def __enter__(self) -> Links:
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._remove()

    @property
    def server(self) -> tuple[str, ...]:
        """What a command begins with to run where the server is."""
        return ("ip", "netns", "exec", self.name)

    def client(self, index: int) -> tuple[str, ...]:
        """What a command begins with to run where a client is."""
        return ("ip", "netns", "exec", f"{self.name}-{index}")

    def address(self, index: int) -> str:
        """The server's address as a client sees it."""
        return f"10.77.{index}.1"

    @property
    def addresses(self) -> list[str]:
        """All addresses of the server."""
        return [self.address(index) for index in range(self.clients)]

    def passed(self) -> tuple[int, int]:
        """The bytes that went from all clients to the server so far, and back, with all headers."""
        up = down = 0
        for index in range(self.clients):
            folder = f"/sys/class/net/{self._cable(index)}/statistics"
            up += int(_run(*self.server, "cat", f"{folder}/rx_bytes"))
            down += int(_run(*self.server, "cat", f"{folder}/tx_bytes"))
        return up, down

    def _cable(self, index: int) -> str:
        return f"fl{os.getpid() % 100000}s{index}"

    def _make(self) -> None:
        _run("ip", "netns", "add", self.name)
        _run(*self.server, "ip", "link", "set", "lo", "up")
        for index in range(self.clients):
            there = f"{self.name}-{index}"
            near = self._cable(index)
            far = f"fl{os.getpid() % 100000}c{index}"
            _run("ip", "netns", "add", there)
            _run(
                "ip",
                "link",
                "add",
                near,
                "netns",
                self.name,
                "type",
                "veth",
                "peer",
                "name",
                far,
                "netns",
                there,
            )
            _run(*self.client(index), "ip", "link", "set", "lo", "up")
            self._set_up(self.server, near, f"{self.address(index)}/24")
            self._set_up(self.client(index), far, f"10.77.{index}.2/24")

    def _set_up(self, where: tuple[str, ...], cable: str, address: str) -> None:
        _run(*where, "ip", "address", "add", address, "dev", cable)
        _run(*where, "ip", "link", "set", cable, "up")
        rate = f"{self.rate:.0f}bit"
        limit = ("rate", rate, "burst", BURST, "latency", LATENCY)
        _run(*where, "tc", "qdisc", "add", "dev", cable, "root", "tbf", *limit)

    def _remove(self) -> None:
        for index in range(self.clients):
            subprocess.run(
                ("ip", "netns", "delete", f"{self.name}-{index}"),
                capture_output=True,
                check=False,
            )
        subprocess.run(
            ("ip", "netns", "delete", self.name), capture_output=True, check=False
        )


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed: {done.stderr.strip()}")
    return done.stdout
