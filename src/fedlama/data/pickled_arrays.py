"""Numpy's arrays as `pickled` notes them down: a call of `_reconstruct` that is read, and never made."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fedlama.base import shown
from fedlama.data.pickled import (
    DTYPE,
    NDARRAY,
    RECONSTRUCT,
    Call,
    NotArraysError,
    is_shape,
    kind_of,
    text_of,
)

_WHOLE_NUMBERS = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
_BYTE_ORDERS = ("|", "<", ">", "=")


def as_array(value: Any) -> np.ndarray:
    """The array that a call of `_reconstruct`, with its state, stands for."""
    is_array = isinstance(value, Call) and value.function == RECONSTRUCT
    if not is_array:
        raise NotArraysError(f"it holds a {kind_of(value)} where an array belongs")
    if value.arguments[:1] != (NDARRAY,):
        raise NotArraysError("it holds another object where an array belongs")
    if value.state is None or len(value.state) != 5:
        raise NotArraysError("its array has no state")

    _, shape, dtype, by_columns, content = value.state
    if not is_shape(shape):
        raise NotArraysError("the shape of its array is not one or two whole numbers")

    kind = _dtype(dtype)
    numbers = np.frombuffer(_content_of(content), kind)
    # Two lengths below zero have a product above it.
    is_possible = min(shape, default=0) >= 0
    if not is_possible or math.prod(shape) != len(numbers):
        claimed = shown(list(shape))
        raise NotArraysError(
            f"its array claims shape {claimed} and holds {len(numbers):,} numbers"
        )

    if by_columns:
        return numbers.reshape(shape, order="F")
    return numbers.reshape(shape)


def _dtype(value: Any) -> np.dtype[Any]:
    if not isinstance(value, Call) or value.function != DTYPE:
        raise NotArraysError("its array has no type")

    kind = ""
    if value.arguments:
        kind = text_of(value.arguments[0])
    if kind not in _WHOLE_NUMBERS:
        raise NotArraysError(
            f"its array is of type {shown(kind)}, and only whole numbers are admitted"
        )

    order = ""
    if value.state and len(value.state) > 1:
        order = text_of(value.state[1])
    if order not in _BYTE_ORDERS:
        raise NotArraysError("the type of its array has no byte order")
    return np.dtype(order + kind)


def _content_of(value: Any) -> bytes:
    """Python 2 wrote texts, Python 3 writes bytes."""
    if isinstance(value, str):
        return value.encode("latin-1")
    if not isinstance(value, bytes):
        raise NotArraysError("its array has no content")
    return value
