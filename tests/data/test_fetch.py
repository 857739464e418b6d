"""Downloads from a server on this machine that breaks off, lies and forgets, as servers do."""

import hashlib
import importlib
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from fedlama.base import InputError, RunError
from fedlama.data import fetch
from fedlama.data.cifar import CIFAR10, CIFAR100

# fedlama.data.fetch is the function
module = importlib.import_module("fedlama.data.fetch")

CONTENT = np.random.default_rng(0).bytes(300_000)
FILE = "cifar-10-python.tar.gz"


class Server(ThreadingHTTPServer):
    """Serves CONTENT; its attributes say what goes wrong, and `asked` keeps the Range of every request."""

    daemon_threads = True
    content = CONTENT
    ranges = True  # whether Range is understood
    sends = len(CONTENT)  # bytes until the connection breaks
    length: int | str | None = None  # Content-Length, if it is a lie
    status: int | None = None
    content_range: str | None = None
    chunked = False

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str | None] = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/~kriz"


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        server, wanted = self.server, self.headers["Range"]
        server.asked.append(wanted)
        self.close_connection = True
        start = (
            int(re.fullmatch(r"bytes=(\d+)-", wanted)[1])
            if wanted and server.ranges
            else 0
        )
        if server.status:
            self.send_error(server.status)
        elif start >= len(server.content):
            self.send_error(416)
        else:
            self.answer(start, server.content[start:])

    def answer(self, start, body):
        server = self.server
        self.send_response(206 if start else 200)
        if start:
            last, total = len(server.content) - 1, len(server.content)
            self.send_header(
                "Content-Range", server.content_range or f"bytes {start}-{last}/{total}"
            )
        if server.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        elif server.length != "none":
            self.send_header("Content-Length", str(server.length or len(body)))
        self.end_headers()
        body = body[: server.sends]
        self.wfile.write(
            b"%x\r\n%s\r\n" % (len(body), body) if server.chunked else body
        )

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(module, "TIMEOUT", 10.0)
    archive = module.Archive(FILE, hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setitem(module.ARCHIVES, "cifar10", archive)
    with Server() as running:
        thread = threading.Thread(
            target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def part(folder):
    return folder / f"{FILE}.part"


def fails(folder, server, *words):
    """The one sentence of a failed download, which leaves nothing under the final name."""
    with pytest.raises(RunError) as caught:
        fetch("cifar10", folder, url_base=server.url)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert not (folder / FILE).exists()
    for word in (FILE, *words):
        assert word in sentence


def test_a_download(tmp_path, server):
    seen = []
    path = fetch(
        "cifar10",
        tmp_path / "new" / "folder",
        url_base=server.url + "/",
        progress=lambda *step: seen.append(step),
    )
    assert path == tmp_path / "new" / "folder" / FILE
    assert path.read_bytes() == CONTENT
    assert [file.name for file in path.parent.iterdir()] == [FILE]
    assert seen[0] == (0, len(CONTENT))
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert sorted(seen) == seen


def test_what_is_there_is_not_fetched_again(tmp_path, server):
    fetch("cifar10", tmp_path, url_base=server.url)
    fetch("cifar10", tmp_path, url_base=server.url)
    assert server.asked == [None]


def test_a_wrong_file_under_the_final_name_is_replaced_only_by_the_right_one(
    tmp_path, server
):
    (tmp_path / FILE).write_bytes(b"half")
    server.status = 503
    with pytest.raises(RunError, match="503"):
        fetch("cifar10", tmp_path, url_base=server.url)
    assert (tmp_path / FILE).read_bytes() == b"half"
    server.status = None
    assert fetch("cifar10", tmp_path, url_base=server.url).read_bytes() == CONTENT


def test_a_broken_download_is_continued(tmp_path, server):
    server.sends = 100_000
    fails(
        tmp_path,
        server,
        "100,000 of 300,000 bytes",
        str(part(tmp_path)),
        "again to continue",
    )
    assert part(tmp_path).read_bytes() == CONTENT[:100_000]
    fails(tmp_path, server, "200,000 of 300,000 bytes")
    seen = []
    path = fetch(
        "cifar10",
        tmp_path,
        url_base=server.url,
        progress=lambda *step: seen.append(step),
    )
    assert path.read_bytes() == CONTENT
    assert server.asked == [None, "bytes=100000-", "bytes=200000-"]
    assert seen[0] == (200_000, 300_000)
    assert not part(tmp_path).exists()


def test_a_server_without_ranges_starts_over(tmp_path, server):
    server.ranges = False
    part(tmp_path).write_bytes(b"x" * 1000)
    assert fetch("cifar10", tmp_path, url_base=server.url).read_bytes() == CONTENT
    part(tmp_path).write_bytes(b"x" * 500_000)  # longer than the file
    (tmp_path / FILE).unlink()
    assert fetch("cifar10", tmp_path, url_base=server.url).read_bytes() == CONTENT


def test_a_complete_part_needs_no_more_bytes(tmp_path, server):
    part(tmp_path).write_bytes(CONTENT)
    assert fetch("cifar10", tmp_path, url_base=server.url).read_bytes() == CONTENT


def test_a_part_that_is_too_long_is_deleted(tmp_path, server):
    part(tmp_path).write_bytes(CONTENT + b"x")
    fails(tmp_path, server, "SHA-256", "start over")
    assert not part(tmp_path).exists()
    assert fetch("cifar10", tmp_path, url_base=server.url).read_bytes() == CONTENT


def test_a_range_that_is_called_the_whole_is_found_out(tmp_path, server):
    part(tmp_path).write_bytes(CONTENT[:50_000])
    server.content_range = "bytes 0-299999/300000"
    fails(tmp_path, server, "SHA-256")
    assert not part(tmp_path).exists()


@pytest.mark.parametrize(
    "content_range",
    ["bytes 200000-299999/300000", "nonsense", "bytes -5/7", "bytes */300000"],
)
def test_a_range_that_was_not_asked_for(tmp_path, server, content_range):
    part(tmp_path).write_bytes(CONTENT[:1000])
    server.content_range = content_range
    fails(tmp_path, server, "another range")
    assert part(tmp_path).read_bytes() == CONTENT[:1000]


def test_wrong_bytes_are_deleted(tmp_path, server):
    server.content = CONTENT[:-1] + b"x"
    fails(
        tmp_path,
        server,
        "SHA-256",
        hashlib.sha256(server.content).hexdigest()[:12],
        "deleted",
    )
    assert list(tmp_path.iterdir()) == []


def test_a_length_that_is_too_large(tmp_path, server):
    server.length = 400_000
    fails(tmp_path, server, "300,000 of 400,000 bytes")
    assert part(tmp_path).read_bytes() == CONTENT


def test_a_length_that_is_too_small(tmp_path, server):
    server.length = 1000
    fails(tmp_path, server, "SHA-256")
    assert not part(tmp_path).exists()


@pytest.mark.parametrize("length", ["none", "many", "-5", "9" * 5000])
def test_a_length_that_is_none(tmp_path, server, length):
    server.length = length
    seen = []
    try:
        path = fetch(
            "cifar10",
            tmp_path,
            url_base=server.url,
            progress=lambda *step: seen.append(step),
        )
    except RunError:
        assert not (tmp_path / FILE).exists()
    else:
        assert path.read_bytes() == CONTENT
        assert seen[-1] == (len(CONTENT), None)


def test_chunks_that_break_off(tmp_path, server):
    server.chunked = True
    server.sends = 1000
    fails(tmp_path, server)
    assert len(part(tmp_path).read_bytes()) <= 1000


def test_a_server_that_does_not_stop(tmp_path, server, monkeypatch):
    monkeypatch.setattr(module, "MAX_BYTES", 100_000)
    monkeypatch.setattr(module, "CHUNK", 10_000)
    server.length = "none"
    fails(tmp_path, server, "SHA-256")


@pytest.mark.parametrize("status", [403, 404, 416, 500])
def test_refusals_of_the_server(tmp_path, server, status):
    server.status = status
    fails(tmp_path, server, str(status))


def test_nobody_answers(tmp_path, server):
    server.socket.close()
    fails(tmp_path, server, "0 bytes are kept")


def test_an_interrupted_download_keeps_its_part(tmp_path, server, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 10_000)

    def interrupt(done, total):
        if done >= 100_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch("cifar10", tmp_path, url_base=server.url, progress=interrupt)
    assert len(part(tmp_path).read_bytes()) == 100_000
    assert fetch("cifar10", tmp_path, url_base=server.url).read_bytes() == CONTENT
    assert server.asked == [None, "bytes=100000-"]


def test_input_that_is_wrong(tmp_path, server):
    with pytest.raises(
        InputError, match="'mnist' cannot be fetched, only cifar10 and cifar100"
    ):
        fetch("mnist", tmp_path)
    with pytest.raises(InputError, match="http"):
        fetch("cifar10", tmp_path, url_base="file:///etc")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InputError, match="cannot be made a folder"):
        fetch("cifar10", tmp_path / "file" / "below", url_base=server.url)


def test_what_is_fetched_is_what_is_read():
    assert {name: archive.file for name, archive in module.ARCHIVES.items()} == {
        kind.name: kind.archive for kind in (CIFAR10, CIFAR100)
    }
    assert all(
        re.fullmatch("[0-9a-f]{64}", archive.sha256)
        for archive in module.ARCHIVES.values()
    )
    assert module.URL_BASE.startswith("https://")
