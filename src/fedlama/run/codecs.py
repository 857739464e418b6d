"""[uplink] and [downlink]: which codec, its options, and error feedback around it.

`codec` is a name or a list of names, which is a chain; the options of those codecs are the other keys.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, model_validator

from fedlama.base import InputError, shown
from fedlama.compress import Chain, Codec, ErrorFeedback
from fedlama.rows import Lifetime
from fedlama.run.choices import CODECS
from fedlama.run.chosen_keys import means_nothing
from fedlama.run.messages import unknown_key
from fedlama.run.options import in_short, options_in
from fedlama.run.own_values import own_value
from fedlama.run.references import Reference, is_reference
from fedlama.run.value_tables import refuse_keys, table_of

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
        self._check_keys()
        try:
            self.build()
        except InputError as error:
            raise ValueError(f"{self.table}: {error}") from None
        return self

    def build(self) -> Codec | None:
        """The codec that this table describes; None if there is none."""
        names = _as_list(self.codec)
        if names == [NO_CODEC]:
            return None
        if self._refers_to_own_code():
            codec = self._own()
        else:
            codec = _chain(self._built_each())

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
        return _is_own_code(self.codec)

    def _built_each(self) -> list[Codec]:
        options = self.model_extra or {}
        names = _as_list(self.codec)
        return [_built(name, options) for name in names]

    def _own(self) -> Codec:
        key = f"{self.table}.codec"
        reference = Reference(key, str(self.codec))
        made = own_value(
            reference,
            self.model_extra or {},
            choices=CODECS,
            names={},
            defaults={},
        )

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

        table = table_of(codec, chosen_by="codec", choices=CODECS, names={})
        refuse_keys(codec, table, FEEDBACK_OPTIONS)
        return table

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

        parts: list[str] = []
        if self._refers_to_own_code():
            # Without its module, and without running it
            _, _, own = names[0].rpartition(":")
            parts.append(own)
        else:
            for codec in self._built_each():
                parts.append(in_short(codec, leading=True))

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

    def _check_keys(self) -> None:
        """The codecs exist, and every key is one of theirs."""
        names = _as_list(self.codec)
        options = self.model_extra or {}
        if names == [NO_CODEC]:
            for key in (*options, *self._feedback_options()):
                raise ValueError(
                    f"{self.table}.{key} means nothing with codec = 'none'"
                )
            return

        key = f"{self.table}.codec"
        if not names:
            raise ValueError(f"{key} must name at least one of {', '.join(CODECS)}")
        known: list[str] = []
        for name in names:
            if name not in CODECS:
                allowed = ", ".join([NO_CODEC, *CODECS])
                raise ValueError(
                    f"{key} must be one of {allowed}, or a list of them, not {shown(name)}"
                )
            known += _options(name)
        for option in options:
            if option not in known:
                raise self._not_its_option(option, known)

    def _not_its_option(self, option: str, known: Sequence[str]) -> ValueError:
        """Which codecs have this option, or if none has, which one may have been meant."""
        homes: list[str] = []
        for name in CODECS:
            if option in _options(name):
                homes.append(name)
        if not homes:
            allowed = ["codec", *known, *FEEDBACK_OPTIONS]
            sentence = unknown_key([self.table], option, allowed)
            return ValueError(sentence)

        path = f"{self.table}.{option}"
        sentence = means_nothing(path, "codec", self.codec, homes)
        return ValueError(sentence)


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


def without_other_codecs(
    table: Mapping[str, Any], before: Any, own_keys: Collection[str] = ()
) -> dict[str, Any]:
    """The table without the options of codecs that it does not name: for one whose codec has just changed.

    Arguments:
        table: With the codec that is meant now.
        before: What `codec` was.
        own_keys: Keys that were set with it, which stay unless another codec has them.
    """
    names = table.get("codec", NO_CODEC)
    if not isinstance(names, list):
        names = [names]

    allowed = [NO_CODEC, *CODECS]
    own: set[str] = {"codec"}
    others: set[str] = set()
    for codec in CODECS:
        if codec in names:
            own.update(_options(codec))
        else:
            others.update(_options(codec))
    if names == [NO_CODEC]:
        others.update(FEEDBACK_OPTIONS)
    else:
        own.update(FEEDBACK_OPTIONS)

    is_known = all(isinstance(name, str) and name in allowed for name in names)
    kept: dict[str, Any] = {}
    for key, value in table.items():
        # Options of code of the user's own have any name.
        is_of_own_code = is_known and _is_own_code(before) and key not in own_keys
        is_dropped = key in others or is_of_own_code
        if key in own or not is_dropped:
            kept[key] = value
    return kept


def _is_own_code(codec: Any) -> bool:
    return isinstance(codec, str) and is_reference(codec)


def _options(name: str) -> Mapping[str, Any]:
    """The options of a codec, with their defaults; ... of those that have none."""
    options: dict[str, Any] = {}
    for option in options_in(CODECS[name], {}):
        options[option.key] = option.default
    return options


def _built(name: str, options: Mapping[str, Any]) -> Codec:
    """One codec with those of the options that are its own."""
    build = CODECS[name]
    arguments: dict[str, Any] = {}
    for option, default in _options(name).items():
        must_be_given = default is ...
        if option in options:
            arguments[option] = options[option]
        elif must_be_given:
            raise InputError(f"{option} is missing; codec = {name!r} needs it")
    return build(**arguments)


def _chain(codecs: Sequence[Codec]) -> Codec:
    *first, last = codecs
    chained = last
    for codec in reversed(first):
        chained = Chain(codec, chained)
    return chained
