"""Small files in the formats that the readers know, written as their publishers write them."""

import gzip
import io
import json
import pickle
import struct
import tarfile
import tracemalloc
from contextlib import contextmanager

import numpy as np

CIFAR10_TRAIN = [f"data_batch_{k}" for k in range(1, 6)]


@contextmanager
def little_memory(maximum=4_000_000):
    """What happens inside must not ask for more bytes than this."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < maximum
    finally:
        tracemalloc.stop()


class Python2Pickler(pickle._Pickler):
    """Byte strings as Python 2 wrote them."""

    dispatch = pickle._Pickler.dispatch.copy()

    def save_bytes(self, obj):
        short = len(obj) < 256
        self.write(
            (
                b"U" + bytes([len(obj)])
                if short
                else b"T" + len(obj).to_bytes(4, "little")
            )
            + obj
        )
        self.memoize(obj)

    dispatch[bytes] = save_bytes


def python2_pickle(value):
    """As the official files are: protocol 2, numpy under its old name."""
    buffer = io.BytesIO()
    Python2Pickler(buffer, protocol=2).dump(value)
    return buffer.getvalue().replace(
        b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n"
    )


def cifar_images(count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, 3072), dtype=np.uint8)


def cifar10_batch(count=4, seed=0, **changes):
    content = {
        b"batch_label": b"training batch 1 of 5",
        b"labels": [(seed + i) % 10 for i in range(count)],
        b"data": cifar_images(count, seed),
        b"filenames": [b"leptodactylus_pentadactylus_s_000004.png"] * count,
    }
    return content | {key.encode(): value for key, value in changes.items()}


def cifar10_files(**changes):
    """The members of cifar-10-batches-py; `changes` go to the second batch."""
    files = {
        name: cifar10_batch(seed=k)
        for k, name in enumerate([*CIFAR10_TRAIN, "test_batch"])
    }
    files["data_batch_2"] |= {key.encode(): value for key, value in changes.items()}
    return {name: python2_pickle(content) for name, content in files.items()}


def cifar100_files(train=6, test=3):
    def split(count, seed):
        labels = {
            b"fine_labels": [99 - i for i in range(count)],
            b"coarse_labels": [i % 20 for i in range(count)],
        }
        return python2_pickle({b"data": cifar_images(count, seed), **labels})

    return {"train": split(train, 0), "test": split(test, 1)}


def write_files(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def write_tar_gz(path, files, extra=()):
    """`extra` are TarInfos with content None (links, folders) or bytes, before the files."""
    with tarfile.open(path, "w:gz") as archive:
        for member, content in extra:
            archive.addfile(member, None if content is None else io.BytesIO(content))
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def idx(array, *, kind=0x08, shape=None):
    """An IDX file; `shape` is what its header claims."""
    shape = array.shape if shape is None else shape
    return (
        struct.pack(f">BBBB{len(shape)}I", 0, 0, kind, len(shape), *shape)
        + array.astype(np.uint8).tobytes()
    )


def write_idx_set(
    folder,
    *,
    names="{split}-{content}-idx{d}-ubyte.gz",
    test="t10k",
    labels=(0, 1, 2),
    side=28,
):
    """Four files with 30 training and 12 test images; the arrays that were written."""
    folder.mkdir(parents=True, exist_ok=True)
    rng, written = np.random.default_rng(0), []
    for split, count in (("train", 30), (test, 12)):
        images = rng.integers(0, 256, (count, side, side), dtype=np.uint8)
        for content, array in (
            ("images", images),
            ("labels", np.resize(labels, count)),
        ):
            path = folder / names.format(split=split, content=content, d=array.ndim)
            path.write_bytes(
                gzip.compress(idx(array)) if path.suffix == ".gz" else idx(array)
            )
            written.append(array)
    return written


def leaf_content(samples_of, length=784):
    """A LEAF file: user → labels."""
    rng = np.random.default_rng(0)
    data = {
        user: {"x": rng.random((len(y), length)).round(3).tolist(), "y": y}
        for user, y in samples_of.items()
    }
    return {
        "users": list(data),
        "num_samples": [len(y) for y in samples_of.values()],
        "user_data": data,
    }


def write_leaf(folder, train, test, *, name="all_data_0_niid_0_keep_0_{split}_9.json"):
    """`train` and `test` are the contents, or texts to be written as they are."""
    for split, content in (("train", train), ("test", test)):
        (folder / split).mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / split / name.format(split=split)).write_text(text)
    return folder
