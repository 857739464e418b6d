"""Arrays out of a pickle that nobody vouches for.

A pickle can call anything, so Python's unpickler is not used at all: the opcodes are walked here, and a call becomes a
note (`Call`) that is read as an array or refused. What the walk may build is as flat as CIFAR's files are: plain
values, lists of plain values, tuples of plain values with a shape or a call among them, and one dictionary of those.
Nothing that is deeper ever exists, so nothing can take for ever to hash, to compare or to print.
"""

from __future__ import annotations

import math
import pickletools
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedlama.base import shown

MAX_OPCODES = 2_000_000  # CIFAR-100's train has some 300,000
MAX_TUPLE = 8  # the state of a dtype has that many entries
MAX_DIMENSIONS = 2


class NotArraysError(Exception):
    """The pickle holds something other than numbers, texts, lists, dictionaries and arrays."""


@dataclass(frozen=True)
class Function:
    """A function or class that the pickle names. It is never looked up."""

    name: str


@dataclass(eq=False)
class Call:
    """A call that the pickle asks for, and the state it wants the result to have. It is never made."""

    function: Function
    arguments: tuple[Any, ...]
    state: tuple[Any, ...] | None = None


_RECONSTRUCT = Function("_reconstruct")
_NDARRAY = Function("ndarray")
_DTYPE = Function("dtype")
_ENCODE = Function("encode")

_ADMITTED = {
    "numpy.core.multiarray _reconstruct": _RECONSTRUCT,
    "numpy._core.multiarray _reconstruct": _RECONSTRUCT,  # numpy 2
    "numpy ndarray": _NDARRAY,
    "numpy dtype": _DTYPE,
    "_codecs encode": _ENCODE,
}
_TEXTS = {
    "BINSTRING",
    "SHORT_BINSTRING",
    "BINUNICODE",
    "SHORT_BINUNICODE",
    "BINBYTES",
    "SHORT_BINBYTES",
    "BINBYTES8",
}
_VALUES = {"BININT", "BININT1", "BININT2", "LONG1"} | _TEXTS
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_WHOLE_NUMBERS = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
_BYTE_ORDERS = ("|", "<", ">", "=")
_PLAIN = (int, str, bytes, bool, type(None))


def unpickle(content: bytes) -> dict[str, Any]:
    """The dictionary that the pickle describes, its calls left as `Call`s."""
    machine = _Machine()
    for count, opcode_and_argument in enumerate(pickletools.genops(content)):
        opcode, argument, _ = opcode_and_argument
        if count > MAX_OPCODES:
            raise NotArraysError(f"it has over {MAX_OPCODES:,} parts")
        if opcode.name != "STOP":
            machine.step(opcode.name, argument)

    # What is left on the stack is the object that was pickled.
    result = machine.stack[-1]
    if not isinstance(result, dict):
        raise NotArraysError(f"it holds a {type(result).__name__}, not a dictionary")
    return result


class _Machine:
    """The part of the pickle machine (protocols 2 to 4) that numbers, texts, lists, dictionaries and arrays need."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}

    def step(self, opcode: str, argument: Any) -> None:
        """Do what one opcode says; one that is not needed for arrays is refused."""
        match opcode:
            case _ if opcode in _VALUES:
                self.stack.append(argument)
            case _ if opcode in _CONSTANTS:
                self.stack.append(_CONSTANTS[opcode])
            case "BINPUT" | "LONG_BINPUT":
                self._memo[argument] = self.stack[-1]
            case "MEMOIZE":
                self._memo[len(self._memo)] = self.stack[-1]
            case "BINGET" | "LONG_BINGET":
                self.stack.append(self._memo[argument])
            case "MARK":
                self._marks.append(len(self.stack))
            case "PROTO" | "FRAME":
                pass
            case _:
                self._combine(opcode, argument)

    def _combine(self, opcode: str, argument: Any) -> None:
        match opcode:
            case "GLOBAL":
                self.stack.append(_admitted(argument))
            case "STACK_GLOBAL":
                module, name = self._pop(2)
                self.stack.append(_admitted(f"{_text(module)} {_text(name)}"))
            case "REDUCE":
                self._note_call(*self._pop(2))
            case "BUILD":
                self._set_state(*self._pop(1))
            case _:
                self._contain(opcode)

    def _contain(self, opcode: str) -> None:
        match opcode:
            case "TUPLE":
                self._push_tuple(self._pop_to_mark())
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                count = int(opcode[-1])
                self._push_tuple(self._pop(count))
            case "EMPTY_LIST":
                self.stack.append([])
            case "EMPTY_DICT":
                self.stack.append({})
            case "APPEND":
                self._extend_list(self._pop(1))
            case "APPENDS":
                self._extend_list(self._pop_to_mark())
            case "SETITEM":
                self._set_items(self._pop(2))
            case "SETITEMS":
                self._set_items(self._pop_to_mark())
            case _:
                raise NotArraysError(f"it uses {opcode}, and only arrays are admitted")

    def _push_tuple(self, values: tuple[Any, ...]) -> None:
        if len(values) > MAX_TUPLE:
            raise NotArraysError(
                f"it holds a tuple of {len(values):,}, and an array needs {MAX_TUPLE} at most"
            )
        for value in values:
            if not _fits_into_tuple(value):
                kind = type(value).__name__
                raise NotArraysError(
                    f"it holds a {kind} inside a tuple, which no array needs"
                )
        self.stack.append(values)

    def _extend_list(self, values: tuple[Any, ...]) -> None:
        target = self.stack[-1]
        if not isinstance(target, list):
            raise NotArraysError(f"it appends to a {type(target).__name__}")
        for value in values:
            if not _is_plain(value):
                kind = type(value).__name__
                raise NotArraysError(f"it holds a list with a {kind} in it")
        target.extend(values)

    def _set_items(self, items: tuple[Any, ...]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict):
            raise NotArraysError(f"it sets an entry of a {type(target).__name__}")
        keys = items[::2]
        values = items[1::2]
        for key, value in zip(keys, values, strict=True):
            name = _text(key)
            if not _is_plain(value) and not isinstance(value, Call | list):
                raise NotArraysError(
                    f"it holds a dictionary with a {type(value).__name__} in it"
                )
            target[name] = value

    def _note_call(self, function: Any, arguments: Any) -> None:
        if not isinstance(function, Function) or not isinstance(arguments, tuple):
            raise NotArraysError(
                f"it calls a {type(function).__name__}, and only arrays are admitted"
            )
        if function == _ENCODE:
            self.stack.append(_encoded(*arguments))
        elif function == _DTYPE and not all(map(_is_plain, arguments)):
            raise NotArraysError("the type of its array is not a plain one")
        else:
            self.stack.append(Call(function, arguments))

    def _set_state(self, state: Any) -> None:
        target = self.stack[-1]
        if not isinstance(target, Call) or not isinstance(state, tuple):
            raise NotArraysError(
                f"it sets the state of a {type(target).__name__}, and only arrays have one"
            )
        target.state = state

    def _pop(self, count: int) -> tuple[Any, ...]:
        start = len(self.stack) - count
        if start < 0:
            raise NotArraysError("it takes more from its stack than there is")
        values = tuple(self.stack[start:])
        del self.stack[start:]
        return values

    def _pop_to_mark(self) -> tuple[Any, ...]:
        mark = self._marks.pop()
        count = len(self.stack) - mark
        return self._pop(count)


def _admitted(name: str) -> Function:
    if name not in _ADMITTED:
        # GLOBAL has a space between module and name.
        dotted = name.replace(" ", ".")
        raise NotArraysError(
            f"it asks for {shown(dotted)}, and only arrays are admitted"
        )
    return _ADMITTED[name]


def _is_plain(value: Any) -> bool:
    return type(value) in _PLAIN


def _fits_into_tuple(value: Any) -> bool:
    """A plain value, a shape, a class, a dtype; or a list, which an array of objects has (its type is refused)."""
    if isinstance(value, Function | list):
        return True
    if isinstance(value, Call):
        return value.function == _DTYPE
    return _is_plain(value) or _is_shape(value)


def _encoded(text: Any, encoding: Any) -> bytes:
    """What `_codecs.encode` would give; in protocol 2, Python 3 writes bytes as a text to be encoded."""
    if not isinstance(text, str) or encoding != "latin1":
        raise NotArraysError("it encodes something else than bytes")
    return text.encode("latin-1")


def _is_shape(value: Any) -> bool:
    """A tuple of so few whole numbers that an array of CIFAR's can have."""
    if type(value) is not tuple:
        return False
    if len(value) > MAX_DIMENSIONS:
        return False
    kinds = set(map(type, value))
    return kinds <= {int}


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if not isinstance(value, str):
        raise NotArraysError(f"it holds a {type(value).__name__} where a text belongs")
    return value


def as_array(value: Any) -> np.ndarray:
    """The array that a call of `_reconstruct`, with its state, stands for."""
    if not isinstance(value, Call) or value.function != _RECONSTRUCT:
        raise NotArraysError(
            f"it holds a {type(value).__name__} where an array belongs"
        )
    if value.arguments[:1] != (_NDARRAY,):
        raise NotArraysError("it holds another object where an array belongs")
    if value.state is None or len(value.state) != 5:
        raise NotArraysError("its array has no state")

    _, shape, dtype, by_columns, content = value.state
    if not _is_shape(shape):
        raise NotArraysError("the shape of its array is not one or two whole numbers")
    kind = _dtype(dtype)
    numbers = np.frombuffer(_content_of(content), kind)
    if min(shape, default=0) < 0 or math.prod(shape) != len(numbers):
        claimed = shown(list(shape))
        raise NotArraysError(
            f"its array claims shape {claimed} and holds {len(numbers):,} numbers"
        )

    if by_columns:
        return numbers.reshape(shape, order="F")
    return numbers.reshape(shape)


def _dtype(value: Any) -> np.dtype[Any]:
    if not isinstance(value, Call) or value.function != _DTYPE:
        raise NotArraysError("its array has no type")
    kind = ""
    if value.arguments:
        kind = _text(value.arguments[0])
    if kind not in _WHOLE_NUMBERS:
        raise NotArraysError(
            f"its array is of type {shown(kind)}, and only whole numbers are admitted"
        )

    order = ""
    if value.state and len(value.state) > 1:
        order = _text(value.state[1])
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
