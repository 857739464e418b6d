"""Low rank: T. Vogels, S. P. Karimireddy, M. Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for Distributed
Optimization", NeurIPS 2019 (arXiv 1905.13727).

One power iteration on a matrix M of (out, rest): P = orthogonal(M·Q), then Q = Mᵀ·P, and M̂ = P·Qᵀ. Both factors
travel, so the iteration may start from whatever the sender knows: `warm`, the server's last change of this layer,
instead of a state per client. Without it the start is random.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from fedlama.base import Limits, check_options
from fedlama.compress.chain import Projection
from fedlama.compress.coded import Coded, Shape
from fedlama.compress.draws import generator
from fedlama.compress.framing import Reader
from fedlama.compress.limits import MAX_RANK


@dataclass(frozen=True)
class LowRank(Projection):
    """Two thin factors instead of a matrix; what they miss is lost unless error feedback keeps it.

    Tensors of fewer than two dimensions, and those that two factors would not make smaller, are sent as they are.

    Arguments:
        rank: How many columns each factor has, 1 to 1,024.
    """

    rank: Annotated[int, Limits(minimum=1, maximum=MAX_RANK)]

    needs_matrix: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_options(self)
        # Numpy's are equal, but not written alike
        object.__setattr__(self, "rank", int(self.rank))

    @property
    def wants_warm(self) -> bool:
        """The iteration starts from it."""
        return True

    def reduce(
        self, x: Tensor, *, key: int, warm: Tensor | None
    ) -> tuple[Coded, Tensor]:
        """Algorithm 1 of the paper, for one sender."""
        sides = self._sides(tuple(x.shape))
        if sides is None:
            return Coded(), x.reshape(-1)
        rows, columns = sides
        matrix = x.reshape(rows, columns)

        # Squares of what is very small or very large would leave float32's range
        smallest = torch.finfo(torch.float32).tiny
        largest = matrix.abs().max().clamp(min=smallest)
        unit = matrix / largest
        start = self._start(warm, rows, columns, key)
        product = unit @ start
        left = torch.linalg.qr(product).Q
        right = unit.T @ left

        # P·Qᵀ does not change if a column of P is multiplied and that of Q divided by the same number. With equal norms
        # a next codec in a chain errs alike on both.
        norms = torch.linalg.vector_norm(right, dim=0)
        balance = norms.sqrt()
        scale = largest.sqrt()
        left = left * (balance * scale)
        # A column of zeros must not be divided by zero
        has_length = norms > 0
        divisor = balance.where(has_length, torch.ones(()))
        right = right / divisor * scale
        flat = (left.reshape(-1), right.reshape(-1))
        factors = torch.cat(flat)
        return Coded(), factors

    def expect_reduced(self, side: Reader, shape: Shape) -> Coded:
        """Nothing but the factors."""
        return Coded()

    def reduced_shape(self, shape: Shape) -> Shape:
        """All numbers of both factors."""
        sides = self._sides(shape)
        if sides is None:
            return (math.prod(shape),)
        rows, columns = sides
        return (self.rank * (rows + columns),)

    def expand(self, coded: Coded, values: Tensor, shape: Shape) -> Tensor:
        """M̂ = P·Qᵀ."""
        sides = self._sides(shape)
        if sides is None:
            return values.reshape(shape)
        rows, columns = sides
        rank = self.rank
        left, right = values.split((rows * rank, columns * rank))
        left = left.reshape(rows, rank)
        right = right.reshape(columns, rank)
        product = left @ right.T
        return product.reshape(shape)

    def _sides(self, shape: Shape) -> tuple[int, int] | None:
        """(out, rest), unless two factors would hold as many numbers as the tensor."""
        if len(shape) < 2:
            return None
        rows = shape[0]
        columns = math.prod(shape[1:])
        of_factors = self.rank * (rows + columns)
        if of_factors >= rows * columns:
            return None
        return rows, columns

    def _start(self, warm: Tensor | None, rows: int, columns: int, key: int) -> Tensor:
        """The first right factor: the directions of `warm`, or random ones."""
        if warm is None or not bool(warm.any()):
            return self._random(columns, key)
        known = warm.reshape(rows, columns)
        # In units of its largest number, as the matrix itself
        largest = known.abs().max()
        known = known / largest
        directions = self._random(rows, key)
        return known.T @ directions

    def _random(self, length: int, key: int) -> Tensor:
        source = generator(key)
        draws = source.standard_normal((length, self.rank), dtype="float32")
        return torch.from_numpy(draws)
