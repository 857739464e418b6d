"""A checkpoint's file in parts: what its header says is held against the file before memory is asked for."""

import json

import numpy as np
import pytest
import torch
from safetensors.numpy import load

from fedlama.base import InputError
from fedlama.rows import ClientStore, Slot
from fedlama.rows import store as rows_store
from fedlama.training.checkpoint_file import Form, form_of, header_of, opened

ROWS = np.arange(12, dtype=np.float32).reshape(4, 3)
IDS = np.array([2, 5, 7, 9])


def content():
    header = header_of({"ids": form_of(IDS), "rows": form_of(ROWS)}, {"name": "x"})
    return header + IDS.tobytes() + ROWS.tobytes()


def with_header(plain):
    text = plain if isinstance(plain, bytes) else json.dumps(plain).encode()
    return len(text).to_bytes(8, "little") + text


def tensor(shape, offsets, dtype="F32"):
    entry = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
    return with_header({"__metadata__": {}, "rows": entry})


def test_safetensors_reads_what_is_written_in_parts():
    found = load(content())
    assert found["ids"].tolist() == IDS.tolist()
    assert np.array_equal(found["rows"], ROWS)


def test_tensors_come_back_whole_and_in_parts(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(content())
    for source in (content(), path):
        with opened(source) as file:
            assert file.texts == {"name": "x"}
            assert file.forms == {
                "ids": Form("I64", (4,)),
                "rows": Form("F32", (4, 3)),
            }
            assert file.array("ids").tolist() == IDS.tolist()
            assert np.array_equal(file.rows("rows", 1, 2), ROWS[1:3])


@pytest.mark.parametrize(
    ("hostile", "reason"),
    [
        (b"", "cut off"),
        (b"\xff" * 8, "header is cut off"),
        ((1 << 40).to_bytes(8, "little") + b"{}", "header is cut off"),
        (content()[:-1], "shorter or longer"),
        (content() + b"x", "shorter or longer"),
        (tensor([1 << 40, 1 << 20], [0, 1 << 62]), "shorter or longer"),
        (tensor([1 << 40, 1 << 20], [0, 16]) + bytes(16), "another length"),
        (tensor([4], [8, 24]) + bytes(24), "overlap, or leave gaps"),
        (tensor([-4], [0, -16]), "something else than lengths"),
        (tensor([True], [0, 4]) + bytes(4), "not a whole number"),
        (tensor([1] * 100_000, [0, 4]) + bytes(4), "more dimensions"),
        (tensor([4], [0, 8], "F16") + bytes(8), "of a type"),
        (with_header([]), "not a checkpoint"),
        (with_header({}), "not a checkpoint"),
        (with_header(b"[" * 100_000), "not a checkpoint"),
    ],
)
def test_a_header_that_does_not_fit_its_file_is_refused(hostile, reason):
    with pytest.raises(InputError, match=reason), opened(hostile):
        pytest.fail("it was read")


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with (
        pytest.raises(InputError, match="No such file"),
        opened(tmp_path / "none"),
    ):
        pytest.fail("it was read")


def test_a_store_goes_into_pieces_and_comes_back(monkeypatch):
    # Two rows of three numbers at a time
    monkeypatch.setattr(rows_store, "PIECE_BYTES", 24)
    slots = [Slot("a", "run"), Slot("b", "run")]
    store = ClientStore(slots, clients=10, width=3)
    for place, client in enumerate(IDS.tolist()):
        row = torch.from_numpy(ROWS[place])
        store.save(client, {"a": row, "b": -row})
    assert store.seen().tolist() == IDS.tolist()

    pieces = list(store.pieces(store.seen()))
    assert [len(piece) for piece in pieces] == [24, 24, 24, 24]
    assert b"".join(pieces) == ROWS.tobytes() + (-ROWS).tobytes()

    other = ClientStore(slots, clients=10, width=3)
    other.restore(IDS[:2], {"a": ROWS[:2], "b": -ROWS[:2]})
    other.restore(IDS[2:], {"a": ROWS[2:], "b": -ROWS[2:]})
    assert list(other.pieces(other.seen())) == pieces
    # Of one that was never seen there are zeros, also past the end of the file
    assert b"".join(other.pieces(np.array([0]))) == bytes(24)
    last = ClientStore(slots, clients=10, width=3)
    assert b"".join(last.pieces(np.array([9]))) == bytes(24)
    for one in (store, other, last):
        one.close()
