"""The parts of a round are marked for torch's profiler and logged."""

import logging

import torch

import fedlama

# Four rounds of two steps, evaluated every four
EXPECTED = {"train": 4, "aggregate": 4, "spread": 4, "evaluate": 2}


def simulate():
    return fedlama.simulate(
        fedlama.models.mlp,
        fedlama.data.digits(),
        policy=fedlama.FedAvg(2),
        local=fedlama.SGD(0.1, 16),
        partition=fedlama.IID(4),
        iterations=8,
        evaluate_every=4,
    )


def test_the_profiler_shows_them():
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU]
    ) as profile:
        simulate()
    counts = {event.key: event.count for event in profile.key_averages()}
    for name, expected in EXPECTED.items():
        assert counts[f"fedlama.{name}"] == expected


def test_the_logger_tells_how_long_each_took(caplog):
    with caplog.at_level(logging.DEBUG, logger="fedlama.phases"):
        result = simulate()
    counts = dict.fromkeys(EXPECTED, 0)
    seconds = dict.fromkeys(EXPECTED, 0.0)
    for record in caplog.records:
        counts[record.phase] += 1
        seconds[record.phase] += record.seconds
    assert counts == EXPECTED
    assert 0 < seconds["spread"] < seconds["aggregate"]  # of which it is a part
    assert (
        seconds["train"] + seconds["aggregate"] + seconds["evaluate"] < result.seconds
    )
    assert caplog.records[0].getMessage().startswith("train took 0.")


def test_nothing_is_logged_unasked(caplog):
    simulate()
    assert not caplog.records
