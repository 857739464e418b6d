"""Whatever others wrote: in a message it is one line that prints, of a bounded length, made in no time."""

import os
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, strategies

from fedlama.base import DivergenceError, InputError, RunError, printable, shown
from fedlama.base.text import MAX_LINE, MAX_LINES, MAX_TEXT

HOSTILE = "a\x1b[31m\x07\r\nb\u2028\u202e\x9b\x00\ud800é"


def test_control_characters_are_escaped():
    assert printable(HOSTILE) == r"a\x1b[31m\x07\r\nb\u2028\u202e\x9b\x00\ud800é"


def test_paths_and_bytes_are_texts_too():
    assert printable(Path("x/\x1b.npz")) == r"x/\x1b.npz"
    # as Python decodes a name that is not UTF-8
    assert printable(b"a\xff") == r"a\udcff"


def test_the_middle_of_a_long_text_is_cut():
    assert (
        printable("/data/" + "x" * 5000 + "/train.json", 40)
        == "/data/xxxxxxxxxxxxxx…xxxxxxxxx/train.json"
    )
    assert printable("x" * MAX_TEXT) == "x" * MAX_TEXT


@given(strategies.text())
def test_any_text_becomes_one_line_that_prints(text):
    for message in (printable(text), shown(text), shown([text]), shown({text: text})):
        assert message.isprintable()
    assert str(InputError(text)).isprintable()


def doubled(value, kind, times):
    """2**times leaves in a handful of objects."""
    for _ in range(times):
        value = kind((value, value))
    return value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        (-1.5, "-1.5"),
        (True, "True"),
        (None, "None"),
        ("x", "'x'"),
        ("it's", '"it\'s"'),
        ("\x1b[0m", r"'\x1b[0m'"),
        (b"\x1b", r"b'\x1b'"),
        ("x" * 5000, "'" + "x" * 59 + "…'"),
        (10**400, "a whole number of 1,329 bits"),
        ([1, "a", [2]], "[1, 'a', [2]]"),
        ([[[[1]]], {}], "[[[…]], {}]"),
        ((), "()"),
        ({"a": {}}, "{'a': {}}"),
        (list(range(1000)), "[0, 1, 2, 3, 4, 5, …]"),
        (doubled(0, tuple, 60), "(((…), (…)), ((…), (…)))"),
        (doubled(0, list, 60), "[[[…], […]], [[…], […]]]"),
        (np.float32(0.5), "0.5"),
        (Fraction(1, 3), "1/3"),
        (torch.zeros(1000, 1000), "a value of type Tensor"),
        (InputError, "the class InputError"),
    ],
)
def test_values_as_messages_quote_them(value, text):
    assert shown(value) == text


def test_what_prints_itself_for_ever_is_not_asked_to():
    class Endless:
        def __repr__(self):
            raise AssertionError("nobody may ask")

    assert shown(Endless()) == "a value of type Endless"
    assert shown([Endless()]) == "[a value of type Endless]"


@pytest.mark.parametrize("kind", [InputError, RunError, DivergenceError])
def test_no_error_carries_control_characters_or_megabytes(kind):
    assert (
        str(kind(f"{HOSTILE} is wrong"))
        == r"a\x1b[31m\x07\r\nb\u2028\u202e\x9b\x00\ud800é is wrong"
    )
    long = str(kind("x" * 10_000_000 + "end"))
    assert len(long) == MAX_LINE + 1
    assert long.endswith("xend")


def test_a_message_has_the_lines_that_it_was_given():
    assert str(InputError("one\nline")) == r"one\nline"
    assert str(InputError("first", "second")) == "first\nsecond"
    assert len(str(RunError(*map(str, range(10_000)))).split("\n")) == MAX_LINES + 1


def test_names_that_are_not_utf8_can_be_printed():
    printable(os.fsdecode(b"caf\xe9.npz")).encode("utf-8")
