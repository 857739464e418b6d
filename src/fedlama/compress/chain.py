"""One codec after another: what the first leaves as numbers, the second codes.

A `Projection` (`TopK`, `LowRank`) turns a tensor into fewer numbers: the kept values, the factors. Those are the second
codec's input. After any other codec the second one codes what the first decodes to, and only the second one's bytes
travel.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from torch import Tensor

from fedlama.base import InputError, random_key, shown
from fedlama.compress.cast import Cast
from fedlama.compress.codec import Codec, Coded, Reader, Shape

AS_THEY_ARE = Cast("float32")


class Projection(Codec):
    """A codec that leaves fewer numbers, which are sent as float32 or handed to the next codec of a chain."""

    @property
    def projects(self) -> bool:
        """It does."""
        return True

    @abstractmethod
    def project(self, x: Tensor, *, key: int, warm: Tensor | None) -> tuple[Coded, Tensor]:
        """Side bytes and symbols, and the numbers that are left."""

    @abstractmethod
    def expect_projected(self, side: Reader, shape: Shape) -> Coded:
        """Read what `project` wrote."""

    @abstractmethod
    def projected_shape(self, shape: Shape) -> Shape:
        """The shape of the numbers that are left."""

    @abstractmethod
    def expand(self, coded: Coded, values: Tensor, shape: Shape) -> Tensor:
        """The tensor from the numbers that were left."""

    def code(self, x: Tensor, *, key: int, bits: float | None = None, warm: Tensor | None = None) -> Coded:
        """As a chain that ends here."""
        return _code_both(self, AS_THEY_ARE, x, key, bits, warm)

    def expect(self, side: Reader, shape: Shape) -> Coded:
        """As a chain that ends here."""
        return _expect_both(self, AS_THEY_ARE, side, shape)

    def rebuild(self, coded: Coded, shape: Shape, *, key: int) -> Tensor:
        """As a chain that ends here."""
        return _rebuild_both(self, AS_THEY_ARE, coded, shape, key)

    def kept(self, bits: float | None = None) -> float | None:
        """It depends on the numbers."""
        return None

    def for_small_tensors(self) -> Codec:
        """Few numbers that matter much are only shortened."""
        return Cast("bfloat16")


@dataclass(frozen=True)
class Chain(Codec):
    """`first`, then `second` on the numbers that it leaves.

    `Chain(TopK(0.05), Quantize(4))` sends positions and four-bit values, `Chain(LowRank(4), Rotate(2))` factors at two
    bits per number. A longer chain is `Chain(a, Chain(b, c))`. Error feedback goes around a chain, not into it.

    Arguments:
        first: The codec that is given the tensor.
        second: The codec of what the first one leaves.
    """

    first: Codec
    second: Codec

    def __post_init__(self) -> None:
        for codec in (self.first, self.second):
            if not isinstance(codec, Codec):
                raise InputError(f"a chain is made of codecs, not of {shown(codec)}")
            if codec.slots:
                raise InputError(f"put the chain inside {type(codec).__name__}, which must be the outermost codec")

    @property
    def wants_warm(self) -> bool:
        """If one of the two does."""
        return self.first.wants_warm or self.second.wants_warm

    def code(self, x: Tensor, *, key: int, bits: float | None = None, warm: Tensor | None = None) -> Coded:
        """The first codec's side bytes and symbols, then the second's."""
        return _code_both(self.first, self.second, x, key, bits, warm)

    def expect(self, side: Reader, shape: Shape) -> Coded:
        """In the same order."""
        return _expect_both(self.first, self.second, side, shape)

    def rebuild(self, coded: Coded, shape: Shape, *, key: int) -> Tensor:
        """The second undone, then the first."""
        return _rebuild_both(self.first, self.second, coded, shape, key)

    @property
    def rate(self) -> float | None:
        """That of the second."""
        return self.second.rate

    def kept(self, bits: float | None = None) -> float | None:
        """The product of both."""
        first = self.first.kept()
        second = self.second.kept(bits)
        if first is None or second is None:
            return None
        return first * second

    def kept_of(self, coded: Coded) -> float | None:
        """The product of both."""
        assert coded.inner is not None, "the second codec was the last"
        first = self.first.kept()
        second = self.second.kept_of(coded.inner)
        if first is None or second is None:
            return None
        return first * second

    def under_feedback(self) -> Chain:
        """Each with its least error."""
        return Chain(self.first.under_feedback(), self.second.under_feedback())

    def for_small_tensors(self) -> Codec:
        """Nothing is left out of small tensors."""
        second = self.second.for_small_tensors()
        if self.first.projects:
            return second
        return Chain(self.first.for_small_tensors(), second)


def _code_both(first: Codec, second: Codec, x: Tensor, key: int, bits: float | None, warm: Tensor | None) -> Coded:
    coded, values = first.project(x, key=key, warm=warm)
    if first.projects:
        warm = None  # it resembles x, and not what is left of it
    coded.inner = second.code(values, key=_next(key), bits=bits, warm=warm)
    return coded


def _expect_both(first: Codec, second: Codec, side: Reader, shape: Shape) -> Coded:
    coded = first.expect_projected(side, shape)
    coded.inner = second.expect(side, first.projected_shape(shape))
    return coded


def _rebuild_both(first: Codec, second: Codec, coded: Coded, shape: Shape, key: int) -> Tensor:
    assert coded.inner is not None, "the second codec was the last"
    left = first.projected_shape(shape)
    values = second.rebuild(coded.inner, left, key=_next(key))
    return first.expand(coded, values, shape)


def _next(key: int) -> int:
    """The draws of the second codec must not repeat those of the first."""
    return random_key(key, "chain")
