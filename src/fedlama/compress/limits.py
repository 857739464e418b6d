"""What may be asked of a codec: the allowed values and limits, read by the codecs, the configuration and the docs."""

from __future__ import annotations

from typing import Annotated, Literal

from fedlama.base import Limits

# Cast; float32 sends the numbers as they are
DType = Literal["bfloat16", "float16", "float32"]
MIN_QUANTIZE_BITS, MAX_QUANTIZE_BITS = 2, 8
DEFAULT_BLOCK = 1024  # numbers per scale: 0.03 bits per number for the scales
MIN_BLOCK, MAX_BLOCK = 8, 1 << 20
MIN_BITS, MAX_BITS = 0.1, 8.0  # Rotate: bits per number, any real number between
# Biases, norms' parameters and statistics: few numbers that matter much
DEFAULT_SMALL_BITS = 2.5
Bits = Annotated[float, Limits(minimum=MIN_BITS, maximum=MAX_BITS)]
Allocation = Literal["uniform", "water"]
Scaling = Literal["unbiased", "least_squares"]
MAX_RANK = 1024

SMALL = 1024  # numbers: a tensor with fewer shares a group with the other small ones
MAX_DIMENSIONS = 16
# Of a payload whose reader expects no shape, and which may be forged: in all, and in proportion to its length. The
# least that a true one needs is 0.1 bit per number, or the factors of a large matrix: 1,024 numbers per byte.
MAX_NUMBERS = 1 << 26
FREE_NUMBERS = 1 << 20
MAX_NUMBERS_PER_BYTE = 4096
