"""Where there is no room for the clients' state, a sentence says which folder is full."""

import errno
import os

import pytest
import torch

from fedlama import RunError
from fedlama.rows import Slot
from fedlama.rows.store import ClientStore


def test_a_full_folder_for_temporary_files_is_named(tmp_path, monkeypatch):
    store = ClientStore(
        [Slot("control", "run")], clients=4, width=8, folder=str(tmp_path)
    )

    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(
        RunError,
        match=rf"clients' state cannot be written to {tmp_path}: no space left .*TMPDIR",
    ):
        store.save(2, {"control": torch.ones(8)})
    monkeypatch.setattr(os, "ftruncate", full)
    with pytest.raises(RunError, match="no space left"):
        ClientStore([Slot("control", "run")], clients=4, width=8, folder=str(tmp_path))
    store.close()


def test_a_row_that_the_system_reads_in_parts_comes_back_whole(tmp_path, monkeypatch):
    """Linux reads at most 2 GiB at a time: the rest of a longer row must not become zeros."""
    store = ClientStore(
        [Slot("control", "run")], clients=4, width=8, folder=str(tmp_path)
    )
    row = torch.arange(1.0, 9.0)
    store.save(2, {"control": row})
    pread = os.pread

    def some_bytes(file, count, place):
        return pread(file, min(count, 10), place)

    monkeypatch.setattr(os, "pread", some_bytes)
    loaded = torch.zeros(8)
    store.load(2, {"control": loaded})
    assert loaded.tolist() == row.tolist()
    # A client that was never seen has zeros: those past the end of the file, and those in a hole of it
    store.load(3, {"control": loaded})
    assert loaded.tolist() == [0.0] * 8
    store.close()
