"""Hosts that torchrun joined watch each other, because a network that is cut tells nobody.

A process that dies closes its connections, and whoever waits for it gets an error at once. A host that loses its power
or its network closes nothing: the others would wait for it in a collective for half an hour. So every host puts a beat
into the store at which the processes met, and every process ends when the beats of another host stop, or when the store
no longer answers.

An exception cannot reach the main thread while it waits inside torch. So the process ends itself, as it does under
torch's own watchdog of NCCL. For the run directory that is no different from a SIGKILL.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from fedlama.base import InputError, check_number, printable, shown

BEAT = 1.0  # seconds between two beats, and between two looks at those of others
DEFAULT_SILENCE = 60.0  # seconds without a beat after which a host counts as lost
SILENCE = "FEDLAMA_SILENCE"  # the environment variable with another number of seconds
MAX_NAME = 64  # characters of a host's name
FAILED = 1  # the exit code of a run that failed


class Store(Protocol):
    """What is needed of torch's store: small texts by name, the same for all hosts."""

    def set(self, key: str, value: str, /) -> None:
        """Keep a text."""
        ...

    def check(self, keys: list[str], /) -> bool:
        """Whether all of these are kept."""
        ...

    def get(self, key: str, /) -> bytes:
        """What is kept under a name."""
        ...


@dataclass(frozen=True)
class HostPlace:
    """Which host this process is on, as torchrun numbers them, and whether it speaks for its host."""

    host: int
    hosts: int
    speaks: bool
    meeting_point: str

    @staticmethod
    def from_environment(environment: Mapping[str, str] = os.environ) -> HostPlace:
        """From the variables that torchrun sets."""
        return HostPlace(
            host=int(environment.get("GROUP_RANK", "0")),
            hosts=int(environment.get("GROUP_WORLD_SIZE", "1")),
            speaks=environment.get("LOCAL_RANK", "0") == "0",
            meeting_point=environment.get("MASTER_ADDR", ""),
        )


def silence_allowed(environment: Mapping[str, str] = os.environ) -> float:
    """How many seconds a host may be silent."""
    given = environment.get(SILENCE)
    if given is None:
        return DEFAULT_SILENCE
    try:
        seconds = float(given)
    except ValueError:
        raise InputError(
            f"{SILENCE} must be a number of seconds, not {shown(given)}"
        ) from None
    check_number(SILENCE, seconds, minimum=2 * BEAT, maximum=86_400)
    return seconds


class Watch:
    """What one process knows of the other hosts.

    Silence is counted in looks, not by the clock: a process that was itself stopped for a while has not looked, and
    must not take its own silence for that of others.

    Arguments:
        place: Where this process is.
        silence: After how many seconds without a beat a host is lost.
    """

    def __init__(self, place: HostPlace, silence: float) -> None:
        self.place = place
        self.silence = silence
        others = [host for host in range(place.hosts) if host != place.host]
        # The latest of each host, as it was found in the store
        self._beats = dict.fromkeys(others, b"")
        self._looks_since_beat = dict.fromkeys(others, 0)
        self._looks_since_answer = 0
        self._own_beats = 0

    def exchange(self, store: Store) -> None:
        """Send a beat, and take in those of the others."""
        if self.place.speaks:
            self._own_beats += 1
            own_beat = f"{self._own_beats} {socket.gethostname()}"
            store.set(_key(self.place.host), own_beat)
        for host, known in self._beats.items():
            key = _key(host)
            # To get what is not there would wait for it: that host has not begun yet
            if not store.check([key]):
                continue
            beat = store.get(key)
            if beat != known:
                self._beats[host] = beat
                self._looks_since_beat[host] = 0
        self._looks_since_answer = 0

    def look(self) -> str | None:
        """Once per `BEAT`: what is wrong, if something is."""
        self._looks_since_answer += 1
        for host in self._looks_since_beat:
            self._looks_since_beat[host] += 1

        seconds = f"{self.silence:g} seconds"
        if self._is_too_long(self._looks_since_answer):
            where = printable(self.place.meeting_point, MAX_NAME)
            return (
                f"{where}, where the hosts meet, has not answered for {seconds}{ADVICE}"
            )
        # What other hosts do can only be said while the store answers: a host that began a little later than this
        # process would otherwise be blamed just before the store is.
        if self._looks_since_answer > 1:
            return None
        for host, looks in self._looks_since_beat.items():
            if self._is_too_long(looks):
                name = self._name_of(host)
                return f"host {host}{name} has not been heard of for {seconds}{ADVICE}"
        return None

    def _is_too_long(self, looks: int) -> bool:
        return looks * BEAT > self.silence

    def _name_of(self, host: int) -> str:
        # A beat is a number and the host's name for itself
        beat = self._beats[host].decode(errors="replace")
        _, _, name = beat.partition(" ")
        if not name:
            return ""
        return f" ({printable(name, MAX_NAME)})"


ADVICE = ": it or its network is down, and the run stops here; with --resume it goes on from its last checkpoint"


def _key(host: int) -> str:
    return f"host/{host}"


@contextmanager
def watched(
    connect: Callable[[], Store], place: HostPlace, silence: float
) -> Iterator[None]:
    """Inside, this process ends with a sentence when another host falls silent.

    Arguments:
        connect: Makes a connection to the store that nobody else uses: one that waits would keep others waiting.
        place: Where this process is; where there is one host only, nothing is watched.
        silence: After how many seconds a host is lost.
    """
    if place.hosts == 1:
        yield
        return
    watch = Watch(place, silence)
    ended = threading.Event()
    # Two threads: a store that is cut off may never return from a call, and then somebody else has to notice
    threads = [
        threading.Thread(target=_beat, args=(watch, connect, ended), daemon=True),
        threading.Thread(target=_look, args=(watch, ended), daemon=True),
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join(2 * BEAT)


def _beat(watch: Watch, connect: Callable[[], Store], ended: threading.Event) -> None:
    store: Store | None = None
    while not ended.is_set():
        try:
            store = store or connect()
            watch.exchange(store)
        except RuntimeError:
            # Of torch's store: whether it stays away is for `_look` to say.
            store = None
        ended.wait(BEAT)


def _look(watch: Watch, ended: threading.Event) -> None:
    while not ended.wait(BEAT):
        problem = watch.look()
        if problem is not None:
            _end(problem, watch.place.speaks)


def _end(problem: str, speaks: bool) -> None:
    """End the process; of the processes of a host, one says why."""
    if speaks:
        print(f"fedlama: {problem}", file=sys.stderr, flush=True)
    else:
        # Torchrun ends the others when the first has ended, and that should be the one that speaks
        time.sleep(2 * BEAT)
    os._exit(FAILED)
