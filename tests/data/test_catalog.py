"""Sets by name: where they are looked for, and what is said when they are not there."""

from pathlib import Path

import numpy as np
import pytest
from formats import (
    cifar10_files,
    cifar100_files,
    leaf_content,
    write_files,
    write_idx_set,
    write_leaf,
    write_tar_gz,
)

from fedlama.base import InputError
from fedlama.data import catalog, data_folder, load, locate

WRITERS = leaf_content({"f1": [0, 1], "f2": [5]})


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    """The three folders, all below tmp_path, and a working folder with nothing in it."""
    for name in ("named", "cache/fedlama", "system", "here"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setenv("FEDLAMA_DATA", str(tmp_path / "named"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("fedlama.data.folders.SYSTEM_FOLDER", tmp_path / "system")
    monkeypatch.chdir(tmp_path / "here")


def refused(name, *words):
    with pytest.raises(InputError) as caught:
        load(name)
    sentence = str(caught.value)
    assert "\n" not in sentence
    for word in words:
        assert word in sentence


def write_npz(path):
    x = np.arange(8 * 16, dtype=np.uint8).reshape(8, 4, 4)
    np.savez(
        path, x=x, y=np.arange(8) % 2, test=np.arange(8) > 5, writer=np.arange(8) // 2
    )


def test_the_embedded_digits_need_no_folder():
    assert load("digits").name == "digits"
    assert locate("digits") is None


def test_folders_in_order(tmp_path, monkeypatch):
    assert data_folder() == tmp_path / "named"
    for place, count in (("system", 3), ("cache/fedlama", 4), ("named", 5)):
        write_files(tmp_path / place / "cifar-100-python", cifar100_files(train=count))
        assert len(load("cifar100").x_train) == count
        assert locate("cifar100") == tmp_path / place / "cifar-100-python"
    monkeypatch.delenv("FEDLAMA_DATA")
    assert len(load("cifar100").x_train) == 4
    assert data_folder() == tmp_path / "cache" / "fedlama"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert data_folder() == tmp_path / "home" / ".cache" / "fedlama"


def test_the_folder_may_start_at_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("FEDLAMA_DATA", "~/named")
    assert data_folder() == tmp_path / "named"


def test_cifar_as_archive_and_as_folder(tmp_path):
    files = {
        f"cifar-10-batches-py/{name}": content
        for name, content in cifar10_files().items()
    }
    archive = write_tar_gz(tmp_path / "named" / "cifar-10-python.tar.gz", files)
    assert locate("cifar10") == archive
    assert load("cifar10").name == "cifar10"
    folder = write_files(tmp_path / "named" / "cifar-10-batches-py", cifar10_files())
    assert locate("cifar10") == folder


@pytest.mark.parametrize("place", ["femnist", "femnist/data", "leaf/data/femnist/data"])
def test_femnist(tmp_path, place):
    write_leaf(tmp_path / "named" / place, WRITERS, WRITERS)
    data = load("femnist")
    assert (data.name, data.classes) == ("femnist", 62)


@pytest.mark.parametrize("place", ["mnist", "MNIST/raw", "."])
def test_mnist(tmp_path, place):
    write_idx_set(tmp_path / "named" / place)
    assert load("mnist").name == "mnist"
    refused("fashion-mnist")  # its files have the same names, so the folder's must tell


@pytest.mark.parametrize("place", ["fashion-mnist", "FashionMNIST/raw"])
def test_fashion_mnist(tmp_path, place):
    write_idx_set(tmp_path / "system" / place)
    assert load("fashion-mnist").name == "fashion-mnist"
    refused("mnist")


def test_a_data_folder_that_is_itself_fashion_mnist(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLAMA_DATA", str(tmp_path / "Fashion"))
    write_idx_set(tmp_path / "Fashion")
    assert load("fashion-mnist").name == "fashion-mnist"
    refused("mnist")


@pytest.mark.parametrize("place", ["emnist", "EMNIST/raw", "gzip", "."])
def test_emnist_is_the_split_that_is_there(tmp_path, place):
    folder, names = (
        tmp_path / "named" / place,
        "emnist-{}-{{split}}-{{content}}-idx{{d}}-ubyte.gz",
    )
    write_idx_set(folder, names=names.format("letters"), test="test", labels=(1, 26))
    assert load("emnist").name == "emnist-letters"
    write_idx_set(folder, names=names.format("byclass"), test="test", labels=(0, 61))
    refused("emnist", "name one of emnist-byclass, emnist-letters")
    assert load("emnist-letters").classes == 26
    assert load("emnist-byclass").classes == 62


def test_sets_of_ones_own_by_name_and_by_path(tmp_path):
    write_npz(tmp_path / "named" / "mnist_by_writer.npz")
    write_leaf(tmp_path / "cache" / "fedlama" / "pens", WRITERS, WRITERS)
    path = tmp_path / "named" / "mnist_by_writer.npz"
    for name in ("mnist_by_writer", "mnist_by_writer.npz", str(path), path):
        data = load(name)
        assert data.name == "mnist_by_writer"
        assert data.clients is not None
    assert load("pens").name == "pens"
    assert load(str(tmp_path / "cache/fedlama/pens")).name == "pens"


def test_relative_paths(tmp_path, monkeypatch):
    write_npz(tmp_path / "here" / "own.npz")
    write_leaf(tmp_path / "here" / "sub" / "pens", WRITERS, WRITERS)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load("own.npz").name == "own"
    assert load("sub/pens").name == "pens"
    assert load("~/here/own.npz").name == "own"


def test_a_known_name_is_not_a_folder_beside_it(tmp_path):
    write_leaf(tmp_path / "here" / "cifar10", WRITERS, WRITERS)
    refused("cifar10", "cifar-10-python.tar.gz")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "cifar10",
            [
                "cifar-10-batches-py/",
                "cifar-10-python.tar.gz",
                "`fedlama data fetch cifar10`",
            ],
        ),
        ("cifar100", ["cifar-100-python.tar.gz", "`fedlama data fetch cifar100`"]),
        ("femnist", ["femnist/train/*.json", "github.com/TalwalkarLab/leaf"]),
        ("mnist", ["train-images-idx3-ubyte", "mnist/"]),
        (
            "fashion-mnist",
            ["train-images-idx3-ubyte", "apt install dataset-fashion-mnist"],
        ),
        ("emnist", ["emnist-SPLIT-train-images-idx3-ubyte", "nist.gov"]),
    ],
)
def test_a_missing_set_says_what_where_and_how(tmp_path, name, words):
    (tmp_path / "system").rmdir()
    places = [
        f"{tmp_path / 'named'},",
        str(tmp_path / "cache" / "fedlama"),
        f"{tmp_path / 'system'} (no such folder)",
    ]
    refused(name, *words, *places, "set FEDLAMA_DATA")


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("cifar-10", "cifar10"),
        ("CIFAR100", "cifar100"),
        ("fashion_mnist", "fashion-mnist"),
        ("digit", "digits"),
    ],
)
def test_an_unknown_name_suggests_the_nearest(name, nearest):
    refused(name, f"did you mean {nearest}?", "known are digits, cifar10")


def test_names_that_are_nothing(tmp_path):
    refused(
        "imagenet", "no data set 'imagenet'", "imagenet.npz", str(tmp_path / "named")
    )
    refused("", "no data set ''")
    refused("mnist_by_writr", "mnist_by_writr.npz")
    refused("/nowhere/own.npz", "/nowhere/own.npz does not exist", "LEAF folder")
    refused("own.npz", "does not exist")
    refused("../../etc/passwd\0", "does not exist")
    refused(str(tmp_path), "neither", "train/ and test/")
    (tmp_path / "own.csv").write_text("1,2")
    refused(str(tmp_path / "own.csv"), "an .npz file")


def test_the_nearest_name_may_be_ones_own(tmp_path):
    write_npz(tmp_path / "named" / "mnist_by_writer.npz")
    refused("mnist_by_writr", "did you mean mnist_by_writer?")


def test_the_catalog_lists_what_there_is(tmp_path):
    write_npz(tmp_path / "named" / "mnist_by_writer.npz")
    write_leaf(tmp_path / "named" / "femnist", WRITERS, WRITERS)
    write_leaf(tmp_path / "named" / "pens", WRITERS, WRITERS)
    entries = {entry.name: entry for entry in catalog()}
    first = [
        "digits",
        "cifar10",
        "cifar100",
        "femnist",
        "mnist",
        "fashion-mnist",
        "emnist",
    ]
    assert list(entries) == [*first, "mnist_by_writer", "pens"]
    assert entries["digits"].present
    assert not entries["cifar10"].present
    assert entries["cifar10"].where is None
    assert "fedlama data fetch cifar10" in entries["cifar10"].how
    assert entries["femnist"].where == tmp_path / "named" / "femnist"
    assert entries["mnist_by_writer"].where == Path(
        tmp_path / "named" / "mnist_by_writer.npz"
    )
    assert all(entry.what and entry.how for entry in entries.values())


def test_every_present_entry_loads(tmp_path):
    write_npz(tmp_path / "named" / "own.npz")
    write_files(tmp_path / "named" / "cifar-10-batches-py", cifar10_files())
    write_idx_set(tmp_path / "named" / "mnist")
    names = [entry.name for entry in catalog() if entry.present]
    assert (
        [load(name).name for name in names]
        == names
        == ["digits", "cifar10", "mnist", "own"]
    )
