"""CIFAR archives: official files are read, and no other file does more than make one sentence."""

import gzip
import io
import os
import pickle
import tarfile

import numpy as np
import pytest
import torch
from formats import (
    cifar10_batch,
    cifar10_files,
    cifar100_files,
    cifar_images,
    little_memory,
    python2_pickle,
    write_files,
    write_tar_gz,
)
from hypothesis import given, strategies

from fedlama.base import InputError
from fedlama.data import archive, cifar, pickled
from fedlama.data.cifar import CIFAR10, CIFAR100, read_cifar


def in_folder(files):
    return {f"cifar-10-batches-py/{name}": content for name, content in files.items()}


def refused(path, *words, file=""):
    """The one sentence, which names the file."""
    with pytest.raises(InputError) as caught:
        read_cifar(CIFAR10, path)
    sentence = str(caught.value)
    assert str(path / file) in sentence
    assert "\n" not in sentence
    assert len(sentence) < 500
    for word in words:
        assert word in sentence


def refused_batch(folder, *words):
    refused(folder, *words, file="data_batch_2")


def with_second_batch(folder, content):
    return write_files(folder, cifar10_files() | {"data_batch_2": content})


def test_a_folder_is_read_in_the_official_order(tmp_path):
    data = read_cifar(CIFAR10, write_files(tmp_path, cifar10_files()))
    assert (data.name, data.classes, data.augment) == ("cifar10", 10, "crop-flip")
    assert data.x_train.dtype == torch.uint8
    assert data.x_train.shape == (20, 3, 32, 32)
    assert data.x_test.shape == (4, 3, 32, 32)
    assert data.y_train.tolist() == [k + i for k in range(5) for i in range(4)]
    red, green = data.x_train[5, 0], data.x_train[5, 1]
    second = cifar_images(4, seed=1)[1]
    assert red.flatten().tolist() == second[:1024].tolist()
    assert green[0, :3].tolist() == second[1024:1027].tolist()
    assert data.mean == (0.4914, 0.4822, 0.4465)


def test_an_archive_is_the_same_as_its_folder(tmp_path):
    folder = read_cifar(CIFAR10, write_files(tmp_path / "folder", cifar10_files()))
    archive = read_cifar(
        CIFAR10, write_tar_gz(tmp_path / "a.tar.gz", in_folder(cifar10_files()))
    )
    assert torch.equal(folder.x_train, archive.x_train)
    assert torch.equal(folder.x_test, archive.x_test)
    assert torch.equal(folder.y_train, archive.y_train)


def test_cifar100_takes_the_fine_labels(tmp_path):
    data = read_cifar(CIFAR100, write_files(tmp_path, cifar100_files()))
    assert data.y_train.tolist() == [99, 98, 97, 96, 95, 94]
    assert data.classes == 100
    assert data.std == (0.2673, 0.2564, 0.2762)


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_files_pickled_again_by_python_3_are_read(tmp_path, protocol):
    content = cifar10_batch(seed=1)
    texts = {key.decode(): value for key, value in content.items()} | {
        "labels": np.array(content[b"labels"])
    }
    again = read_cifar(
        CIFAR10, with_second_batch(tmp_path / "3", pickle.dumps(texts, protocol))
    )
    official = read_cifar(CIFAR10, write_files(tmp_path / "2", cifar10_files()))
    assert torch.equal(again.x_train, official.x_train)
    assert torch.equal(again.y_train, official.y_train)


def test_fortran_order_is_kept(tmp_path):
    images = cifar_images(4, seed=1)
    content = python2_pickle(
        cifar10_batch(seed=1) | {b"data": np.asfortranarray(images)}
    )
    data = read_cifar(CIFAR10, with_second_batch(tmp_path, content))
    assert torch.equal(data.x_train[4:8].reshape(4, -1), torch.from_numpy(images))


class Code:
    """Makes a folder when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("place", ["alone", "data", "labels", "another key"])
def test_code_in_a_pickle_does_not_run(tmp_path, protocol, place):
    ran = tmp_path / "ran"
    content = (
        Code(ran) if place == "alone" else cifar10_batch() | {place.encode(): Code(ran)}
    )
    folder = with_second_batch(tmp_path / "folder", pickle.dumps(content, protocol))
    refused_batch(folder)
    assert not ran.exists()
    pickle.loads(pickle.dumps(Code(ran), protocol))
    assert ran.exists(), "this test would have seen it"


def opcodes(ran):
    """Other ways to have something called, and ways to use what is admitted for more than arrays."""
    call = f"V{ran}\n".encode()
    array = b"cnumpy\nndarray\n"
    return {
        "INST": b"(" + call + b"iposix\nmkdir\n.",
        "OBJ": b"(cposix\nmkdir\n" + call + b"o.",
        "NEWOBJ": b"\x80\x02cposix\nmkdir\n" + call + b"\x85\x81.",
        "STACK_GLOBAL": b"\x80\x04\x8c\x05posix\x8c\x05mkdir\x93" + call + b"\x85R.",
        "builtin": b"cbuiltins\neval\n(V__import__('os').mkdir('x')\ntR.",
        "dotted name": b"\x80\x04\x8c\x05numpy\x8c\x10ndarray.__init__\x93.",
        "BUILD on a name": b"\x80\x02" + array + b"}U\x08__init__U\x01xsb.",
        "call of a text": b"\x80\x02U\x05posix(tR.",
        "extension": b"\x80\x02\x82\x01.",
        "persistent id": b"Pposix\n.",
        "set": b"\x80\x04\x8f.",
        "out-of-band buffer": b"\x80\x05\x97.",
        "memo far out": b"\x80\x02}r\xff\xff\xff\x7f.",
        "list too deep to pop": b"\x80\x02\x87\x87\x87.",
        "empty stack": b"\x80\x02.",
        "missing mark": b"\x80\x02}e.",
        "missing memo": b"\x80\x02h\x05.",
        "huge text": b"\x80\x02X\xff\xff\xff\xff.",
        "huge bytes": b"\x80\x04\x8e" + b"\xff" * 7 + b"\x7f.",
    }


@pytest.mark.parametrize("name", opcodes("x"))
def test_no_opcode_makes_anything_but_arrays(tmp_path, name):
    ran = tmp_path / "ran"
    folder = with_second_batch(tmp_path / "folder", opcodes(ran)[name])
    with little_memory():
        refused_batch(folder)
    assert not ran.exists()


def test_a_key_that_takes_for_ever_to_hash_is_refused(tmp_path):
    doubled = b"".join(b"h%c" % k * 2 + b"\x86q%c" % (k + 1) for k in range(60))
    bomb = b"\x80\x02}N\x85q\x00" + doubled + b"Ns."
    refused_batch(with_second_batch(tmp_path, bomb))


@pytest.mark.parametrize("deep", [b"\x86", b"\x85", b"\x87"])
def test_a_shape_of_shapes_is_refused(tmp_path, deep):
    """Two references to the tuple before, 26 times: printed, it would have been 2²⁶ numbers."""
    width = {b"\x85": 1, b"\x86": 2, b"\x87": 3}[deep]
    shape = b"K\x01\x85q\xc8" + b"".join(
        b"h%c" % (200 + k) * width + deep + b"q%c" % (201 + k) for k in range(26)
    )
    honest = cifar10_files()["data_batch_2"]
    bomb = honest.replace(b"K\x04M\x00\x0c\x86", b"0" + shape, 1).replace(
        b"0K\x01", b"K\x01", 1
    )
    assert len(bomb) > len(honest)
    folder = with_second_batch(tmp_path, bomb)
    with little_memory():
        refused_batch(folder, "inside a tuple")


@pytest.mark.parametrize(
    "pickled_object",
    [
        pytest.param(b"\x80\x02}U\x04datacnumpy\nndarray\n)Rs.", id="another function"),
        pytest.param(
            b"\x80\x02}U\x04dataU\x0c_reconstruct)Rs.",
            id="a text instead of a function",
        ),
        pytest.param(
            b"\x80\x02}U\x04datacnumpy.core.multiarray\n_reconstruct\nK\x05Rs.",
            id="no arguments",
        ),
        pytest.param(b"\x80\x02}U\x04data]]as.", id="a list of lists"),
        pytest.param(b"\x80\x02}q\x00U\x04datah\x00s.", id="itself"),
        pytest.param(
            b"\x80\x02}U\x04data(K\x01K\x01K\x01K\x01K\x01K\x01K\x01K\x01K\x01ts.",
            id="a long tuple",
        ),
        pytest.param(b"\x80\x02]K\x05K\x06s.", id="a list with items"),
        pytest.param(b"\x80\x02}K\x05a.", id="appending to a dictionary"),
        pytest.param(b"\x80\x02}K\x05b.", id="a dictionary with a state"),
    ],
)
def test_only_what_arrays_need_is_built(tmp_path, pickled_object):
    refused_batch(with_second_batch(tmp_path, pickled_object), "official cifar10 file")


def test_too_many_parts_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(pickled, "MAX_OPCODES", 1000)
    refused_batch(
        with_second_batch(tmp_path, b"\x80\x02" + b"]" * 2000 + b"."), "1,000"
    )


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"labels": [0, 1, 10, 3]}, "label 10 of sample 2 is outside 0 … 9"),
        ({"labels": [0, 1, -1, 3]}, "label -1"),
        ({"labels": [0, 1, 2]}, "4 images and 3 labels"),
        ({"labels": b"0123"}, "whole numbers"),
        ({"labels": [0, 1, True, 3]}, "whole numbers"),
        ({"labels": [0, 1, b"2", 3]}, "whole numbers"),
        ({"data": cifar_images(4)[:, :3071]}, "[n, 3072]"),
        ({"data": cifar_images(4).astype(np.int32)}, "int32"),
        ({"data": cifar_images(4)[:0], "labels": []}, "[0, 3072]"),
        ({"data": cifar_images(4).astype(np.float32)}, "whole numbers"),
        ({"data": np.array([None, "x"])}, "whole numbers"),
        ({"data": [1, 2, 3]}, "official"),
        ({"data": None}, "official"),
    ],
)
def test_wrong_content_is_named(tmp_path, changes, word):
    refused_batch(write_files(tmp_path, cifar10_files(**changes)), word)


def test_an_array_that_claims_more_than_it_holds(tmp_path):
    honest = cifar10_files()["data_batch_2"]
    claims = honest.replace(b"K\x04M\x00\x0c\x86", b"J\x00\x00\x00\x7fM\x00\x0c\x86", 1)
    assert claims != honest
    folder = with_second_batch(tmp_path, claims)
    with little_memory():
        refused_batch(folder, "claims shape")


@pytest.mark.parametrize(
    "content",
    [b"", b"not a pickle", b"\x80\x02K\x05.", cifar10_files()["data_batch_1"][:-300]],
)
def test_other_and_truncated_files(tmp_path, content):
    refused_batch(with_second_batch(tmp_path, content), "official cifar10 file")


@given(
    strategies.lists(
        strategies.tuples(strategies.integers(0, 400), strategies.integers(0, 255)),
        max_size=3,
    )
)
def test_any_damage_ends_in_a_sentence_or_in_arrays(changes):
    content = bytearray(
        python2_pickle(cifar10_batch(count=1) | {b"data": cifar_images(1)})
    )
    for position, value in changes:
        content[position if position < 200 else -position // 2] = value
    try:
        images, labels = cifar._images_and_labels(CIFAR10, "file", bytes(content))
    except InputError:
        return
    assert images.shape[1:] == (3, 32, 32)
    assert len(images) == len(labels)


def test_a_missing_file_is_named(tmp_path):
    write_files(tmp_path, cifar10_files())
    (tmp_path / "data_batch_4").unlink()
    refused(tmp_path, "data_batch_4 is missing")


def test_a_file_far_too_large_is_not_read(tmp_path):
    folder = write_files(tmp_path, cifar10_files())
    with (folder / "data_batch_2").open("r+b") as file:
        file.truncate(1 << 40)  # a hole: no disk is used
    refused_batch(folder, "bytes")


def member(name, kind=tarfile.REGTYPE, target="", size=0):
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname, entry.size = kind, target, size
    return entry


@pytest.mark.parametrize(
    "name", ["../outside", "cifar-10-batches-py/../../outside", "/etc/cifar"]
)
def test_names_that_climb_or_start_at_the_root_are_refused(tmp_path, name):
    inside = tmp_path / "in"
    inside.mkdir()
    archive = write_tar_gz(
        inside / "a.tar.gz",
        in_folder(cifar10_files()),
        [(member(name, size=5), b"wrong")],
    )
    with pytest.raises(InputError, match="leads out of the archive"):
        read_cifar(CIFAR10, archive)
    assert [path.name for path in inside.iterdir()] == ["a.tar.gz"]
    assert not (tmp_path / "outside").exists()


@pytest.mark.parametrize(
    "kind",
    [
        tarfile.SYMTYPE,
        tarfile.LNKTYPE,
        tarfile.FIFOTYPE,
        tarfile.DIRTYPE,
        tarfile.CHRTYPE,
    ],
)
def test_a_link_or_device_in_place_of_a_file_is_refused(tmp_path, kind):
    files = cifar10_files()
    extra = [(member("cifar-10-batches-py/data_batch_2", kind, "/etc/passwd"), None)]
    del files["data_batch_2"]
    refused(
        write_tar_gz(tmp_path / "a.tar.gz", in_folder(files), extra),
        "data_batch_2 is a link or a special file",
    )


def test_an_archive_without_the_files(tmp_path):
    refused(
        write_tar_gz(tmp_path / "a.tar.gz", {"cifar-10-batches-py/readme.html": b"x"}),
        "data_batch_1",
    )


@pytest.mark.parametrize(
    "damage", ["empty", "half", "no gzip", "no tar", "flipped bit", "no end"]
)
def test_damaged_archives(tmp_path, damage):
    path = write_tar_gz(tmp_path / "a.tar.gz", in_folder(cifar10_files()))
    content = path.read_bytes()
    middle = len(content) // 2
    path.write_bytes(
        {
            "empty": b"",
            "half": content[:middle],
            "no gzip": gzip.decompress(content),
            "no tar": gzip.compress(b"x" * 5000),
            "flipped bit": content[:middle]
            + bytes([content[middle] ^ 1])
            + content[middle + 1 :],
            "no end": content[:-8],
        }[damage]
    )
    refused(path)


def test_a_member_that_claims_too_much_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "MAX_FILE", 10_000)
    refused(write_tar_gz(tmp_path / "a.tar.gz", in_folder(cifar10_files())), "claims")


def test_an_archive_that_unpacks_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "MAX_UNPACKED", 1_000_000)
    path = tmp_path / "a.tar.gz"
    header = member("readme", size=50_000_000).tobuf(tarfile.GNU_FORMAT)
    path.write_bytes(gzip.compress(header + bytes(50_000_000)))
    with little_memory():
        refused(path, "unpacks to over")


def extension(kind, content):
    """An extension header under any format's letter, and what it says."""
    block = member("././@PaxHeader", kind, size=len(content)).tobuf(
        tarfile.USTAR_FORMAT
    )
    return block + content + bytes(-len(content) % 512)


@pytest.mark.parametrize(
    "kind",
    [
        tarfile.XHDTYPE,
        tarfile.XGLTYPE,
        tarfile.GNUTYPE_LONGNAME,
        tarfile.GNUTYPE_LONGLINK,
    ],
)
@pytest.mark.parametrize("size", [50_000, 50_000_000])
def test_a_large_extension_header_is_refused(tmp_path, kind, size):
    """tarfile looked for numbers in them: 50 kB of digits in 135 bytes of archive kept it busy for minutes."""
    path = tmp_path / "a.tar.gz"
    path.write_bytes(gzip.compress(extension(kind, b"9" * size)))
    with little_memory():
        refused(
            path, f"an extension header of {size:,} bytes; up to 4,096 are admitted"
        )


@pytest.mark.parametrize(
    "kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME]
)
def test_a_chain_of_extension_headers_is_refused(tmp_path, kind):
    """tarfile reads them one inside the other, and ran out of stack."""
    path = tmp_path / "a.tar.gz"
    path.write_bytes(gzip.compress(extension(kind, b"13 path=aaaa\n") * 2000))
    refused(path, "over 100 members")


@pytest.mark.parametrize(
    "junk",
    [
        "GNU.sparse.map=1,x",
        "GNU.sparse.size=x",
        "GNU.sparse.major=1",
        "GNU.sparse.realsize=" + "9" * 3000,
        "size=-1",
        "size=" + "9" * 3000,
        "mtime=nan",
        "path=../../x",
        "hdrcharset=\x1b",
        "\xff",
    ],
)
def test_what_an_extension_header_says_does_not_matter(tmp_path, junk):
    """Whatever is in them, the members are those that the plain headers tell."""
    record = f" {junk}\n".encode("latin-1")
    record = f"{len(record) + len(str(len(record)))}".encode() + record
    plain = write_tar_gz(tmp_path / "plain.tar.gz", in_folder(cifar10_files()))
    path = tmp_path / "a.tar.gz"
    path.write_bytes(
        gzip.compress(
            extension(tarfile.XHDTYPE, record) + gzip.decompress(plain.read_bytes())
        )
    )
    assert torch.equal(
        read_cifar(CIFAR10, path).x_train, read_cifar(CIFAR10, plain).x_train
    )


@pytest.mark.parametrize(
    "form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
)
def test_archives_made_anew_are_read(tmp_path, form):
    """As tarfile packs a folder: with times of day in extension headers, or with ./ before the names."""
    folder = write_files(tmp_path / "cifar-10-batches-py", cifar10_files())
    for start in ("", "./"):
        with tarfile.open(tmp_path / "a.tar.gz", "w:gz", format=form) as archive:
            archive.add(folder, start + "cifar-10-batches-py")
        again = read_cifar(CIFAR10, tmp_path / "a.tar.gz")
        assert torch.equal(again.x_train, read_cifar(CIFAR10, folder).x_train)


def test_an_archive_of_very_many_members_is_refused(tmp_path):
    extra = [(member(f"readme{k}"), b"") for k in range(200)]
    refused(
        write_tar_gz(tmp_path / "a.tar.gz", in_folder(cifar10_files()), extra),
        "members",
    )


def test_a_sparse_member_is_refused(tmp_path):
    """Sparse members expand: a few bytes can stand for gigabytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        entry = member("cifar-10-batches-py/data_batch_1", size=512)
        entry.pax_headers = {
            "GNU.sparse.major": "1",
            "GNU.sparse.minor": "0",
            "GNU.sparse.realsize": "100000000",
        }
        archive.addfile(entry, io.BytesIO(b"1\n0\n1\n" + bytes(506)))
    path = tmp_path / "a.tar.gz"
    path.write_bytes(gzip.compress(buffer.getvalue()))
    refused(path)


def test_a_member_that_claims_more_than_there_will_ever_be_is_not_waited_for(tmp_path):
    """tarfile would skip 2⁸⁰ bytes piece by piece, long after the archive has ended."""
    member = tarfile.TarInfo("cifar-10-batches-py/readme.html")
    member.size = 1 << 80
    (tmp_path / "endless.tar.gz").write_bytes(
        gzip.compress(member.tobuf(tarfile.GNU_FORMAT) + bytes(2048))
    )
    with pytest.raises(InputError, match="not a complete"):
        cifar.read_cifar(cifar.CIFAR10, tmp_path / "endless.tar.gz")
