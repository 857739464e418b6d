"""Names and places that a person, a file or a machine gives: whatever they hold, one line that prints comes of it."""

import os
from pathlib import Path

import numpy as np
import pytest

from fedlama.base import InputError
from fedlama.data import (
    catalog,
    data_files,
    data_folder,
    digits,
    fingerprint,
    load,
    locate,
)
from fedlama.data.folders import data_folders

HOSTILE = "\x1b[31mred\x07\r\n\u2028\u202e"
NAMES = [
    HOSTILE,
    f"{HOSTILE}.npz",
    f"{HOSTILE}/set.npz",
    "x\x00y",
    "x\x00y.npz",
    "x" * 1_000_000,
    "x/" * 500_000,
    f"{'x' * 300}.npz",
    "~nosuchuser",
    "~nosuchuser/set.npz",
    "~" * 100_000,
    "",
    ".",
    "/",
    "\ud800",
    "/dev/zero",
    "/proc/self/mem",
]


@pytest.fixture
def no_home(monkeypatch):
    """A container whose user has no entry in /etc/passwd."""
    for name in ("HOME", "XDG_CACHE_HOME", "FEDLAMA_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000)


def sentence(caught):
    text = str(caught.value)
    assert text.isprintable()
    assert len(text) < 2500
    return text


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
@pytest.mark.parametrize("use", [load, locate, data_files, fingerprint])
def test_any_name_of_a_data_set(name, use):
    with pytest.raises(InputError) as caught:
        use(name)
    sentence(caught)


def test_a_folder_of_a_hostile_name(tmp_path, monkeypatch):
    folder = tmp_path / HOSTILE
    folder.mkdir()
    monkeypatch.setenv("FEDLAMA_DATA", str(folder))
    np.savez(folder / f"{HOSTILE}.npz", x=np.zeros((4, 2), np.uint8))
    (folder / "cifar-100-python").mkdir()
    for name in (
        HOSTILE,
        "cifar100",
        "cifar10",
        "nothing",
        str(folder / f"{HOSTILE}.npz"),
    ):
        with pytest.raises(InputError) as caught:
            load(name)
        assert r"\x1b[31mred" in sentence(caught)


def test_a_set_carries_no_control_characters_in_its_name(tmp_path):
    path = tmp_path / f"{HOSTILE}.npz"
    np.savez(
        path, x=np.zeros((4, 2), np.uint8), y=np.zeros(4, int), test=np.arange(4) > 1
    )
    assert load(str(path)).name == r"\x1b[31mred\x07\r\n\u2028\u202e"


def test_without_a_home_folder_only_the_cache_is_missing(no_home):
    assert [str(folder) for folder in data_folders()] == ["/usr/share/datasets"]
    assert load("digits").name == "digits"
    assert catalog()[0].name == "digits"
    with pytest.raises(
        InputError, match=r"cifar10 is not there: looked for .* in /usr/share/datasets"
    ):
        load("cifar10")
    with pytest.raises(InputError, match="set FEDLAMA_DATA to a folder"):
        data_folder()


def test_without_a_home_folder_the_named_one_serves(no_home, monkeypatch, tmp_path):
    monkeypatch.setenv("FEDLAMA_DATA", str(tmp_path))
    assert data_folder() == tmp_path
    with pytest.raises(InputError, match="starts with a home folder that is not known"):
        load("~/set.npz")


def test_a_home_folder_of_nobody_is_named(monkeypatch):
    monkeypatch.setenv("FEDLAMA_DATA", "~nosuchuser/data")
    with pytest.raises(
        InputError,
        match="'~nosuchuser/data' starts with a home folder that is not known",
    ):
        load("cifar10")
    monkeypatch.delenv("FEDLAMA_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", "~nosuchuser")
    assert len(digits().x_test) == 360
    assert list(data_folders()) == [Path("/usr/share/datasets")]
