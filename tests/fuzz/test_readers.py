"""Every reader on right, changed and once failing files: it returns or says what is wrong, and does nothing else.

The longer search is `python -m tests.fuzz --minutes 5`; what it finds is kept in corpus/ and tried here for ever.
"""

import os
import pickle
import random
import subprocess
import sys
from pathlib import Path

import pytest

from fedlama.base import InputError

from .campaign import CORPUS, Campaign, FoundError, attempt
from .guard import ForbiddenError, guarded
from .mutations import SPECIAL, change
from .readers import READERS
from .samples import SAMPLES

TRIED = {"drawn-rounds": 4, "drawn-summary": 4, "cifar-pickle": 60, "http": 60}  # drawing takes its time
USUALLY_TRIED = 120


@pytest.mark.parametrize("reader", READERS)
def test_right_files_are_read(reader, tmp_path):
    """Otherwise the changed ones would prove little."""
    if reader in ("cifar-archive", "http"):  # too small to be right; they are refused further inside
        return
    for number, content in enumerate(SAMPLES[reader][:1]):
        (tmp_path / str(number)).mkdir()
        assert READERS[reader](content, tmp_path / str(number))


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*/*")), ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_once_failed(path):
    attempt(path.parent.name, path.read_bytes())


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
