"""Presets: the same as values and in a configuration, where what the file sets itself stands."""

import pytest

import fedlama
from fedlama.core import policy_within
from fedlama.rows import describe
from fedlama.run.config import parse_config
from fedlama.run.labels import run_label
from fedlama.run.overrides import apply_overrides
from fedlama.run.resolve import resolve

SMALLEST = {"data": {"name": "digits"}, "train": {"iterations": 8}}


def built(**tables):
    config = parse_config({**SMALLEST, **tables})
    return {
        "policy": config.policy.build(),
        "server": config.server.build(),
        "uplink": config.uplink.build(),
        "downlink": config.downlink.build(),
    }


def test_a_preset_is_the_same_as_values_and_in_a_configuration():
    assert built(preset="frugal") == fedlama.presets.frugal()
    assert built(preset="frugal", share=0.05) == fedlama.presets.frugal(share=0.05)
    twelve = built(preset="frugal", policy={"base_interval": 12})
    assert twelve == fedlama.presets.frugal(base_interval=12)
    assert (
        parse_config(
            apply_overrides(SMALLEST, ["preset=frugal", "share=0.02"])
        ).uplink.build()
        == (fedlama.presets.frugal(share=0.02)["uplink"])
    )


def test_what_the_file_sets_itself_stands():
    given = built(
        preset="frugal",
        uplink={"codec": "quantize", "bits": 8},
        policy={"kind": "fedlama"},
    )
    assert given["uplink"] == fedlama.compress.Quantize(8)
    assert given["policy"] == fedlama.FedLAMA(6, 4)
    assert built(preset="frugal", uplink={"share": 0.5 * 0.01})[
        "uplink"
    ] == fedlama.compress.Fit(0.005)
    assert built(preset="frugal", server={"rule": "momentum", "beta": 0.5})[
        "server"
    ] == fedlama.server.Momentum(0.5)


def test_none_takes_a_preset_and_its_options_out_again():
    file = {**SMALLEST, "preset": "frugal", "share": 0.05, "averaged": 0.5}
    without = parse_config(apply_overrides(file, ["preset=none", "policy.kind=fedavg"]))
    assert without == parse_config({**SMALLEST, "policy": {"kind": "fedavg"}})


def test_a_resolved_configuration_has_no_preset_left():
    assert "preset" not in parse_config({**SMALLEST, "preset": "frugal"}).model_dump()


@pytest.mark.parametrize(
    ("tables", "sentence"),
    [
        (
            {"preset": "thrifty"},
            "my.toml: preset = 'thrifty': must be one of frugal, none",
        ),
        ({"preset": 3}, "my.toml: preset = 3: must be one of frugal, none"),
        ({"share": 0.01}, "my.toml: share means nothing without a preset"),
        (
            {"preset": "frugal", "share": 0.9},
            "my.toml: share must be at least 0.00125 and at most 0.25, not 0.9",
        ),
        ({"averaged": 0.5}, "my.toml: averaged means nothing without a preset"),
        (
            {"preset": "frugal", "averaged": 0.2},
            "my.toml: averaged must be at least 0.25 and at most 1, not 0.2",
        ),
        (
            {"preset": "frugal", "share": 0.2, "averaged": 0.5},
            "my.toml: averaged = 0.5 gives a message 2 times the bits, 40 % of float32's for share = 0.2; at most 25 % "
            "is possible: lower share or raise averaged",
        ),
        # Without the preset's policy it would send 0.5 %, not the 0.2 that were asked for
        (
            {"preset": "frugal", "share": 0.002, "policy": {"kind": "fedavg"}},
            "my.toml: share = 0.002 is for the preset's own [policy], and policy.kind chooses another",
        ),
        (
            {"preset": "frugal", "averaged": 0.5, "policy": {"kind": "fedavg"}},
            "my.toml: averaged = 0.5 is for the preset's own [policy], and policy.kind chooses another",
        ),
        (
            {"preset": "frugal", "share": 0.02, "uplink": {"codec": "none"}},
            "my.toml: share = 0.02 is for the preset's own [uplink], and uplink.codec chooses another",
        ),
        # The message's own share stands, so that the one at the top would be without effect
        (
            {"preset": "frugal", "share": 0.01, "uplink": {"share": 0.02}},
            "my.toml: share = 0.01 is for the preset's own [uplink], and uplink.share chooses another: leave out",
        ),
        (
            {"preset": "frugal", "averaged": 0.5, "uplink": {"share": 0.02}},
            "my.toml: averaged = 0.5 is for the preset's own [uplink], and uplink.share chooses another",
        ),
        (
            {"preset": "frugal", "share": 0.01, "uplink": {"averaged": 0.5}},
            "my.toml: share = 0.01 is for the preset's own [uplink], and uplink.averaged chooses another",
        ),
        (
            {"preset": "frugal", "share": 0.01, "policy": {"share": 0.5}},
            "my.toml: share = 0.01 is for the preset's own [policy], and policy.share chooses another",
        ),
        (
            {"preset": "frugal", "averaged": 0.5, "policy": {"share": 0.5}},
            "my.toml: averaged = 0.5 is for the preset's own [policy], and policy.share chooses another",
        ),
        # Blamed is the option that needs the preset's policy
        (
            {
                "preset": "frugal",
                "share": 0.01,
                "averaged": 0.5,
                "policy": {"kind": "fedavg"},
            },
            "my.toml: averaged = 0.5 is for the preset's own [policy], and policy.kind chooses another",
        ),
        (
            {
                "preset": "frugal",
                "averaged": 1,
                "share": 0.002,
                "policy": {"kind": "fedavg"},
            },
            "my.toml: share = 0.002 is for the preset's own [policy], and policy.kind chooses another",
        ),
        # Some layers are averaged less often: it would be the share of a message, and of FedAvg's uplink less
        (
            {"preset": "frugal", "share": 0.01, "policy": {"kind": "fedlama"}},
            "my.toml: share = 0.01 is for the preset's own [policy] or fedavg, and with policy.kind = 'fedlama' "
            "another share would be sent: leave out one of the two (the share of a message is uplink.share)",
        ),
        (
            {"preset": "frugal", "averaged": 1, "policy": {"kind": "fedlama"}},
            "my.toml: averaged = 1 is for the preset's own [policy] or fedavg, and with policy.kind = 'fedlama'",
        ),
        # Without effect beside none, and a mistake all the same
        (
            {"preset": "none", "share": 0.5},
            "my.toml: share must be at least 0.00125 and at most 0.25, not 0.5",
        ),
        (
            {"preset": "none", "averaged": "half"},
            "my.toml: averaged must be at least 0.25 and at most 1, not 'half'",
        ),
        (
            {"preset": "frugal", "policy": {"share": 0.01}},
            "my.toml: policy.share = 0.01 must be at least base_interval / cycle = 0.25: it is the share of the layers "
            "that are averaged. The preset's share of FedAvg's uplink belongs at the top of the file",
        ),
        (
            {"preset": "frugal", "policy": {"share": 0.1, "cycle": 48}},
            "my.toml: policy.share = 0.1 must be at least base_interval / cycle = 0.125",
        ),
        # Keys that hold no number are left to the table that they are in
        (
            {"preset": "frugal", "policy": {"share": "0.01"}},
            "my.toml: policy.share = '0.01': must be a number",
        ),
        (
            {"preset": "frugal", "policy": {"share": 0.01, "cycle": 0}},
            "my.toml: policy.cycle = 0: must be at least 1",
        ),
        (
            {"preset": "frugal", "share": 0.2, "averaged": 0.3},
            "my.toml: averaged = 0.3 gives a message 3.333 times the bits, 66.67 % of float32's for share = 0.2",
        ),
        (
            {"preset": "frugal", "share": "all"},
            "my.toml: share must be at least 0.00125 and at most 0.25, not 'all'",
        ),
        (
            {"preset": "frugal", "share": "1%"},
            "my.toml: share must be at least 0.00125 and at most 0.25, not '1%'; 0.01 is one per cent",
        ),
        (
            {"preset": "frugal", "share": 1},
            "my.toml: share must be at least 0.00125 and at most 0.25, not 1; 0.01 is one per cent",
        ),
        # Written below [data], where a reader may think that it is at the top
        (
            {"data": {"name": "digits", "preset": "frugal"}},
            "my.toml: unknown key 'data.preset': preset belongs at the top of the file, before the first table",
        ),
        (
            {"data": {"name": "digits", "share": 0.1}},
            "my.toml: unknown key 'data.share': share belongs at the top of the file, before the first table",
        ),
        (
            {"policy": {"kind": "fedlama", "preset": "frugal"}},
            "my.toml: unknown key 'policy.preset': preset belongs at the top of the file, before the first table",
        ),
    ],
)
def test_a_preset_that_means_nothing_is_refused(tables, sentence):
    with pytest.raises(fedlama.InputError) as caught:
        parse_config({**SMALLEST, **tables}, "my.toml")
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize(
    ("misspelt", "key"),
    [("shares", "share"), ("averagd", "averaged"), ("prest", "preset")],
)
@pytest.mark.parametrize("preset", [{}, {"preset": "frugal"}])
def test_a_misspelt_key_of_the_preset_is_told_the_right_one(misspelt, key, preset):
    with pytest.raises(fedlama.InputError) as caught:
        parse_config({**SMALLEST, **preset, misspelt: 0.01}, "my.toml")
    said = str(caught.value)
    assert said.startswith(
        f"my.toml: unknown key {misspelt!r}; did you mean {key!r}? a config takes seed, "
    )
    assert said.endswith("preset, share, averaged")


def test_a_share_in_a_file_is_named_with_its_table():
    tables = {"policy": {"kind": "budget", "cycle": 24, "share": 0.1}}
    config = parse_config({**SMALLEST, **tables}, "my.toml")
    with pytest.raises(fedlama.InputError) as caught:
        config.policy.build()
    assert str(caught.value).startswith(
        "policy.share must be at least base_interval / cycle = 0.25, not 0.1"
    )


def test_below_half_a_per_cent_layers_are_sent_less_often():
    assert fedlama.presets.frugal()["uplink"] == fedlama.compress.Fit(0.01)
    assert fedlama.presets.frugal(share=0.1)["uplink"] == fedlama.compress.Fit(0.1)
    assert fedlama.presets.frugal(share=0.1)["policy"] == fedlama.Budget(6, 24, 1.0)
    # A message of a quarter of a per cent would be too coarse: half as often with half a per cent.
    half = fedlama.presets.frugal(share=0.0025)
    # What travels with every message, whichever layers are in it, is within the share
    assert half["uplink"] == fedlama.compress.Fit(0.005, averaged=0.5)
    assert half["policy"] == fedlama.Budget(6, 24, 0.5)


def test_a_deep_network_averages_half_and_codes_it_with_twice_the_bits():
    half = fedlama.presets.frugal(averaged=0.5)
    assert half["policy"] == fedlama.Budget(6, 24, 0.5)
    assert half["uplink"] == fedlama.compress.Fit(0.02, averaged=0.5)
    assert built(preset="frugal", averaged=0.5) == half
    # Half a per cent per message is the least: a quarter of a per cent is sent half as often, also then
    assert fedlama.presets.frugal(share=0.0025, averaged=0.8) == (
        fedlama.presets.frugal(share=0.0025)
    )


def test_a_policy_of_ones_own_goes_with_a_share_that_needs_no_intervals():
    given = built(preset="frugal", share=0.02, policy={"kind": "fedavg"})
    assert given["policy"] == fedlama.FedAvg(6)
    assert given["uplink"] == fedlama.compress.Fit(0.02)


def test_without_a_share_at_the_top_the_files_own_keys_stand():
    given = built(preset="frugal", policy={"kind": "fedlama"})
    assert given["policy"] == fedlama.FedLAMA(6, 4)
    assert given["uplink"] == fedlama.compress.Fit(0.01)
    given = built(preset="frugal", policy={"kind": "fedlama"}, uplink={"share": 0.02})
    assert given["uplink"] == fedlama.compress.Fit(0.02)
    assert built(preset="frugal", policy={"share": 0.25})["policy"] == (
        fedlama.Budget(6, 24, 0.25)
    )


def test_at_a_hundredth_every_layer_is_averaged_at_the_base_interval():
    arguments = {
        "local": fedlama.SGD(0.1, 16),
        "partition": fedlama.IID(4),
        "iterations": 48,
    }
    data = fedlama.data.digits()
    preset = fedlama.presets.frugal()
    ours = fedlama.simulate(fedlama.models.mlp, data, **preset, **arguments)
    theirs = fedlama.simulate(
        fedlama.models.mlp, data, policy=fedlama.FedAvg(6), window=24, **arguments
    )
    assert [record.due for record in ours.records] == [
        record.due for record in theirs.records
    ]
    assert ours.cost == theirs.cost == 1.0


def test_new_clients_in_every_round_as_with_fedavg():
    arguments = {
        "local": fedlama.SGD(0.1, 16),
        "partition": fedlama.IID(8),
        "participation": 2,
        "window": 6,
        "iterations": 24,
    }
    data = fedlama.data.digits()
    preset = fedlama.presets.frugal()
    ours = fedlama.simulate(fedlama.models.mlp, data, **preset, **arguments)
    fedavg = {**preset, "policy": fedlama.FedAvg(6)}
    theirs = fedlama.simulate(fedlama.models.mlp, data, **fedavg, **arguments)
    assert ours.loss == theirs.loss
    assert ours.uplink_bytes == theirs.uplink_bytes
    assert [record.step for record in ours.records] == [6, 12, 18, 24]
    # With the window that nobody asks for, the first two clients train all the time
    longer = {**arguments, "window": None}
    usual = fedlama.simulate(fedlama.models.mlp, data, **preset, **longer)
    assert usual.loss != ours.loss


def test_a_window_of_one_base_interval_in_a_configuration():
    tables = {**SMALLEST, "preset": "frugal", "participation": {"window": 6}}
    found = resolve(parse_config(tables))
    assert found.config.participation.window == 6
    # As it is recorded, and recognised again
    assert run_label(found.config) == "frugal"
    assert found.config.policy == parse_config({**SMALLEST, "preset": "frugal"}).policy


@pytest.mark.parametrize(
    ("options", "window", "sentence"),
    [
        ({}, 7, r"a cycle of FedAvg\(6\) is 6 steps"),
        # Layers are sent less often then
        ({"share": 0.0025}, 6, r"a cycle of Budget\(6, 24, 0.5\) is 24 steps"),
        ({"averaged": 0.5}, 6, r"a cycle of Budget\(6, 24, 0.5\) is 24 steps"),
    ],
)
def test_a_window_that_is_no_whole_number_of_cycles(options, window, sentence):
    policy = fedlama.presets.frugal(**options)["policy"]
    with pytest.raises(fedlama.InputError, match=rf"^window = {window} .*{sentence}"):
        fedlama.Participation(2, window=window).window_steps(policy)
    # In a file it is a key of a table
    file = {**SMALLEST, "preset": "frugal", **options}
    config = parse_config({**file, "participation": {"active": 2, "window": window}})
    in_file = rf"^participation\.window = {window} .*{sentence}"
    with pytest.raises(fedlama.InputError, match=in_file):
        resolve(config)


def test_where_the_window_has_whole_cycles_the_policy_stays_what_it_was():
    policy = fedlama.presets.frugal()["policy"]
    for window in (None, 24, 48):
        assert policy_within(policy, window) is policy
    assert policy_within(policy, 6) == policy_within(policy, 36) == fedlama.FedAvg(6)
    # Policies that say nothing of it decide themselves
    fedlama_policy = fedlama.FedLAMA(6, 4)
    assert policy_within(fedlama_policy, 24) is fedlama_policy


def test_a_program_with_a_preset_sends_about_its_share():
    result = fedlama.simulate(
        lambda: fedlama.models.mlp(10, 64, hidden=(256, 256)),
        fedlama.data.digits(),
        **fedlama.presets.frugal(share=0.02),
        local=fedlama.SGD(0.1, 16),
        partition=fedlama.IID(8),
        window=24,
        iterations=24,
    )
    assert (
        0.0196
        < result.uplink_bytes / (4 * 8 * 4 * sum(layer.size for layer in result.layers))
        <= 0.02
    )


def test_statistics_that_travel_in_every_round_are_within_the_share():
    result = fedlama.simulate(
        lambda: fedlama.models.resnet20(channels=1),
        fedlama.data.digits(),
        **fedlama.presets.frugal(base_interval=1, share=0.01, averaged=0.5),
        local=fedlama.SGD(0.1, 8),
        partition=fedlama.IID(4),
        iterations=5 * 4,
    )
    # The first cycle spends less: its intervals are chosen before anything is measured.
    before = next(record for record in result.records if record.step == 4)
    sent = result.uplink_bytes - before.uplink_bytes
    layout = describe(fedlama.models.resnet20(channels=1))
    parameters = sum(layer.size for layer in layout.layers)
    numbers = parameters + layout.statistics_size
    rounds_of_fedavg = 4 * 4
    share = sent / (rounds_of_fedavg * 4 * 4 * numbers)
    assert 0.009 < share <= 0.01


def test_where_everything_is_averaged_the_code_is_the_one_it_was():
    for share in (0.005, 0.01, 0.1):
        uplink = fedlama.presets.frugal(share=share)["uplink"]
        assert uplink.averaged is None
