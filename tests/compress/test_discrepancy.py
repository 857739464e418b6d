"""The clients' spread from coded differences, against the spread of the rows themselves."""

import pytest
import torch

import fedlama
from fedlama.compress import (
    Channel,
    ErrorFeedback,
    MessagePlace,
    Quantize,
    Rotate,
    TopK,
    corrected_spread,
)
from fedlama.compress.discrepancy import coherent_spread, measured_echo
from fedlama.core import Layout
from fedlama.core import TensorEntry as Entry

CLIENTS = 8
# The last one is too small to be coded alone: another codec codes it, with another gain
SIZES = (36 * 1024, 9 * 1024, 16 * 1024, 640)
# Which share of its energy a layer's update has in common with the other clients'
AGREEMENT = (0.1, 0.5, 0.8, 0.5)
SCALES = (1.0, 3.0, 0.5, 1.0)
LAYOUT = Layout.pack(
    [Entry(f"layer{number}", size, adaptive=True) for number, size in enumerate(SIZES)]
)

EVERY_LAYER = range(len(SIZES))


def test_two_clients_by_hand():
    """Δ = (2, 0) and (0, 2), w = ½: mean (1, 1), spread 4 − 2 = 2. Decoded with errors (0, 1) and (0, −1)."""
    assert corrected_spread([0.5, 0.5], [4.0, 4.0], [4.0, 4.0], 2.0) == (2.0, 2.0)
    # Δ̂ = (2, 1), (0, 1): mean (1, 1). ‖mean‖² − ¼(5 + 1) + ¼(4 + 4) = 2.5
    assert corrected_spread([0.5, 0.5], [4.0, 4.0], [5.0, 1.0], 2.0) == (1.5, 2.5)
    # Half of everything is kept: Δ̂ = Δ/2 gives the same as Δ.
    assert corrected_spread([0.5, 0.5], [4.0, 4.0], [1.0, 1.0], 0.5, kept=0.5) == (
        2.0,
        2.0,
    )
    # Out of range is clipped: N is at least 0 and at most Σ w‖Δ‖².
    assert corrected_spread([0.5, 0.5], [4.0, 4.0], [40.0, 40.0], 0.0) == (4.0, 0.0)
    assert corrected_spread([0.5, 0.5], [4.0, 4.0], [0.0, 0.0], 99.0) == (0.0, 4.0)
    assert corrected_spread([0.5, 0.5], [4.0, 4.0], [0.0, 0.0], 0.0, kept=0.0) == (
        2.0,
        2.0,
    )


def test_echo_by_hand():
    """D = ½, second round, uncorrelated: energy 1 + ½, of which ¼ is error: the echo is 1 + D² = 1.25."""
    energy = 1.5
    assert measured_echo(0.5, [], sent=2.0, arrived=1.0) == pytest.approx(1.0)
    assert measured_echo(
        0.5, [0.5], sent=2.0, arrived=0.5 * energy * 2.0
    ) == pytest.approx(1.25)
    assert measured_echo(0.5, [0.5] * 60, sent=1.0, arrived=0.5 * 2.0) == pytest.approx(
        1 / (1 - 0.25)
    )
    assert measured_echo(0.0, [0.5], sent=1.0, arrived=0.0) == 1.0


def updates(generator, before=None, correlation=0.0):
    """One row per client, of layers that differ in size and in how far clients agree; correlated between rounds."""
    rows = torch.zeros(CLIENTS, LAYOUT.width)
    for part, agreement, scale in zip(
        LAYOUT.tensor_slices, AGREEMENT, SCALES, strict=True
    ):
        size = part.stop - part.start
        shared = torch.randn(size, generator=generator) * agreement**0.5
        own = torch.randn(CLIENTS, size, generator=generator) * (1 - agreement) ** 0.5
        rows[:, part] = scale * (shared + own)
    if before is None:
        return rows
    return correlation * before + (1 - correlation**2) ** 0.5 * rows


def measured_and_exact(codec, correlation=0.0, rounds=4, seed=0):
    """spread/exact for each round and layer."""
    generator = torch.Generator().manual_seed(seed)
    channel = Channel(codec, LAYOUT, seed=seed)
    weights = [(1 + client) / 36 for client in range(CLIENTS)]
    slots = [
        {slot.name: torch.zeros(LAYOUT.width) for slot in channel.slots}
        for _ in range(CLIENTS)
    ]
    rows, ratios = None, []
    for number in range(rounds):
        rows = updates(generator, rows, correlation)
        messages = []
        for client in range(CLIENTS):
            place = MessagePlace(number, client, number, rounds)
            messages.append(
                channel.simulate(rows[client], EVERY_LAYER, place, own=slots[client])
            )
        column = torch.tensor(weights)[:, None]
        decoded_mean = (
            column * torch.stack([message.row for message in messages])
        ).sum(0)
        mean = (column * rows).sum(0)
        mean_sq = {
            layer: float(decoded_mean[part].square().sum())
            for layer, part in enumerate(LAYOUT.tensor_slices)
        }
        measured = channel.spread(
            weights, messages, mean_sq, MessagePlace(number, 0, number, rounds)
        )
        for layer, part in enumerate(LAYOUT.tensor_slices):
            exact = float((column * (rows[:, part] - mean[part]).square()).sum())
            ratios.append(measured[layer] / exact)
    return torch.tensor(ratios).view(rounds, len(SIZES))


@pytest.mark.parametrize(
    "codec",
    [Rotate(0.32), Rotate(0.64, allocation="water"), Rotate(2), Quantize(3)],
    ids=repr,
)
def test_unbiased_codes_measure_the_spread_of_the_rows(codec):
    ratios = torch.stack(
        [measured_and_exact(codec, seed=seed) for seed in range(3)]
    ).mean((0, 1))
    assert ratios.tolist() == pytest.approx([1.0] * 4, abs=0.04)


@pytest.mark.parametrize(
    "codec",
    [
        ErrorFeedback(Rotate(0.32)),
        ErrorFeedback(Rotate(1.0), gain=True),
        ErrorFeedback(Rotate(0.64), profile=(1 / 6, 1 / 6, 1 / 6, 1 / 2), gain=True),
    ],
    ids=repr,
)
@pytest.mark.parametrize(
    ("correlation", "tolerances"),
    [(0.0, (0.02, 0.05, 0.1, 0.05)), (0.3, (0.02, 0.06, 0.2, 0.06))],
)
def test_under_error_feedback_the_spread_is_close(codec, correlation, tolerances):
    ratios = torch.stack(
        [measured_and_exact(codec, correlation, seed=seed) for seed in range(3)]
    ).mean((0, 1))
    for ratio, tolerance in zip(ratios.tolist(), tolerances, strict=True):
        assert ratio == pytest.approx(1.0, abs=tolerance)


@pytest.mark.parametrize(("bits", "ratio"), [(2, 3.2), (3, 1.7), (4, 1.1), (6, 1.0)])
def test_feedback_around_quantize_is_an_approximation(bits, ratio):
    """Where clients agree to 0.8, as docs/compression.md says of it: its errors pass for drift."""
    codec = ErrorFeedback(Quantize(bits))
    ratios = measured_and_exact(codec).mean(0)
    assert float(ratios[2]) == pytest.approx(ratio, abs=0.06)


def test_a_code_that_errs_alike_on_all_clients_is_measured_by_what_it_kept():
    assert coherent_spread([0.5, 0.5], [4.0, 4.0], [1.0, 1.0], 0.5) == 2.0
    assert coherent_spread([0.5, 0.5], [4.0, 4.0], [0.0, 0.0], 0.0) == 4.0
    ratios = measured_and_exact(TopK(0.05), rounds=1)[0]
    assert bool(((ratios > 0.9) & (ratios < 3)).all())


@pytest.mark.parametrize(
    "codec", [Rotate(0.32), Rotate(1.0), ErrorFeedback(Rotate(0.64))], ids=repr
)
def test_intervals_are_those_of_the_uncoded_run(codec):
    """Algorithm 2 decides on d_l = spread/(τ·n_l) alike on rows and on their codes."""
    generator = torch.Generator().manual_seed(5)
    ratios = measured_and_exact(codec, rounds=1, seed=5)[0]
    rows = updates(generator)
    column = torch.tensor([(1 + client) / 36 for client in range(CLIENTS)])[:, None]
    mean = (column * rows).sum(0)
    spreads = [
        float((column * (rows[:, part] - mean[part]).square()).sum())
        for part in LAYOUT.tensor_slices
    ]
    decisions = []
    for factors in ((1.0,) * len(SIZES), ratios.tolist()):
        discrepancy = [
            spread * factor / (6 * size)
            for spread, factor, size in zip(spreads, factors, SIZES, strict=True)
        ]
        decisions.append(
            fedlama.adjust_intervals(
                discrepancy, SIZES, base_interval=6, increase_factor=4
            )
        )
    assert decisions[0] == decisions[1]
