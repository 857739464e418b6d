"""[uplink] and [downlink]: what they build, and what --set makes of them."""

import pytest

from fedlama.base import InputError
from fedlama.compress import Cast, Chain, ErrorFeedback, Quantize, Rotate, TopK
from fedlama.run.choices import CODECS
from fedlama.run.codecs import UplinkSection
from fedlama.run.config import parse_config
from fedlama.run.overrides import apply_overrides
from fedlama.run.recorded import RecordedRun

TABLES = {
    "data": {"name": "digits"},
    "train": {"iterations": 4},
    "uplink": {"codec": "rotate", "bits": 0.64, "error_feedback": "window"},
}


def uplink(*overrides, tables=TABLES):
    return parse_config(apply_overrides(tables, overrides)).uplink.build()


def test_a_codec_a_chain_and_feedback():
    assert uplink() == ErrorFeedback(Rotate(0.64), lifetime="window")
    chain = {
        **TABLES,
        "uplink": {"codec": ["topk", "quantize"], "share": 0.1, "bits": 4},
    }
    assert uplink(tables=chain) == Chain(TopK(0.1), Quantize(4))
    assert parse_config({**TABLES, "uplink": {}}).uplink.build() is None


def test_another_codec_takes_over_what_is_its_own():
    assert uplink("uplink.codec=none") is None
    assert uplink("uplink.codec=quantize", "uplink.bits=4") == ErrorFeedback(
        Quantize(4), lifetime="window"
    )
    assert uplink("uplink.codec=topk", "uplink.share=0.1") == ErrorFeedback(
        TopK(0.1), lifetime="window"
    )


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"codec": "rotate"}, "uplink: bits is missing; codec = 'rotate' needs it"),
        (
            {"codec": "rotate", "bits": 9},
            "uplink: bits must be at least 0.1 and at most 8, not 9",
        ),
        (
            {"codec": "rotate", "bits": 1, "block": 8},
            "block means nothing with codec = 'rotate', only with 'quantize'",
        ),
        (
            {"codec": "rotate", "bitz": 1, "bits": 1},
            "unknown key 'uplink.bitz'; did you mean 'bits'?",
        ),
        (
            {"codec": "zip"},
            "codec must be one of none, cast, quantize, rotate, fit, topk, lowrank",
        ),
        ({"codec": []}, "codec must name at least one of"),
        ({"bits": 2}, "bits means nothing with codec = 'none'"),
        (
            {"codec": "rotate", "bits": 1, "gain": True},
            "mean nothing without error_feedback",
        ),
    ],
)
def test_what_means_nothing_is_refused(table, sentence):
    with pytest.raises(InputError) as caught:
        parse_config({**TABLES, "uplink": table})
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("tables", "label"),
    [
        ({}, "FedLAMA(6, 4)"),
        (
            {"server": {"rule": "momentum", "beta": 0.5}},
            "FedLAMA(6, 4) + Momentum(0.5)",
        ),
        (
            {"server": {"rule": "momentum", "beta": 0.5, "nesterov": True}},
            "FedLAMA(6, 4) + Momentum(0.5, nesterov)",
        ),
        ({"server": {"rule": "adam", "rate": 0.02}}, "FedLAMA(6, 4) + Adam(rate=0.02)"),
        (
            {
                "local": {"rule": "fedprox", "mu": 0.1, "momentum": 0.9},
                "server": {"rule": "yogi"},
                "uplink": {"codec": "rotate", "bits": 0.32, "error_feedback": "window"},
                "downlink": {"codec": "rotate", "bits": 2},
            },
            "FedLAMA(6, 4) + FedProx(0.1) + Yogi() + Rotate(0.32) + window feedback, downlink Rotate(2)",
        ),
    ],
)
def test_a_run_is_called_by_what_is_not_the_papers(tables, label, tmp_path):
    config = {"data": {"name": "digits"}, "train": {"iterations": 4}, **tables}
    run = RecordedRun(tmp_path, parse_config(config), config, [], None)
    assert run.label == label


def test_a_key_that_does_not_exist_is_told_with_those_that_do():
    with pytest.raises(InputError) as caught:
        parse_config({**TABLES, "uplink": {"codec": "rotate", "bits": 1, "bitz": 2}})
    sentence = "unknown key 'uplink.bitz'; did you mean 'bits'? [uplink] takes codec, bits, allocation"
    assert sentence in str(caught.value)
    with pytest.raises(
        InputError,
        match=r"a chain must begin with a codec that leaves fewer numbers \(TopK, LowRank\)",
    ):
        parse_config({**TABLES, "uplink": {"codec": ["quantize", "rotate"], "bits": 4}})


REQUIRED = {
    "cast": ({}, "Cast(bfloat16)"),
    "quantize": ({"bits": 4}, "Quantize(4)"),
    "rotate": ({"bits": 0.32}, "Rotate(0.32)"),
    "fit": ({"share": 0.01}, "Fit(0.01)"),
    "topk": ({"share": 0.1}, "TopK(0.1)"),
    "lowrank": ({"rank": 2}, "LowRank(2)"),
}


@pytest.mark.parametrize("name", CODECS)
def test_a_codec_is_called_by_its_options_whether_given_or_not(name):
    options, label = REQUIRED[name]
    assert UplinkSection.model_validate({"codec": name, **options}).label == label


@pytest.mark.parametrize(
    ("table", "label"),
    [
        ({"codec": ["topk", "cast"], "share": 0.1}, "TopK(0.1) + Cast(bfloat16)"),
        ({"codec": "cast", "dtype": "float16"}, "Cast(float16)"),
        (
            {"codec": "rotate", "bits": 1, "scale": "least_squares", "small_bits": 2.5},
            "Rotate(1, scale=least_squares)",
        ),
        ({"codec": "quantize", "bits": 4, "stochastic": False}, "Quantize(4, stochastic=False)"),
        ({"codec": ["cast"], "error_feedback": "run"}, "Cast(bfloat16) + run feedback"),
    ],
)  # fmt: skip
def test_options_that_are_not_the_defaults_are_in_the_name(table, label):
    assert UplinkSection.model_validate(table).label == label


def test_another_codec_drops_what_code_of_my_own_was_given():
    own = {"codec": "mymodule:Signs", "level": 3, "error_feedback": "window"}
    tables = {**TABLES, "uplink": own}
    assert uplink("uplink.codec=cast", tables=tables) == ErrorFeedback(Cast())
    assert uplink("uplink.codec=none", tables=tables) is None
    with pytest.raises(InputError, match=r"unknown key 'uplink\.level'"):
        uplink("uplink.codec=cast", "uplink.level=2", tables=tables)
