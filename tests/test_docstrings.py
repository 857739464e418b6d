"""Every argument of every public name is explained where an editor shows it."""

import inspect
import re
from types import ModuleType

import pytest

import fedlama

# The doors: what the methods of a policy, a rule or a codec take is explained there once.
DOORS = (
    fedlama.core.Policy,
    fedlama.local.LocalRule,
    fedlama.server.ServerRule,
    fedlama.server.Reduce,
    fedlama.compress.Codec,
    fedlama.data.Partition,
)


def public_names() -> dict[str, object]:
    """Name → object of all functions and classes that fedlama and its public rooms list in `__all__`."""
    found: dict[str, object] = {}
    for name in fedlama.__all__:
        value = getattr(fedlama, name)
        if not isinstance(value, ModuleType):
            found[f"fedlama.{name}"] = value
            continue
        for inner in value.__all__:
            found[f"fedlama.{name}.{inner}"] = getattr(value, inner)
    return {
        name: value
        for name, value in found.items()
        if inspect.isclass(value) or inspect.isfunction(value)
    }


def parameters(function) -> list[str]:
    names = list(inspect.signature(function).parameters)
    return [name for name in names if name != "self" and not name.startswith("_")]


def explained(text: str) -> set[str]:
    """The names that an "Arguments:" section explains."""
    found: set[str] = set()
    for section in text.split("Arguments:")[1:]:
        found |= set(re.findall(r"^\s+(\w+): \S", section, re.MULTILINE))
    return found


def docstrings_of_class(kind: type) -> str:
    """Its own and those of the classes it derives from: a field is explained where it is declared."""
    return "\n".join(
        base.__doc__ or ""
        for base in kind.__mro__
        if base.__module__.startswith("fedlama")
    )


def docstrings_of_method(kind: type, name: str) -> str:
    """Its own, and those of the methods of that name that it overrides or stands in for."""
    texts = []
    for base in (*kind.__mro__, *DOORS):
        method = vars(base).get(name)
        if method is not None:
            texts.append(inspect.getdoc(method) or "")
    return "\n".join(texts)


def methods(kind: type) -> list[str]:
    found = []
    for base in kind.__mro__:
        if base.__module__.startswith("fedlama"):
            found += [
                name
                for name, value in vars(base).items()
                if inspect.isfunction(value) or is_static(value)
            ]
    return sorted({name for name in found if not name.startswith("_")})


def is_static(value: object) -> bool:
    return isinstance(value, staticmethod)


def test_the_docstring_of_a_result_explains_each_field_itself():
    # Editors show the docstring of the class in hand, not those of the classes it derives from.
    assert not set(parameters(fedlama.Result)) - explained(fedlama.Result.__doc__)


@pytest.mark.parametrize("name", sorted(public_names()))
def test_every_argument_is_explained(name):
    value = public_names()[name]
    if inspect.isfunction(value):
        assert not set(parameters(value)) - explained(value.__doc__)
        return
    if not getattr(value, "_is_protocol", False) and not issubclass(value, Exception):
        assert not set(parameters(value)) - explained(docstrings_of_class(value))
    missing = {}
    for method in methods(value):
        told = explained(docstrings_of_method(value, method))
        left = set(parameters(getattr(value, method))) - told
        if left:
            missing[method] = left
    assert not missing
