"""Which keys a table has: one of them chooses a class, and the options of that class are the others."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    create_model,
    model_validator,
)

from fedlama.base import shown
from fedlama.run.references import is_reference
from fedlama.run.sections import DerivedSection, option_keys

# The choice of a table that makes none, where what is meant depends on more than the file
LEFT_OPEN = ""


class ChosenKeys(DerivedSection):
    """A table of which one key chooses a class; the options of that class are its other keys.

    A subclass says which key chooses (`chosen_by`) among which classes (`choices`, a name for each) and which is meant
    where the key is missing (`default`, which may be LEFT_OPEN). `defaults` are those of options that the class itself
    leaves without one, and `names` the keys of arguments that the file calls otherwise.
    `former_key` is what the choosing key was called before, and `lenient` names the choices whose table may keep the
    keys of another choice, which then mean nothing. `of_own_code` are keys of every table that only code of the user's
    own gives a meaning.
    """

    table: ClassVar[str]
    chosen_by: ClassVar[str] = "kind"
    former_key: ClassVar[str | None] = None
    default: ClassVar[str]
    choices: ClassVar[Mapping[str, type[Any]]]
    defaults: ClassVar[Mapping[str, Any]] = {}
    names: ClassVar[Mapping[str, str]] = {}
    lenient: ClassVar[Mapping[str, str]] = {}
    of_own_code: ClassVar[Collection[str]] = ()
    # By the sections made of this one, one for each choice
    chosen: ClassVar[str | None] = None

    @classmethod
    def section_for(cls, table: Any) -> type[Self]:
        """The section of the choice that this table makes; where it makes none that there is, the default's."""
        return cls.of_choice(cls.choice_of(table) or cls.default)

    @classmethod
    def choice_of(cls, table: Any) -> str | None:
        """What this table chooses; None if there is no such choice."""
        if not isinstance(table, Mapping):
            return cls.default
        key = cls._choosing_key(table)
        name = table.get(key, cls.default)
        if not isinstance(name, str):
            return None
        if name in cls.choices or is_reference(name):
            return name
        return None

    @classmethod
    def _choosing_key(cls, table: Mapping[str, Any]) -> str:
        if (
            cls.former_key is not None
            and cls.former_key in table
            and cls.chosen_by not in table
        ):
            return cls.former_key
        return cls.chosen_by

    @classmethod
    @cache
    def of_choice(cls, name: str) -> type[Self]:
        """The section of one choice."""
        # All choices, not only this one: a message names them.
        choices = tuple(cls.choices)
        choosing: Any = Literal[choices]  # type: ignore[valid-type]
        if name == LEFT_OPEN:
            left_open = (choosing | None, None)
            return cls._with_keys(name, {cls.chosen_by: left_open})
        if name not in cls.choices:
            return cls._of_reference(name)

        built = cls.choices[name]
        options = option_keys(built, cls.names, cls.defaults)
        by_default = (choosing, name)
        return cls._with_keys(name, {cls.chosen_by: by_default, **options})

    @classmethod
    def _of_reference(cls, name: str) -> type[Self]:
        """The section of code of the user's own, which alone knows what its options are."""
        section = cls._with_keys(name, {cls.chosen_by: (str, name)})
        section.model_config = {**section.model_config, "extra": "allow"}
        section.model_rebuild(force=True)
        return section

    @classmethod
    def _with_keys(cls, choice: str, keys: Mapping[str, Any]) -> type[Self]:
        section = create_model(
            f"{cls.__name__}_{choice}",
            __base__=cls,
            __doc__=cls.__doc__,
            **keys,
        )
        section.chosen = choice
        return section

    @classmethod
    def keys_of(cls, name: str) -> list[str]:
        """The keys of a table that makes this choice."""
        return list(cls.of_choice(name).model_fields)

    @classmethod
    def _takes_any_key(cls, name: str) -> bool:
        """Whether the keys are code of the user's own to judge."""
        return cls.of_choice(name).model_config.get("extra") == "allow"

    @classmethod
    def without_other_choices(
        cls,
        table: Mapping[str, Any],
        before: Mapping[str, Any] | None = None,
        own_keys: Collection[str] = (),
    ) -> dict[str, Any]:
        """The table without the options of choices that it does not make: for one whose choice has just changed.

        Arguments:
            table: With the choice that is meant now.
            before: The table with the choice before, if there was another.
            own_keys: Keys that were set with the new choice, which stay unless another choice has them.
        """
        name = cls.choice_of(table)
        if name is None or cls._takes_any_key(name):
            return dict(table)
        was_own_code = before is not None and cls._refers_to_own_code(before)
        own_options = cls.keys_of(name)
        kept: dict[str, Any] = {}
        for key, value in table.items():
            # Options of code of the user's own have any name, and go with it.
            went = was_own_code and key not in own_keys
            is_own_option = key in own_options
            if went and key in cls.of_own_code:
                is_own_option = False
            # A key that no choice has is kept, so that it is refused as unknown.
            is_nobodys = not went and not cls._choices_with(key)
            if is_own_option or is_nobodys:
                kept[key] = value
        return kept

    @classmethod
    def _refers_to_own_code(cls, table: Mapping[str, Any]) -> bool:
        name = cls.choice_of(table)
        return name is not None and name != LEFT_OPEN and name not in cls.choices

    @classmethod
    def _choices_with(cls, key: str) -> list[str]:
        return [name for name in cls.choices if key in cls.keys_of(name)]

    @model_validator(mode="wrap")
    @classmethod
    def _of_its_choice(cls, value: Any, handler: ModelWrapValidatorHandler[Any]) -> Any:
        """Let the section of the choice read the table: its errors are this one's."""
        if cls.chosen is not None or not isinstance(value, Mapping):
            return handler(value)

        key = cls._choosing_key(value)
        name = cls.choice_of(value)
        if name is None:
            # Raises: other keys depend on this one
            only_key = _only_key(key, tuple(cls.choices))
            return only_key.model_validate(value)

        # The choice is written under its present key, whatever the file calls it.
        table = dict(value)
        table.pop(key, None)
        if name != LEFT_OPEN:
            table[cls.chosen_by] = name
        cls._refuse_other_choices(name, table)
        if name in cls.lenient:
            # What the other choice would refuse is refused here as well, then forgotten
            other = cls.lenient[name]
            section = cls.of_choice(other)
            section.model_validate({**table, cls.chosen_by: other})
            table = cls.without_other_choices(table)
        section = cls.of_choice(name)
        return section.model_validate(table)

    @classmethod
    def _refuse_other_choices(cls, name: str, table: Mapping[str, Any]) -> None:
        if cls._takes_any_key(name):
            return
        own_keys = cls.keys_of(name)
        for key in table:
            homes = cls._choices_with(key)
            if not homes or key in own_keys:
                continue
            is_tolerated = cls.lenient.get(name) in homes
            if not is_tolerated:
                path = f"{cls.table}.{key}"
                raise ValueError(means_nothing(path, cls.chosen_by, name, homes))


def means_nothing(path: str, chosen_by: str, chosen: Any, homes: Sequence[str]) -> str:
    """What is said of an option of other choices than the one that a table makes.

    Arguments:
        path: The key with its table.
        chosen_by: The key that chooses.
        chosen: What it chooses.
        homes: The choices that have the option.
    """
    only = " or ".join(map(repr, homes))
    return f"{path} means nothing with {chosen_by} = {shown(chosen, 200)}, only with {only}"


@cache
def _only_key(key: str, choices: tuple[str, ...]) -> type[BaseModel]:
    """A table of which only the choosing key is looked at."""
    choosing = Literal[choices]  # type: ignore[valid-type]
    keys: dict[str, Any] = {key: (choosing, ...)}
    # Which other keys there may be depends on this one: they are judged when it is right.
    lenient = ConfigDict(extra="ignore", strict=True)
    return create_model("Chosen", __config__=lenient, **keys)
