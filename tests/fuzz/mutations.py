"""Changes that reach behind the first check: JSON stays JSON, a zip's checksums stay right, headers stay in place."""

import gzip
import io
import json
import random
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable

Change = Callable[[random.Random, bytes], bytes]

HOSTILE = "\x1b[31m\x07\r\n\u2028\u202e"
NUMBERS = [
    0,
    1,
    -1,
    2,
    255,
    256,
    2**31 - 1,
    2**31,
    2**32,
    2**63 - 1,
    2**63,
    2**64,
    -(2**63),
    10**30,
    10**400,
]
FLOATS = [
    0.0,
    -0.0,
    0.5,
    1e308,
    -1e308,
    5e-324,
    float("nan"),
    float("inf"),
    float("-inf"),
]
TEXTS = [
    "",
    "x",
    "\x00",
    "\x1b[31m",
    "<script>",
    "../../x",
    "/etc/passwd",
    "nan",
    "é" * 50,
    "\ud800",
    "a" * 300,
    "$_",
]
# The second beside many short ones: whoever stores them alike needs their product
TEXTS += [HOSTILE, "a" * 30_000]
PLAIN = [None, True, False, [], {}, [[]], [None], {"": None}, *NUMBERS, *FLOATS, *TEXTS]
WORDS = [
    *(
        struct.pack(kind, number)
        for kind in ("<I", ">I", "<Q")
        for number in (0, 1, 0x7FFFFFFF, 0xFFFFFFFF)
    ),
    *(
        b"\x00",
        b"\xff",
        b"\n",
        b"\r\n",
        b"[" * 3000,
        b"{" * 3000,
        b"9" * 5000,
        b"NaN",
        b"-",
        b'"',
        b"1e999",
        b"\\ud800",
    ),
]
OPCODES = [
    b"c__builtin__\neval\n",
    b"cos\nsystem\n",
    b"(",
    b"R",
    b"b",
    b"t",
    b"u",
    b"s",
    b"a",
    b"e",
    b"0",
    b"2",
    b".",
    b"h\x00",
]
OPCODES += [
    b"\x93",
    b"\x81",
    b"\x85",
    b"\x86",
    b"\x87",
    b"q\x00",
    b"\x8a\xff",
    b"B\xff\xff\xff\x7f",
    b"\x8e" + b"\xff" * 8,
]
# A tuple of two references to the one before, 30 times over: whoever prints, compares or hashes it never ends.
DEEP_TUPLE = b"K\x01\x85q\xc8" + b"".join(
    b"h%c" % (200 + k) * 2 + b"\x86" + b"q%c" % (201 + k) for k in range(30)
)
OPCODES += [
    DEEP_TUPLE,
    b"]" * 40 + b"a" * 39,
    b"}" * 40,
    b"\x8a\x80" + b"\xff" * 128,
    b"c" + b"x" * 3000 + b"\ny\n",
]
OPCODES += [
    b"cnumpy\ndtype\n",
    b"cnumpy\nndarray\n",
    b"c_codecs\nencode\n",
    b"(K\x01K\x01K\x01t",
    b")R",
    b"c\x1b[31m\n\n",
]
NAMES = [
    f"cifar-100-python/{HOSTILE}",
    "cifar-100-python/train",
    "cifar-100-python/test",
    "../x",
    "/tmp/x",
    "a/../../x",
    "",
    "x" * 300,
    "cifar-100-python",
]


def change(
    reader: str, draw: random.Random, content: bytes, others: list[bytes]
) -> bytes:
    """One to four changes, half of them with the format in mind."""
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        with_format = draw.random() < 0.6
        content = (
            SPECIAL[reader](draw, content)
            if with_format
            else _plainly(draw, content, others)
        )
    return content[: 1 << 16]


def _plainly(draw: random.Random, content: bytes, others: list[bytes]) -> bytes:
    start = draw.randrange(len(content) + 1)
    end = min(len(content), start + draw.choice((1, 1, 2, 4, 16, 200)))
    match draw.randrange(6):
        case 0:
            return content[:start]
        case 1:
            return content[:start] + draw.randbytes(end - start) + content[end:]
        case 2:
            return (
                content[:start]
                + draw.choice(WORDS)
                + content[end if draw.random() < 0.5 else start :]
            )
        case 3:
            return content[:start] + content[end:]
        case 4:
            return (
                content[:start]
                + content[start:end] * draw.choice((2, 3, 50))
                + content[end:]
            )
        case _:
            other = draw.choice(others)
            return content[:start] + other[draw.randrange(len(other) + 1) :]


def _in_json(draw: random.Random, content: bytes) -> bytes:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return _plainly(draw, content, [content])
    return json.dumps(_changed(draw, value)).encode()


def _changed(draw: random.Random, value: object) -> object:
    """The value with one node of it replaced, doubled or taken away."""
    if not isinstance(value, dict | list) or not value or draw.random() < 0.1:
        return draw.choice(PLAIN)
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key = draw.choice(keys)
    result = value.copy()
    match draw.randrange(12):
        case 0:
            del result[key]
        case 1 if isinstance(result, list):
            result.insert(key, result[key])
        case 2 if isinstance(result, list):
            result[key] = result[draw.choice(keys)]
        case _:
            result[key] = _changed(draw, result[key])
    return result


def _in_lines(draw: random.Random, content: bytes) -> bytes:
    lines = content.splitlines(keepends=True)
    if not lines:
        return content
    number = draw.randrange(len(lines))
    lines[number] = _in_json(draw, lines[number]) + b"\n"
    return b"".join(lines)


def _in_toml(draw: random.Random, content: bytes) -> bytes:
    """Another value for a key, or a key moved to another place."""
    lines = content.decode("utf-8", "replace").split("\n")
    number = draw.randrange(len(lines))
    key, equals, _ = lines[number].partition("=")
    values = [
        f"{10**9 + 1}",
        f"{10**18}",
        f"{2**63}",
        f"0x{'f' * 6000}",
        "[" + "1, " * 5000 + "1]",
        "[" * 40 + "]" * 40,
        json.dumps(HOSTILE),
        json.dumps("x" * 30_000),
        "0",
        "-1",
        "1.5",
        "nan",
        "inf",
        "1e400",
        "9" * 30,
        "true",
        '""',
        '"x"',
        "[]",
        "{}",
        "[1, -1]",
        "1979-05-27",
    ]
    if equals and draw.random() < 0.8:
        lines[number] = f"{key}= {draw.choice(values)}"
    else:
        lines.insert(draw.randrange(len(lines)), lines.pop(number))
    return "\n".join(lines).encode()


def _in_npz(draw: random.Random, content: bytes) -> bytes:
    """A member's header or content changed, packed again with its right checksum."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
    except Exception:
        return content
    name = draw.choice(list(members) or ["x.npy"])
    members[name] = _in_npy(draw, members.get(name, b""))
    if draw.random() < 0.1:
        names = [
            "x.npy",
            "y.npy",
            "test.npy",
            "clients.npy",
            "../x.npy",
            f"{HOSTILE}.npy",
            "x" * 30_000,
        ]
        members[draw.choice(names)] = members[name]
    buffer = io.BytesIO()
    with zipfile.ZipFile(
        buffer, "w", draw.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    ) as archive:
        for key, value in members.items():
            archive.writestr(key, value)
    return buffer.getvalue()


def _in_npy(draw: random.Random, member: bytes) -> bytes:
    shapes = [
        "()",
        "(0,)",
        "(4,)",
        "(4, 2, 2)",
        "(-1,)",
        "(4, 0)",
        "(0, 99999999999999999999)",
        "(2**40,)",
        "(True,)",
    ]
    shapes += [
        f"(0x{'f' * 5000},)",
        "(1," * 60 + ")" * 60,
        f"({'1, ' * 3000})",
        "(4, 'x' * 1000)",
        "((4, 4), (4, 4))",
    ]
    kinds = [
        "|u1",
        "<i8",
        "<f4",
        "<f2",
        "|b1",
        "<U1",
        "|S4",
        "|O",
        "<M8[s]",
        "<c8",
        "<U999999999",
        ">f8",
        "|V0",
        "<U0",
        "\x1b[31m",
        "x" * 5000,
    ]
    if draw.random() < 0.2:
        return member + b"\x00" * draw.choice((1, 100, 1 << 20))
    if draw.random() < 0.3:
        return _plainly(draw, member, [member])
    text = (
        member[10 : 10 + int.from_bytes(member[8:10], "little")]
        .decode("latin-1")
        .strip()
    )
    text = (
        re.sub(r"\([^)]*\)", lambda _: draw.choice(shapes), text)
        if draw.random() < 0.5
        else text
    )
    text = (
        re.sub(r"'[|<>][^']*'", lambda _: repr(draw.choice(kinds)), text)
        if draw.random() < 0.5
        else text
    )
    text = draw.choice(
        [
            text,
            text,
            text,
            "[" * 500,
            text.replace("False", "True"),
            "{}",
            "__import__('os').system('id')",
        ]
    )
    header = text.encode("latin-1") + b"\n"
    return (
        b"\x93NUMPY\x01\x00"
        + struct.pack("<H", len(header))
        + header
        + member[len(member) - draw.choice((0, 4, 16)) :]
    )


STUDY_NAMES = [
    "report.html",
    "study.json",
    "pilots",
    "\u5e73\u5747",
    "\u5206\u5c42",
    "a b",
    "a-b",
    "A_B",
    "..",
    "!",
    "[/red]",
]
STUDY_NAMES += [
    "\x1b[31m",
    "\u2028",
    "x" * 199,
    "\u9577" * 199,
    "\u9577" * 198 + "x",
    "COM1",
    "table.md",
]


def _in_study(draw: random.Random, content: bytes) -> bytes:
    """Another name for a setting, a learning rate that is nearly another, or any other change of a TOML file."""
    if draw.random() < 0.4:
        return _in_toml(draw, content)
    name = json.dumps(draw.choice(STUDY_NAMES)).encode()
    rates = json.dumps(
        [
            draw.choice((0.1, 0.1000001, 0.10000000001, 1e-300, 5e-324, 1e308))
            for _ in range(3)
        ]
    ).encode()
    lines = content.split(b"\n")
    places = [
        place
        for place, line in enumerate(lines)
        if line.startswith((b"name = ", b"learning_rates = "))
    ]
    if places:
        place = draw.choice(places)
        lines[place] = (
            b"learning_rates = " + rates
            if lines[place].startswith(b"learning")
            else b"name = " + name
        )
    return b"\n".join(lines)


def _in_safetensors(draw: random.Random, content: bytes) -> bytes:
    """The header, with its length right, or a field of the state that it carries."""
    length = int.from_bytes(content[:8], "little")
    try:
        header = json.loads(content[8 : 8 + length])
        state = json.loads(header["__metadata__"]["fedlama"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return _plainly(draw, content, [content])
    if draw.random() < 0.6:
        header["__metadata__"]["fedlama"] = draw.choice(
            (json.dumps(_changed(draw, state)), "[" * 100_000)
        )[:60_000]
    else:
        header = _changed(draw, header)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + content[8 + length :]


def _in_tar(draw: random.Random, content: bytes) -> bytes:
    """A member more, of any name and kind, or extension headers: long ones, many, and ones that make no sense."""
    if content.startswith(b"\x1f\x8b"):
        return _plainly(draw, content, [content])
    if draw.random() < 0.5:
        # Packed, thousands of them are small
        return gzip.compress(_extensions(draw) + content, 1, mtime=0)
    kinds = [
        tarfile.REGTYPE,
        tarfile.SYMTYPE,
        tarfile.LNKTYPE,
        tarfile.CHRTYPE,
        tarfile.FIFOTYPE,
        tarfile.DIRTYPE,
    ]
    kinds += [
        tarfile.GNUTYPE_SPARSE,
        tarfile.XHDTYPE,
        tarfile.GNUTYPE_LONGNAME,
        b"\x00",
        b"Z",
    ]
    member = tarfile.TarInfo(draw.choice(NAMES))
    member.type, member.linkname = draw.choice(kinds), draw.choice(NAMES)[:100]
    member.size = draw.choice((0, 0, 5, 512, 2**30, 2**33 - 1))
    try:
        header = member.tobuf(
            draw.choice((tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT))
        )
    except ValueError:
        return content
    return header + b"x" * (min(member.size, 512) and 512) + content


def _extensions(draw: random.Random) -> bytes:
    records = [
        "GNU.sparse.map=0,x",
        "GNU.sparse.size=x",
        "GNU.sparse.numblocks=9",
        "GNU.sparse.major=1\nGNU.sparse.minor=0",
        "size=-1",
        f"size={'9' * 3000}",
        "mtime=nan",
        "path=../../x",
        f"path={HOSTILE}",
        "hdrcharset=BINARY",
        "x" * 4000,
        "9" * 50_000,
        "",
    ]
    record = f" {draw.choice(records)}\n".encode()
    length = draw.choice((len(record) + 2, len(record) + 3, 0, 10**15))
    content = draw.choice((str(length).encode() + record, record, b"9" * 50_000))
    kinds = [
        tarfile.XHDTYPE,
        tarfile.XGLTYPE,
        tarfile.GNUTYPE_LONGNAME,
        tarfile.GNUTYPE_LONGLINK,
        tarfile.SOLARIS_XHDTYPE,
    ]
    member = tarfile.TarInfo("././@PaxHeader")
    member.type, member.size = draw.choice(kinds), len(content)
    block = member.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-len(content) % 512)
    return block * draw.choice((1, 1, 3, 2000 if len(content) < 200 else 3))


def _in_idx(draw: random.Random, content: bytes) -> bytes:
    place = 4 * draw.randrange(4)
    value = draw.choice(
        (
            b"\x00\x00\x08\x03",
            b"\x00\x00\x08\x01",
            *(struct.pack(">I", n) for n in (0, 1, 2, 2**31, 2**32 - 1)),
        )
    )
    changed = content[:place] + value + content[place + 4 :]
    packed = zlib.compressobj(9, zlib.DEFLATED, 31)
    return (
        packed.compress(changed + b"\x00" * 100_000) + packed.flush()
        if draw.random() < 0.1
        else changed
    )


def _in_pickle(draw: random.Random, content: bytes) -> bytes:
    start = draw.choice(
        (
            draw.randrange(len(content) + 1),
            len(content) - draw.randrange(min(60, len(content) + 1)),
        )
    )
    return (
        content[:start]
        + draw.choice(OPCODES) * draw.choice((1, 1, 2, 300))
        + content[start + draw.choice((0, 1)) :]
    )


def _in_numbers(draw: random.Random, content: bytes) -> bytes:
    """One of the numbers of a coded tensor: a size, an index, a float; or bytes of its stream."""
    kind, values = draw.choice(
        (("<B", NUMBERS[:5]), ("<H", NUMBERS), ("<f", FLOATS), ("<I", NUMBERS))
    )
    value = draw.choice(values)
    if kind != "<f":
        value %= 1 << (8 * struct.calcsize(kind))
    try:
        changed = struct.pack(kind, value)
    except OverflowError:
        changed = b"\xff\xff\x7f\x7f"
    at = draw.choice((draw.randrange(12), draw.randrange(len(content) + 1)))
    return content[:at] + changed + content[at + len(changed) :]


def _in_answer(draw: random.Random, content: bytes) -> bytes:
    lines = [
        b"Content-Length: -1",
        b"Content-Length: 99999999999999999999",
        b"Content-Range: bytes 5-9/10",
    ]
    lines += [
        b"Transfer-Encoding: chunked",
        b"HTTP/1.1 416 No",
        b"HTTP/1.1 206 Yes",
        b"HTTP/1.1 500 No",
        b"X" * 70_000,
    ]
    lines += [
        b"HTTP/1.1 500 \x1b[31m\x07" + b"x" * 2000,
        b"HTTP/1.1 404 " + "\u2028".encode(),
        b"HTTP/9.9 abc",
        b"Location: file:///etc/passwd",
        b"Location: ftp://127.0.0.1/",
        b"HTTP/1.1 301 Moved",
        b"\xff: \xff",
    ]
    parts = content.split(b"\r\n")
    parts[draw.randrange(len(parts))] = draw.choice(lines)
    return b"\r\n".join(parts)


SPECIAL: dict[str, Change] = {
    "cifar-pickle": _in_pickle,
    "cifar-archive": _in_tar,
    "idx": _in_idx,
    "leaf": _in_json,
    "npz": _in_npz,
    "config": _in_toml,
    "study": _in_study,
    "checkpoint": _in_safetensors,
    "voucher": _in_json,
    "rounds": _in_lines,
    "packed-rounds": _in_lines,
    "summary": _in_json,
    "partition": _in_json,
    "run-config": _in_toml,
    "drawn-rounds": _in_lines,
    "drawn-summary": _in_json,
    "payload": _in_numbers,
    "message": _in_numbers,
    "http": _in_answer,
}
