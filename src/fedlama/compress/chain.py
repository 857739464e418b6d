"""One codec after another: what the first leaves as numbers, the second codes.

There is no one paper behind it: each codec of a chain cites its own.

The first is a `Projection` (`TopK`, `LowRank`), which turns a tensor into fewer numbers: the kept values, the factors.
Those are the second codec's input. A codec that leaves as many numbers as there were cannot begin a chain: of two codes
for the same numbers only the second one's bytes would travel, with the errors of both.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from torch import Tensor

from fedlama.base import InputError, random_key, shown
from fedlama.compress.cast import Cast
from fedlama.compress.codec import Codec
from fedlama.compress.coded import Coded, Shape
from fedlama.compress.framing import Reader

AS_THEY_ARE = Cast("float32")


class Projection(Codec):
    """A codec that leaves fewer numbers, which are sent as float32 or handed to the next codec of a chain."""

    # Whether it only does something with tensors of two dimensions and more
    needs_matrix: ClassVar[bool] = False

    @abstractmethod
    def reduce(
        self, x: Tensor, *, key: int, warm: Tensor | None
    ) -> tuple[Coded, Tensor]:
        """Side bytes and symbols, and the numbers that are left.

        Arguments:
            x: The tensor.
            key: Its place, from which random draws follow.
            warm: A tensor of the same shape that it may resemble.
        """

    @abstractmethod
    def expect_reduced(self, side: Reader, shape: Shape) -> Coded:
        """Read what `reduce` wrote.

        Arguments:
            side: Where the side bytes are read from.
            shape: The tensor's.
        """

    @abstractmethod
    def reduced_shape(self, shape: Shape) -> Shape:
        """The shape of the numbers that are left of a tensor of this `shape`.

        Arguments:
            shape: The tensor's.
        """

    @abstractmethod
    def expand(self, coded: Coded, values: Tensor, shape: Shape) -> Tensor:
        """The tensor from the numbers that were left.

        Arguments:
            coded: What `reduce` wrote beside them.
            values: The numbers.
            shape: The tensor's.
        """

    def code(
        self,
        x: Tensor,
        *,
        key: int,
        bits: float | None = None,
        warm: Tensor | None = None,
    ) -> Coded:
        """As a chain that ends here."""
        return _code_reduced(
            self,
            AS_THEY_ARE,
            x,
            key=key,
            bits=bits,
            warm=warm,
        )

    def expect(self, side: Reader, shape: Shape) -> Coded:
        """As a chain that ends here."""
        return _expect_reduced(self, AS_THEY_ARE, side, shape)

    def rebuild(self, coded: Coded, shape: Shape, *, key: int) -> Tensor:
        """As a chain that ends here."""
        return _rebuild_reduced(self, AS_THEY_ARE, coded, shape, key=key)

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
    bits per number. Error feedback goes around a chain, not into it.

    Arguments:
        first: A codec that leaves fewer numbers: `TopK`, `LowRank`, or a `Projection` of your own.
        second: What codes those numbers: `Cast`, `Quantize` or `Rotate`. After `LowRank` it may also be `TopK` or a
            chain that begins with it.
    """

    first: Codec
    second: Codec

    def __post_init__(self) -> None:
        for codec in (self.first, self.second):
            if not isinstance(codec, Codec):
                raise InputError(f"a chain is made of codecs, not of {shown(codec)}")
            if codec.slots:
                raise InputError(
                    f"put the chain inside {type(codec).__name__}, which must be the outermost codec"
                )
        following = _first_of(self.second)
        if type(following) is type(self._projection):
            raise InputError(
                f"{type(following).__name__} cannot follow itself in a chain: once with less is the same"
            )
        if isinstance(following, Projection) and following.needs_matrix:
            name = type(following).__name__
            raise InputError(
                f"{name} must come first in a chain: it needs a matrix, and {self.first!r} leaves a list"
            )

    @cached_property
    def _projection(self) -> Projection:
        """The first as what it must be, which is found out when the chain is made."""
        if isinstance(self.first, Projection):
            return self.first
        raise InputError(
            f"a chain must begin with a codec that leaves fewer numbers (TopK, LowRank), not with {self.first!r}: "
            f"send {_first_of(self.second)!r} alone"
        )

    @property
    def wants_warm(self) -> bool:
        """If the first does: what it leaves does not resemble a layer any more."""
        return self.first.wants_warm

    def code(
        self,
        x: Tensor,
        *,
        key: int,
        bits: float | None = None,
        warm: Tensor | None = None,
    ) -> Coded:
        """The first codec's side bytes and symbols, then the second's."""
        return _code_reduced(
            self._projection,
            self.second,
            x,
            key=key,
            bits=bits,
            warm=warm,
        )

    def expect(self, side: Reader, shape: Shape) -> Coded:
        """In the same order."""
        return _expect_reduced(self._projection, self.second, side, shape)

    def rebuild(self, coded: Coded, shape: Shape, *, key: int) -> Tensor:
        """The second undone, then the first."""
        return _rebuild_reduced(self._projection, self.second, coded, shape, key=key)

    @property
    def rate(self) -> float | None:
        """That of the second."""
        return self.second.rate

    def kept(self, bits: float | None = None) -> float | None:
        """It depends on the numbers, as with the first."""
        return None

    def under_feedback(self) -> Chain:
        """Each with its least error."""
        first = self.first.under_feedback()
        second = self.second.under_feedback()
        return Chain(first, second)

    def for_small_tensors(self) -> Codec:
        """Nothing is left out of small tensors."""
        return self.second.for_small_tensors()


def _first_of(codec: Codec) -> Codec:
    """The codec itself, or the one with which a chain begins."""
    if isinstance(codec, Chain):
        return codec.first
    return codec


def _code_reduced(
    first: Projection,
    second: Codec,
    x: Tensor,
    *,
    key: int,
    bits: float | None,
    warm: Tensor | None,
) -> Coded:
    coded, values = first.reduce(x, key=key, warm=warm)
    # Without `warm`, which has the tensor's shape: the numbers that are left have another.
    second_key = _next(key)
    coded.inner = second.code(values, key=second_key, bits=bits)
    return coded


def _expect_reduced(
    first: Projection, second: Codec, side: Reader, shape: Shape
) -> Coded:
    coded = first.expect_reduced(side, shape)
    reduced = first.reduced_shape(shape)
    coded.inner = second.expect(side, reduced)
    return coded


def _rebuild_reduced(
    first: Projection, second: Codec, coded: Coded, shape: Shape, *, key: int
) -> Tensor:
    assert coded.inner is not None
    reduced = first.reduced_shape(shape)
    second_key = _next(key)
    values = second.rebuild(coded.inner, reduced, key=second_key)
    return first.expand(coded, values, shape)


def _next(key: int) -> int:
    """The draws of the second codec must not repeat those of the first."""
    return random_key(key, "chain")
