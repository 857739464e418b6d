"""docs/design.md names every module of the package, in one line, and none that is not there."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "fedlama"
# Protocols inside a room, and an optional part of a policy
NO_DOORS = {
    ("Shortening", "core/policy.py"),
    ("Sink", "training/checkpointing.py"),
    ("Store", "processes/hosts.py"),
    ("Windowed", "core/policy.py"),
}


def modules_in_the_design() -> list[str]:
    """The paths in the first listing of the page that begins with the package's folder."""
    text = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    listing = text.split("```\nsrc/fedlama/\n", maxsplit=1)[1].split("```", maxsplit=1)[
        0
    ]
    folders: list[tuple[int, str]] = []
    found: list[str] = []
    for line in listing.splitlines():
        indent = len(line) - len(line.lstrip())
        name, _, what = line.strip().partition(" ")
        assert what.strip(), f"{name} has no description"
        while folders and folders[-1][0] >= indent:
            folders.pop()
        if name.endswith("/"):
            folders.append((indent, name))
        else:
            assert name.endswith(".py"), f"a line names {name!r}, which is no module"
            found.append("".join(folder for _, folder in folders) + name)
    return found


def modules_there() -> set[str]:
    paths = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")}
    return {path for path in paths if not path.endswith("/__init__.py")}


def test_every_module_is_in_the_design_once():
    named = modules_in_the_design()
    assert len(named) == len(set(named))
    assert set(named) == modules_there()


def test_every_room_is_in_the_order_of_imports():
    text = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    order = text.split(
        "Rooms on one line do not import each other.\n\n```\n", maxsplit=1
    )[1].split("```")[0]
    rooms = {room.strip() for line in order.splitlines() for room in line.split("|")}
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert rooms == {*folders, "averager"}


def test_every_door_is_in_the_table_of_doors():
    """A door is a protocol, or an abstract base class as Codec is."""
    text = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    table = text.split("### The doors\n", maxsplit=1)[1].split("\n## ", maxsplit=1)[0]
    listed = set(re.findall(r"\| `(\w+)` in `([\w/]+\.py)` \|", table))
    for name, module in listed:
        assert f"class {name}(" in (PACKAGE / module).read_text(encoding="utf-8")

    doors = {("Codec", "compress/codec.py")}
    for path in PACKAGE.rglob("*.py"):
        for name in re.findall(
            r"^class ([A-Z]\w*)\(Protocol\)", path.read_text(encoding="utf-8"), re.M
        ):
            doors.add((name, path.relative_to(PACKAGE).as_posix()))
    assert listed == doors - NO_DOORS
