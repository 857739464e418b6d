"""A codec around another one: whatever it does not say itself, the one inside says."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from torch import Tensor

from fedlama.compress.codec import Codec
from fedlama.compress.coded import Coded, Shape
from fedlama.compress.framing import Reader


class Forwarding(Codec):
    """Hands tensors, and questions about the code, to the codec inside.

    What a codec keeps, adds or prescribes for others is not handed on: slots, the variants and the rounds of a window
    are for the codec around it to say.
    """

    @cached_property
    def inner(self) -> Codec:
        """The codec that does the work."""
        raise NotImplementedError

    def code(
        self,
        x: Tensor,
        *,
        key: int,
        bits: float | None = None,
        warm: Tensor | None = None,
    ) -> Coded:
        """As the codec inside."""
        return self.inner.code(
            x,
            key=key,
            bits=bits,
            warm=warm,
        )

    def code_all(
        self,
        tensors: Sequence[Tensor],
        *,
        keys: Sequence[int],
        bits: Sequence[float | None],
        warm: Sequence[Tensor | None],
    ) -> list[Coded]:
        """As the codec inside."""
        return self.inner.code_all(
            tensors,
            keys=keys,
            bits=bits,
            warm=warm,
        )

    def expect(self, side: Reader, shape: Shape) -> Coded:
        """As the codec inside."""
        return self.inner.expect(side, shape)

    def rebuild(self, coded: Coded, shape: Shape, *, key: int) -> Tensor:
        """As the codec inside."""
        return self.inner.rebuild(coded, shape, key=key)

    def rebuild_all(
        self, coded: Sequence[Coded], shapes: Sequence[Shape], *, keys: Sequence[int]
    ) -> list[Tensor]:
        """As the codec inside."""
        return self.inner.rebuild_all(coded, shapes, keys=keys)

    @property
    def rate(self) -> float | None:
        """Of the codec inside."""
        return self.inner.rate

    @property
    def sharing(self) -> str:
        """Of the codec inside."""
        return self.inner.sharing

    @property
    def wants_warm(self) -> bool:
        """As the codec inside."""
        return self.inner.wants_warm

    def kept(self, bits: float | None = None) -> float | None:
        """Of the codec inside."""
        return self.inner.kept(bits)

    def kept_of(self, coded: Coded) -> float | None:
        """Of the codec inside."""
        return self.inner.kept_of(coded)
