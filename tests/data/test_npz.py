"""Arrays from .npz files: two layouts, and no trust in what a header says."""

import io
import os
import struct
import zipfile

import numpy as np
import pytest
import torch
from formats import little_memory

from fedlama.base import InputError
from fedlama.data.npz import read_npz

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (9, 5, 5), dtype=np.uint8)
LABELS = np.arange(9) % 3
TEST = np.arange(9) >= 6


def split_arrays(**changes):
    return {
        "x_train": IMAGES[:6],
        "y_train": LABELS[:6],
        "x_test": IMAGES[6:],
        "y_test": LABELS[6:],
    } | changes


def joint_arrays(**changes):
    return {"x": IMAGES, "y": LABELS, "test": TEST} | changes


def write(folder, content, *, name="own.npz", save=np.savez_compressed):
    save(folder / name, **content)
    return folder / name


def write_members(folder, members):
    """A zip of raw members."""
    path = folder / "own.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for key, content in members.items():
            archive.writestr(f"{key}.npy", content)
    return path


def npy(array, shape=None):
    """An .npy file; `shape` is what its header claims."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        buffer,
        {
            "descr": array.dtype.str,
            "fortran_order": False,
            "shape": array.shape if shape is None else shape,
        },
    )
    return buffer.getvalue() + array.tobytes()


def refused(path, *words):
    with pytest.raises(InputError) as caught:
        read_npz(path)
    sentence = str(caught.value)
    assert str(path) in sentence
    assert "\n" not in sentence
    assert len(sentence) < 800
    for word in words:
        assert word in sentence


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_both_layouts_give_the_same(tmp_path, save):
    first = read_npz(write(tmp_path, split_arrays(), save=save))
    second = read_npz(write(tmp_path, joint_arrays(), save=save))
    assert first.name == second.name == "own"
    assert first.classes == 3
    assert first.clients is None
    assert first.x_train.shape == (6, 1, 5, 5)
    assert torch.equal(first.x_train[:, 0], torch.from_numpy(IMAGES[:6]))
    for key in ("x_train", "y_train", "x_test", "y_test"):
        assert torch.equal(getattr(first, key), getattr(second, key))


@pytest.mark.parametrize(
    "content",
    [
        split_arrays(clients_train=["b", "b", "a", "a", "b", "c"]),
        split_arrays(writer_train=np.array([7, 7, -2, -2, 7, 9], dtype=np.int16)),
        joint_arrays(clients=["b", "b", "a", "a", "b", "c", "x", "x", "x"]),
        joint_arrays(writer=[7, 7, -2, -2, 7, 9, 1, 1, 1]),
    ],
)
def test_ids_become_clients(tmp_path, content):
    data = read_npz(write(tmp_path, content))
    assert data.clients is not None
    assert data.clients.tolist() == [1, 1, 0, 0, 1, 2]


def test_what_is_kept_as_it_is(tmp_path):
    floats = read_npz(write(tmp_path, joint_arrays(x=IMAGES.astype(">f8") / 255)))
    assert floats.x_train.shape == (6, 5, 5)
    assert floats.x_train.dtype == torch.float32
    by_columns = read_npz(write(tmp_path, joint_arrays(x=np.asfortranarray(IMAGES))))
    assert torch.equal(by_columns.x_train[:, 0], torch.from_numpy(IMAGES[:6]))
    colours = read_npz(
        write(tmp_path, joint_arrays(x=np.repeat(IMAGES[:, None], 3, axis=1)))
    )
    assert colours.x_train.shape == (6, 3, 5, 5)


def test_members_of_no_interest_are_not_read(tmp_path):
    path = write(tmp_path, joint_arrays(names=np.array([{"a": 1}], dtype=object)))
    assert len(read_npz(path).x_train) == 6


class Code:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("key", ["x", "y", "test", "clients"])
def test_object_arrays_are_refused_and_not_unpickled(tmp_path, key):
    ran = tmp_path / "ran"
    path = write(
        tmp_path, joint_arrays(**{key: np.array([Code(ran)] * 9, dtype=object)})
    )
    refused(path, f"{key} holds object values")
    assert not ran.exists()


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ({"images": IMAGES}, "needed are x_train, y_train, x_test, y_test"),
        ({}, "holds nothing"),
        (
            {key: value for key, value in split_arrays().items() if key != "y_test"},
            "x_test, x_train, y_train;",
        ),
        (joint_arrays(test=TEST.astype(int)), "test must hold True or False"),
        (joint_arrays(test=TEST[:5]), "shape [5]"),
        (joint_arrays(test=np.zeros(9, dtype=bool)), "x_test is empty"),
        (joint_arrays(test=np.ones(9, dtype=bool)), "x_train is empty"),
        (joint_arrays(y=LABELS[:8]), "x has 9 samples and y 8"),
        (joint_arrays(clients=["a"]), "the client ids 1"),
        (split_arrays(y_train=LABELS[:5]), "x_train has 6 samples and y_train 5"),
        (split_arrays(x_test=IMAGES[6:, :4]), "x_train and x_test differ"),
        (
            split_arrays(clients_train=np.zeros((6, 2))),
            "one id for each of the 6 training samples",
        ),
        (split_arrays(clients_train=[0, 1, 2, 3, np.nan, 5]), "NaN"),
        (joint_arrays(y=LABELS - 1), "label -1"),
        (joint_arrays(y=["a"] * 9), "y_train must hold numbers"),
        (
            joint_arrays(x=np.where(np.arange(9) == 4, np.nan, 0.0)),
            "NaN or infinite values, the first in sample 4",
        ),
        (joint_arrays(x=IMAGES.astype(complex)), "complex128"),
        (joint_arrays(x=np.float32(3)), "count the samples"),
        (joint_arrays(y=np.int64(3)), "count the samples"),
        (joint_arrays(y=np.zeros(9, dtype=[("a", "i4")])), "only numbers"),
        (joint_arrays(y=np.zeros(9, dtype="M8[s]")), "datetime64"),
    ],
)
def test_wrong_content(tmp_path, content, word):
    refused(write(tmp_path, content), word)


@pytest.mark.parametrize(
    "content", [b"", b"no zip", b"PK\x03\x04" + bytes(50), npy(IMAGES)]
)
def test_other_files(tmp_path, content):
    (tmp_path / "own.npz").write_bytes(content)
    refused(tmp_path / "own.npz", "not an .npz file")


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.9])
def test_truncated_files(tmp_path, keep):
    path = write(tmp_path, joint_arrays())
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])
    refused(path)


def test_flipped_bits_are_noticed(tmp_path):
    path = write(tmp_path, joint_arrays(), save=np.savez)
    content = bytearray(path.read_bytes())
    content[300] ^= 1  # among the pixels
    path.write_bytes(content)
    refused(path, "CRC")


def test_a_header_that_claims_more_than_there_is_costs_no_memory(tmp_path):
    members = {key: npy(value) for key, value in joint_arrays().items()}
    for claim in (
        (10**12,),
        (9, 10**6, 10**6),
        (2**62, 2**62),
        (10,),
        (8, 5, 5),
        (-9, 5, 5),
    ):
        path = write_members(tmp_path, members | {"x": npy(IMAGES, claim)})
        with little_memory():
            refused(path, "x")


@pytest.mark.parametrize(
    "header", [b"\x93NUMPY\x01\x00", b"\x93NUMPX\x01\x00", b"\x93NUMPY\x09\x00", b""]
)
@pytest.mark.parametrize(
    "rest",
    [
        b"",
        b"\xff\xff{",
        b"\x06\x00{[(,'",
        struct.pack("<H", 4) + b"((((",
        b"\x05\x00None\n",
    ],
)
def test_broken_headers(tmp_path, header, rest):
    members = {key: npy(value) for key, value in joint_arrays().items()}
    refused(write_members(tmp_path, members | {"x": header + rest}))


def patched(path, old, new):
    """The file with the declared size of its members changed in both places."""
    content = path.read_bytes()
    assert content.count(struct.pack("<I", old)) >= 2
    path.write_bytes(content.replace(struct.pack("<I", old), struct.pack("<I", new)))
    return path


def test_a_member_that_declares_more_than_the_file_can_hold(tmp_path):
    size = len(npy(IMAGES))
    members = {key: npy(value) for key, value in joint_arrays().items()}
    huge = members | {"x": npy(IMAGES, (4_000_000_000,))}
    path = patched(
        write_members(tmp_path, huge),
        len(huge["x"]),
        4_000_000_000 + len(huge["x"]) - IMAGES.size,
    )
    with little_memory():
        refused(path, "more than the file can hold")
    stored = patched(write(tmp_path, joint_arrays(), save=np.savez), size, size * 100)
    refused(stored)


def test_a_member_that_unpacks_to_more_than_it_declares(tmp_path):
    bomb = npy(IMAGES) + bytes(50_000_000)
    members = {key: npy(value) for key, value in joint_arrays().items()}
    path = patched(
        write_members(tmp_path, members | {"x": bomb}), len(bomb), len(npy(IMAGES))
    )
    with little_memory():
        refused(path)


def test_an_encrypted_or_oddly_packed_member_is_refused(tmp_path):
    path = tmp_path / "own.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as archive:
        for key, value in joint_arrays().items():
            archive.writestr(f"{key}.npy", npy(value))
    refused(path, "deflated")
    content = bytearray(write(tmp_path, joint_arrays()).read_bytes())
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(mark) + offset] |= 1  # the flag for encryption
    path.write_bytes(content)
    refused(path)


def test_a_member_that_unpacks_to_far_more_than_images_do(tmp_path):
    """A hundred times its size is admitted, and 64 MB in any case; more is an attack, or better stored as it is."""
    bomb = np.zeros((80 << 20) // 64, dtype="S64")
    path = tmp_path / "bomb.npz"
    np.savez_compressed(
        path,
        x=IMAGES,
        y=np.zeros(len(IMAGES), int),
        test=np.arange(len(IMAGES)) > 1,
        clients=bomb,
    )
    with little_memory():
        refused(path, "clients claims 83,886,", "savez")
