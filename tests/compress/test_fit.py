"""Fit: the rate follows from the model, and messages have the share that was asked for."""

import pytest
import torch
from torch import nn

from compress.vectors import gaussian
from fedlama import InputError, models
from fedlama.compress import Channel, ErrorFeedback, Fit, MessagePlace, Rotate
from fedlama.compress.normal import mean_symbol
from fedlama.rows import Binding, describe


def test_the_rate_by_hand():
    layout = describe(nn.Linear(100, 64))
    # 0.99 · 0.1 of 6,464 numbers of 32 bits: 20,477.952 bits. Frame, norms and scales take
    # 8 · (13 + 4 · 2 + 6 · 2) = 264 of them, the bias 64 · 2.5 = 160. The 6,400 numbers of the kernel share the rest.
    assert Fit(0.1).fitted(layout) == Rotate(3.1334, small_bits=2.5)


def test_small_tensors_have_a_tenth_of_the_message_at_most():
    layout = describe(models.small_cnn(classes=10))
    fitted = Fit(0.01).fitted(layout)
    # 144 + 640 weights and 16 + 32 + 64 + 10 biases are 906 numbers, padded to 960.
    assert fitted.small_bits == round(0.1 * 0.99 * 0.01 * 32 * 38_282 / 960, 4)
    assert Fit(0.2).fitted(layout).small_bits == 2.5


@pytest.mark.parametrize("share", [0.005, 0.01, 0.05])
@pytest.mark.parametrize(
    "model",
    [models.small_cnn, lambda: models.mlp(62, 784), models.resnet20],
    ids=["small_cnn", "mlp", "resnet20"],
)
def test_a_message_has_its_share(model, share):
    module = model()
    layout = describe(module)
    anchor = Binding(module, layout).read()
    channel = Channel(Fit(share), layout, seed=0)
    everything = range(len(layout.layers))
    total = 0
    # The length of one message is a matter of chance, by a per cent or so
    for client in range(8):
        change = gaussian(layout.width, seed=client)
        message = channel.simulate(
            change, everything, MessagePlace(round=1, client=client), anchor=anchor
        )
        total += message.estimated_nbytes
    numbers = sum(layer.size for layer in layout.layers)
    numbers += sum(part.stop - part.start for part in layout.statistics)
    assert 0.95 * share < total / (8 * 4 * numbers) <= share


def test_what_travels_with_every_message_by_hand():
    layout = describe(nn.Sequential(nn.Linear(100, 64), nn.BatchNorm1d(64)))
    # 0.99 · 0.08 of 6,720 numbers of 32 bits: 17,031.168 bits. Frame, norms and scales take
    # 8 · (13 + 4 · 4 + 6 · 3) = 376 of them; bias, γ and β 192 · 2.5 = 480, the statistics 128 · 2.5 = 320.
    assert Fit(0.08).fitted(layout) == Rotate(2.4774, small_bits=2.5)
    # Where half of the layers travel, frame and statistics (8 · (13 + 6) + 320 = 472 bits) count twice.
    fitted = Fit(0.08, averaged=0.5).fitted(layout)
    assert fitted == Rotate(2.4036, small_bits=2.5)
    assert Fit(0.08, averaged=1).fitted(layout) == Fit(0.08).fitted(layout)


@pytest.mark.parametrize("averaged", [0.25, 0.5, 0.8])
def test_statistics_of_every_message_are_within_the_share(averaged):
    module = models.resnet20()
    layout = describe(module)
    anchor = Binding(module, layout).read()
    codec = Fit(0.01 / averaged, averaged=averaged)
    channel = Channel(codec, layout, seed=0)
    layers = 0
    statistics = 0
    for client in range(8):
        change = gaussian(layout.width, seed=client)
        message = channel.simulate(
            change,
            range(len(layout.layers)),
            MessagePlace(round=1, client=client),
            anchor=anchor,
        )
        statistics += message.charged.statistics
        layers += message.charged.total - message.charged.statistics
    numbers = sum(layer.size for layer in layout.layers) + layout.statistics_size
    # A policy chooses layers; the statistics travel in every round.
    sent = averaged * layers + statistics
    assert 0.0098 < sent / (8 * 4 * numbers) <= 0.01


@pytest.mark.parametrize("averaged", [0, 1.1, "half"])
def test_a_part_that_there_is_not_is_refused(averaged):
    with pytest.raises(InputError, match=r"^averaged must be"):
        Fit(0.01, averaged=averaged)


def test_a_tiny_network_takes_more_than_its_share_at_the_lowest_rate():
    # 86 numbers, padded to 128. With fewer than 8 codes a step is halved by chance; 16 of them are safe from that.
    assert 128 * mean_symbol(0.67) >= 16 > 128 * mean_symbol(0.66)
    assert Fit(0.001).fitted(describe(models.mlp(10, 8, hidden=(4,)))) == Rotate(
        0.1, small_bits=0.67
    )


def test_feedback_goes_around_what_was_fitted():
    layout = describe(models.mlp(62, 784))
    channel = Channel(ErrorFeedback(Fit(0.01)), layout, seed=0)
    assert channel.codec == ErrorFeedback(Fit(0.01).fitted(layout))


def test_alone_it_is_rotate_at_the_share_of_32_bits():
    x = gaussian(4096, seed=0)
    codec = Fit(0.02)
    assert torch.equal(
        codec.decode(codec.encode(x, key=3), key=3),
        Rotate(0.64).decode(Rotate(0.64).encode(x, key=3), key=3),
    )
    assert codec.decode(codec.encode(x, key=3).to_bytes(), key=3).shape == x.shape


@pytest.mark.parametrize("share", [0, 0.3, "all", True])
def test_a_share_that_there_is_not_is_refused(share):
    with pytest.raises(InputError, match=r"^share must be"):
        Fit(share)


SHARES = (0.00125, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.18, 0.25)


@pytest.mark.parametrize("averaged", [None, 0.5])
@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Flatten(), nn.Linear(64, 10)),
        nn.Linear(6, 4),
        nn.Sequential(nn.Linear(40, 20), nn.BatchNorm1d(20), nn.Linear(20, 10)),
        models.mlp(10, 8, hidden=(4,)),
    ],
    ids=["softmax", "tiny", "norm", "mlp"],
)
def test_without_kernels_more_budget_never_sends_less(module, averaged):
    layout = describe(module)
    anchor = Binding(module, layout).read()
    sent = []
    for share in SHARES:
        channel = Channel(Fit(share, averaged=averaged), layout, seed=0)
        total = 0
        for client in range(8):
            change = gaussian(layout.width, seed=client)
            message = channel.simulate(
                change,
                range(len(layout.layers)),
                MessagePlace(round=1, client=client),
                anchor=anchor,
            )
            total += message.estimated_nbytes
        sent.append(total)
    assert sent == sorted(sent)


def test_without_kernels_small_tensors_have_the_whole_message():
    # 0.99 · 0.2 of 650 numbers of 32 bits: 4,118.4 bits. Frame, norms and scales take 8 · (13 + 4 · 2 + 6) = 216 of
    # them; 650 numbers in blocks of 64 are 704.
    layout = describe(nn.Linear(64, 10))
    assert Fit(0.2).fitted(layout).small_bits == round((4118.4 - 216) / 704, 4)


def test_kernels_have_the_rates_that_they_had():
    rates = {
        0.00125: Rotate(0.1, small_bits=0.2149),
        0.01: Rotate(0.2783, small_bits=1.7191),
        0.1: Rotate(3.1683, small_bits=2.5),
    }
    for share, expected in rates.items():
        assert Fit(share).fitted(describe(models.resnet20())) == expected
    averaged = Fit(0.01, averaged=0.5).fitted(describe(models.resnet20()))
    assert averaged == Rotate(0.2675, small_bits=1.7191)
