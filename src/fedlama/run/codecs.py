"""[uplink] and [downlink]: which codec, its options, and error feedback around it.

`codec` is a name or a list of names, which is a chain; the options of those codecs are the other keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from inspect import Parameter, signature
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, model_validator

from fedlama.base import InputError, shown
from fedlama.compress import Chain, Codec, ErrorFeedback
from fedlama.rows import Lifetime
from fedlama.run.choices import CODECS
from fedlama.run.options import plain_fields
from fedlama.run.references import Reference, is_reference, reference_to

NO_CODEC = "none"
FEEDBACK_OPTIONS = ("error_feedback", "profile", "gain")


class CodecSection(BaseModel):
    """A table with the options of the codecs that it names."""

    model_config = ConfigDict(
        extra="allow", frozen=True, strict=True, allow_inf_nan=False
    )

    table: ClassVar[str]

    codec: str | list[str] = NO_CODEC
    error_feedback: Literal["none", Lifetime] | None = None
    profile: list[float] | None = None
    gain: bool | None = None

    @model_validator(mode="after")
    def _can_be_built(self) -> CodecSection:
        if self._refers_to_own_code():
            return self  # which is run by a run only
        try:
            self.build()
        except InputError as error:
            raise ValueError(f"{self.table}: {error}") from None
        return self

    def build(self) -> Codec | None:
        """The codec that this table describes; None if there is none."""
        names = _as_list(self.codec)
        options = self.model_extra or {}
        if names == [NO_CODEC]:
            self._refuse_options([*options, *self._feedback_options()])
            return None

        if self._refers_to_own_code():
            codec = self._own(options)
        else:
            self._check_names(names)
            self._check_options(names, options)
            codec = _chain([_built(name, options) for name in names])

        if self.error_feedback in (None, "none"):
            if self.profile is not None or self.gain is not None:
                raise InputError(
                    "profile and gain mean nothing without error_feedback = 'window'"
                )
            return codec

        profile = None
        if self.profile is not None:
            profile = tuple(self.profile)
        return ErrorFeedback(
            codec,
            lifetime=self.error_feedback,
            profile=profile,
            gain=self.gain,
        )

    def _refers_to_own_code(self) -> bool:
        return isinstance(self.codec, str) and is_reference(self.codec)

    def _own(self, options: Mapping[str, Any]) -> Codec:
        key = f"{self.table}.codec"
        reference = Reference(key, str(self.codec))
        made = reference.call(options=options)

        if not isinstance(made, Codec):
            raise reference.wrong(f"must return a codec, not {shown(made)}")
        return made

    @classmethod
    def table_of(cls, codec: Codec | None) -> dict[str, Any]:
        """The table that describes a codec; one of a class of the user's own refers to it."""
        if codec is None:
            return {"codec": NO_CODEC}
        if isinstance(codec, ErrorFeedback):
            return cls._table_with_feedback(codec)
        if isinstance(codec, Chain):
            table = cls._table_of_chain(codec)
            if table is not None:
                return table

        options = plain_fields(codec)
        for name, kind in CODECS.items():
            if type(codec) is kind:
                return {"codec": name, **options}
        own = reference_to(type(codec))
        return {"codec": own, **options}

    @classmethod
    def _table_with_feedback(cls, feedback: ErrorFeedback) -> dict[str, Any]:
        table = cls.table_of(feedback.codec)
        table["error_feedback"] = feedback.lifetime
        if feedback.profile is not None:
            table["profile"] = list(feedback.profile)
        if feedback.gain is not None:
            table["gain"] = feedback.gain
        return table

    @classmethod
    def _table_of_chain(cls, chain: Chain) -> dict[str, Any] | None:
        """A list of codecs with the options of all; None if two share an option's name, or one is the user's own."""
        first = cls.table_of(chain.first)
        second = cls.table_of(chain.second)
        names = _as_list(first.pop("codec"))
        names = [*names, *_as_list(second.pop("codec"))]
        if first.keys() & second.keys():
            return None
        for name in names:
            if name not in CODECS:
                return None
        return {**first, **second, "codec": names}

    @property
    def label(self) -> str:
        """The code in a few words, such as Rotate(0.32) + window feedback; empty if there is none."""
        names = _as_list(self.codec)
        if names == [NO_CODEC]:
            return ""

        options = self.model_extra or {}
        parts: list[str] = []
        for name in names:
            if name not in CODECS:
                # Of code of the user's own, without its module
                _, _, own = name.rpartition(":")
                parts.append(own)
                continue
            codec = CODECS[name].__name__
            first = _options(name)[0]
            parts.append(f"{codec}({options[first]})")

        if self.error_feedback not in (None, "none"):
            parts.append(f"{self.error_feedback} feedback")
        return " + ".join(parts)

    def _feedback_options(self) -> list[str]:
        given: list[str] = []
        for name in FEEDBACK_OPTIONS:
            if getattr(self, name) is not None:
                given.append(name)
        # "none" says the same as leaving it out.
        if self.error_feedback == "none":
            given.remove("error_feedback")
        return given

    def _refuse_options(self, given: Sequence[str]) -> None:
        if given:
            raise InputError(f"{given[0]} means nothing with codec = 'none'")

    def _check_names(self, names: Sequence[str]) -> None:
        if not names:
            raise InputError(f"codec must name at least one of {', '.join(CODECS)}")
        for name in names:
            if name not in CODECS:
                allowed = ", ".join([NO_CODEC, *CODECS])
                raise InputError(
                    f"codec must be one of {allowed}, or a list of them, not {shown(name)}"
                )

    def _check_options(self, names: Sequence[str], options: Mapping[str, Any]) -> None:
        known: list[str] = []
        for name in names:
            known += _options(name)
        for option in options:
            if option not in known:
                raise self._unknown_option(option, known)

    def _unknown_option(self, option: str, known: Sequence[str]) -> InputError:
        """Which codecs have this option, or if none has, which one may have been meant."""
        homes = [name for name in CODECS if option in _options(name)]
        if homes:
            only = " or ".join(map(repr, homes))
            return InputError(
                f"{option} means nothing with codec = {self.codec!r}, only with {only}"
            )

        allowed = ["codec", *known, *FEEDBACK_OPTIONS]
        sentence = f"there is no option {shown(option)};"
        for near in get_close_matches(option, allowed, n=1):
            sentence += f" did you mean {near}?"
        listed = ", ".join(allowed)
        return InputError(f"{sentence} with codec = {self.codec!r} there are {listed}")


class UplinkSection(CodecSection):
    """[uplink] How what clients send is coded."""

    table: ClassVar[str] = "uplink"


class DownlinkSection(CodecSection):
    """[downlink] How what clients that stay are sent is coded."""

    table: ClassVar[str] = "downlink"


def _as_list(names: str | list[str]) -> list[str]:
    if isinstance(names, str):
        return [names]
    return names


def without_other_codecs(table: Mapping[str, Any]) -> dict[str, Any]:
    """The table without the options of codecs that it does not name: for one whose codec has just changed."""
    names = table.get("codec", NO_CODEC)
    if not isinstance(names, list):
        names = [names]

    own: set[str] = set()
    others: set[str] = set()
    for codec in CODECS:
        options = _options(codec)
        if codec in names:
            own.update(options)
        else:
            others.update(options)
    dropped = others - own
    if names == [NO_CODEC]:
        dropped.update(FEEDBACK_OPTIONS)

    kept: dict[str, Any] = {}
    for key, value in table.items():
        if key not in dropped:
            kept[key] = value
    return kept


def _options(name: str) -> list[str]:
    return list(signature(CODECS[name]).parameters)


def _built(name: str, options: Mapping[str, Any]) -> Codec:
    """One codec with those of the options that are its own."""
    codec = CODECS[name]
    arguments: dict[str, Any] = {}
    for parameter in signature(codec).parameters.values():
        option = parameter.name
        is_needed = parameter.default is Parameter.empty
        if option in options:
            arguments[option] = options[option]
        elif is_needed:
            raise InputError(f"{option} is missing; codec = {name!r} needs it")
    return codec(**arguments)


def _chain(codecs: Sequence[Codec]) -> Codec:
    *first, last = codecs
    chained = last
    for codec in reversed(first):
        chained = Chain(codec, chained)
    return chained
