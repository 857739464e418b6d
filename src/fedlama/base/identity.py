"""Values as text that is the same in every process: what two ends must agree about is compared by it."""

from __future__ import annotations


def identity_of(value: object) -> str:
    """A policy, rule or codec as such a text, whether or not it is a dataclass.

    Arguments:
        value: Any object.
    """
    kind = type(value)
    if kind.__repr__ is not object.__repr__:
        return repr(value)
    # Python's own text has an address in it.
    return by_its_fields(value)


def by_its_fields(value: object) -> str:
    """The class and what the value holds, as a dataclass prints itself.

    Arguments:
        value: Any object.
    """
    kind = type(value).__qualname__
    held: dict[str, object] = getattr(value, "__dict__", {})
    fields: list[str] = []
    for name, field in held.items():
        text = identity_of(field)
        fields.append(f"{name}={text}")
    listed = ", ".join(fields)
    return f"{kind}({listed})"
