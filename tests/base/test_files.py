"""Pipes, devices and huge files are refused before anybody waits for them; home folders that are not there, too."""

import os
import socket
from pathlib import Path

import pytest

from fedlama.base import InputError, expand_home, open_regular, read_regular, reason


def test_a_regular_file_is_read(tmp_path):
    (tmp_path / "a").write_bytes(b"content")
    (tmp_path / "link").symlink_to("a")
    assert read_regular(tmp_path / "a", maximum=7, what="a test") == b"content"
    assert read_regular(tmp_path / "link", maximum=7, what="a test") == b"content"
    with open_regular(tmp_path / "a") as file:
        assert file.read(3) == b"con"


def test_a_larger_file_is_not_read(tmp_path):
    with (tmp_path / "a").open("wb") as file:
        file.truncate(1 << 40)  # a hole: no disk is used
    with pytest.raises(
        InputError, match=r"has 1,099,511,627,776 bytes; a config has at most 1,000$"
    ):
        read_regular(tmp_path / "a", maximum=1000, what="a config")
    with pytest.raises(InputError, match="has 7 bytes"):
        read_regular(_written(tmp_path / "b", b"content"), maximum=6, what="a config")


def test_a_file_that_does_not_tell_its_length():
    with pytest.raises(InputError, match="more bytes than it claims"):
        read_regular(Path("/proc/self/status"), maximum=10, what="a config")


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="is a named pipe, not a regular file"):
        open_regular(tmp_path / "pipe")


def test_devices_and_folders_are_refused(tmp_path):
    (tmp_path / "zero").symlink_to("/dev/zero")
    with pytest.raises(InputError, match="is a device"):
        read_regular(tmp_path / "zero", maximum=10, what="a config")
    with pytest.raises(IsADirectoryError):
        read_regular(tmp_path, maximum=10, what="a config")


def test_a_socket_or_a_missing_file_is_an_oserror(tmp_path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        with pytest.raises(OSError, match="No such device"):
            open_regular(tmp_path / "socket")
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "missing")


def test_nothing_stays_open(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        with pytest.raises(InputError):
            open_regular(tmp_path / "pipe")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_home_folders(monkeypatch):
    monkeypatch.setenv("HOME", "/home/somebody")
    assert expand_home("~/data") == Path("/home/somebody/data")
    assert expand_home("data") == Path("data")
    with pytest.raises(
        InputError,
        match=r"'~nosuchuser/data' starts with a home folder that is not known",
    ):
        expand_home("~nosuchuser/data")


def test_no_home_at_all(monkeypatch):
    """A container with a user id that has no entry in /etc/passwd."""
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000)
    with pytest.raises(InputError, match="set the environment variable HOME"):
        expand_home("~/data")
    assert expand_home("/data") == Path("/data")


def test_reasons_are_short_and_print():
    assert (
        reason(OSError(2, "No such file or directory", "x" * 10_000))
        == "No such file or directory"
    )
    assert reason(ValueError("first\nsecond")) == "first"
    assert reason(ValueError("\x1b" * 3)) == r"\x1b\x1b\x1b"
    assert reason(KeyError()) == "KeyError"
    assert len(reason(ValueError("x" * 10_000))) < 250


def _written(path, content):
    path.write_bytes(content)
    return path
