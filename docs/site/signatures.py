"""An extension of griffe: the reference shows types and defaults as a reader wants them, not as they are written.

`Annotated[float, Limits(minimum=0)]` becomes `float`, `Bits` what it stands for, and `DEFAULT_BLOCK` its number. What
is allowed is in the words below a signature, and is checked when a value is built.
"""

import re
from importlib import import_module
from inspect import Parameter, signature
from typing import Any, Literal, get_origin, get_type_hints

import griffe


class Signatures(griffe.Extension):
    """Rewrites the parameters of classes and functions from what Python knows of them."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """When everything was read, and dataclasses have their constructors."""
        self._walk(pkg)

    def _walk(self, found: griffe.Object) -> None:
        for member in list(found.members.values()):
            if member.is_alias:
                continue
            if member.is_class and "__init__" in member.members:
                constructor = member.members["__init__"]
                if not constructor.is_alias:
                    _rewrite(constructor, member)
            elif member.is_function:
                _rewrite(member, member)
            if member.is_module or member.is_class:
                self._walk(member)


def _rewrite(function: griffe.Function, owner: griffe.Object) -> None:
    """The parameters of a function, or of the constructor of the class that owns it."""
    try:
        thing = _python_object(owner)
        parameters = signature(thing).parameters
        hints = get_type_hints(thing)
        annotated = get_type_hints(thing, include_extras=True)
    except Exception:
        # A name that only type checkers know, or a package that is not installed: as it is written
        return
    for parameter in function.parameters:
        name = parameter.name
        if name in hints:
            has_limits = str(hints[name]) != str(annotated[name])
            is_choice = get_origin(hints[name]) is Literal
            if has_limits or is_choice:
                parameter.annotation = _shown(hints[name])
        is_constant = (
            re.fullmatch(r"[A-Z][A-Z_0-9]+", str(parameter.default)) is not None
        )
        if (
            is_constant
            and name in parameters
            and parameters[name].default is not Parameter.empty
        ):
            parameter.default = repr(parameters[name].default)


def _python_object(found: griffe.Object) -> Any:
    module = import_module(found.module.path)
    inside = found.path.removeprefix(f"{found.module.path}.")
    thing: Any = module
    for name in inside.split("."):
        thing = getattr(thing, name)
    return thing


def _shown(hint: Any) -> str:
    """A type without the modules that its parts are from."""
    text = (
        hint.__name__ if isinstance(hint, type) and "[" not in str(hint) else str(hint)
    )
    text = re.sub(r"\b(?:\w+\.)+(\w)", r"\1", text).replace("NoneType", "None")
    return re.sub(r"^Optional\[(.*)\]$", r"\1 | None", text)
