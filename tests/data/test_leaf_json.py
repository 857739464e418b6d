"""LEAF's JSON: writers become clients, and what is wrong is named with its file and its writer."""

import json

import numpy as np
import pytest
import torch
from formats import leaf_content, write_leaf

from fedlama.base import InputError
from fedlama.data.leaf import is_leaf, read_leaf

TEST = leaf_content({"f2": [0]})


def changed(**changes):
    return leaf_content({"f1": [0, 1], "f2": [61]}) | changes


def user(x=((0.0,) * 784,), y=(0,), count=None):
    """A file with one user."""
    return {
        "users": ["f1"],
        "num_samples": [len(y) if count is None else count],
        "user_data": {"f1": {"x": x, "y": y}},
    }


def refused(folder, train, *words, test=TEST, **options):
    write_leaf(folder, train, test)
    with pytest.raises(InputError) as caught:
        read_leaf(folder, **options)
    sentence = str(caught.value)
    assert str(folder / "train") in sentence
    assert "\n" not in sentence
    assert len(sentence) < 600
    for word in words:
        assert word in sentence


def test_writers_are_clients_and_samples_images(tmp_path):
    content = leaf_content({"f9": [5, 6], "f1": [61]})
    data = read_leaf(write_leaf(tmp_path / "pens", content, TEST))
    assert (data.name, data.classes) == ("pens", 62)
    assert data.x_train.dtype == torch.float32
    assert data.x_train.shape == (3, 1, 28, 28)
    assert data.x_test.shape == (1, 1, 28, 28)
    assert data.y_train.tolist() == [5, 6, 61]
    assert data.clients is not None
    assert data.clients.tolist() == [1, 1, 0]  # in the order of the names
    expected = np.array(content["user_data"]["f9"]["x"][1], dtype=np.float32)
    assert np.array_equal(data.x_train[1].flatten().numpy(), expected)


def test_several_files_are_joined(tmp_path):
    folder = write_leaf(
        tmp_path,
        leaf_content({"b": [1], "a": [2]}),
        TEST,
        name="all_data_0_{split}.json",
    )
    write_leaf(
        folder,
        leaf_content({"c": [3, 4]}),
        leaf_content({"z": [0]}),
        name="all_data_1_{split}.json",
    )
    data = read_leaf(folder)
    assert data.y_train.tolist() == [1, 2, 3, 4]
    assert data.clients is not None
    assert data.clients.tolist() == [1, 0, 2, 2]
    assert len(data.x_test) == 2


def test_other_lengths_and_shapes(tmp_path):
    data = read_leaf(
        write_leaf(
            tmp_path / "a",
            leaf_content({"a": [0, 4]}, 60),
            leaf_content({"a": [2]}, 60),
        )
    )
    assert data.x_train.shape == (2, 60)
    assert data.classes == 5
    squares = read_leaf(
        write_leaf(tmp_path / "b", user([[[0, 1], [1, 0]]]), user([[[0, 1], [1, 0]]]))
    )
    assert squares.x_train.shape == (1, 1, 2, 2)


def test_classes_of_images(tmp_path):
    few = leaf_content({"a": [0, 9]})
    assert read_leaf(write_leaf(tmp_path / "mnist", few, TEST)).classes == 10
    assert (
        read_leaf(
            write_leaf(tmp_path / "femnist", leaf_content({"a": [10]}), TEST)
        ).classes
        == 62
    )
    assert read_leaf(tmp_path / "mnist", classes=62).classes == 62
    refused(
        tmp_path / "out",
        leaf_content({"a": [3], "b": [62]}),
        "label 62 of user 'b' is outside 0 … 61",
    )
    refused(tmp_path / "named", leaf_content({"a": [10]}), "outside 0 … 9", classes=10)


def test_whole_floats_are_labels(tmp_path):
    assert read_leaf(write_leaf(tmp_path, user(y=[7.0]), TEST)).y_train.tolist() == [7]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "not JSON"),
        ('{"users": ["a"', "not JSON"),
        ("\0\1\2", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"users": [' + "1" * 5000 + "]}", "not JSON"),
        ("[]", "object with users, num_samples, user_data"),
        ("null", "object"),
        ('{"users": ["a"], "num_samples": [1]}', "user_data"),
    ],
)
def test_files_that_are_not_leaf_json(tmp_path, text, word):
    refused(tmp_path, text, word)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"users": "f1"}, "users must be a list"),
        ({"users": []}, "one or more names"),
        ({"users": [1, 2]}, "names"),
        ({"num_samples": [2]}, "2 numbers"),
        ({"num_samples": None}, "2 numbers"),
        ({"num_samples": [2, 5]}, "num_samples says 5"),
        ({"user_data": []}, "user_data must be an object"),
        ({"user_data": {}}, "user 'f1' must have lists x and y"),
        ({"users": ["f1", "f3"]}, "user 'f3' must have lists x and y"),
        ({"users": ["f1", "f1"], "num_samples": [2, 2]}, "user 'f1' was in"),
    ],
)
def test_json_of_the_wrong_shape(tmp_path, changes, word):
    refused(tmp_path, changed(**changes), word)


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (user(x=[], y=[], count=0), "user 'f1' has no samples"),
        (user(x=[[0.0] * 784] * 2), "has 2 x and 1 y"),
        (user(x="text"), "lists x and y"),
        (user(x=["a text"]), "texts are not read"),
        (user(x=[["0.5"] * 784]), "texts are not read"),
        (user(x=[[]]), "list of numbers"),
        (user(x=[1.0]), "list of numbers"),
        (user(x=[[None] * 784]), "list of numbers"),
        (user(x=[[True] * 784]), "list of numbers"),
        (user(x=[[0.0] * 784, [0.0] * 783], y=[0, 0]), "different lengths"),
        (user(x=[[10**30] * 784]), "list of numbers"),
        (user(x=[[1e39] * 784]), "too large"),
        (user(y=[-1]), "below 0"),
        (user(y=[2**70]), "too large"),
        (user(y=[0.5]), "whole numbers"),
        (user(y=["3"]), "whole numbers"),
        (user(y=[[3]]), "whole numbers"),
        (user(y=[True]), "whole numbers"),
        (user(y=[None]), "whole numbers"),
        (user(x=[[0.0] * 60]), "shape [60]"),
    ],
)
def test_wrong_samples(tmp_path, content, word):
    refused(tmp_path, content, word)


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_not_finite(tmp_path, constant):
    refused(tmp_path, json.dumps(user()).replace("0.0", constant, 1))


def test_files_of_two_preprocessing_runs_are_not_mixed(tmp_path):
    write_leaf(tmp_path, leaf_content({"a": [1]}), TEST, name="a_{split}.json")
    refused(tmp_path, leaf_content({"a": [1]}), "user 'a' was in a_train.json already")


def test_a_hostile_user_name_cannot_flood_the_terminal(tmp_path):
    name = "\x1b[2J" * 10_000
    refused(
        tmp_path,
        {"users": [name], "num_samples": [0], "user_data": {name: {"x": [], "y": []}}},
        r"\x1b[2J",
    )


def test_an_empty_folder(tmp_path):
    (tmp_path / "train").mkdir()
    assert not is_leaf(tmp_path)
    (tmp_path / "test").mkdir()
    assert is_leaf(tmp_path)
    with pytest.raises(InputError, match=r"holds no \.json file"):
        read_leaf(tmp_path)
