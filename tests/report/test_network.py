"""The replay, with the arithmetic written out.

Layers of 80, 4 and 16 numbers, two clients, four bytes a number: a whole model is 400 bytes a client. Every setting
takes 48 steps and is evaluated after 24 (half of its accuracy) and 48.
"""

import json
import math
from dataclasses import replace

import pytest
from hand_made import write_run
from hypothesis import given
from hypothesis import strategies as st

from fedlama.base import InputError
from fedlama.report import compare
from fedlama.report.numbers.network import (
    Demand,
    Network,
    Payoff,
    Replay,
    active_clients,
    bandwidths,
    fastest_bands,
    payoff,
    replay,
    slowest_of,
)
from fedlama.report.numbers.targets import common_target, compared_curves
from fedlama.report.pictures.network import network_chart
from fedlama.report.tables.network import network_rows
from fedlama.report.words.network import assumptions, payoff_sentences
from fedlama.report.words.units import (
    bandwidth,
    bandwidth_text,
    duration,
    duration_text,
    straggling,
)
from fedlama.run.config import parse_config
from fedlama.study.runs import load_run

SLOW = Network(uplink=1000.0, downlink=2000.0, latency=0.5, step_time=0.25)
EVEN = Network(uplink=1000.0, downlink=1000.0, latency=1.0, step_time=1.0)


@pytest.fixture
def comparison(tmp_path):
    runs = [
        write_run(tmp_path / "fast", policy="fast", accuracy=0.9),
        write_run(tmp_path / "slow", policy="slow", accuracy=0.7),
        write_run(
            tmp_path / "lama", policy="fedlama", accuracy=0.8, long=("conv.weight",)
        ),
    ]
    return compare(runs)


def test_what_each_setting_needs(comparison):
    """FedAvg(6): 8 · 400 bytes. FedAvg(24): 2 · 400. FedLAMA: 80 numbers twice and 20 eight times, 320 · 4 bytes."""
    played = replay(comparison, SLOW)
    assert played.target == 0.7  # the best that all three reach
    fast, slow, lama = played.demands
    assert fast == Demand(
        step=48, rounds=8, uplink_bytes=3200, downlink_bytes=3200, clients=2
    )
    assert slow == Demand(
        step=48, rounds=2, uplink_bytes=800, downlink_bytes=800, clients=2
    )
    assert lama == Demand(
        step=48, rounds=8, uplink_bytes=1280, downlink_bytes=1280, clients=2
    )


def test_time_is_bytes_round_trips_and_steps(comparison):
    fast, slow, lama = replay(comparison, SLOW).demands
    # bits down / 2000 + bits up / 1000 + round trips · 0.5 s + 48 steps · 0.25 s
    # 54.4 s
    assert fast.seconds(SLOW) == pytest.approx(
        25600 / 2000 + 25600 / 1000 + 8 * 0.5 + 12
    )
    # 22.6 s
    assert slow.seconds(SLOW) == pytest.approx(6400 / 2000 + 6400 / 1000 + 2 * 0.5 + 12)
    # 31.36 s
    assert lama.seconds(SLOW) == pytest.approx(
        10240 / 2000 + 10240 / 1000 + 8 * 0.5 + 12
    )
    # Ten times the uplink, and with it the downlink: the bytes take a tenth, round trips and steps stay.
    assert fast.seconds(SLOW, uplink=10_000) == pytest.approx(3.84 + 16)


def test_every_round_may_take_a_fixed_time(comparison):
    deployed = replace(SLOW, round_overhead=10.0)
    fast, slow, lama = replay(comparison, SLOW).demands
    # 8, 2 and 8 rounds
    assert fast.seconds(deployed) == pytest.approx(fast.seconds(SLOW) + 80)
    assert slow.seconds(deployed) == pytest.approx(slow.seconds(SLOW) + 20)
    assert lama.seconds(deployed) == pytest.approx(lama.seconds(SLOW) + 80)
    said = assumptions(replay(comparison, deployed), comparison)
    assert (
        said[1]
        == "A round costs one round trip of 500 ms and 10 s beside it, a local step 250 ms."
    )
    assert assumptions(replay(comparison, SLOW), comparison)[1].startswith(
        "A round costs one round trip of 500 ms, a"
    )


def test_a_target_asked_for_is_reached_earlier_later_or_never(comparison):
    fast, slow, lama = replay(comparison, SLOW, 0.45).demands
    assert (fast.step, fast.rounds) == (24, 4)  # 0.9 / 2
    assert (slow.step, lama.step) == (48, 48)
    fast, slow, lama = replay(comparison, SLOW, 0.75).demands
    assert slow is None
    sentences = payoff_sentences(replay(comparison, SLOW, 0.95), comparison)
    assert sentences == [
        f"{name} never reaches 95.0 %."
        for name in ("FedAvg(6)", "FedAvg(24)", "FedLAMA(6, 4)")
    ]
    assert network_chart(replay(comparison, SLOW, 0.95), comparison) is None


@pytest.mark.parametrize("target", [90.0, 0.0, -1.0, math.nan])
def test_a_target_that_is_no_accuracy_is_refused(comparison, target):
    with pytest.raises(
        InputError,
        match=r"--target .*write a number above 0 and up to 1, such as --target 0\.9",
    ):
        replay(comparison, SLOW, target)


def test_seeds_are_averaged_where_their_mean_reaches_the_target(tmp_path):
    long = {0: (), 1: ("conv.weight",)}
    runs = [
        write_run(
            tmp_path / str(seed), seed=seed, accuracy=0.8 + 0.1 * seed, long=long[seed]
        )
        for seed in long
    ]
    played = replay(compare(runs), SLOW)
    assert played.target == pytest.approx(0.85)
    assert played.demands[0].uplink_bytes == (3200 + 1280) / 2


def test_who_is_evaluated_more_often_is_not_found_to_be_sooner(tmp_path):
    # The same training, once evaluated after 24 and 48 steps and once after every six, with 0.9 from step 30 on
    write_run(tmp_path / "often", policy="fast", accuracy=0.9)
    records = tmp_path / "often" / "rounds.jsonl"
    lines = []
    for line in records.read_text().splitlines():
        record = json.loads(line)
        record |= {"accuracy": 0.9 if record["step"] > 24 else 0.45, "loss": 0.1}
        lines.append(json.dumps(record) + "\n")
    records.write_text("".join(lines))
    often = load_run(tmp_path / "often")
    seldom = write_run(tmp_path / "seldom", policy="fedlama", accuracy=0.9)

    assert replay(compare([often]), SLOW).demands[0].step == 30
    together = replay(compare([often, seldom]), SLOW)
    assert [demand.step for demand in together.demands] == [48, 48]


def test_a_target_of_our_own_is_what_is_printed(tmp_path):
    run = write_run(tmp_path / "run", accuracy=0.90678)
    runs = compare([run])
    assert common_target(runs, compared_curves(runs)) == 0.906
    loss = compare([write_run(tmp_path / "loss", accuracy=None)])
    assert common_target(loss, compared_curves(loss)) == 0.125
    assert replay(loss, SLOW).demands[0].step == 48
    assert replay(loss, SLOW, 0.3).demands[0].step == 24  # the loss is 1/4 there


def test_where_one_setting_pays_off():
    """Ours waits 10 + 40 = 50 s for 16,000 bits, theirs 10 + 30 = 40 s for 32,000: level at 16,000 / 10 bit/s."""
    ours, theirs = Demand(40, 10, 1000, 1000, 2), Demand(30, 10, 2000, 2000, 2)
    assert payoff(ours, theirs, EVEN) == Payoff("below", 1600.0)
    assert ours.seconds(EVEN, 1600.0) == theirs.seconds(EVEN, 1600.0) == 60.0
    assert payoff(theirs, ours, EVEN) == Payoff("above", 1600.0)
    assert payoff(Demand(30, 10, 1000, 1000, 2), theirs, EVEN) == Payoff("always")
    assert payoff(theirs, Demand(30, 10, 1000, 1000, 2), EVEN) == Payoff("never")
    assert payoff(ours, ours, EVEN) == Payoff("equal")


WHOLE = st.integers(1, 10**6)
DEMANDS = st.builds(Demand, WHOLE, WHOLE, WHOLE, WHOLE, st.just(4))


@given(DEMANDS, DEMANDS, st.floats(1e3, 1e9))
def test_pay_off_agrees_with_the_times(ours, theirs, uplink):
    found, sooner = (
        payoff(ours, theirs, EVEN),
        ours.seconds(EVEN, uplink) < theirs.seconds(EVEN, uplink),
    )
    if found.where in ("always", "never", "equal"):
        assert sooner is (found.where == "always")
    elif not math.isclose(uplink, found.uplink, rel_tol=1e-6):
        assert sooner is ((uplink < found.uplink) is (found.where == "below"))


def test_sentences_say_where_it_pays_off(comparison):
    played = replay(comparison, SLOW)
    assert payoff_sentences(played, comparison) == [
        "FedLAMA(6, 4) pays off against FedAvg(6) at every bandwidth.",
        "FedLAMA(6, 4) never pays off against FedAvg(24): at every bandwidth it is no sooner at 70.0 %.",
        "FedLAMA(6, 4) is never the fastest: at every bandwidth another setting is sooner.",
    ]
    # To 45 %, FedAvg(6) takes 4 rounds and 24 steps: 2 + 6 s, and 4 · 400 · 8 · 1.5 bits, which are 19,200.
    # FedLAMA takes 4 + 12 s, and 1,280 · 8 · 1.5 = 15,360 bits. They are level at 3,840 bits / 8 s.
    earlier = payoff_sentences(replay(comparison, SLOW, 0.45), comparison)
    assert (
        earlier[0]
        == "FedLAMA(6, 4) pays off against FedAvg(6) where the uplink is slower than 480 bit/s."
    )
    assert (
        earlier[-1]
        == "FedAvg(6) had 45.0 % at the first evaluation already and may have been faster."
    )


def demands(*waiting_and_bytes):
    """Settings that wait for so many seconds and move so many bytes each way."""
    found = tuple(
        Demand(seconds, 0, sent, sent, 2) for seconds, sent in waiting_and_bytes
    )
    return Replay(EVEN, 0.9, True, found)


def test_the_fastest_setting_at_each_bandwidth():
    """Times of 10 + 16,000 / u, 20 + 8,000 / u and 40 + 1,600 / u: level at 800, 320 and (1 and 3) 480 bit/s."""
    bands = fastest_bands(
        demands((10, 1000), (20, 500), (40, 100)), low=100.0, high=10_000.0
    )
    assert [(band.low, band.high, band.index) for band in bands] == [
        (100.0, 320.0, 2),
        (320.0, 800.0, 1),
        (800.0, 10_000.0, 0),
    ]
    # With 30 s the second is level with the third at 640 and with the first at 400: the two others part it at 480.
    bands = fastest_bands(
        demands((10, 1000), (30, 500), (40, 100)), low=100.0, high=10_000.0
    )
    assert [(band.low, band.high, band.index) for band in bands] == [
        (100.0, 480.0, 2),
        (480.0, 10_000.0, 0),
    ]
    assert fastest_bands(Replay(EVEN, 0.9, True, (None,))) == []


def test_who_is_the_fastest_somewhere_is_not_called_never_the_fastest(comparison):
    said = payoff_sentences(demands((10, 1000), (40, 100), (20, 500)), comparison)
    assert not any("never the fastest" in sentence for sentence in said)
    # Nor who is as fast as any
    said = payoff_sentences(demands((10, 1000), (10, 1000), (10, 1000)), comparison)
    assert not any("never the fastest" in sentence for sentence in said)
    said = payoff_sentences(demands((10, 1000), (40, 100), (30, 500)), comparison)
    assert (
        "FedLAMA(6, 4) is never the fastest: at every bandwidth another setting is sooner."
        in said
    )


def test_assumptions_and_table_name_the_numbers(comparison):
    played = replay(comparison, SLOW)
    said = " ".join(assumptions(played, comparison))
    assert "sends at 1 kbit/s and receives at 2 kbit/s" in said
    assert "one round trip of 500 ms, a local step 250 ms" in said
    assert "target is 70.0 %, the best that every setting reaches" in said
    assert network_rows(played, comparison)[0].numbers == [
        "54.4 s",
        "48",
        "8",
        "3.20 kB",
        "3.20 kB",
    ]
    waiting = replay(comparison, Network(straggling=0.5))
    assert (
        "waits for the slowest, on average 1.45 times the median for 2 clients"
        in " ".join(assumptions(waiting, comparison))
    )


def test_chart_covers_a_thousandfold_of_bandwidths(comparison):
    chart = network_chart(replay(comparison, Network()), comparison)
    assert (bandwidths()[0], bandwidths()[-1]) == (1e6, pytest.approx(1e9))
    assert 10e6 in [round(place) for place in bandwidths()]
    label, uplink, downlink, seconds = chart.rows[0]
    # 25,600 bits up at 1 Mbit/s, as many down at 5 Mbit/s, 8 · 50 ms and 48 · 20 ms
    assert (label, uplink, downlink) == ("FedAvg(6)", 1e6, 5e6)
    assert seconds == pytest.approx(0.0256 + 0.00512 + 0.4 + 0.96)
    assert len(chart.rows) == 3 * len(bandwidths())


def test_the_slowest_of_some_clients():
    """E[exp(σZ)] = exp(σ²/2), and for two clients E[max] = 2 exp(σ²/2) Φ(σ/√2)."""
    for sigma in (0.1, 0.5, 1.0, 3.0):
        mean = math.exp(sigma**2 / 2)
        assert slowest_of(1, sigma) == pytest.approx(mean, rel=1e-9)
        # Φ(x) = erfc(−x/√2)/2
        assert slowest_of(2, sigma) == pytest.approx(
            mean * math.erfc(-sigma / 2), rel=1e-9
        )
    assert slowest_of(128, 0.0) == 1.0
    assert slowest_of(8, 0.5) < slowest_of(9, 0.5)


def test_stragglers_lengthen_the_steps_alone():
    demand = Demand(
        step=100, rounds=10, uplink_bytes=1000, downlink_bytes=1000, clients=2
    )
    network = Network(1000.0, 1000.0, 1.0, 1.0, straggling=0.5)
    factor = 2 * math.exp(0.125) * 0.638163  # Φ(0.353553), from a table
    assert demand.seconds(network) == pytest.approx(8 + 8 + 10 + 100 * factor, rel=1e-5)


@pytest.mark.parametrize(
    ("active", "clients", "kind", "count"),
    [
        (2, None, None, 2),
        (0.25, 128, "dirichlet", 32),
        (0.5, 5, "iid", 3),  # halves go up
        (0.001, 10, "iid", 1),
        (0.25, None, "iid", 8),  # of the default 32
        (1.0, None, "natural", None),
    ],
)
def test_active_clients(active, clients, kind, count):
    partition = {
        key: value
        for key, value in {"clients": clients, "kind": kind}.items()
        if value is not None
    }
    tables = {
        "data": {"name": "digits"},
        "participation": {"active": active},
        "partition": partition,
    }
    config = parse_config({**tables, "train": {"iterations": 1}}, "a test")
    assert active_clients(config) == count


def test_no_replay_without_evaluations_or_a_known_cohort(tmp_path):
    config = {"partition": {"kind": "natural"}, "participation": {"active": 0.5}}
    assert replay(compare([write_run(tmp_path / "run", **config)]), Network()) is None
    unseen = write_run(tmp_path / "unseen", finished=False)
    unseen.records.clear()
    assert replay(compare([unseen]), Network()) is None


def test_units():
    assert bandwidth("10Mbit", "--uplink") == bandwidth("10 Mbit", "--uplink") == 10e6
    assert [bandwidth(f"2.5{unit}", "") for unit in ("bit", "kbit", "Gbit")] == [
        2.5,
        2500.0,
        2.5e9,
    ]
    assert (duration("50ms", "--latency"), duration("2s", ""), duration("0s", "")) == (
        0.05,
        2.0,
        0.0,
    )
    assert (straggling("lognormal:0.5"), straggling(None)) == (0.5, 0.0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10",
        "Mbit",
        "10mbit",
        "10MB",
        "0Mbit",
        "-1Mbit",
        "1e3Mbit",
        "nanbit",
        "१Mbit",
    ],
)
def test_wrong_bandwidths_are_refused_in_a_sentence(text):
    with pytest.raises(InputError, match=r"--uplink .*such as --uplink 10Mbit"):
        bandwidth(text, "--uplink")


@pytest.mark.parametrize("text", ["50", "50 MS", "-50ms", "50min", "infs"])
def test_wrong_times_are_refused_in_a_sentence(text):
    with pytest.raises(InputError, match=r"--latency .*such as --latency 50ms"):
        duration(text, "--latency")


@pytest.mark.parametrize(
    "text",
    ["0.5", "normal:0.5", "lognormal:", "lognormal:-1", "lognormal:9", "lognormal:nan"],
)
def test_wrong_stragglers_are_refused_in_a_sentence(text):
    with pytest.raises(InputError, match="such as --stragglers lognormal"):
        straggling(text)


def test_quantities_as_people_read_them():
    assert [bandwidth_text(value) for value in (480, 25e6, 1e9, 45.77e6)] == [
        "480 bit/s",
        "25 Mbit/s",
        "1 Gbit/s",
        "45.8 Mbit/s",
    ]
    assert [
        duration_text(value) for value in (0, 0.05, 4.2, 59.97, 200, 7200, 7500, 3e5)
    ] == [
        "0 ms",
        "50 ms",
        "4.2 s",
        "1 min",
        "3 min 20 s",
        "2 h",
        "2 h 5 min",
        "3.5 days",
    ]
