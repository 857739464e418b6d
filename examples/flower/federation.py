"""A Flower federation on this machine: SuperLink and SuperNodes as processes, with TLS and SuperNode authentication.

Everything lives in one folder, FLWR_HOME included. Certificates and keys are made when it starts. What was started is
ended when the context ends, with all that it started itself.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

APP = Path(__file__).parent
BIN = Path(sys.executable).parent
NAME = "here"  # of the connection in FLWR_HOME/config.toml
ENDED = "finished"
ASK_SECONDS = 60.0
# By which a user or a supervisor ends a program, and a terminal that is closed
ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Federation:
    """A SuperLink, and as many SuperNodes as are started.

    Arguments:
        folder: Where everything is written; it should be empty.
        simulated: How many SuperNodes Flower simulates; None for real ones.
        seconds: How long to wait for anything before giving up.
        inside: What the commands of the SuperLink and of `flwr` begin with, such as ("ip", "netns", "exec", NAME).
        addresses: Addresses under which SuperNodes reach the SuperLink, beside 127.0.0.1.
    """

    def __init__(
        self,
        folder: Path,
        *,
        simulated: int | None = None,
        seconds: float = 240.0,
        inside: Sequence[str] = (),
        addresses: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self.simulated = simulated
        self.seconds = seconds
        self.inside = list(inside)
        self.addresses = list(addresses)
        self.port = free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.environment = dict(
            os.environ, FLWR_HOME=str(folder / "flwr"), FLWR_TELEMETRY_ENABLED="0"
        )
        self.environment["OMP_NUM_THREADS"] = "1"
        # Flower's programs start each other by name.
        self.environment["PATH"] = (
            f"{BIN}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        )

    def __enter__(self) -> Federation:
        home = Path(self.environment["FLWR_HOME"])
        home.mkdir(parents=True)
        try:
            if self.simulated is None:
                make_certificates(self.folder, self.addresses)
            self._write_connection(home)
            self._start_superlink()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *problem: object) -> None:
        self.end()

    def end(self) -> None:
        """End every process that was started, with its children."""
        for name in list(self.processes)[::-1]:
            self.stop(name)
        # Flower detaches what it starts; that ends by itself after its parent, but not always at once.
        end = time.monotonic() + 20
        while (left := self.descendants()) and time.monotonic() < end:
            for process in left:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.2)

    def descendants(self) -> list[int]:
        """The ids of all processes that have this federation's FLWR_HOME in their environment."""
        mark = f"FLWR_HOME={self.environment['FLWR_HOME']}".encode()
        found: list[int] = []
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            with suppress(OSError):
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
        return found

    def stop(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        """End one process and its group; what does not go in ten seconds is killed."""
        process = self.processes.pop(name)
        _signal_group(process, how)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=10)
        _signal_group(process, signal.SIGKILL)
        process.wait()

    def start(self, name: str, command: list[str], inside: Sequence[str] = ()) -> None:
        """Start a program of Flower in a process group of its own."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [*inside, str(BIN / command[0]), *command[1:]],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=self.environment,
                cwd=self.folder,
                start_new_session=True,
            )

    def log(self, name: str) -> str:
        """What a process printed so far."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def start_supernode(
        self,
        partition: int,
        partitions: int,
        *,
        register: bool = True,
        superlink: str = "",
        inside: Sequence[str] = (),
        state_folder: Path | None = None,
    ) -> str:
        """Start a SuperNode with a key of its own; its name here.

        Arguments:
            partition: Which client it is.
            partitions: How many there are.
            register: Whether its key is registered with the SuperLink.
            superlink: Where the SuperLink is, if not on 127.0.0.1.
            inside: What its command begins with.
            state_folder: Where it keeps the state of large models.
        """
        config = f"partition-id={partition} num-partitions={partitions}"
        if state_folder is not None:
            config += f' state-folder="{state_folder}"'
        name = f"supernode-{partition}"
        key = self.folder / f"{name}.key"
        if not key.exists():
            make_key(key)
            if register:
                self.flwr("supernode", "register", str(key.with_suffix(".pub")), NAME)
        self.start(
            name,
            [
                "flower-supernode",
                "--root-certificates",
                str(self.folder / "ca.crt"),
                "--superlink",
                superlink or f"127.0.0.1:{self.port}",
                "--auth-supernode-private-key",
                str(key),
                "--port",
                str(free_port()),
                "--node-config",
                config,
            ],
            inside,
        )
        return name

    def run(self, app: Path = APP, **config: object) -> str:
        """Submit an app with these values of its configuration; the run's id."""
        values = " ".join(
            f"{name.replace('_', '-')}={json.dumps(value)}"
            for name, value in config.items()
        )
        printed = self.flwr(
            "run", str(app), NAME, "--run-config", values, "--format", "json"
        )
        return str(_json(printed)["run-id"])

    def wait_for(self, run: str, sign: Path) -> None:
        """Wait until a run has written a file; an error with its log if it ends without.

        Arguments:
            run: The run's id.
            sign: A file that the run writes last. Asking Flower takes seconds of a core, so it is asked once a minute.
        """
        end = time.monotonic() + self.seconds
        ask = time.monotonic() + ASK_SECONDS
        while not sign.exists():
            if time.monotonic() > end:
                raise TimeoutError(
                    f"run {run} did not end in {self.seconds:g} seconds:\n{self.run_log(run)}"
                )
            if time.monotonic() > ask:
                status = self.status(run)
                if status.startswith(ENDED) and not sign.exists():
                    raise RuntimeError(
                        f"run {run} ended with {status}:\n{self.run_log(run)}"
                    )
                ask = time.monotonic() + ASK_SECONDS
            time.sleep(0.2)

    def status(self, run: str) -> str:
        """The status of a run."""
        listed = _json(self.flwr("list", NAME, "--run-id", run, "--format", "json"))
        return str(listed["runs"][0]["status"])

    def run_log(self, run: str) -> str:
        """What a run's ServerApp printed."""
        return self.flwr("log", run, NAME, "--show")

    def flwr(self, *arguments: str) -> str:
        """What a command of Flower's client prints; an error with all it said if it fails."""
        done = subprocess.run(
            [*self.inside, str(BIN / "flwr"), *arguments],
            env=self.environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=self.seconds,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(
                f"flwr {' '.join(arguments)} failed:\n{done.stdout}\n{done.stderr}"
            )
        return done.stdout

    def _write_connection(self, home: Path) -> None:
        lines = [
            "[superlink]",
            f'default = "{NAME}"',
            "",
            f"[superlink.{NAME}]",
            f'address = "127.0.0.1:{self.port}"',
        ]
        if self.simulated is None:
            lines.append(f'root-certificates = "{self.folder / "ca.crt"}"')
        else:
            lines.append("insecure = true")
            lines.append(f"options.num-supernodes = {self.simulated}")
            lines.append("options.backend.client-resources.num-cpus = 1")
            lines.append("options.backend.init-args.num-cpus = 2")
        (home / "config.toml").write_text("\n".join(lines) + "\n")

    def _start_superlink(self) -> None:
        host = "127.0.0.1"
        if self.addresses:
            host = "0.0.0.0"
        command = ["flower-superlink", "--host", host, "--port", str(self.port)]
        if self.simulated is not None:
            command += ["--insecure", "--simulation"]
        else:
            command += ["--ssl-ca-certfile", str(self.folder / "ca.crt")]
            command += ["--ssl-certfile", str(self.folder / "server.crt")]
            command += ["--ssl-keyfile", str(self.folder / "server.key")]
            command += ["--enable-supernode-auth"]
        # What the app needs is installed here; Flower would look for it anew in every run.
        command += ["--disable-runtime-dependency-installation"]
        self.start("superlink", command, self.inside)
        end = time.monotonic() + self.seconds
        while not self._listens():
            if self.processes["superlink"].poll() is not None or time.monotonic() > end:
                raise RuntimeError(
                    f"the SuperLink did not start:\n{self.log('superlink')}"
                )
            time.sleep(0.2)

    def _listens(self) -> bool:
        """Whether the SuperLink takes connections."""
        probe = (
            f"import socket; socket.create_connection(('127.0.0.1', {self.port}), 1)"
        )
        if self.inside:
            command = [*self.inside, sys.executable, "-c", probe]
            return (
                subprocess.run(command, capture_output=True, check=False).returncode
                == 0
            )
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False


def leave_when_asked() -> None:
    """Let this program leave by an exception when it is asked to end: otherwise what it started would stay."""

    def leave(number: int, _: object) -> None:
        # A second one, such as an impatient Ctrl-C, must not break off the ending.
        for ending in ENDINGS:
            signal.signal(ending, signal.SIG_IGN)
        sys.exit(128 + number)

    for ending in ENDINGS:
        # nohup has it ignored, and so it stays.
        if signal.getsignal(ending) is not signal.SIG_IGN:
            signal.signal(ending, leave)


def free_port() -> int:
    """A port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def make_certificates(folder: Path, addresses: Sequence[str] = ()) -> None:
    """A certificate authority, and a certificate of it for 127.0.0.1 and further addresses."""
    authority = ec.generate_private_key(ec.SECP256R1())
    server = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedlama example CA")])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    subjects: list[x509.GeneralName] = [x509.DNSName("localhost")]
    for address in ("127.0.0.1", *addresses):
        subjects.append(x509.IPAddress(ipaddress.ip_address(address)))
    names = x509.SubjectAlternativeName(subjects)
    root = _certificate(issuer, issuer, authority.public_key())
    root = root.add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
    root = root.add_extension(usage, critical=True)
    identifier = x509.SubjectKeyIdentifier.from_public_key(authority.public_key())
    root = root.add_extension(identifier, critical=False)
    leaf = _certificate(subject, issuer, server.public_key()).add_extension(
        names, critical=False
    )
    leaf = leaf.add_extension(
        x509.BasicConstraints(ca=False, path_length=None), critical=True
    )
    by = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
    leaf = leaf.add_extension(by, critical=False)
    pem = serialization.Encoding.PEM
    (folder / "ca.crt").write_bytes(
        root.sign(authority, hashes.SHA256()).public_bytes(pem)
    )
    (folder / "server.crt").write_bytes(
        leaf.sign(authority, hashes.SHA256()).public_bytes(pem)
    )
    plain = serialization.NoEncryption()
    _write_secret(
        folder / "server.key",
        server.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain),
    )


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
    )
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(
        now - datetime.timedelta(minutes=5)
    ).not_valid_after(now + datetime.timedelta(days=1))


def make_key(path: Path) -> None:
    """A NIST EC key in OpenSSH format, the public part beside it with .pub."""
    key = ec.generate_private_key(ec.SECP384R1())
    plain = serialization.NoEncryption()
    openssh = serialization.PrivateFormat.OpenSSH
    _write_secret(path, key.private_bytes(serialization.Encoding.PEM, openssh, plain))
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    path.with_suffix(".pub").write_bytes(public + b"\n")


def _write_secret(path: Path, content: bytes) -> None:
    with os.fdopen(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb"
    ) as file:
        file.write(content)


def _signal_group(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, how)


def _json(printed: str) -> dict:
    """The JSON object in what a command printed."""
    return json.loads(printed[printed.index("{") : printed.rindex("}") + 1])
