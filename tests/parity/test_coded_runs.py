"""Runs with codecs beside the same runs without: the limit of high rates, decisions, and who owes what to whom."""

import pytest
import torch

import fedlama
from doors.harness import (
    CLIENTS,
    check_door,
    network,
    run,
    same_bits,
    samples,
    weights,
    wide_network,
)
from fedlama.base import DivergenceError
from fedlama.compress import (
    Cast,
    Chain,
    Channel,
    ErrorFeedback,
    LowRank,
    MessagePlace,
    Quantize,
    Rotate,
    TopK,
)
from fedlama.core import Traffic
from fedlama.local.scaffold import CONTROL
from fedlama.rows import ClientStore, describe
from fedlama.server import ListReduce, Server

LAYOUT = describe(network())
WIDE = describe(wide_network())


# A code that loses nothing changes nothing


def test_a_code_that_leaves_nothing_out_gives_the_run_without_it_to_rounding():
    plain = run(wide_network)
    as_it_is = run(wide_network, uplink=Cast("float32"), downlink=Cast("float32"))
    assert [record.due for record in as_it_is.records] == [
        record.due for record in plain.records
    ]
    torch.testing.assert_close(weights(as_it_is), weights(plain), rtol=1e-4, atol=1e-5)
    for codec in (TopK(1.0), LowRank(40)):
        coded = run(wide_network, uplink=codec)
        assert [record.due for record in coded.records] == [
            record.due for record in plain.records
        ]
        torch.testing.assert_close(weights(coded), weights(plain), rtol=2e-2, atol=2e-3)


@pytest.mark.parametrize(
    "codec", [Rotate(8.0, small_bits=8.0), Quantize(8), Cast("float16")], ids=str
)
def test_the_higher_the_rate_the_closer_to_the_run_without(codec):
    plain = weights(run(wide_network, iterations=12))
    coarse = {
        Rotate: Rotate(1.0, small_bits=1.0),
        Quantize: Quantize(2),
        Cast: Cast("bfloat16"),
    }[type(codec)]
    fine = run(wide_network, uplink=codec, iterations=12)
    fine_error = (weights(fine) - plain).norm()
    rough = run(wide_network, uplink=coarse, iterations=12)
    coarse_error = (weights(rough) - plain).norm()
    assert fine_error < coarse_error / 3
    assert fine_error < 0.02 * plain.norm()


@pytest.mark.parametrize(
    "codec", [Rotate(8.0, small_bits=8.0), Cast("float16")], ids=str
)
def test_a_downlink_at_a_high_rate_is_close_to_none(codec):
    plain = weights(run(iterations=12))
    assert (
        weights(run(downlink=codec, iterations=12)) - plain
    ).norm() < 0.02 * plain.norm()


# Decisions


@pytest.mark.parametrize(
    ("codec", "layout"),
    [
        (Rotate(2.0), LAYOUT),
        (Rotate(0.64), LAYOUT),
        (Quantize(4), LAYOUT),
        (Rotate(2.0), WIDE),
        (Rotate(0.64), WIDE),
    ],
    ids=["2 bits", "0.64 bits", "quantized", "2 bits, wide", "0.64 bits, wide"],
)
def test_decisions_under_a_lossy_code_are_those_without_it_on_the_same_rows(
    codec, layout
):
    """d_l from the norms that travelled against d_l of the rows themselves, averaged over many messages."""
    generator = torch.Generator().manual_seed(4)
    clients = 8
    every_layer = tuple(range(len(layout.layers)))
    anchor = torch.rand(layout.width, generator=generator) + 0.5
    channel = Channel(codec, layout, seed=3)
    scale = torch.ones(layout.width)
    for number, layer in enumerate(layout.layers):
        for part in layer.slices:
            # Layers that differ as those of a network do, the last one by 2⁷ from the first
            scale[part] = 0.01 * 2 ** (7 * number / (len(layout.layers) - 1))
    common = torch.randn(layout.width, generator=generator) * scale
    rows = [
        anchor + common + torch.randn(layout.width, generator=generator) * scale
        for _ in range(clients)
    ]
    weights_of = [1 / clients] * clients
    exact = ListReduce(layout, rows, weights_of)
    mean = torch.stack(rows).double().mean(dim=0).float()
    expected = exact.spread(mean, every_layer)
    measured = dict.fromkeys(every_layer, 0.0)
    repeats = 60
    for repeat in range(repeats):
        messages = []
        for client, row in enumerate(rows):
            messages.append(
                channel.simulate(
                    row - anchor,
                    every_layer,
                    MessagePlace(repeat, client),
                    anchor=anchor,
                )
            )
        decoded = (
            torch.stack([message.row for message in messages]).mean(dim=0).double()
        )
        mean_sq = {}
        for layer in every_layer:
            mean_sq[layer] = sum(
                float(decoded[part].square().sum())
                for part in layout.layers[layer].slices
            )
        found = channel.spread(weights_of, messages, mean_sq, MessagePlace(repeat, 0))
        for layer, value in found.items():
            measured[layer] += value / repeats
    ratios = [measured[layer] / expected[layer] for layer in every_layer]
    kernels = [layer for layer in every_layer if layout.layers[layer].size >= 64]
    assert [ratios[layer] for layer in kernels] == pytest.approx(
        [1.0] * len(kernels), rel=0.15
    )
    sizes = [layer.size for layer in layout.layers]
    adaptive = [layer.adaptive for layer in layout.layers]
    decisions = []
    for spread in (expected, measured):
        per_number = [spread[layer] / (2 * sizes[layer]) for layer in every_layer]
        decisions.append(
            fedlama.adjust_intervals(
                per_number, sizes, base_interval=2, increase_factor=3, adaptive=adaptive
            )
        )
    assert decisions[0] == decisions[1]
    assert {2, 6} == set(decisions[0])


# Downlink


def test_who_enters_is_sent_what_coded_messages_left_out():
    channel = Channel(
        ErrorFeedback(Quantize(2), lifetime="run"), LAYOUT, seed=1, direction="downlink"
    )
    server = Server(LAYOUT, fedlama.FedAvg(2), downlink=channel)
    start = torch.ones(LAYOUT.width)
    moved = start + 0.1 * torch.randn(
        LAYOUT.width, generator=torch.Generator().manual_seed(1)
    )
    state = server.start(start)
    coded = server.close(
        state, server.plan(state, 99), ListReduce(LAYOUT, [moved], [1.0]), Traffic()
    )
    owed = coded.slots["downlink residual"]
    for part in LAYOUT.slices_of(tuple(range(len(LAYOUT.layers)))):
        assert not torch.equal(coded.row[part], moved[part])
        torch.testing.assert_close(coded.row[part] + owed[part], moved[part])
    # The next clients are new, and those before did not move: all that was owed is in what they are sent.
    plan = server.plan(coded, 99)
    settled = server.close(
        coded, plan, ListReduce(LAYOUT, [coded.row], [1.0]), Traffic(), window_ends=True
    )
    for part in LAYOUT.slices_of(tuple(range(len(LAYOUT.layers)))):
        torch.testing.assert_close(settled.row[part], moved[part])
    assert not settled.slots["downlink residual"].any()


def test_a_downlink_code_means_nothing_where_everyone_is_always_new():
    always_new = {"policy": fedlama.FedAvg(2), "window": 2, "iterations": 12}
    assert same_bits(run(downlink=Quantize(2), **always_new), run(**always_new))


def test_a_downlink_code_saves_bytes_inside_windows():
    plain = run()
    coded = run(downlink=Rotate(2.0))
    for one, other in zip(plain.records[:3], coded.records[:3], strict=True):
        if one.step == 2:
            assert other.downlink_bytes == one.downlink_bytes  # they enter
        else:
            assert other.downlink_bytes < 0.6 * one.downlink_bytes


def test_a_window_is_no_limit_for_what_the_server_keeps():
    feedback = ErrorFeedback(Rotate(2.0), lifetime="window")
    assert same_bits(run(downlink=feedback), run(downlink=Rotate(2.0)))
    for codec in (
        ErrorFeedback(Rotate(2.0), profile=(0.5, 0.5)),
        ErrorFeedback(Rotate(2.0), gain=True),
    ):
        with pytest.raises(
            fedlama.InputError, match="downlink takes no profile and no gain"
        ):
            run(downlink=codec)


def test_scaffolds_control_travels_beside_a_coded_model():
    """c is sent as it is: 4 bytes per number of each layer that is sent, on top of the coded message."""
    without = run(
        local=fedlama.SGD(0.05, 4), downlink=Rotate(2.0), iterations=4, window=12
    )
    scaffold = run(
        local=fedlama.Scaffold(fedlama.SGD(0.05, 4)),
        downlink=Rotate(2.0),
        iterations=4,
        window=12,
    )
    numbers = sum(layer.size for layer in LAYOUT.layers)
    # What was coded after the first round differs by nothing but chance: c was zero until then.
    assert (
        scaffold.records[1].downlink_bytes
        == without.records[1].downlink_bytes + 3 * 4 * numbers
    )


# What is kept for a client


def test_what_is_kept_of_a_client_waits_for_its_return(monkeypatch):
    """c_i as a client leaves is c_i as it enters again, however many windows it was away."""
    left: dict[int, torch.Tensor] = {}
    returned = 0
    save, load = ClientStore.save, ClientStore.load

    def watched_save(self, client, rows):
        left[client] = rows[CONTROL].clone()
        save(self, client, rows)

    def watched_load(self, client, into):
        nonlocal returned
        load(self, client, into)
        if client in left:
            returned += 1
            assert torch.equal(into[CONTROL], left[client])
            assert bool(left[client].any())
        else:
            assert not into[CONTROL].any()

    monkeypatch.setattr(ClientStore, "save", watched_save)
    monkeypatch.setattr(ClientStore, "load", watched_load)
    run(local=fedlama.Scaffold(fedlama.SGD(0.05, 4)), iterations=72)
    assert returned > 3
    assert len(left) == CLIENTS


class Scripted(fedlama.Faults):
    """Client 2 does not answer in the round to step 10."""

    def misses(self, stretch, client):
        return (
            "late"
            if client == 2
            and 10 in range(stretch.steps.start + 1, stretch.steps.stop + 1)
            else None
        )


def test_who_is_excluded_has_again_what_was_kept_before_the_window(monkeypatch):
    saved: list[tuple[int, torch.Tensor]] = []
    save = ClientStore.save

    def watched(self, client, rows):
        saved.append((client, rows[CONTROL].clone()))
        save(self, client, rows)

    monkeypatch.setattr(ClientStore, "save", watched)
    everyone = fedlama.simulate(
        network,
        samples(),
        policy=fedlama.FedLAMA(2, 3),
        local=fedlama.Scaffold(fedlama.SGD(0.05, 4)),
        participation=CLIENTS,
        window=6,
        iterations=12,
        seed=5,
        faults=Scripted(),
        execution="one-by-one",
    )
    assert [
        entry["client"] for record in everyone.records for entry in record.excluded
    ] == [2]
    first = dict(saved[:CLIENTS])
    second = dict(saved[CLIENTS:])
    assert torch.equal(first[2], second[2])
    assert bool(first[2].any())
    assert not torch.equal(first[1], second[1])


# Everything at once, in several processes and in pieces

COMBINATIONS = {
    "recommended": {
        "server": fedlama.server.Momentum(0.5),
        "uplink": Rotate(1.6),
        "downlink": Rotate(2.0),
        "evaluate": "ema",
    },
    "controls kept while away": {
        "local": fedlama.Scaffold(fedlama.SGD(0.05, 4)),
        "server": fedlama.server.Momentum(0.5, nesterov=True),
        "uplink": ErrorFeedback(TopK(0.2), lifetime="run"),
        "faults": fedlama.Faults(straggle=0.15, fail_before=0.1, min_clients=1),
    },
    "low rank from the last change": {
        "local": fedlama.FedDyn(fedlama.SGD(0.05, 4), 0.5),
        "uplink": ErrorFeedback(Chain(LowRank(2), Rotate(4.0)), lifetime="window"),
        "downlink": Cast("bfloat16"),
    },
    "unequal steps": {
        "local": fedlama.FedNova(fedlama.SGD(0.05, 4, momentum=0.5, steps=(1, 4))),
        "server": fedlama.server.Yogi(0.02),
        "uplink": ErrorFeedback(Rotate(0.64, allocation="water"), lifetime="window"),
        "faults": fedlama.Faults(
            straggle=0.15, corrupt=0.1, exclude_nonfinite=True, min_clients=1
        ),
    },
    "spring and adam": {
        "local": fedlama.FedProx(fedlama.SGD(0.05, 4), 0.1),
        "server": fedlama.server.Adam(0.02),
        "uplink": Quantize(4),
        "weights": "samples",
    },
}


@pytest.mark.parametrize("name", COMBINATIONS)
def test_combinations_survive_workers_and_kills(name):
    check_door(model=wide_network, **COMBINATIONS[name])


@pytest.mark.parametrize(
    ("codec", "other"),
    [
        (TopK(0.2), TopK(0.9)),
        (Chain(LowRank(2), Rotate(4.0)), Chain(LowRank(1), Rotate(4.0))),
        (Rotate(1.6), Rotate(0.8)),
        (Rotate(0.64), Rotate(0.64, allocation="water")),
    ],
    ids=str,
)
def test_the_network_of_these_runs_is_large_enough_for_their_codecs(codec, other):
    one = run(wide_network, uplink=codec, iterations=12)
    two = run(wide_network, uplink=other, iterations=12)
    assert not same_bits(one, two)


# Trainings that diverge


@pytest.mark.parametrize(
    "code",
    [{"uplink": Rotate(1.0)}, {"uplink": Quantize(4)}, {"downlink": Rotate(1.0)}],
    ids=str,
)
def test_a_change_that_no_message_can_hold_is_a_divergence(code):
    """Numbers of 10²¹ are finite, but their squares are not as float32."""
    with pytest.raises(DivergenceError, match=r"in round 1 .*lower local\.learn"):
        fedlama.simulate(
            fedlama.models.mlp,
            fedlama.data.digits(),
            policy=fedlama.FedAvg(1),
            local=fedlama.SGD(learning_rate=1e21, batch_size=8),
            partition=fedlama.IID(clients=4),
            participation=fedlama.Participation(window=4),
            iterations=4,
            **code,
        )
