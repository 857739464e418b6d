"""The API reference names everything that is public, and every argument of it is explained."""

import inspect
import re
from importlib import import_module

import pytest

import fedlama
from documentation.pages import ROOT
from fedlama.run.choices import LOCAL_RULES, POLICIES, SERVER_RULES

REFERENCE = ROOT / "docs" / "reference"
NAMED = re.findall(
    r"^::: ([\w.]+)$",
    "\n".join(path.read_text() for path in sorted(REFERENCE.glob("*.md"))),
    re.MULTILINE,
)
MODULES = ("compress", "core", "data", "flower", "local", "models", "presets", "server")


def resolved(path: str):
    """The object that a dotted path names, as far as that is a module, and then what is in it."""
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


def public() -> list[str]:
    names = [
        f"fedlama.{name}"
        for name in fedlama.__all__
        if name not in MODULES and not name.startswith("__")
    ]
    for module in ("models", "flower"):
        names += [
            f"fedlama.{module}.{name}"
            for name in import_module(f"fedlama.{module}").__all__
        ]
    # What configurations name, users may build
    for choice in (*POLICIES.values(), *LOCAL_RULES.values(), *SERVER_RULES.values()):
        names.append(f"{choice.__module__}.{choice.__qualname__}")
    codecs = ("Cast", "Chain", "ErrorFeedback", "LowRank", "Quantize", "Rotate", "TopK")
    return names + [f"fedlama.compress.{name}" for name in codecs]


@pytest.mark.parametrize("name", public())
def test_what_is_public_is_in_the_reference(name):
    # A name may be public in two modules (fedlama.SGD, fedlama.local.SGD): one of them is enough
    there = [resolved(named) for named in NAMED]
    assert any(resolved(name) is one for one in there), (
        f"add `::: {name}` to docs/reference"
    )


@pytest.mark.parametrize("path", NAMED)
def test_every_argument_is_explained(path):
    subject = resolved(path)
    is_error = isinstance(subject, type) and issubclass(subject, Exception)
    if is_error or getattr(subject, "_is_protocol", False):
        return
    told = inspect.getdoc(subject) or ""
    assert told, f"{path} has no docstring"
    for name, parameter in inspect.signature(subject).parameters.items():
        if name == "self" or parameter.kind in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            continue
        explained = explanations(subject)
        assert re.search(rf"^\s+{name}: ", explained, re.MULTILINE), (
            f"{path}: {name} is not explained"
        )


def explanations(subject) -> str:
    """The docstring, and those of the classes it derives from: a field is explained where it is declared."""
    classes = inspect.getmro(subject) if isinstance(subject, type) else [subject]
    return "\n".join(inspect.getdoc(one) or "" for one in classes if one is not object)
