"""One small, right file of every kind: what the changed ones start from."""

import gzip
import hashlib
import io
import json
import tarfile
import tempfile
import tomllib
from pathlib import Path

import numpy as np
import torch

from data.formats import cifar100_files, idx, leaf_content
from fedlama.compress import (
    Cast,
    Chain,
    Channel,
    ErrorFeedback,
    LowRank,
    MessagePlace,
    Quantize,
    Rotate,
    TopK,
)
from fedlama.core import FedLAMA, Layout, Ledger, TensorEntry
from fedlama.run.checkpoints import save_checkpoint
from fedlama.run.partition_file import PartitionFile
from fedlama.training.checkpoint import Checkpoint, Shapes
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
    layout = Layout.pack([TensorEntry("conv", 16, adaptive=True), TensorEntry("fc", 4)])
    state = FedLAMA(3, 2).start(layout.layers)
    ledger = Ledger.open(layout)
    return Checkpoint(
        policy_state=state,
        ledger=ledger,
        broadcast=ledger.plain_message(),
        row=np.arange(layout.width, dtype=np.float32),
        counters=np.array([7]),
        server_slots={"momentum": np.ones(32, np.float32)},
        cohort_slots={
            "velocity": np.zeros((2, 32), np.float32),
            "control": np.zeros((2, 32), np.float32),
        },
        seen=np.array([1, 4]),
        seen_slots=("control",),
    )


def _run_files() -> tuple[bytes, bytes, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = write_run(Path(folder) / "run", long=("conv.weight",)).path
        return tuple(
            (path / name).read_bytes()
            for name in ("config.toml", "rounds.jsonl", "summary.json")
        )


def _voucher() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        save_checkpoint(Path(folder), CHECKPOINT, step=6, round=2, config=CONFIG)
        return (Path(folder) / "step-000000006.json").read_bytes()


def _message() -> bytes:
    row = torch.linspace(-1, 1, CHANNEL.layout.width)
    anchor = torch.ones(CHANNEL.layout.width)
    # readers.py adds the checksum
    return CHANNEL.pack(row, MESSAGE_DUE, MESSAGE_PLACE, anchor=anchor)[:-4]


PAYLOAD_SHAPE = (8, 20)
CODECS = [
    Rotate(0.5),
    Cast("float16"),
    Quantize(3),
    TopK(0.1),
    Chain(LowRank(1), Rotate(4)),
]
_TENSOR = torch.linspace(-1, 1, 160).reshape(PAYLOAD_SHAPE)
_STATISTICS = [
    TensorEntry("mean", 8, role="mean"),
    TensorEntry("variance", 8, role="variance"),
]
_LAYOUT = Layout.pack(
    [TensorEntry("kernel", 1024, shape=(32, 32)), TensorEntry("bias", 32)], _STATISTICS
)
CHANNEL = Channel(ErrorFeedback(Rotate(0.5)), _LAYOUT, seed=0)
MESSAGE_DUE, MESSAGE_PLACE = (0, 1), MessagePlace(1, 2)
CIFAR = cifar100_files(train=1, test=1)["train"]
IDX_LABELS = idx(np.array([3, 1]))
CHECKPOINT_SHAPES = Shapes(
    width=32,
    counter_width=1,
    server_slots=("momentum",),
    cohort_slots=("velocity", "control"),
    seen_slots=("control",),
    cohort=2,
    clients=5,
)
CHECKPOINT = _checkpoint().encode() + np.ones((2, 32), np.float32).tobytes()
CONFIG_TOML, ROUNDS, SUMMARY = _run_files()
CONFIG = tomllib.loads(CONFIG_TOML.decode())
TIMINGS = b"".join(
    b'{"round": %d, "seconds": 1.0}\n' % number for number in range(1, 9)
)
_X, _Y = np.arange(16, dtype=np.uint8).reshape(4, 2, 2), np.arange(4) % 2
STUDY = b"""
[data]
name = "digits"
[train]
iterations = 24
[study]
seeds = [0, 1]
learning_rates = [0.1, 0.2]
fedavg_intervals = [12]
[[study.setting]]
name = "average"
policy = { kind = "fedavg", base_interval = 6 }
[[study.setting]]
name = "by layer"
policy = { kind = "fedlama", base_interval = 6, increase_factor = 4 }
"""
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
_PARTIAL = b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-4/5\r\nContent-Length: 5\r\n\r\nhello"
_MOVED = b"HTTP/1.1 301 Moved\r\nLocation: file:///etc/passwd\r\n\r\n"

PARTITION = (
    PartitionFile(
        data="digits", clients=3, samples=9, names=["a", "b"], counts=[[1, 2], [0, 3]]
    )
    .to_json()
    .encode()
)

SAMPLES: dict[str, list[bytes]] = {
    "cifar-pickle": [CIFAR],
    "cifar-archive": [
        _tar({"cifar-100-python/train": CIFAR[:500], "cifar-100-python/test": b"x"})
    ],
    "idx": [idx(np.arange(8, dtype=np.uint8).reshape(2, 2, 2)), IDX_LABELS],
    "leaf": [json.dumps(leaf_content({"f1": [1, 0], "f2": [1]}, length=3)).encode()],
    "npz": [
        _npz(x=_X, y=_Y, test=np.arange(4) > 1),
        _npz(
            np.savez_compressed,
            x_train=_X,
            y_train=_Y,
            x_test=_X,
            y_test=_Y,
            clients_train=np.array(list("abca")),
        ),
    ],
    "config": [CONFIG_TOML],
    "study": [STUDY],
    "checkpoint": [CHECKPOINT],
    "voucher": [_voucher()],
    "rounds": [ROUNDS],
    "packed-rounds": [ROUNDS, gzip.compress(ROUNDS, mtime=0)],
    "summary": [SUMMARY],
    "partition": [PARTITION],
    "run-config": [CONFIG_TOML],
    "drawn-rounds": [ROUNDS],
    "drawn-summary": [SUMMARY],
    "payload": [codec.encode(_TENSOR, key=0).to_bytes()[:-4] for codec in CODECS],
    "message": [_message()],
    "http": [_ANSWER, _PARTIAL, _MOVED],
}


def name_of(content: bytes) -> str:
    """A file's name in the corpus."""
    return hashlib.sha256(content).hexdigest()[:16]
