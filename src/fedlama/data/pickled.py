"""Arrays out of a pickle that nobody vouches for.

A pickle can call anything, so Python's unpickler is not used at all: the opcodes are walked here, and a call becomes a
note (`Call`) that is read as an array or refused.
"""

from __future__ import annotations

import math
import pickletools
from dataclasses import dataclass
from typing import Any

import numpy as np

MOST_OPCODES = 2_000_000  # CIFAR-100's train has some 300,000


class NotArraysError(Exception):
    """The pickle holds something other than numbers, texts, lists, dictionaries and arrays."""


@dataclass(eq=False)
class Call:
    """A call that the pickle asks for, and the state it wants the result to have. It is never made."""

    function: str
    arguments: tuple[Any, ...]
    state: Any = None


_NAMES = {
    "numpy.core.multiarray _reconstruct": "_reconstruct",
    "numpy._core.multiarray _reconstruct": "_reconstruct",  # numpy 2
    "numpy ndarray": "ndarray",
    "numpy dtype": "dtype",
    "_codecs encode": "encode",  # how Python 3 writes bytes in protocol 2
}
_TEXTS = {"BINSTRING", "SHORT_BINSTRING", "BINUNICODE", "SHORT_BINUNICODE", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"}
_VALUES = {"BININT", "BININT1", "BININT2", "LONG1"} | _TEXTS
_WHOLE_NUMBERS = {f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}


def unpickle(content: bytes) -> dict[str, Any]:
    """The dictionary that the pickle describes, its calls left as `Call`s."""
    machine = _Machine()
    for count, (opcode, argument, _) in enumerate(pickletools.genops(content)):
        if count > MOST_OPCODES:
            raise NotArraysError(f"it has over {MOST_OPCODES:,} parts")
        if opcode.name != "STOP":
            machine.step(opcode.name, argument)
    if not isinstance(machine.stack[-1], dict):
        raise NotArraysError(f"it holds a {type(machine.stack[-1]).__name__}, not a dictionary")
    return machine.stack[-1]


class _Machine:
    """The part of the pickle machine (protocols 2 to 4) that numbers, texts, lists, dictionaries and arrays need."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}

    def step(self, opcode: str, argument: Any) -> None:
        """Do what one opcode says; one that is not needed for arrays is refused."""
        stack, memo = self.stack, self._memo
        match opcode:
            case _ if opcode in _VALUES:
                stack.append(argument)
            case _ if opcode in _CONSTANTS:
                stack.append(_CONSTANTS[opcode])
            case "BINPUT" | "LONG_BINPUT" | "MEMOIZE":
                memo[len(memo) if opcode == "MEMOIZE" else argument] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(memo[argument])
            case "MARK":
                self._marks.append(len(stack))
            case "PROTO" | "FRAME":
                pass
            case _:
                self._combine(opcode, argument)

    def _combine(self, opcode: str, argument: Any) -> None:
        stack = self.stack
        match opcode:
            case "TUPLE":
                stack.append(self._pop_to_mark())
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                stack.append(self._pop(int(opcode[-1])))
            case "EMPTY_LIST" | "EMPTY_DICT":
                stack.append([] if opcode == "EMPTY_LIST" else {})
            case "APPEND" | "APPENDS":
                values = self._pop(1) if opcode == "APPEND" else self._pop_to_mark()
                stack[-1].extend(values)
            case "SETITEM" | "SETITEMS":  # keys are texts: a deep tuple of tuples would take for ever to hash
                items = self._pop(2) if opcode == "SETITEM" else self._pop_to_mark()
                stack[-1].update(zip(map(_text, items[::2]), items[1::2], strict=True))
            case "GLOBAL" | "STACK_GLOBAL":
                stack.append(_admitted(argument if opcode == "GLOBAL" else " ".join(map(_text, self._pop(2)))))
            case "REDUCE":
                function, arguments = self._pop(2)
                stack.append(Call(function, arguments))
            case "BUILD":
                (state,) = self._pop(1)
                stack[-1].state = state
            case _:
                raise NotArraysError(f"it uses {opcode}, and only arrays are admitted")

    def _pop(self, count: int) -> tuple[Any, ...]:
        start = len(self.stack) - count
        values = tuple(self.stack[start:])
        del self.stack[start:]
        return values

    def _pop_to_mark(self) -> tuple[Any, ...]:
        return self._pop(len(self.stack) - self._marks.pop())


def _admitted(name: str) -> str:
    if name not in _NAMES:
        raise NotArraysError(f"it asks for {name.replace(' ', '.')!r}, and only arrays are admitted")
    return _NAMES[name]


def _text(value: Any) -> str:
    if not isinstance(value, str | bytes):
        raise NotArraysError(f"it holds a {type(value).__name__} where a text belongs")
    return value.decode("latin-1") if isinstance(value, bytes) else value


def as_array(call: Call) -> np.ndarray:
    """The array that a call of `_reconstruct`, with its state, stands for."""
    if call.function != "_reconstruct" or call.arguments[0] != "ndarray":
        raise NotArraysError(f"it holds a {call.function} where an array belongs")
    _, shape, dtype, by_columns, content = call.state
    kind = _dtype(dtype)
    values = np.frombuffer(_content_of(content), kind)
    if len(shape) > 2 or math.prod(shape) != len(values) or min(shape, default=0) < 0:
        raise NotArraysError(f"its array claims shape {list(shape)} and holds {len(values):,} numbers")
    return values.reshape(shape, order="F" if by_columns else "C")


def _dtype(call: Call) -> np.dtype[Any]:
    kind, order = _text(call.arguments[0]), _text(call.state[1])
    if call.function != "dtype" or kind not in _WHOLE_NUMBERS:
        raise NotArraysError(f"its array is of type {kind!r}, and only whole numbers are admitted")
    return np.dtype(order + kind)


def _content_of(value: Any) -> bytes:
    """Python 2 wrote texts, Python 3 writes bytes, or in protocol 2 a text to be encoded."""
    if isinstance(value, Call) and value.function == "encode" and value.arguments[1] == "latin1":
        return _content_of(value.arguments[0])
    if not isinstance(value, str | bytes):
        raise NotArraysError("its array has no content")
    return value.encode("latin-1") if isinstance(value, str) else value
