"""Every reader on right, changed and once failing files: it returns or says what is wrong, and does nothing else.

The longer search is `python -m tests.fuzz --minutes 5`; what it finds is kept in corpus/ and tried here for ever.
"""

import os
import pickle
import random
import subprocess
import sys
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from fedlama.base import InputError, RunError

from .campaign import CORPUS, Campaign, FoundError, attempt
from .guard import ForbiddenError, guarded
from .mutations import SPECIAL, change
from .readers import READERS
from .samples import SAMPLES

OF_FILES = ("cifar-pickle", "cifar-archive", "idx", "leaf", "npz", "config", "study")
OF_FILES += ("voucher", "rounds", "packed-rounds", "summary", "partition", "run-config")
# Drawing takes its time
TRIED = {"drawn-rounds": 4, "drawn-summary": 4, "cifar-pickle": 60, "http": 60}
USUALLY_TRIED = 120


@pytest.mark.parametrize("reader", READERS)
def test_right_files_are_read(reader, tmp_path):
    """Otherwise the changed ones would prove little."""
    # Too small to be right; they are refused further inside
    if reader in ("cifar-archive", "http"):
        return
    for number, content in enumerate(SAMPLES[reader][:1]):
        (tmp_path / str(number)).mkdir()
        assert READERS[reader](content, tmp_path / str(number))


@pytest.mark.parametrize(
    "path",
    sorted(CORPUS.glob("*/*")),
    ids=lambda path: f"{path.parent.name}-{path.name}",
)
def test_what_once_failed(path):
    reader = path.parent.name
    _read_a_right_file(reader)
    attempt(reader, path.read_bytes())


@cache
def _read_a_right_file(reader):
    """What is done once per process, such as evaluating annotations, is no deed of the file that is read next."""
    with TemporaryDirectory() as folder, suppress(InputError, RunError):
        READERS[reader](SAMPLES[reader][0], Path(folder))


def test_the_corpus_is_small():
    sizes = [path.stat().st_size for path in CORPUS.glob("*/*")]
    assert max(sizes) <= 4096
    assert sum(sizes) <= 300_000


@pytest.mark.parametrize("reader", READERS)
def test_a_short_search_finds_nothing(reader):
    draw = random.Random(f"{reader} 1")
    kept = list(SAMPLES[reader])
    for _ in range(TRIED.get(reader, USUALLY_TRIED)):
        content = change(reader, draw, draw.choice(kept), kept)
        kept = [*kept[-20:], content] if draw.random() < 0.2 else kept
        attempt(reader, content)


def a_pipe(path):
    os.mkfifo(path)


def a_device(path):
    path.symlink_to("/dev/zero")


def a_folder(path):
    path.mkdir()


def a_loop(path):
    path.symlink_to(path.name)


def a_link_to_nothing(path):
    path.symlink_to("nothing")


def a_hole(path):
    """A terabyte that needs no disk."""
    with path.open("wb") as file:
        file.truncate(1 << 40)


@pytest.mark.parametrize(
    "make", [a_pipe, a_device, a_folder, a_loop, a_link_to_nothing, a_hole]
)
@pytest.mark.parametrize("reader", OF_FILES)
def test_no_reader_waits_for_a_pipe_or_swallows_a_device(reader, make, monkeypatch):
    """Every file that the reader is given is one of these instead."""

    def write_bytes(path, content):
        path.unlink(missing_ok=True)
        make(path)

    monkeypatch.setattr(Path, "write_bytes", write_bytes)
    attempt(reader, SAMPLES[reader][0])


def test_every_reader_has_samples_and_changes():
    assert list(READERS) == list(SAMPLES) == list(SPECIAL)


class Evil:
    def __reduce__(self):
        return os.system, ("true",)


def load_a_pickle():
    pickle.loads(pickle.dumps(Evil()))


@pytest.mark.parametrize(
    "deed",
    [
        load_a_pickle,
        lambda: subprocess.run([sys.executable, "-c", ""], check=True),
        lambda: eval("1 + 1"),
        lambda: Path("outside").write_text("x"),
        lambda: os.mkdir("outside"),  # noqa: PTH102
        lambda: bytes(64 << 20),
    ],
)
def test_the_guard_notices(deed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inside").mkdir()
    with pytest.raises(ForbiddenError), guarded(tmp_path / "inside", 100):
        deed()
    assert list(tmp_path.iterdir()) == [tmp_path / "inside"]


def compute_for_ever():
    while True:
        pass


@pytest.mark.parametrize("sentence", ["", "\x1b[31m", "a\nb\nc", "x" * 5000])
def test_the_guard_reads_what_is_said(sentence, tmp_path):
    """Our own errors cannot even be given most of these; one that can is found."""
    error = InputError()
    error.args = (sentence,)
    with pytest.raises(ForbiddenError, match="says"), guarded(tmp_path, 100):
        raise error


def test_the_guard_ends_what_takes_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr("fuzz.guard.MAX_COMPUTING", 0.2)
    with pytest.raises(ForbiddenError, match="takes over"), guarded(tmp_path, 100):
        compute_for_ever()
    monkeypatch.setattr("fuzz.guard.MAX_WAITING", 0.2)
    with pytest.raises(ForbiddenError, match="takes over"), guarded(tmp_path, 100):
        time.sleep(30)


def test_the_guard_lets_sentences_and_files_inside_pass(tmp_path):
    with guarded(tmp_path, 100):
        (tmp_path / "inside").write_text("x")
        raise InputError("a sentence")


def test_a_find_is_kept_as_a_file(tmp_path, monkeypatch):
    """A reader with a mistake in it: it stumbles over the letter Z."""

    def stumbling(content, folder):
        if b"Z" in content:
            raise KeyError("Z")

    monkeypatch.setitem(READERS, "idx", stumbling)
    monkeypatch.setitem(SAMPLES, "idx", [b"abc", b"abcZ"])
    monkeypatch.setattr("fuzz.campaign.CORPUS", tmp_path)
    with pytest.raises(FoundError, match="idx: KeyError"):
        attempt("idx", b"Z")
    campaign = Campaign("idx", seed=1)
    campaign.run(count=20)
    assert campaign.tried == 20
    (path,) = campaign.keep_found(tmp_path)
    assert b"Z" in path.read_bytes()
