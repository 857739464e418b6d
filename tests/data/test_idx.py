"""IDX files: the published names and layouts are read; a header is never believed."""

import gzip
import struct

import numpy as np
import pytest
import torch
from formats import idx, little_memory, write_idx_set

from fedlama.base import InputError
from fedlama.data.idx import EMNIST, FASHION_MNIST, MNIST, read_idx, read_idx_set

LABELS = np.array([3, 1, 2], dtype=np.uint8)


def refused(path, *words, dimensions=1):
    with pytest.raises(InputError) as caught:
        read_idx(path, dimensions)
    sentence = str(caught.value)
    assert str(path) in sentence
    assert "\n" not in sentence
    for word in words:
        assert word in sentence


@pytest.mark.parametrize(
    "names",
    [
        "{split}-{content}-idx{d}-ubyte.gz",
        "{split}-{content}-idx{d}-ubyte",
        "{split}-{content}.idx{d}-ubyte",
        "{split}-{content}.idx{d}-ubyte.gz",
    ],
)
def test_all_published_names(tmp_path, names):
    x_train, y_train, x_test, y_test = write_idx_set(tmp_path, names=names)
    data = read_idx_set(MNIST, tmp_path)
    assert (data.name, data.classes) == ("mnist", 10)
    assert torch.equal(data.x_train, torch.from_numpy(x_train)[:, None])
    assert torch.equal(data.x_test, torch.from_numpy(x_test)[:, None])
    assert data.y_train.tolist() == y_train.tolist()
    assert data.y_test.tolist() == y_test.tolist()
    assert read_idx_set(FASHION_MNIST, tmp_path).mean == (0.2860,)


@pytest.mark.parametrize("split", ["letters", "balanced", "byclass"])
def test_emnist_splits(tmp_path, split):
    classes = {"letters": 26, "balanced": 47, "byclass": 62}[split]
    first = 1 if split == "letters" else 0  # letters counts from 1
    names = f"emnist-{split}-{{split}}-{{content}}-idx{{d}}-ubyte.gz"
    write_idx_set(
        tmp_path, names=names, test="test", labels=(first, first + classes - 1)
    )
    data = read_idx_set(EMNIST[split], tmp_path)
    assert (data.name, data.classes) == (f"emnist-{split}", classes)
    assert data.y_train[:4].tolist() == [0, classes - 1, 0, classes - 1]


def test_the_content_tells_whether_a_file_is_gzipped(tmp_path):
    (tmp_path / "named.gz").write_bytes(idx(LABELS))
    (tmp_path / "plain").write_bytes(gzip.compress(idx(LABELS)))
    assert read_idx(tmp_path / "named.gz", 1).tolist() == [3, 1, 2]
    assert read_idx(tmp_path / "plain", 1).tolist() == [3, 1, 2]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "nothing"),
        (b"\x00\x00", "00 00;"),
        (b"P5 28 28 255", "50 35 20 32"),
        (idx(LABELS, kind=0x0D), "unsigned bytes"),
        (idx(LABELS.reshape(1, 3)), "in 1 dimensions"),
        (idx(LABELS)[:6], "inside its header"),
        (idx(LABELS)[:-1], "holds fewer"),
        (idx(LABELS) + b"x", "holds more"),
        (idx(LABELS[:0]), "empty"),
    ],
)
def test_broken_files(tmp_path, pack, content, word):
    path = tmp_path / "labels"
    path.write_bytes(pack(content))
    refused(path, word)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_header_that_claims_more_than_there_is_costs_no_memory(tmp_path, pack):
    path = tmp_path / "images"
    path.write_bytes(
        pack(
            struct.pack(">BBBBIII", 0, 0, 8, 3, 2**32 - 1, 2**32 - 1, 2**32 - 1)
            + bytes(100)
        )
    )
    with little_memory():
        refused(
            path, "claims 4,294,967,295 × 4,294,967,295 × 4,294,967,295", dimensions=3
        )
    path.write_bytes(pack(struct.pack(">BBBBI", 0, 0, 8, 1, 90_000) + bytes(100)))
    with little_memory():
        refused(path, "claims 90,000")


def test_a_stream_that_unpacks_to_more_than_the_header_says_is_cut(tmp_path):
    path = tmp_path / "labels.gz"
    path.write_bytes(gzip.compress(idx(LABELS) + bytes(50_000_000)))
    with little_memory():
        refused(path, "holds more")


@pytest.mark.parametrize(
    "damage", [lambda z: z[:-10], lambda z: z[:20], lambda z: z[:30] + b"\xff" + z[31:]]
)
def test_damaged_gzip(tmp_path, damage):
    path = tmp_path / "labels.gz"
    path.write_bytes(
        damage(gzip.compress(idx(np.random.default_rng(0).integers(0, 10, 500))))
    )
    refused(path)


def broken_set(folder, *words, kind=MNIST):
    with pytest.raises(InputError) as caught:
        read_idx_set(kind, folder)
    for word in (str(folder), *words):
        assert word in str(caught.value)


def test_labels_outside_the_classes(tmp_path):
    write_idx_set(tmp_path, labels=(0, 9, 10))
    broken_set(tmp_path, "label 10 of sample 2 is outside 0 … 9")


def test_letters_have_no_class_0(tmp_path):
    write_idx_set(
        tmp_path,
        names="emnist-letters-{split}-{content}-idx{d}-ubyte",
        test="test",
        labels=(26, 0),
    )
    broken_set(
        tmp_path, "label 0 of sample 1 is outside 1 … 26", kind=EMNIST["letters"]
    )


def test_a_missing_file_is_named(tmp_path):
    write_idx_set(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
    broken_set(tmp_path, "no test labels of mnist")


def test_images_and_labels_must_agree(tmp_path):
    write_idx_set(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(idx(LABELS))
    broken_set(tmp_path, "30 images", "3 labels")


def test_training_and_test_images_must_agree(tmp_path):
    write_idx_set(tmp_path)
    (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(idx(np.zeros((12, 8, 8))))
    broken_set(tmp_path, "(28, 28)", "(8, 8)")
