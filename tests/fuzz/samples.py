"""One small, right file of every kind: what the changed ones start from."""

import hashlib
import io
import json
import tarfile
import tempfile
import tomllib
from pathlib import Path

import numpy as np

from data.formats import cifar100_files, idx, leaf_content
from fedlama.core import FedLAMA, Layout, Ledger, Tensor
from fedlama.run.checkpoints import save_checkpoint
from fedlama.training.checkpoint import Checkpoint
from report.hand_made import write_run


def _tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def _npz(save=np.savez, **arrays) -> bytes:
    buffer = io.BytesIO()
    save(buffer, **arrays)
    return buffer.getvalue()


def _checkpoint() -> Checkpoint:
    layout = Layout.pack([Tensor("conv", 16, adaptive=True), Tensor("fc", 4)])
    state = FedLAMA(3, 2).start(layout.layers)
    row, counters = np.arange(layout.width, dtype=np.float32), np.array([7])
    return Checkpoint(state, Ledger.open(layout), (0, 1), row, counters, np.zeros((2, 1, 32), np.float32))


def _run_files() -> tuple[bytes, bytes, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = write_run(Path(folder) / "run", long=("conv.weight",)).path
        return tuple((path / name).read_bytes() for name in ("config.toml", "rounds.jsonl", "summary.json"))


def _voucher() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        save_checkpoint(Path(folder), CHECKPOINT, step=6, round=2, config=CONFIG)
        return (Path(folder) / "step-000000006.json").read_bytes()


CIFAR = cifar100_files(train=1, test=1)["train"]
IDX_LABELS = idx(np.array([3, 1]))
CHECKPOINT_SHAPES = {"width": 32, "counter_width": 1, "memory_shape": (1, 32)}
CHECKPOINT = _checkpoint().encode()
CONFIG_TOML, ROUNDS, SUMMARY = _run_files()
CONFIG = tomllib.loads(CONFIG_TOML.decode())
TIMINGS = b"".join(b'{"round": %d, "seconds": 1.0}\n' % number for number in range(1, 9))
_X, _Y = np.arange(16, dtype=np.uint8).reshape(4, 2, 2), np.arange(4) % 2
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
_PARTIAL = b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-4/5\r\nContent-Length: 5\r\n\r\nhello"
_MOVED = b"HTTP/1.1 301 Moved\r\nLocation: file:///etc/passwd\r\n\r\n"

SAMPLES: dict[str, list[bytes]] = {
    "cifar-pickle": [CIFAR],
    "cifar-archive": [_tar({"cifar-100-python/train": CIFAR[:500], "cifar-100-python/test": b"x"})],
    "idx": [idx(np.arange(8, dtype=np.uint8).reshape(2, 2, 2)), IDX_LABELS],
    "leaf": [json.dumps(leaf_content({"f1": [1, 0], "f2": [1]}, length=3)).encode()],
    "npz": [
        _npz(x=_X, y=_Y, test=np.arange(4) > 1),
        _npz(np.savez_compressed, x_train=_X, y_train=_Y, x_test=_X, y_test=_Y, clients_train=np.array(list("abca"))),
    ],
    "config": [CONFIG_TOML],
    "checkpoint": [CHECKPOINT],
    "voucher": [_voucher()],
    "rounds": [ROUNDS],
    "summary": [SUMMARY],
    "run-config": [CONFIG_TOML],
    "drawn-rounds": [ROUNDS],
    "drawn-summary": [SUMMARY],
    "http": [_ANSWER, _PARTIAL, _MOVED],
}


def name_of(content: bytes) -> str:
    """A file's name in the corpus."""
    return hashlib.sha256(content).hexdigest()[:16]
