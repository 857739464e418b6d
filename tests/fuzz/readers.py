"""Every reader as a function of some bytes: it writes them where a user would have them and reads that."""

import gzip
import io
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from fedlama.base import InputError
from fedlama.compress.framing import sealed
from fedlama.compress.payload import context_of
from fedlama.data.cifar import CIFAR100, read_cifar
from fedlama.data.fetch import fetch
from fedlama.data.idx import MNIST, read_idx, read_idx_set
from fedlama.data.leaf import read_leaf
from fedlama.data.npz import read_npz
from fedlama.report import ComparisonGroup, compare, terminal_table, verdict
from fedlama.report.numbers.partition import view_counts
from fedlama.report.page.draw import View, render_page
from fedlama.run.checkpoint_search import find_checkpoint
from fedlama.run.config import load_config, parse_config
from fedlama.run.directory import RunDirectory
from fedlama.run.partition_file import read_partition
from fedlama.run.toml import to_toml
from fedlama.study.runs import load_run
from fedlama.study.study_file import load_study
from fedlama.training.checkpoint import Checkpoint
from fedlama.training.seen_rows import read_seen_rows

from . import samples

Reader = Callable[[bytes, Path], object]


def read_pickles(content: bytes, folder: Path) -> object:
    for name in (*CIFAR100.train, CIFAR100.test):
        (folder / name).write_bytes(content)
    return read_cifar(CIFAR100, folder)


def read_archive(content: bytes, folder: Path) -> object:
    """What is not gzipped is a tar file: so a change of it has a right checksum."""
    path = folder / CIFAR100.archive
    path.write_bytes(
        content if content.startswith(b"\x1f\x8b") else gzip.compress(content, 1)
    )
    return read_cifar(CIFAR100, path)


def read_idx_files(content: bytes, folder: Path) -> object:
    for split in ("train", "t10k"):
        (folder / f"{split}-images-idx3-ubyte").write_bytes(content)
        (folder / f"{split}-labels-idx1-ubyte").write_bytes(samples.IDX_LABELS)
    try:
        return read_idx_set(MNIST, folder)
    except InputError:
        return read_idx(folder / "train-images-idx3-ubyte", 1)


def read_leaf_folder(content: bytes, folder: Path) -> object:
    for split in ("train", "test"):
        (folder / split).mkdir(exist_ok=True)
        (folder / split / "all.json").write_bytes(content)
    return read_leaf(folder)


def read_npz_file(content: bytes, folder: Path) -> object:
    (folder / "set.npz").write_bytes(content)
    return read_npz(folder / "set.npz")


def read_config(content: bytes, folder: Path) -> object:
    """Also built, and written as the run directory has it: that must be a config again."""
    (folder / "config.toml").write_bytes(content)
    config = load_config(folder / "config.toml")
    (folder / "again.toml").write_text(
        to_toml(config.model_dump(exclude_none=True)), encoding="utf-8"
    )
    assert load_config(folder / "again.toml") == config
    for section in (config.policy, config.local, config.participation):
        section.build()
    return config.partition.build(has_ids=False)


def read_study(content: bytes, folder: Path) -> object:
    """Names print, and every run has a folder of its own inside the study's."""
    (folder / "study.toml").write_bytes(content)
    study = load_study(folder / "study.toml")
    cells = [*study.pilots(), *study.cells({})]
    paths = [(folder / cell.path).resolve() for cell in cells]
    assert len(set(paths)) == len(paths)
    for cell, path in zip(cells, paths, strict=True):
        assert cell.label.isprintable()
        assert path.is_relative_to(folder.resolve())
        assert max(len(part.encode()) for part in cell.path.parts) <= 255
        assert not {"report.html", "report.png", "study.json", "table.md"} & set(
            cell.path.parts
        )
    return cells


def read_checkpoint(content: bytes, folder: Path) -> object:
    checkpoint = Checkpoint.decode(content, samples.CHECKPOINT_SHAPES)
    return checkpoint, list(read_seen_rows(content, samples.CHECKPOINT_SHAPES))


def read_voucher(content: bytes, folder: Path) -> object:
    (folder / "step-000000006.json").write_bytes(content)
    (folder / "step-000000006.safetensors").write_bytes(samples.CHECKPOINT)
    return find_checkpoint(folder, samples.CONFIG)


def _run(folder: Path, **files: bytes) -> Path:
    stored = {
        "config": samples.CONFIG_TOML,
        "rounds": samples.ROUNDS,
        "summary": samples.SUMMARY,
        **files,
    }
    for name, ending in (("config", "toml"), ("rounds", "jsonl"), ("summary", "json")):
        path = folder / f"{name}.{ending}"
        if path.is_dir():
            path.rmdir()
        path.unlink(missing_ok=True)
        if stored[name]:
            path.write_bytes(stored[name])
    return folder


def _show(folder: Path, *, draw: bool) -> object:
    comparison = compare([load_run(folder)])
    Console(file=io.StringIO(), width=100).print(terminal_table(comparison))
    group = ComparisonGroup("", comparison)
    return (
        render_page([group], folder, View()) if draw else verdict(comparison)
    ).encode()


def read_rounds(content: bytes, folder: Path) -> object:
    """Shown as an unfinished and as a finished run, and taken up again after its third round."""
    for summary in (b"", samples.SUMMARY):
        with suppress(InputError):
            _show(_run(folder, rounds=content, summary=summary), draw=False)
    directory = RunDirectory(folder, parse_config(samples.CONFIG), resume=True)
    (folder / "timings.jsonl").write_bytes(samples.TIMINGS)
    return directory.continue_after(3)


def read_packed_rounds(content: bytes, folder: Path) -> object:
    """What is not gzipped are records: so a change of them has a right checksum."""
    _run(folder, rounds=b"")
    packed = content
    if not content.startswith(b"\x1f\x8b"):
        packed = gzip.compress(content, 1)
    (folder / "rounds.jsonl.gz").write_bytes(packed)
    return _show(folder, draw=False)


def read_summary(content: bytes, folder: Path) -> object:
    return _show(_run(folder, summary=content), draw=False)


def read_partition_file(content: bytes, folder: Path) -> object:
    (folder / "partition.json").write_bytes(content)
    found = read_partition(folder / "partition.json")
    if found is None:
        return None
    return view_counts(
        found.data, np.asarray(found.counts), found.clients
    ).entropy.tolist()


def draw_rounds(content: bytes, folder: Path) -> object:
    return _show(_run(folder, rounds=content), draw=True)


def draw_summary(content: bytes, folder: Path) -> object:
    return _show(_run(folder, summary=content), draw=True)


def read_run_config(content: bytes, folder: Path) -> object:
    return _show(_run(folder, config=content), draw=False)


def read_payload(content: bytes, folder: Path) -> object:
    """Bytes of one tensor, under a right checksum so that more than the checksum is tried; by every codec."""
    read: list[object] = []
    for codec in samples.CODECS:
        for shape in (samples.PAYLOAD_SHAPE, None):
            with suppress(InputError):
                found = codec.decode(
                    sealed(content, context_of(codec, 0)), key=0, shape=shape
                )
                assert bool(found.isfinite().all())
                read.append(found)
    return read


def read_message(content: bytes, folder: Path) -> object:
    """A client's whole message, under a right checksum."""
    channel = samples.CHANNEL
    context = channel._context(samples.MESSAGE_DUE, samples.MESSAGE_PLACE)
    anchor = torch.ones(channel.layout.width)
    return channel.unpack(
        sealed(content, context),
        samples.MESSAGE_DUE,
        samples.MESSAGE_PLACE,
        anchor=anchor,
    )


def read_answer(content: bytes, folder: Path) -> object:
    """The bytes are a server's whole answer to `fedlama data fetch`, however often it asks."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_answer, args=(server, content))
        thread.start()
        try:
            return fetch(
                "cifar10",
                folder,
                url_base=f"http://127.0.0.1:{server.getsockname()[1]}",
            )
        finally:
            # So that nobody waits for another question
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def _answer(server: socket.socket, content: bytes) -> None:
    with suppress(OSError):
        while True:
            with server.accept()[0] as connection, suppress(OSError):
                connection.settimeout(2)
                connection.recv(65536)
                connection.sendall(content)


READERS: dict[str, Reader] = {
    "cifar-pickle": read_pickles,
    "cifar-archive": read_archive,
    "idx": read_idx_files,
    "leaf": read_leaf_folder,
    "npz": read_npz_file,
    "config": read_config,
    "study": read_study,
    "checkpoint": read_checkpoint,
    "voucher": read_voucher,
    "rounds": read_rounds,
    "packed-rounds": read_packed_rounds,
    "summary": read_summary,
    "partition": read_partition_file,
    "run-config": read_run_config,
    "drawn-rounds": draw_rounds,
    "drawn-summary": draw_summary,
    "payload": read_payload,
    "message": read_message,
    "http": read_answer,
}
