"""The hash of a data set: of its contents, wherever they lie, and of nothing else."""

import hashlib
import shutil

import numpy as np
import pytest
from formats import cifar100_files, leaf_content, write_files, write_idx_set, write_leaf

from fedlama.base import InputError
from fedlama.data import data_files, fingerprint


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLAMA_DATA", str(tmp_path))
    return tmp_path


def write_npz(path, seed=0):
    x = np.random.default_rng(seed).integers(0, 256, (8, 4, 4), dtype=np.uint8)
    np.savez(path, x=x, y=np.arange(8) % 2, test=np.arange(8) > 5)
    return path


def test_one_file_has_its_own_hash(folder):
    path = write_npz(folder / "mine.npz")
    expected = hashlib.sha256(path.read_bytes()).hexdigest()
    (folder / "elsewhere").mkdir()
    copy = shutil.copy(path, folder / "elsewhere" / "other.npz")
    assert (
        fingerprint("mine")
        == fingerprint(str(path))
        == fingerprint(str(copy))
        == expected
    )


def test_the_embedded_digits_have_none():
    assert fingerprint("digits") is None
    assert data_files("digits") == []


def test_several_files_by_hand(folder):
    write_files(folder / "cifar-100-python", {**cifar100_files(), "meta": b"not read"})
    hashes = [
        hashlib.sha256(cifar100_files()[name]).hexdigest() for name in ("train", "test")
    ]
    expected = hashlib.sha256(f"{hashes[0]}\n{hashes[1]}\n".encode()).hexdigest()
    assert fingerprint("cifar100") == expected
    (folder / "cifar-100-python" / "meta").write_bytes(b"changed, and still not read")
    assert fingerprint("cifar100") == expected


def write_sets(folder):
    write_files(folder / "cifar-100-python", cifar100_files())
    write_idx_set(folder / "mnist")
    write_idx_set(
        folder / "emnist",
        names="emnist-letters-{split}-{content}-idx{d}-ubyte.gz",
        test="test",
    )
    write_leaf(folder / "femnist", leaf_content({"a": [1]}), leaf_content({"a": [1]}))
    write_leaf(folder / "own", leaf_content({"a": [1]}), leaf_content({"a": [1]}))


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("cifar100", 2),
        ("mnist", 4),
        ("emnist", 4),
        ("emnist-letters", 4),
        ("femnist", 2),
        ("own", 2),
    ],
)
def test_a_byte_in_any_file_changes_it(folder, name, files):
    write_sets(folder)
    before, paths = fingerprint(name), data_files(name)
    assert len(paths) == files
    for path in paths:
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        assert fingerprint(name) != before
        path.write_bytes(content)
    assert fingerprint(name) == before


def test_a_file_that_is_gone_is_named(folder):
    write_files(folder / "cifar-100-python", {"train": b""})
    with pytest.raises(
        InputError, match=r"cifar-100-python/test cannot be read \(No such file"
    ):
        fingerprint("cifar100")
