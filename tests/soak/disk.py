"""A trial's own disk, which can fill up while a command writes to it and be given room again.

It is a tmpfs in a mount namespace of this process. Where the system does not allow that (it asks for root), the folder
is a plain one, and the files of the command are kept from growing by a limit on their size: the same errors from the
same calls.
"""

import contextlib
import ctypes
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

# sched.h and mount.h
NEW_MOUNTS, RECURSIVE, PRIVATE, READ_ONLY, REMOUNT, DETACH = (
    0x20000,
    0x4000,
    0x40000,
    1,
    32,
    2,
)
SMALL, PLENTY = 8, 4096  # megabytes; a tmpfs takes memory only for what is written


def mounted(folder: Path, megabytes: int = SMALL, *, read_only: bool = False) -> bool:
    """Whether `folder` is now a file system of its own, which only this process and its children see."""
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEW_MOUNTS):
        return False
    libc.mount(b"none", b"/", None, RECURSIVE | PRIVATE, None)
    flags = READ_ONLY if read_only else 0
    return (
        libc.mount(
            b"tmpfs",
            str(folder).encode(),
            b"tmpfs",
            flags,
            f"size={megabytes}m".encode(),
        )
        == 0
    )


class TrialDisk:
    """A disk with room for all that a trial writes, until it is filled; a plain folder if it never will be."""

    def __init__(self, folder: Path, *, will_be_filled: bool) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.is_real = will_be_filled and mounted(folder, PLENTY)

    def fill(self, process: subprocess.Popen) -> None:
        """From now on nothing more can be written here, or by this process and those that it has started."""
        if not self.is_real:
            self._limit(process.pid)
            return
        for _ in range(1000):
            used = os.statvfs(self.folder)
            kilobytes = max(4, (used.f_blocks - used.f_bfree) * used.f_bsize // 1024)
            if self._resize(f"{kilobytes}k"):  # refused if something was written since
                return
        raise RuntimeError("the disk does not stop growing")

    def make_room(self) -> None:
        """Undo that; the limit on a process ended with it."""
        if self.is_real and not self._resize(f"{PLENTY}m"):
            raise RuntimeError("the disk cannot be given room again")

    def close(self) -> None:
        """Take the disk away. What is on it stays in the folder, for whoever looks into a failure."""
        if not self.is_real:
            return
        copy = self.folder.with_name(self.folder.name + "-copy")
        shutil.copytree(self.folder, copy)
        ctypes.CDLL(None).umount2(str(self.folder).encode(), DETACH)
        self.folder.rmdir()
        copy.rename(self.folder)

    def _resize(self, size: str) -> bool:
        libc = ctypes.CDLL(None, use_errno=True)
        return (
            libc.mount(
                None, str(self.folder).encode(), None, REMOUNT, f"size={size}".encode()
            )
            == 0
        )

    def _limit(self, pid: int) -> None:
        for child in children_of(pid):
            self._limit(child)
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))


@contextlib.contextmanager
def trial_disk(folder: Path, *, will_be_filled: bool) -> Iterator[TrialDisk]:
    """A disk at this folder, for as long as the block lasts."""
    disk = TrialDisk(folder, will_be_filled=will_be_filled)
    try:
        yield disk
    finally:
        disk.close()


def children_of(pid: int) -> list[int]:
    """The processes that this one has started."""
    with contextlib.suppress(OSError):
        return [
            int(child)
            for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ]
    return []
