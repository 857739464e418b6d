"""Download the CIFAR archives. What arrived is kept beside the target in a .part file until its hash is right."""

from __future__ import annotations

import hashlib
import http.client
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from fedlama.base import InputError, RunError, printable, reason, shown

URL_BASE = "https://www.cs.toronto.edu/~kriz"
TIMEOUT = 30.0  # seconds without a byte
CHUNK = 1 << 18
# Both archives have some 170 million, and a server that sends more has another file
MAX_BYTES = 200_000_000

FetchProgress = Callable[[int, int | None], None]


@dataclass(frozen=True)
class Archive:
    """A file to fetch and what it must hash to."""

    file: str
    sha256: str


ARCHIVES = {
    "cifar10": Archive(
        "cifar-10-python.tar.gz",
        "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    ),
    "cifar100": Archive(
        "cifar-100-python.tar.gz",
        "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
    ),
}


def fetch(
    name: str,
    folder: Path,
    *,
    url_base: str = URL_BASE,
    progress: FetchProgress | None = None,
) -> Path:
    """Download an archive, going on where an earlier attempt stopped; the path of the verified file.

    Arguments:
        name: "cifar10" or "cifar100".
        folder: Where to put it; it is made if it is not there.
        url_base: The address of the folder on a server, for a mirror.
        progress: Called with the bytes that are there and their total, or None where the server does not say.
    """
    archive = _archive(name)
    if not url_base.startswith(("http://", "https://")):
        raise InputError(
            f"the address {shown(url_base)} must start with http:// or https://"
        )

    target = Path(folder) / archive.file
    _make_folder(target.parent)
    if target.is_file() and _sha256(target) == archive.sha256:
        return target

    part = target.with_name(target.name + ".part")
    url = f"{url_base.rstrip('/')}/{archive.file}"
    try:
        _download(url, part, progress or _no_progress)
    except (OSError, http.client.HTTPException, ValueError) as error:
        # URLError and timeouts are OSErrors.
        raise RunError(
            f"{archive.file} was not fetched from {printable(url)}: {_reason(error)}; "
            f"{_size(part):,} bytes are kept in {printable(part)}, "
            f"so run the same command again to continue"
        ) from error

    _verify(part, archive, url)
    part.replace(target)  # atomic: under its own name the archive is whole or not there
    return target


def _no_progress(done: int, total: int | None) -> None:
    """For callers that show none."""


def _archive(name: str) -> Archive:
    if name not in ARCHIVES:
        raise InputError(
            f"{shown(name)} cannot be fetched, only {' and '.join(ARCHIVES)}; "
            f"`fedlama data list` says how to get the others"
        )
    return ARCHIVES[name]


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{printable(folder)} cannot be made a folder for data: {reason(error)}"
        ) from error


def _download(url: str, part: Path, progress: FetchProgress) -> None:
    """Bring the .part file to its full length, from where it ends if the server can do that."""
    start = _size(part)
    try:
        with _open(url, start) as response:
            first = _first_byte(response, start)
            _receive(response, part, first, progress)
    except urllib.error.HTTPError as error:
        error.close()
        has_no_more = error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE
        if not has_no_more or not start:
            raise
        # There is nothing after the .part file: it is complete, or it is wrong, which its hash will tell.


def _open(url: str, start: int) -> http.client.HTTPResponse:
    headers = {
        "User-Agent": "fedlama",
        "Accept-Encoding": "identity",
    }
    if start:
        headers["Range"] = f"bytes={start}-"
    request = urllib.request.Request(url, headers=headers)
    return urllib.request.urlopen(request, timeout=TIMEOUT)


def _first_byte(response: http.client.HTTPResponse, start: int) -> int:
    """Which byte of the file the answer starts with: a server that does not know ranges sends the whole."""
    if response.status != HTTPStatus.PARTIAL_CONTENT:
        return 0

    content_range = response.headers.get("Content-Range", "")
    match = re.match(r"bytes (\d{1,18})-", content_range)
    first = None
    if match is not None:
        first = int(match[1])

    # An earlier byte than was asked for is no harm, a later one would leave a gap.
    if first is None or first > start:
        raise ConnectionError("the server sent another range than it was asked for")
    return first


def _receive(
    response: http.client.HTTPResponse, part: Path, start: int, progress: FetchProgress
) -> None:
    total = None
    length = response.headers.get("Content-Length", "")
    if length.isdecimal():
        total = start + int(length)

    mode = "wb"
    if start:
        mode = "r+b"
    with part.open(mode) as file:
        done = file.seek(start)
        file.truncate()
        progress(done, total)
        while done <= MAX_BYTES:
            chunk = response.read(CHUNK)
            if not chunk:
                break
            file.write(chunk)
            done += len(chunk)
            progress(done, total)

    if total is not None and done < min(total, MAX_BYTES):
        raise ConnectionError(f"the connection ended after {done:,} of {total:,} bytes")


def _verify(part: Path, archive: Archive, url: str) -> None:
    found = _sha256(part)
    if found != archive.sha256:
        part.unlink()
        expected = archive.sha256
        raise RunError(
            f"{printable(url)} is not {archive.file}: "
            f"the SHA-256 of what arrived is {found[:12]}… instead of {expected[:12]}…; "
            f"it was deleted, so run the same command again to start over"
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    return digest.hexdigest()


def _size(path: Path) -> int:
    if not path.is_file():
        return 0
    return path.stat().st_size


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        said = printable(str(error.reason), 200)
        return f"the server answered {error.code} {said}"

    # What is wrong with the network is inside, and its own text is better than urllib's around it.
    if isinstance(error, urllib.error.URLError):
        inner = error.reason
        if isinstance(inner, Exception):
            return reason(inner)
    return reason(error)
