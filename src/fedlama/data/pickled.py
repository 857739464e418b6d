"""What an untrusted pickle of arrays holds.

A pickle can call anything, so Python's unpickler is not used at all: the opcodes are walked here, and a call becomes a
note (`Call`) that is read as an array or refused. What the walk may build is as flat as CIFAR's files are: plain
values, lists of plain values, tuples of plain values with a shape or a call among them, and one dictionary of those.
Nothing that is deeper ever exists, so nothing can take for ever to hash, to compare or to print.
"""

from __future__ import annotations

import pickletools
from dataclasses import dataclass
from typing import Any

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


RECONSTRUCT = Function("_reconstruct")
NDARRAY = Function("ndarray")
DTYPE = Function("dtype")
ENCODE = Function("encode")

_ADMITTED = {
    "numpy.core.multiarray _reconstruct": RECONSTRUCT,
    "numpy._core.multiarray _reconstruct": RECONSTRUCT,  # numpy 2
    "numpy ndarray": NDARRAY,
    "numpy dtype": DTYPE,
    "_codecs encode": ENCODE,
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
_PLAIN = (int, str, bytes, bool, type(None))


def unpickle(content: bytes) -> dict[str, Any]:
    """The dictionary that the pickle describes, its calls left as `Call`s."""
    machine = _Machine()
    operations = pickletools.genops(content)
    for count, operation in enumerate(operations):
        opcode, argument, _ = operation
        if count > MAX_OPCODES:
            raise NotArraysError(f"it has over {MAX_OPCODES:,} parts")
        if opcode.name != "STOP":
            machine.step(opcode.name, argument)

    # What is left on the stack is the object that was pickled.
    result = machine.stack[-1]
    if not isinstance(result, dict):
        raise NotArraysError(f"it holds a {kind_of(result)}, not a dictionary")
    return result


def kind_of(value: Any) -> str:
    """What messages call the type of a value."""
    return type(value).__name__


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
                full_name = f"{text_of(module)} {text_of(name)}"
                self.stack.append(_admitted(full_name))
            case "REDUCE":
                function, arguments = self._pop(2)
                self._note_call(function, arguments)
            case "BUILD":
                (state,) = self._pop(1)
                self._set_state(state)
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
                raise NotArraysError(
                    f"it holds a {kind_of(value)} inside a tuple, which no array needs"
                )
        self.stack.append(values)

    def _extend_list(self, values: tuple[Any, ...]) -> None:
        target = self.stack[-1]
        if not isinstance(target, list):
            raise NotArraysError(f"it appends to a {kind_of(target)}")
        for value in values:
            if not _is_plain(value):
                raise NotArraysError(f"it holds a list with a {kind_of(value)} in it")
        target.extend(values)

    def _set_items(self, items: tuple[Any, ...]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict):
            raise NotArraysError(f"it sets an entry of a {kind_of(target)}")

        # Keys and values take turns on the stack.
        keys = items[::2]
        values = items[1::2]
        for key, value in zip(keys, values, strict=True):
            name = text_of(key)
            is_admitted = _is_plain(value) or isinstance(value, Call | list)
            if not is_admitted:
                raise NotArraysError(
                    f"it holds a dictionary with a {kind_of(value)} in it"
                )
            target[name] = value

    def _note_call(self, function: Any, arguments: Any) -> None:
        if not isinstance(function, Function) or not isinstance(arguments, tuple):
            raise NotArraysError(
                f"it calls a {kind_of(function)}, and only arrays are admitted"
            )
        if function == ENCODE:
            content = _encoded(*arguments)
            self.stack.append(content)
            return

        if function == DTYPE and not all(map(_is_plain, arguments)):
            raise NotArraysError("the type of its array is not a plain one")
        call = Call(function, arguments)
        self.stack.append(call)

    def _set_state(self, state: Any) -> None:
        target = self.stack[-1]
        if not isinstance(target, Call) or not isinstance(state, tuple):
            raise NotArraysError(
                f"it sets the state of a {kind_of(target)}, and only arrays have one"
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
        return value.function == DTYPE
    return _is_plain(value) or is_shape(value)


def _encoded(text: Any, encoding: Any) -> bytes:
    """What `_codecs.encode` would give; in protocol 2, Python 3 writes bytes as a text to be encoded."""
    if not isinstance(text, str) or encoding != "latin1":
        raise NotArraysError("it encodes something else than bytes")
    return text.encode("latin-1")


def is_shape(value: Any) -> bool:
    """A tuple of so few whole numbers that an array of CIFAR's can have."""
    if type(value) is not tuple:
        return False
    if len(value) > MAX_DIMENSIONS:
        return False
    kinds = set(map(type, value))
    return kinds <= {int}


def text_of(value: Any) -> str:
    """A text, or bytes read as one."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if not isinstance(value, str):
        raise NotArraysError(f"it holds a {kind_of(value)} where a text belongs")
    return value
