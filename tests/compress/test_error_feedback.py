"""Error feedback: what is left out is sent later, and over a window held to the law of its noise."""

import pytest
import torch

import fedlama
from compress.vectors import gaussian
from compress.wrapped import Wrapped
from doors.harness import run, same_bits, wide_network
from fedlama.base import InputError
from fedlama.compress import (
    Cast,
    Channel,
    Codec,
    ErrorFeedback,
    MessagePlace,
    Quantize,
    Rotate,
    TopK,
)
from fedlama.compress.error_feedback import delivered, window_gain, window_noise
from fedlama.compress.normal import distortion
from fedlama.core import Layout
from fedlama.core import TensorEntry as Entry
from fedlama.rows import Slot

COUNT = 20 * 1024
LAYOUT = Layout.pack([Entry("kernel", COUNT)])


def test_a_residual_by_hand():
    """Keep one number of three: (1, 2, 3) sends 3; then (1, 0, 0) + (1, 2, 0) sends a 2, and so on."""
    codec = ErrorFeedback(TopK(0.34))
    own = {"residual": torch.zeros(3)}
    sent = []
    for x in ([1.0, 2.0, 3.0], [0.5, 0.0, 0.0], [0.0, 0.0, 0.0]):
        payload = codec.encode(torch.tensor(x), key=0, own=own)
        sent.append(codec.decode(payload, key=0).tolist())
    assert sent == [[0, 0, 3], [0, 2, 0], [1.5, 0, 0]]
    assert own["residual"].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    "codec", [Cast(), Quantize(3), Rotate(0.5), TopK(0.1)], ids=repr
)
def test_all_that_was_sent_and_the_residual_add_up(codec):
    feedback = ErrorFeedback(codec)
    own = {"residual": torch.zeros(40, 50)}
    total, sent = torch.zeros(40, 50), torch.zeros(40, 50)
    for key in range(6):
        x = gaussian(2000, seed=key).view(40, 50)
        total += x
        sent += feedback.decode(feedback.encode(x, key=key, own=own), key=key)
    assert torch.allclose(sent + own["residual"], total, atol=1e-6)


def test_without_slots_nothing_is_remembered():
    codec = ErrorFeedback(Rotate(1))
    x = gaussian(1000)
    assert codec.slots == (Slot("residual", "window", "code without error feedback"),)
    assert ErrorFeedback(Rotate(1), "run").slots == (
        Slot("residual", "run", "code without error feedback"),
    )
    first = codec.decode(codec.encode(x, key=1), key=1)
    assert torch.equal(first, codec.decode(codec.encode(x, key=1), key=1))
    least_squares = Rotate(1, scale="least_squares")
    assert torch.equal(
        first, least_squares.decode(least_squares.encode(x, key=1), key=1)
    )


def test_delivered_shares_and_gain_by_hand():
    """D = ½ in both rounds: of the first update 3/4 arrives, of the second 1/2; the gain is 2/(5/4) = 1.6."""
    assert delivered([0.5, 0.5]) == [0.75, 0.5]
    assert window_gain([0.5, 0.5]) == pytest.approx(1.6)
    # ½·[(1.2 − 1)² + (3/16)·2.56 + (0.8 − 1)² + (1/4)·2.56] = ½·[0.04 + 0.48 + 0.04 + 0.64]
    assert window_noise([0.5, 0.5]) == pytest.approx(0.6)
    assert window_gain([0.0]) == 1.0
    assert window_gain([1.0, 1.0]) == 1.0


# Rates in the rounds of a window → noise per round and gain (None: not in the table)
TABLE = [
    ((0.32,) * 2, 1.79, None),
    ((0.32,) * 4, 0.98, 1.98),
    ((0.32,) * 8, 0.47, None),
    ((0.16, 0.16, 0.16, 0.80), 0.57, 1.56),
    ((0.64 / 3, 0.64 / 3, 0.64 / 3, 0.64), 0.68, 1.68),
    ((0.50,) * 4, 0.53, 1.53),
    ((0.64,) * 2, 0.69, None),
    ((0.64,) * 4, 0.36, 1.35),
    ((1.28 / 3, 1.28 / 3, 1.28 / 3, 1.28), 0.17, 1.17),
    ((1.00,) * 4, 0.15, 1.15),
    ((1.60,) * 4, 0.05, 1.05),
]


@pytest.mark.parametrize(("rates", "noise", "gain"), TABLE)
def test_the_law_of_a_window(rates, noise, gain):
    distortions = [distortion(rate) for rate in rates]
    assert window_noise(distortions) == pytest.approx(noise, rel=0.02, abs=0.0051)
    if gain is not None:
        assert window_gain(distortions) == pytest.approx(gain, abs=0.0051)


@pytest.mark.parametrize(("rates", "noise", "gain"), TABLE)
def test_a_window_in_simulation(rates, noise, gain):
    """Independent normal updates through the channel: the sum over the window against the sum of the updates."""
    rounds = len(rates)
    mean = sum(rates) / rounds
    codec = ErrorFeedback(
        Rotate(mean), profile=tuple(rate / sum(rates) for rate in rates), gain=True
    )
    channel = Channel(codec, LAYOUT, seed=rounds)
    measured = 0.0
    windows = 6
    for window in range(windows):
        own = {"uplink residual": torch.zeros(LAYOUT.width)}
        missing = torch.zeros(LAYOUT.width)
        for number in range(rounds):
            update = gaussian(COUNT, seed=100 * window + number)
            place = MessagePlace(rounds * window + number, 0, number, rounds)
            message = channel.simulate(update, [0], place, own=own)
            missing += update - message.row
        measured += float(missing.square().mean()) / 0.01**2 / rounds / windows
    assert measured == pytest.approx(noise, rel=0.05, abs=0.005)


TWO_LAYERS = Layout.pack([Entry("far", COUNT), Entry("near", COUNT)])


@pytest.mark.parametrize("profile", [None, (1 / 6, 1 / 6, 1 / 6, 1 / 2)], ids=str)
@pytest.mark.parametrize("further", [3.0, 10.0])
def test_a_window_of_water_filled_layers_arrives_whole(further, profile):
    """Whatever bits water gives a layer, its sum over a window is that of its updates, also where it hardly moved."""
    codec = ErrorFeedback(Rotate(0.64, allocation="water"), profile=profile)
    channel = Channel(codec, TWO_LAYERS, seed=4)
    rounds = 4
    far, near = TWO_LAYERS.tensor_slices
    arrived = torch.zeros(TWO_LAYERS.width)
    total = torch.zeros(TWO_LAYERS.width)
    own = {"uplink residual": torch.zeros(TWO_LAYERS.width)}
    for number in range(rounds):
        update = torch.zeros(TWO_LAYERS.width)
        update[far] = further * gaussian(COUNT, seed=number)
        update[near] = gaussian(COUNT, seed=100 + number)
        place = MessagePlace(number, 0, number, rounds)
        total += update
        arrived += channel.simulate(update, [0, 1], place, own=own).row
    for part in (far, near):
        delivered_share = float(
            arrived[part] @ total[part] / total[part].square().sum()
        )
        assert delivered_share == pytest.approx(1.0, abs=0.08)


def test_a_gain_is_the_default_where_it_is_known():
    """A layer that is sent once in a window arrives whole on average: the gain turns S_min into the unbiased scale."""
    assert ErrorFeedback(Rotate(0.3)).for_round(0, 4) == ErrorFeedback(
        Rotate(0.3), gain=True
    ).for_round(0, 4)
    for codec in (
        ErrorFeedback(Rotate(0.3), gain=False),
        ErrorFeedback(Rotate(0.3), "run"),
        ErrorFeedback(TopK(0.1)),
        ErrorFeedback(Quantize(2)),
    ):
        assert codec.for_round(0, 4) == (None, 1.0)
    update = gaussian(COUNT)
    own = {"uplink residual": torch.zeros(LAYOUT.width)}
    message = Channel(ErrorFeedback(Rotate(0.3)), LAYOUT, seed=1).simulate(
        update, [0], MessagePlace(0, 0), own=own
    )
    unbiased = Channel(Rotate(0.3), LAYOUT, seed=1).simulate(
        update, [0], MessagePlace(0, 0)
    )
    assert torch.allclose(message.row, unbiased.row, rtol=0.05)
    # The residual is what the code left out, without the gain.
    assert float(
        own["uplink residual"].square().sum() / update.square().sum()
    ) == pytest.approx(distortion(0.3), rel=0.05)


def test_the_error_of_the_nearest_level_is_not_known():
    """Rounded to the nearest of three levels, most numbers of a normal tensor are lost: no gain is known for that."""
    assert Quantize(2).kept() == 1.0
    feedback = ErrorFeedback(Quantize(2))
    payload = feedback.encode(gaussian(2000), key=1)
    assert feedback.kept() is None
    assert feedback.kept_of(payload.coded) is None
    with pytest.raises(InputError, match="a gain needs a codec whose error is known"):
        ErrorFeedback(Quantize(2), gain=True)


def test_a_flat_profile_is_no_profile():
    flat = ErrorFeedback(Rotate(0.5), profile=(0.25,) * 4)
    update = gaussian(COUNT)
    rows = []
    for codec in (flat, ErrorFeedback(Rotate(0.5))):
        own = {"uplink residual": torch.zeros(LAYOUT.width)}
        channel = Channel(codec, LAYOUT, seed=1)
        rows.append(
            [
                channel.simulate(update, [0], MessagePlace(k, 0, k, 4), own=own).row
                for k in range(4)
            ]
        )
    assert all(torch.equal(one, other) for one, other in zip(*rows, strict=True))


def test_a_round_with_nothing_to_send_keeps_everything():
    codec = ErrorFeedback(Rotate(0.5), profile=(0.0, 1.0))
    channel = Channel(codec, LAYOUT, seed=1)
    own = {"uplink residual": torch.zeros(LAYOUT.width)}
    update = gaussian(COUNT)
    message = channel.simulate(update, [0], MessagePlace(0, 0, 0, 2), own=own)
    assert not message.row.any()
    assert torch.equal(own["uplink residual"], update)
    assert message.nbytes == 1 + 4 + 2 + 4  # format, norm, "empty", checksum


def test_a_profile_of_another_length_is_refused():
    channel = Channel(ErrorFeedback(Rotate(0.5), profile=(0.5, 0.5)), LAYOUT, seed=1)
    own = {"uplink residual": torch.zeros(LAYOUT.width)}
    with pytest.raises(
        InputError, match="profile has 2 shares, but the window has 3 rounds"
    ):
        channel.simulate(gaussian(COUNT), [0], MessagePlace(0, 0, 0, 3), own=own)
    # A layer that is synchronised once in the window has nothing to share out.
    channel.simulate(
        gaussian(COUNT), [0], MessagePlace(0, 0, 0, 2, {0: (0, 1)}), own=own
    )


def test_rarer_synchronisations_get_the_shares_of_the_rounds_between():
    """1/6 + 1/6 of four rounds' bits in the first half, 1/6 + 1/2 in the second: by hand, at 0.6 bits a round."""
    codec = ErrorFeedback(Rotate(0.6), profile=(1 / 6, 1 / 6, 1 / 6, 1 / 2))
    assert [codec.for_round(turn, 4)[0] for turn in range(4)] == pytest.approx(
        [0.4, 0.4, 0.4, 1.2]
    )
    assert [codec.for_round(turn, 2)[0] for turn in range(2)] == pytest.approx(
        [0.4, 0.8]
    )
    assert codec.for_round(0, 1)[0] is None
    with pytest.raises(
        InputError, match="profile has 4 shares, but the window has 3 rounds"
    ):
        codec.for_round(0, 3)


@pytest.mark.parametrize(
    ("policy", "window", "shares"),
    [
        (fedlama.FedLAMA(2, 2), 8, 4),
        (fedlama.FedLAMA(2, 2), 8, 8),
        (fedlama.FedLAMA(4, 2, "accelerate"), 8, 4),
        (fedlama.Budget(2, 8, 0.7), 8, 4),
        (fedlama.Budget(1, 4, 0.6, staggered=True), 8, 8),
        (fedlama.Fixed(2, {"*weight": 4}), 8, 4),
    ],
    ids=str,
)
def test_a_profile_fits_layers_of_every_interval(policy, window, shares):
    profile = (1 / 2 / (shares - 1),) * (shares - 1) + (1 / 2,)
    uplink = ErrorFeedback(Rotate(0.6), profile=profile)
    result = run(policy=policy, window=window, iterations=24, uplink=uplink)
    rounds = {
        window // interval for record in result.records for interval in record.intervals
    }
    assert rounds - {1, shares}  # otherwise nothing was tried
    assert result.records[-1].step == 24


def test_a_profile_over_a_single_round_is_refused_before_training():
    """FedAvg's window has one round by default, over which there is nothing to share out."""
    halves = ErrorFeedback(Rotate(0.6), profile=(0.4, 0.6))
    records = []
    with pytest.raises(
        InputError, match="profile has 2 shares, but the window has 1 round: set window"
    ):
        run(
            window=None,
            policy=fedlama.FedAvg(4),
            uplink=halves,
            on_record=records.append,
        )
    assert not records
    whole = ErrorFeedback(Rotate(0.6), profile=(1.0,))
    run(window=None, policy=fedlama.FedAvg(4), iterations=8, uplink=whole)
    run(policy=fedlama.FedAvg(4), window=8, iterations=8, uplink=halves)


def test_a_profile_that_does_not_fit_is_refused_before_training():
    """As many rounds as the layers with the shortest interval have, which may come later in the run."""
    thirds = ErrorFeedback(Rotate(0.6), profile=(0.2, 0.3, 0.5))
    halves = ErrorFeedback(Rotate(0.6), profile=(0.4, 0.6))
    cases = [
        (fedlama.FedLAMA(2, 2), thirds, 4),
        (fedlama.FedLAMA(2, 2), halves, 4),
        (fedlama.Budget(2, 8, 0.5), thirds, 4),
        (fedlama.FedLAMA(4, 2, "accelerate"), halves, 4),
    ]
    for policy, uplink, rounds in cases:
        records = []
        shares = len(uplink.profile)
        with pytest.raises(
            InputError,
            match=f"profile has {shares} shares, but the window has {rounds} rounds",
        ):
            run(policy=policy, window=8, uplink=uplink, on_record=records.append)
        assert not records


def test_the_wrapped_codec_hands_on_every_question():
    """Otherwise what it is compared with below would be answered by a default."""
    of_all_codecs = {"encode", "decode", "code_all", "rebuild_all"}
    questions = {name for name in dir(Codec) if not name.startswith("_")}
    assert questions - of_all_codecs <= set(vars(Wrapped))


WATER = ErrorFeedback(Rotate(0.6, allocation="water"), profile=(1 / 4, 3 / 4))


def test_what_the_server_multiplies_by_does_not_depend_on_a_class():
    """Two layers that moved unlike, so that water gives them other bits than planned, and another gain for it."""
    update = gaussian(TWO_LAYERS.width)
    update[TWO_LAYERS.tensor_slices[0]] *= 10
    rows = []
    for codec in (WATER, Wrapped(WATER)):
        channel = Channel(codec, TWO_LAYERS, seed=4)
        place = MessagePlace(0, 0, 0, 2)
        own = {"uplink residual": torch.zeros(TWO_LAYERS.width)}
        message = channel.simulate(update, [0, 1], place, own=own)
        received = channel.unpack(message.to_bytes(), [0, 1], place)
        assert torch.equal(received.row, message.row)
        rows.append(message.row)
    assert torch.equal(*rows)


def test_a_run_does_not_depend_on_the_class_of_its_codec():
    """The spread of the clients rests on the same gains, and the intervals on the spread."""
    options = {"policy": fedlama.FedAvg(4), "window": 8, "iterations": 24}
    ours = run(wide_network, uplink=WATER, **options)
    theirs = run(wide_network, uplink=Wrapped(WATER), **options)
    assert same_bits(ours, theirs)


def test_a_codec_refuses_a_window_itself():
    halves = Wrapped(ErrorFeedback(Rotate(0.6), profile=(0.4, 0.6)))
    with pytest.raises(
        InputError, match="profile has 2 shares, but the window has 1 round: set window"
    ):
        run(window=None, policy=fedlama.FedAvg(4), uplink=halves)


def test_a_codec_without_a_gain_of_its_own_has_the_planned_one():
    class Doubled(Cast):
        def for_round(self, round_in_window, rounds_per_window):
            return None, 2.0

    assert Cast().gain_where(0.5, 0, 4) == 1.0
    assert Doubled().gain_where(0.5, 0, 4) == 2.0
