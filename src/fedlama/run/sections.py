"""Tables of a configuration file whose keys are the options of a class: written once, with the class.

`options_of(Faults)` is a table with a key for each argument of `Faults`, with its default and limits. Tables of which
one key chooses a class (`kind = "fedlama"`) are in `run/choice_sections.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    create_model,
)

from fedlama.run.options import build_from, option_keys

T = TypeVar("T")


class Section(BaseModel):
    """A table of the file; unknown keys and wrong types are refused."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False
    )


class DerivedSection(Section):
    """A table with keys that are taken from a class."""

    if TYPE_CHECKING:  # the keys are known only when the program runs

        def __getattr__(self, name: str) -> Any: ...


class OptionsSection(DerivedSection, Generic[T]):
    """A table whose keys are the options of the class that it builds."""

    built: ClassVar[type[Any]]  # the class

    def build(self) -> T:
        """The value that this table describes."""
        return build_from(self.built, {}, self)


def options_of(built: type[T]) -> type[OptionsSection[T]]:
    """A section with the options of a class, to inherit from: class FaultsSection(options_of(Faults))."""
    section = create_model(
        f"{built.__name__}Options",
        __base__=OptionsSection,
        **option_keys(built, {}, {}),
    )
    section.built = built
    return section
