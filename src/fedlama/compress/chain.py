"""One codec after another: what the first leaves as numbers, the second codes.

A `Reducer` (`TopK`, `LowRank`) turns a tensor into fewer numbers: the kept values, the factors. Those are the second
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


class Reducer(Codec):
    """A codec that leaves fewer numbers, which are sent as float32 or handed to the next codec of a chain."""

    @abstractmethod
    def reduce(self, x: Tensor, *, key: int, warm: Tensor | None) -> tuple[Coded, Tensor]:
        """Side bytes and symbols, and the numbers that are left."""

    @abstractmethod
    def expect_reduced(self, side: Reader, shape: Shape) -> Coded:
        """Read what `reduce` wrote."""

    @abstractmethod
    def reduced_shape(self, shape: Shape) -> Shape:
        """The shape of the numbers that are left."""

    @abstractmethod
    def expand(self, coded: Coded, values: Tensor, shape: Shape) -> Tensor:
        """The tensor from the numbers that were left."""

    def code(self, x: Tensor, *, key: int, bits: float | None = None, warm: Tensor | None = None) -> Coded:
        """As a chain that ends here."""
        return _code_reduced(self, AS_THEY_ARE, x, key, bits, warm)

    def expect(self, side: Reader, shape: Shape) -> Coded:
        """As a chain that ends here."""
        return _expect_reduced(self, AS_THEY_ARE, side, shape)

    def rebuild(self, coded: Coded, shape: Shape, *, key: int) -> Tensor:
        """As a chain that ends here."""
        return _rebuild_reduced(self, AS_THEY_ARE, coded, shape, key)

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
        first: Leaves fewer numbers, such as `TopK` or `LowRank`.
        second: Codes those.
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
        if isinstance(self.first, Reducer):
            return _code_reduced(self.first, self.second, x, key, bits, warm)
        coded = self.first.code(x, key=key, warm=warm)
        rounded = self.first.rebuild(coded, tuple(x.shape), key=key)
        return self.second.code(rounded, key=_next(key), bits=bits, warm=warm)

    def expect(self, side: Reader, shape: Shape) -> Coded:
        """In the same order."""
        if isinstance(self.first, Reducer):
            return _expect_reduced(self.first, self.second, side, shape)
        return self.second.expect(side, shape)

    def rebuild(self, coded: Coded, shape: Shape, *, key: int) -> Tensor:
        """The second undone, then the first."""
        if isinstance(self.first, Reducer):
            return _rebuild_reduced(self.first, self.second, coded, shape, key)
        return self.second.rebuild(coded, shape, key=_next(key))

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
        if isinstance(self.first, Reducer):
            return None
        first = self.first.kept()
        second = self.second.kept_of(coded)
        if first is None or second is None:
            return None
        return first * second

    def under_feedback(self) -> Chain:
        """Each with its least error."""
        return Chain(self.first.under_feedback(), self.second.under_feedback())

    def for_small_tensors(self) -> Codec:
        """Nothing is left out of small tensors."""
        if isinstance(self.first, Reducer):
            return self.second.for_small_tensors()
        return Chain(self.first.for_small_tensors(), self.second.for_small_tensors())


def _code_reduced(first: Reducer, second: Codec, x: Tensor, key: int, bits: float | None, warm: Tensor | None) -> Coded:
    coded, values = first.reduce(x, key=key, warm=warm)
    coded.inner = second.code(values, key=_next(key), bits=bits)
    return coded


def _expect_reduced(first: Reducer, second: Codec, side: Reader, shape: Shape) -> Coded:
    coded = first.expect_reduced(side, shape)
    coded.inner = second.expect(side, first.reduced_shape(shape))
    return coded


def _rebuild_reduced(first: Reducer, second: Codec, coded: Coded, shape: Shape, key: int) -> Tensor:
    assert coded.inner is not None
    values = second.rebuild(coded.inner, first.reduced_shape(shape), key=_next(key))
    return first.expand(coded, values, shape)


def _next(key: int) -> int:
    """The draws of the second codec must not repeat those of the first."""
    return random_key(key, "chain")
