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
