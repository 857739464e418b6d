"""Messages: the same numbers and bytes in the simulator and on the wire, groups, slots and statistics."""

import pytest
import torch
from torch import nn

from fedlama import InputError, models
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
from fedlama.compress.elsewhere import simulate_on_cpu
from fedlama.core import Layout
from fedlama.core import TensorEntry as Entry
from fedlama.rows import Binding, Slot, describe

CODECS = [
    Cast("bfloat16"),
    Quantize(4, block=256),
    Rotate(0.32),
    Rotate(1.0, allocation="water"),
    TopK(0.05),
    LowRank(2),
    Chain(TopK(0.1), Rotate(2)),
    Chain(LowRank(1), Quantize(8)),
    ErrorFeedback(Rotate(0.32)),
    ErrorFeedback(Rotate(0.64, allocation="water"), lifetime="run"),
    ErrorFeedback(Rotate(0.64), profile=(1 / 6, 1 / 6, 1 / 6, 1 / 2), gain=True),
    ErrorFeedback(TopK(0.05)),
]


def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(1, 16, 3),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3),
            nn.BatchNorm2d(32),
            nn.Flatten(),
            nn.Linear(512, 10),
        )


MODULE = network()
LAYOUT = describe(MODULE)
ANCHOR = Binding(network(), LAYOUT).read()
ALL = range(len(LAYOUT.layers))


def difference(seed: int = 0, scale: float = 0.01) -> torch.Tensor:
    """A change of every number, with the padding between slices left at zero."""
    draws = scale * torch.randn(
        LAYOUT.width, generator=torch.Generator().manual_seed(seed)
    )
    row = torch.zeros(LAYOUT.width)
    for part in (*LAYOUT.tensor_slices, *LAYOUT.statistics):
        row[part] = draws[part]
    return row


def slots(channel: Channel) -> dict[str, torch.Tensor]:
    return {slot.name: torch.zeros(LAYOUT.width) for slot in channel.slots}


@pytest.mark.parametrize("codec", CODECS, ids=repr)
@pytest.mark.parametrize("due", [tuple(ALL), (0, 4), (1, 2, 3), (8,), (4,)], ids=str)
def test_the_simulator_and_the_wire_agree(codec, due):
    """Over a window: the same decoded bits, the same residuals, bytes within 8 of each other."""
    channel = Channel(codec, LAYOUT, seed=3)
    simulated, packed = slots(channel), slots(channel)
    for number in range(4):
        row = difference(number)
        place = MessagePlace(7 + number, 5, number, 4)
        message = channel.simulate(row, due, place, anchor=ANCHOR, own=simulated)
        content = channel.pack(row, due, place, anchor=ANCHOR, own=packed)
        received = channel.unpack(content, due, place, anchor=ANCHOR)
        assert torch.equal(message.row, received.row)
        assert message.exact_sq == received.exact_sq
        assert message.decoded_sq == received.decoded_sq
        assert message.kept == received.kept
        assert message.to_bytes() == content
        assert abs(message.estimated_nbytes - len(content)) <= 8
        assert message.charged.total == message.estimated_nbytes
        assert received.charged.total == len(content) == message.nbytes
        assert all(torch.equal(simulated[name], packed[name]) for name in simulated)
        assert list(message.charged.layers) == sorted(due)
        assert all(charged >= 4 for charged in received.charged.layers.values())


@pytest.mark.parametrize("codec", CODECS, ids=repr)
def test_only_due_slices_and_statistics_are_touched(codec):
    channel = Channel(codec, LAYOUT, seed=3)
    own = {name: torch.full_like(row, 0.001) for name, row in slots(channel).items()}
    row = difference()
    before = row.clone()
    message = channel.simulate(row, [4], MessagePlace(0, 0), anchor=ANCHOR, own=own)
    assert torch.equal(row, before)
    touched = torch.zeros(LAYOUT.width, dtype=torch.bool)
    for part in (*LAYOUT.layers[4].slices, *LAYOUT.statistics):
        touched[part] = True
    assert not message.row[~touched].any()
    assert message.row[touched].any()
    for values in own.values():
        assert bool((values[~touched] == 0.001).all())
        assert bool((values[touched] != 0.001).any())


@pytest.mark.parametrize("codec", CODECS, ids=repr)
def test_decoding_in_place(codec):
    channel = Channel(codec, LAYOUT, seed=3)
    row = difference()
    expected = channel.simulate(
        row, ALL, MessagePlace(0, 0), anchor=ANCHOR, own=slots(channel)
    )
    message = channel.simulate(
        row, ALL, MessagePlace(0, 0), anchor=ANCHOR, own=slots(channel), out=row
    )
    assert message.row is row
    assert torch.equal(row, expected.row)
    assert message.exact_sq == expected.exact_sq


def test_groups_of_a_message():
    """Two kernels have 1,024 numbers or more; all else, the first kernel of 144 too, shares a group."""
    channel = Channel(Rotate(1), LAYOUT, seed=0)
    groups = channel._groups(tuple(ALL))
    assert [group.number for group in groups] == [4, 8, -1, -2]
    assert [group.shape for group in groups] == [
        (32, 144),
        (10, 512),
        (144 + 16 + 32 + 32 + 64 + 10,),
        (96,),
    ]
    assert groups[2].sizes == {0: 144, 1: 16, 2: 16, 3: 16, 5: 32, 6: 32, 7: 32, 9: 10}
    assert [group.number for group in channel._groups((4,))] == [4, -2]
    assert channel._groups(()) == ()


def test_bytes_of_a_message_by_hand():
    """bfloat16: format 1, a norm of 4 per layer, two bytes per number, checksum 4."""
    channel = Channel(Cast("bfloat16"), LAYOUT, seed=0)
    message = channel.simulate(difference(), [0, 1], MessagePlace(0, 0), anchor=ANCHOR)
    assert (
        message.nbytes
        == message.estimated_nbytes
        == 1 + 2 * 4 + 2 * (144 + 16) + 2 * 96 + 4
    )
    assert message.charged.statistics == 192
    # The last one has what belongs to none
    assert message.charged.layers == {0: 4 + 288, 1: 4 + 32 + 5}


def test_the_exact_norms_travel():
    channel = Channel(Rotate(0.5), LAYOUT, seed=0)
    row = difference()
    message = channel.simulate(row, ALL, MessagePlace(0, 0), anchor=ANCHOR)
    for index, layer in enumerate(LAYOUT.layers):
        exact = sum(float(row[part].double().square().sum()) for part in layer.slices)
        decoded = sum(
            float(message.row[part].double().square().sum()) for part in layer.slices
        )
        assert message.exact_sq[index] == pytest.approx(exact, rel=1e-6)
        assert message.decoded_sq[index] == pytest.approx(decoded, rel=1e-6)


@pytest.mark.parametrize("codec", CODECS, ids=repr)
def test_variances_stay_positive_and_close(codec):
    """Running statistics that change a lot: means by many units, variances by factors between 1/50 and 50."""
    channel = Channel(codec, LAYOUT, seed=1)
    generator = torch.Generator().manual_seed(2)
    anchor = ANCHOR.clone()
    row = difference()
    for number, part in enumerate(LAYOUT.statistics):
        draws = torch.randn(part.stop - part.start, generator=generator)
        if LAYOUT.roles[number] == "variance":
            anchor[part] = draws.exp()
            row[part] = anchor[part] * (2.0 * draws.flip(0)).exp() - anchor[part]
        else:
            row[part] = 3 * draws
    message = channel.simulate(
        row, ALL, MessagePlace(0, 0), anchor=anchor, own=slots(channel)
    )
    for role, part in zip(LAYOUT.roles, LAYOUT.statistics, strict=True):
        if role == "variance":
            decoded = anchor[part] + message.row[part]
            assert bool((decoded > 0).all())


def test_statistics_by_hand():
    """Anchor: mean 1, variance 4. A mean of 2 is half a standard deviation up; a variance of 8 is log 2."""
    layout = Layout.pack(
        [Entry("w", 2)],
        [Entry("m", 1, role="mean"), Entry("v", 1, role="variance"), Entry("x", 1)],
    )
    channel = Channel(Cast("float32"), layout, seed=0)
    anchor, row = torch.zeros(layout.width), torch.zeros(layout.width)
    for part, base, change in zip(
        layout.statistics, (1.0, 4.0, 9.0), (1.0, 4.0, 0.25), strict=True
    ):
        anchor[part], row[part] = base, change
    codable = channel._statistics.to_codable(row, anchor)
    assert codable.tolist() == pytest.approx([0.5, 0.6931472, 0.25])
    assert channel._statistics.from_codable(codable, anchor).tolist() == pytest.approx(
        [1.0, 4.0, 0.25]
    )
    # A variance that a code would make negative or infinite stops at its limits.
    extreme = channel._statistics.from_codable(torch.tensor([0.0, -1e9, 0.0]), anchor)
    assert float(4 + extreme[1]) == pytest.approx(1e-5, rel=0.1)
    with pytest.raises(InputError, match="beside their anchor"):
        channel.simulate(row, [0], MessagePlace(0, 0))


def test_norms_without_statistics_need_no_anchor():
    layout = describe(nn.Linear(64, 32))
    message = Channel(Rotate(1), layout, seed=0).simulate(
        torch.ones(layout.width), [0, 1], MessagePlace(0, 0)
    )
    assert message.charged.statistics == 0


FORGO = "code without error feedback"


def test_slots_are_named_after_the_direction():
    feedback = ErrorFeedback(Rotate(1), "run")
    assert Channel(feedback, LAYOUT, seed=0).slots == (
        Slot("uplink residual", "run", FORGO),
    )
    assert Channel(feedback, LAYOUT, seed=0, direction="downlink").slots == (
        Slot("downlink residual", "run", FORGO),
    )
    assert Channel(Rotate(1), LAYOUT, seed=0).slots == ()
    with pytest.raises(InputError, match="the slot 'uplink residual' is missing"):
        Channel(feedback, LAYOUT, seed=0).simulate(
            difference(), ALL, MessagePlace(0, 0), anchor=ANCHOR, own={}
        )


def test_draws_depend_on_the_place_alone():
    row = difference()

    def decoded(seed=0, direction="uplink", round=0, client=0):
        channel = Channel(Rotate(1), LAYOUT, seed=seed, direction=direction)
        return channel.simulate(
            row, ALL, MessagePlace(round, client), anchor=ANCHOR
        ).row

    assert torch.equal(decoded(), decoded())
    for other in ({"seed": 1}, {"direction": "downlink"}, {"round": 1}, {"client": 1}):
        assert not torch.equal(decoded(), decoded(**other))


def test_water_gives_layers_that_moved_further_more_bits():
    row = difference()
    row[LAYOUT.tensor_slices[4]] *= 10
    uniform = Channel(Rotate(1.0), LAYOUT, seed=0).simulate(
        row, ALL, MessagePlace(0, 0), anchor=ANCHOR
    )
    water = Channel(Rotate(1.0, allocation="water"), LAYOUT, seed=0).simulate(
        row, ALL, MessagePlace(0, 0), anchor=ANCHOR
    )
    assert water.estimated_nbytes == pytest.approx(uniform.estimated_nbytes, rel=0.05)
    assert water.charged.layers[4] > 1.5 * uniform.charged.layers[4]
    assert water.charged.layers[8] < 0.5 * uniform.charged.layers[8]
    errors = [
        float((message.row - row)[: LAYOUT.parameter_width].square().sum())
        for message in (uniform, water)
    ]
    assert errors[1] < errors[0]


def test_resnet20_meets_its_budgets():
    """Shares of FedAvg's 1,097,448 bytes: the kernels' bits, and about 0.15 % for norms, scales and the small."""
    module = models.resnet20()
    layout = describe(module)
    binding = Binding(module, layout)
    anchor = binding.read()
    row = 0.01 * torch.randn(layout.width, generator=torch.Generator().manual_seed(0))
    for bits, share in ((1.56, 0.0496), (0.6, 0.0202), (0.28, 0.0104)):
        message = Channel(Rotate(bits), layout, seed=0).simulate(
            row, range(len(layout.layers)), MessagePlace(0, 0), anchor=anchor
        )
        assert message.estimated_nbytes / 1_097_448 == pytest.approx(share, abs=0.0004)


def test_layers_that_are_modules():
    layout = describe(MODULE, layers="module")
    channel = Channel(Rotate(0.5), layout, seed=0)
    row = torch.randn(layout.width, generator=torch.Generator().manual_seed(1))
    due = range(len(layout.layers))
    content = channel.pack(row, due, MessagePlace(0, 0), anchor=ANCHOR)
    received = channel.unpack(content, due, MessagePlace(0, 0), anchor=ANCHOR)
    assert received.charged.total == len(content)
    assert list(received.exact_sq) == list(due)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: Channel(3, LAYOUT, seed=0),
            "uplink must be a codec of fedlama.compress, not 3",
        ),
        (
            lambda: Channel(Cast(), LAYOUT, seed=0, direction="up"),
            "direction must be one of uplink, downlink, not 'up'",
        ),
        (lambda: MessagePlace(-1, 0), "round must be at least 0, not -1"),
        (lambda: MessagePlace(0, 0, 4, 4), "round_in_window must be below 4, not 4"),
        (
            lambda: Channel(Cast(), LAYOUT, seed=0).simulate(
                difference(), [99], MessagePlace(0, 0)
            ),
            "there is no layer 99",
        ),
        (
            lambda: Channel(Rotate(1), LAYOUT, seed=0).simulate(
                torch.full((LAYOUT.width,), float("nan")),
                ALL,
                MessagePlace(0, 0),
                anchor=ANCHOR,
            ),
            "not finite",
        ),
    ],
)
def test_bad_arguments(make, sentence):
    with pytest.raises(InputError, match=sentence):
        make()


@pytest.mark.parametrize("codec", CODECS[7:11], ids=repr)
def test_rows_of_another_device_are_coded_on_the_cpu(codec):
    """The detour by hand, since a GPU is not everywhere: the same numbers, slots and bytes; other slices stay."""
    channel = Channel(codec, LAYOUT, seed=3)
    plain, moved = slots(channel), slots(channel)
    expected = channel.simulate(
        difference(), [4, 5], MessagePlace(0, 0), anchor=ANCHOR, own=plain
    )
    out = torch.full((LAYOUT.width,), 7.0)
    message = simulate_on_cpu(
        channel,
        difference(),
        [4, 5],
        MessagePlace(0, 0),
        anchor=ANCHOR,
        own=moved,
        warm=None,
        out=out,
    )
    touched = expected.row != 0
    assert message.row is out
    assert torch.equal(out[touched], expected.row[touched])
    assert bool((out[LAYOUT.tensor_slices[0]] == 7).all())
    assert message.to_bytes() == expected.to_bytes()
    assert all(torch.equal(plain[name], moved[name]) for name in plain)


def test_very_many_small_tensors_go_into_one_message():
    """Fifty LayerNorms of 768 have 76,800 small numbers together: more than a large tensor has at least."""
    module = nn.Sequential(*(nn.LayerNorm(768) for _ in range(50)))
    layout = describe(module)
    channel = Channel(Rotate(1.0), layout, seed=0)
    generator = torch.Generator().manual_seed(1)
    row = torch.zeros(layout.width)
    for part in layout.slices_of(range(len(layout.layers))):
        row[part] = torch.randn(part.stop - part.start, generator=generator)
    due = list(range(len(layout.layers)))
    message = channel.simulate(row, due, MessagePlace(round=1, client=0))
    for number, layer in enumerate(layout.layers):
        numbers = torch.cat([row[part] for part in layer.slices]).double()
        expected = float(numbers.square().sum())
        assert message.exact_sq[number] == pytest.approx(expected, rel=1e-6)
