"""A strict config: every mistake is named with its key, its value, what is allowed and the nearest spelling."""

import datetime
import math
import re
import tomllib
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from fedlama import (
    IID,
    SGD,
    Dirichlet,
    Faults,
    FedAvg,
    FedLAMA,
    InputError,
    Natural,
    Participation,
)
from fedlama.base import MAX_SEED, MAX_WHOLE
from fedlama.cli.data import show
from fedlama.cli.main import app
from fedlama.run.choice_sections import ChoiceSection
from fedlama.run.choices import PARTITIONS
from fedlama.run.config import Config, load_config, parse_config
from fedlama.run.overrides import apply_overrides
from fedlama.run.sections import Section
from fedlama.run.tables import FaultsSection
from fedlama.run.toml import read_toml, to_toml

SMALLEST = {"data": {"name": "digits"}, "train": {"iterations": 8}}


def with_section(section: str, **keys) -> dict:
    return {**SMALLEST, section: {**SMALLEST.get(section, {}), **keys}}


def refusal(tables: dict) -> str:
    with pytest.raises(InputError) as caught:
        parse_config(tables, "my.toml")
    message = str(caught.value)
    assert len(message.splitlines()) <= 2
    assert all(line.startswith("my.toml: ") for line in message.splitlines())
    assert "pydantic" not in message
    return message


def sections() -> dict[str, type[Section]]:
    found = {
        name: (field.annotation, *get_args(field.annotation))
        for name, field in Config.model_fields.items()
    }
    return {
        name: kind.section_for({}) if issubclass(kind, ChoiceSection) else kind
        for name, kinds in found.items()
        for kind in kinds
        if isinstance(kind, type) and issubclass(kind, Section)
    }


# What is wrong, and what is said about it.


def test_an_unknown_key_at_the_top_is_named_with_the_nearest_one_and_all_that_are_allowed():
    message = refusal({**SMALLEST, "polcy": {"kind": "fedavg"}})
    assert "unknown key 'polcy'; did you mean 'policy'?" in message
    for name in Config.model_fields:
        assert name in message or name in ("hashes", "versions")


def test_an_unknown_key_in_a_section_is_named_with_its_section():
    message = refusal(with_section("policy", base_intervall=3))
    assert (
        "unknown key 'policy.base_intervall'; did you mean 'base_interval'?" in message
    )
    assert (
        "[policy] takes kind, base_interval, increase_factor, rule, warmup_rounds"
        in message
    )


def test_a_key_that_resembles_nothing_gets_no_suggestion():
    message = refusal(with_section("train", xyzzy=3))
    assert "unknown key 'train.xyzzy'" in message
    assert "did you mean" not in message
    assert "iterations" in message


@pytest.mark.parametrize(
    ("section", "key", "value", "allowed", "nearest"),
    [
        ("policy", "kind", "fedlma", "fedlama, fedavg", "fedlama"),
        (
            "policy",
            "rule",
            "Released",
            "crossing, released, printed, accelerate",
            "released",
        ),
        ("partition", "kind", "dirichle", "iid, dirichlet, natural", "dirichlet"),
        ("model", "layers", "tensors", "tensor, module", "tensor"),
        ("train", "weights", "sample", "uniform, samples", "samples"),
        ("local", "decayed", "kernel", "all, kernels", "kernels"),
        ("local", "kind", "SGD", "sgd", "sgd"),
        ("faults", "on_too_few", "repeats", "repeat, stop", "repeat"),
        ("partition", "kind", "IID", "iid, dirichlet, natural", "iid"),
    ],
)
def test_a_misspelt_choice_names_all_choices_and_the_nearest(
    section, key, value, allowed, nearest, request
):
    message = refusal(with_section(section, **{key: value}))
    assert f"{section}.{key} = {value!r}: must be one of {allowed}" in message
    assert f"did you mean {nearest!r}?" in message


def test_a_choice_of_another_type_is_refused_without_a_suggestion():
    message = refusal(with_section("policy", kind=3))
    assert (
        message
        == "my.toml: policy.kind = 3: must be one of fedlama, fedavg, budget, fedluar, fedpart, fixed"
    )


@pytest.mark.parametrize(
    ("section", "key", "value", "wanted"),
    [
        ("policy", "base_interval", "6", "a whole number"),
        ("policy", "base_interval", 6.0, "a whole number"),
        ("policy", "increase_factor", True, "a whole number"),
        ("train", "iterations", [8], "a whole number"),
        ("local", "learning_rate", "0.1", "a number"),
        ("local", "learning_rate", True, "a number"),
        ("local", "learning_rate", 10**400, "a number"),
        ("data", "name", 3, "a string in quotes"),
        ("model", "name", datetime.date(2026, 1, 2), "a string in quotes"),
        ("output", "tensorboard", "yes", "true or false"),
        ("output", "tensorboard", 1, "true or false"),
        ("local", "decay_steps", 100, "a list"),
        ("model", "adaptive", "conv1.weight", "a list"),
    ],
)
def test_a_wrong_type_says_which_is_wanted(section, key, value, wanted):
    message = refusal(with_section(section, **{key: value}))
    assert message.startswith(f"my.toml: {section}.{key} = ")
    assert message.endswith(f": must be {wanted}")


@pytest.mark.parametrize(
    ("section", "key", "value", "limit"),
    [
        ("policy", "base_interval", 0, "at least 1"),
        ("policy", "increase_factor", -4, "at least 1"),
        ("policy", "warmup_rounds", -1, "at least 0"),
        ("local", "batch_size", 0, "at least 1"),
        ("local", "learning_rate", 0.0, "above 0"),
        ("local", "learning_rate", -0.1, "above 0"),
        ("local", "momentum", 1.0, "below 1"),
        ("local", "momentum", -0.1, "at least 0"),
        ("local", "weight_decay", -1e-4, "at least 0"),
        ("local", "decay_factor", 1.5, "at most 1"),
        ("partition", "clients", 0, "at least 1"),
        ("partition", "alpha", 0, "above 0"),
        ("partition", "min_samples", 0, "at least 1"),
        ("participation", "window", 0, "at least 1"),
        ("train", "iterations", 0, "at least 1"),
        ("train", "evaluate_every", 0, "at least 1"),
    ],
)
def test_a_number_out_of_range_names_the_limit(section, key, value, limit):
    assert (
        refusal(with_section(section, **{key: value}))
        == f"my.toml: {section}.{key} = {value!r}: must be {limit}"
    )


def test_a_top_level_number_out_of_range():
    assert refusal({**SMALLEST, "seed": -1}) == "my.toml: seed = -1: must be at least 0"


@pytest.mark.parametrize(
    "value", [0, -3, 0.0, -0.5, 1.01, "half", True, [1], math.nan, math.inf]
)
def test_participation_takes_a_fraction_or_a_number_of_clients(value):
    message = refusal(with_section("participation", active=value))
    assert message.startswith(
        f"my.toml: participation.active = {value!r}: must be a fraction above 0.0"
    )
    assert "whole number of clients" in message


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("section", "key"),
    [("local", "learning_rate"), ("partition", "alpha"), ("local", "momentum")],
)
def test_numbers_must_be_finite(section, key, value):
    message = refusal(with_section(section, **{key: value}))
    assert message.startswith(f"my.toml: {section}.{key} = {value!r}: must be ")


@pytest.mark.parametrize(
    ("section", "key", "value", "entry", "wanted"),
    [
        ("local", "decay_steps", [100, 0], "0", "at least 1"),
        ("local", "decay_steps", [100, "200"], "'200'", "a whole number"),
        ("model", "adaptive", ["conv1.weight", 3], "3", "a string in quotes"),
    ],
)
def test_a_wrong_entry_of_a_list_is_named_with_its_place(
    section, key, value, entry, wanted
):
    message = refusal(with_section(section, **{key: value}))
    assert re.fullmatch(
        rf"my\.toml: {section}\.{key}(\.1|\[1\]) = {re.escape(entry)}: must be {wanted}",
        message,
    )


@pytest.mark.parametrize(
    "tables", [{"train": {"iterations": 8}}, {"data": {}, "train": {"iterations": 8}}]
)
def test_a_missing_data_name(tables):
    assert re.fullmatch(
        r"my\.toml: data(\.name)? is missing; it has no default", refusal(tables)
    )


def test_an_empty_config_names_both_keys_it_needs():
    assert refusal({}).splitlines() == [
        "my.toml: data.name is missing; it has no default",
        "my.toml: train.iterations is missing; it has no default",
    ]


@pytest.mark.parametrize("value", ["fedavg", 3, ["fedavg"], [{"kind": "fedavg"}]])
def test_a_section_that_is_not_a_table(value):
    assert (
        refusal({**SMALLEST, "policy": value})
        == f"my.toml: policy = {value!r}: must be a table"
    )


def test_a_value_where_a_table_was_not_expected():
    assert (
        refusal({**SMALLEST, "seed": {"x": 3}})
        == "my.toml: seed = {'x': 3}: must be a whole number"
    )


def test_many_mistakes_make_two_lines_and_a_count():
    message = refusal(
        {"data": {"name": 3, "nam": 1}, "train": {"iteration": 3}, "sed": 1}
    )
    assert len(message.splitlines()) == 2
    assert message.endswith("(and 3 more)")


def test_a_long_value_is_cut():
    message = refusal(with_section("policy", kind="fedavg" * 1000))
    assert len(message) < 300


@pytest.mark.parametrize("field", ["url", "versions"])
def test_versions_are_no_key_to_suggest(field):
    assert "versions" not in refusal({**SMALLEST, f"{field}x": 3}).replace(
        "versionsx", ""
    )


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.dates(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
known = st.sampled_from(
    sorted(
        {
            *Config.model_fields,
            *(key for kind in sections().values() for key in kind.model_fields),
        }
    )
)
anything = st.dictionaries(
    known | st.text(max_size=6),
    values | st.dictionaries(known, values, max_size=4),
    max_size=5,
)


@given(anything.filter(lambda tables: "versions" not in tables))
def test_whatever_the_tables_hold_the_answer_is_a_config_or_two_lines(tables):
    try:
        parse_config({**SMALLEST, **tables}, "my.toml")
    except InputError as error:
        lines = str(error).split("\n")
        assert 1 <= len(lines) <= 2
        assert all(line.startswith("my.toml: ") for line in lines)


# The file itself.


def file_refusal(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        load_config(path)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def test_a_missing_file(tmp_path):
    assert (
        file_refusal(tmp_path / "nope.toml")
        == f"{tmp_path / 'nope.toml'}: there is no such file"
    )


def test_a_folder_given_as_a_file(tmp_path):
    assert file_refusal(tmp_path) == f"{tmp_path}: cannot be read (Is a directory)"


def test_a_path_through_a_file():
    assert "/dev/null/my.toml" in file_refusal(Path("/dev/null/my.toml"))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"seed = ", "is not TOML (Invalid value (at"),
        (b"[data\nname = 1\n", "at line 1"),
        (b"seed = 1\nseed = 2\n", "is not TOML (Cannot overwrite a value"),
        (b'{"data": {"name": "digits"}}', "is not TOML"),
        (b"[data]\nname = 'digits'\n\xff\xfe", "byte 23 is not UTF-8"),
        ('[data]\nname = "digits"\n'.encode("utf-16"), "is not UTF-8"),
    ],
)
def test_a_file_that_is_not_toml(tmp_path, content, said):
    path = tmp_path / "my.toml"
    path.write_bytes(content)
    message = file_refusal(path)
    assert message.startswith(f"{path}: is not TOML")
    assert said in message


def test_a_byte_order_mark_is_no_mistake(tmp_path):
    path = tmp_path / "my.toml"
    path.write_text(
        '[data]\nname = "digits"\n[train]\niterations = 8\n', encoding="utf-8-sig"
    )
    assert load_config(path) == parse_config(SMALLEST)


@given(content=st.binary(max_size=40))
def test_no_bytes_make_a_traceback(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "bytes.toml"
    path.write_bytes(content)
    with pytest.raises(InputError):
        load_config(path)


def test_messages_about_a_file_start_with_its_path(tmp_path):
    path = tmp_path / "my.toml"
    path.write_text('[data]\nname = "digits"\n[train]\niterations = 0\n')
    assert file_refusal(path) == f"{path}: train.iterations = 0: must be at least 1"


# Overrides: --set key=value.


@pytest.mark.parametrize(
    ("override", "section", "key", "value"),
    [
        ("policy.base_interval=12", "policy", "base_interval", 12),
        ("local.learning_rate=1e-3", "local", "learning_rate", 1e-3),
        ("local.decay_steps=[100, 200]", "local", "decay_steps", [100, 200]),
        ("output.tensorboard=false", "output", "tensorboard", False),
        ("policy.kind=fedavg", "policy", "kind", "fedavg"),
        ('policy.kind="fedavg"', "policy", "kind", "fedavg"),
        ("policy.kind='fedavg'", "policy", "kind", "fedavg"),
        (" policy.kind = fedavg ", "policy", "kind", "fedavg"),
        ("data.name=/data/a=b.npz", "data", "name", "/data/a=b.npz"),
        ("data.name=C:\\data\\x.npz", "data", "name", "C:\\data\\x.npz"),
        ("model.adaptive=[]", "model", "adaptive", []),
        ("policy={kind = 'fedavg', base_interval = 3}", "policy", "base_interval", 3),
        ("participation.active=1.0", "participation", "active", 1.0),
        ("participation.active=1", "participation", "active", 1),
    ],
)
def test_an_override_sets_a_toml_value_or_a_plain_string(override, section, key, value):
    config = parse_config(apply_overrides(SMALLEST, [override]))
    found = getattr(getattr(config, section), key)
    assert found == value
    assert type(found) is type(value)


def test_overrides_of_the_top_level_and_in_order():
    assert parse_config(apply_overrides(SMALLEST, ["seed=3", "seed=4"])).seed == 4


def test_overrides_leave_the_other_keys_and_the_original_alone():
    original = {**SMALLEST, "policy": {"base_interval": 3}}
    changed = apply_overrides(original, ["policy.increase_factor=2"])
    assert changed["policy"] == {"base_interval": 3, "increase_factor": 2}
    assert original["policy"] == {"base_interval": 3}


@pytest.mark.parametrize("override", ["nonsense", "policy.kind", "=3", " =3", ""])
def test_an_override_without_a_key_or_a_value_shows_how_to_write_one(override):
    with pytest.raises(InputError) as caught:
        apply_overrides(SMALLEST, [override])
    assert str(caught.value).startswith(
        f"--set {override!r}: write --set key=value, such as --set "
    )


@pytest.mark.parametrize("override", ["policy.=3", ".kind=3", "policy..kind=fedavg"])
def test_an_override_with_an_empty_part_is_refused(override):
    with pytest.raises(InputError):
        parse_config(apply_overrides(SMALLEST, [override]))


@pytest.mark.parametrize("override", ["seed.x=3", "data.name.x=3"])
def test_an_override_below_a_value_is_refused(override):
    with pytest.raises(InputError, match="is not a table") as caught:
        apply_overrides({**SMALLEST, "seed": 0}, [override])
    assert repr(override) in str(caught.value)


def test_an_override_of_the_wrong_type_is_refused_like_a_file():
    with pytest.raises(
        InputError, match=r"policy\.base_interval = 'two': must be a whole number"
    ):
        parse_config(apply_overrides(SMALLEST, ["policy.base_interval=two"]))


def test_an_override_of_several_lines_is_refused():
    with pytest.raises(InputError):
        parse_config(apply_overrides(SMALLEST, ["seed=1\n[policy]\nkind='fedavg'"]))


# Defaults.


def test_every_key_but_two_has_a_default():
    required = {
        f"{section}.{key}"
        for section, kind in sections().items()
        for key, field in kind.model_fields.items()
        if field.is_required()
    }
    assert required == {"data.name", "train.iterations"}


def test_the_smallest_config_is_a_config():
    config = parse_config(SMALLEST)
    assert config.seed == 0
    assert config.policy.build() == FedLAMA(6, 4)
    assert config.participation.build() == Participation(fraction=1.0)
    assert config.local.build() == SGD(0.1, 32)
    assert config.train.weights == "uniform"
    assert config.model.layers == "tensor"


def test_the_design_s_example_is_a_config():
    config = parse_config(
        tomllib.loads("""
            seed = 0
            [data]
            name = "cifar10"
            [model]
            name = "resnet20"
            [partition]
            kind = "dirichlet"
            clients = 128
            alpha = 0.1
            [participation]
            active = 0.25
            [policy]
            kind = "fedlama"
            base_interval = 6
            increase_factor = 4
            [local]
            learning_rate = 0.4
            batch_size = 32
            [train]
            iterations = 6000
        """)
    )
    assert config.partition.build(has_ids=False) == Dirichlet(128, 0.1)
    assert config.participation.build() == Participation(fraction=0.25)


def test_a_config_is_frozen():
    config = parse_config(SMALLEST)
    with pytest.raises(ValueError, match="frozen"):
        config.seed = 1
    with pytest.raises(ValueError, match="frozen"):
        config.policy.base_interval = 1


def test_a_whole_number_will_do_for_a_float():
    rate = parse_config(with_section("local", learning_rate=1)).local.learning_rate
    assert rate == 1.0
    assert isinstance(rate, float)


# What a section builds.


@pytest.mark.parametrize(
    ("section", "policy"),
    [
        ({}, FedLAMA(6, 4)),
        ({"base_interval": 3, "increase_factor": 2}, FedLAMA(3, 2)),
        ({"rule": "released", "warmup_rounds": 8}, FedLAMA(6, 4, "released", 8)),
        ({"kind": "fedavg", "base_interval": 24}, FedAvg(24)),
        (
            {
                "kind": "fedavg",
                "base_interval": 24,
                "increase_factor": 4,
                "warmup_rounds": 8,
            },
            FedAvg(24),
        ),
    ],
)
def test_policies(section, policy):
    assert parse_config({**SMALLEST, "policy": section}).policy.build() == policy


def test_rule_accelerate_needs_a_factor_that_divides_the_interval():
    section = parse_config(
        with_section("policy", rule="accelerate", base_interval=6, increase_factor=4)
    ).policy
    with pytest.raises(
        InputError, match=r"increase_factor \(4\) must divide base_interval \(6\)"
    ):
        section.build()


@pytest.mark.parametrize(
    ("section", "has_ids", "partition"),
    [
        ({}, False, IID(32)),
        ({}, True, Natural()),
        ({"clients": 8}, False, IID(8)),
        ({"clients": 8}, True, Natural(8)),
        ({"kind": "iid", "clients": 8}, True, IID(8)),
        ({"kind": "dirichlet"}, False, Dirichlet(32, 0.5, 10)),
        (
            {"kind": "dirichlet", "clients": 8, "alpha": 0.1, "min_samples": 1},
            True,
            Dirichlet(8, 0.1, 1),
        ),
        ({"kind": "natural"}, False, Natural()),
    ],
)
def test_partitions(section, has_ids, partition):
    assert (
        parse_config({**SMALLEST, "partition": section}).partition.build(has_ids)
        == partition
    )


def test_an_alpha_without_a_kind_means_dirichlet():
    assert parse_config(with_section("partition", alpha=0.1)).partition.build(
        has_ids=False
    ) == Dirichlet(32, 0.1)
    assert parse_config(with_section("partition", min_samples=3)).partition.build(
        True
    ) == Dirichlet(32, 0.5, 3)


@pytest.mark.parametrize("kind", ["iid", "natural"])
def test_an_alpha_beside_another_kind_is_refused(kind):
    with pytest.raises(InputError, match=r"partition\.alpha"):
        parse_config(with_section("partition", kind=kind, alpha=0.1)).partition.build(
            has_ids=True
        )


def test_participation():
    section = parse_config(
        with_section("participation", active=3, window=24)
    ).participation
    assert section.build() == Participation(3, 24)


def test_the_local_rule_takes_every_key_of_its_section():
    keys = {
        "learning_rate": 0.4,
        "batch_size": 16,
        "momentum": 0.9,
        "weight_decay": 1e-4,
        "decayed": "kernels",
        "warmup_steps": 10,
        "decay_steps": [100, 200],
        "decay_factor": 0.5,
    }
    rule = parse_config(with_section("local", **keys)).local.build()
    assert rule == SGD(**{**keys, "decay_steps": (100, 200)})


def test_faults_take_every_key_of_their_section():
    keys = {
        "fail_before": 0.1,
        "fail_during": 0.2,
        "straggle": 0.3,
        "corrupt": 0.4,
        "exclude_nonfinite": True,
        "norm_limit": 5.0,
        "min_clients": 2,
        "on_too_few": "stop",
    }
    assert parse_config(with_section("faults", **keys)).faults.build() == Faults(**keys)
    assert set(keys) == set(FaultsSection.model_fields)


def test_without_a_table_there_are_no_faults_and_an_empty_one_tolerates_what_is_not_finite():
    assert parse_config(SMALLEST).faults is None
    assert parse_config({**SMALLEST, "faults": {}}).faults.build() == Faults()
    assert Faults().exclude_nonfinite


def test_a_table_that_may_be_left_out_has_helpful_errors_too():
    message = refusal(with_section("faults", stragle=0.1))
    assert (
        "unknown key 'faults.stragle'; did you mean 'straggle'? [faults] takes fail_before"
        in message
    )
    assert "faults.straggle = 1.5: must be at most 1" in refusal(
        with_section("faults", straggle=1.5)
    )


# There and back again.

above_zero = st.floats(min_value=0, exclude_min=True, allow_infinity=False)
# What float32 can hold
rates = st.floats(min_value=0, max_value=3.4e38, exclude_min=True, exclude_max=True)
# Quotes, newlines, control characters and all planes of Unicode
names = st.text(max_size=20)
counts = st.integers(1, MAX_WHOLE)


def section_of(**optional):
    return st.fixed_dictionaries({}, optional=optional)


configs = st.fixed_dictionaries(
    {
        "data": st.fixed_dictionaries({"name": names}),
        "train": st.fixed_dictionaries(
            {"iterations": counts},
            optional={
                "evaluate_every": counts,
                "weights": st.sampled_from(["uniform", "samples"]),
                "device": names,
            },
        ),
    },
    optional={
        "seed": st.integers(0, MAX_SEED),
        "model": section_of(
            name=names,
            layers=st.sampled_from(["tensor", "module"]),
            adaptive=st.lists(names),
        ),
        "partition": section_of(
            kind=st.sampled_from(["iid", "natural"]), clients=counts
        )
        | section_of(
            kind=st.just("dirichlet"),
            clients=counts,
            alpha=above_zero,
            min_samples=counts,
        ),
        "participation": section_of(
            active=counts | st.floats(min_value=0, max_value=1, exclude_min=True),
            window=counts,
        ),
        "policy": section_of(
            kind=st.sampled_from(["fedlama", "fedavg"]),
            base_interval=counts,
            rule=st.sampled_from(["crossing", "released", "printed", "accelerate"]),
        ),
        "local": section_of(
            learning_rate=rates,
            momentum=st.floats(0, 1, exclude_max=True),
            decay_steps=st.lists(counts),
        ),
        "faults": section_of(
            straggle=st.floats(0, 1),
            norm_limit=st.floats(1e-30, 1e30),
            min_clients=counts,
        ),
        "output": section_of(tensorboard=st.booleans()),
        "versions": st.dictionaries(names, names),
    },
)


@given(configs)
def test_a_config_written_as_toml_reads_back_the_same(tables):
    config = parse_config(tables)
    text = to_toml(config.model_dump(exclude_none=True))
    again = parse_config(tomllib.loads(text))
    assert again == config
    # 1 is one client, 1.0 is all
    assert type(again.participation.active) is type(config.participation.active)


def test_toml_survives_a_file(tmp_path):
    name = 'a "quoted"\\ name\n\r\t\x00\x1f\x7f\u2028 über 😀'
    path = tmp_path / "config.toml"
    path.write_text(
        to_toml({"data": {"name": name}, "train": {"iterations": 8}}), encoding="utf-8"
    )
    assert read_toml(path) == {"data": {"name": name}, "train": {"iterations": 8}}


def test_toml_is_laid_out_for_people():
    text = to_toml(parse_config({**SMALLEST, "seed": 3}).model_dump(exclude_none=True))
    assert text.startswith(
        'seed = 3\n\n[data]\nname = "digits"\nvalidation = 0.0\n\n[model]\n'
    )
    assert "[versions]" not in text  # an empty table says nothing
    assert text.endswith("tensorboard = true\n")


# Mistakes in --set, and flags.


@pytest.mark.parametrize(
    ("override", "said"),
    [
        (
            "policy.base_intervall=3",
            "--set policy.base_intervall=3: unknown key 'policy.base_intervall'",
        ),
        ("polcy.kind=fedavg", "--set polcy.kind=fedavg: unknown key 'polcy'"),
        (
            "policy.base_interval=0",
            "--set policy.base_interval=0: policy.base_interval = 0: must be at least 1",
        ),
        ("policy.kind=budget", "--set policy.kind=budget: policy.cycle is missing"),
        (
            "partition.alpha=0.1",
            "--set partition.alpha=0.1: partition.alpha means nothing with kind = 'iid'",
        ),
    ],
)
def test_a_mistake_in_set_is_blamed_on_it(tmp_path, override, said):
    path = tmp_path / "c.toml"
    path.write_text(
        '[data]\nname = "digits"\n[partition]\nkind = "iid"\n[train]\niterations = 8\n'
    )
    with pytest.raises(InputError) as caught:
        load_config(path, ["seed=3", override])
    assert str(caught.value).startswith(said)
    assert str(path) not in str(caught.value)


def test_a_mistake_in_the_file_is_not_blamed_on_set(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text('[data]\nname = "digits"\n[train]\niterations = 0\n')
    with pytest.raises(InputError) as caught:
        load_config(path, ["seed=3", "train.evaluate_every=2"])
    assert str(caught.value).startswith(f"{path}: train.iterations = 0")


def test_flags_are_shown_as_flags():
    def commands(command, context):
        yield command, context
        for name in getattr(command, "commands", {}):
            inner = command.get_command(context, name)
            yield from commands(
                inner, inner.context_class(inner, info_name=name, parent=context)
            )

    root = typer.main.get_command(app)
    flags = []
    for command, context in commands(
        root, root.context_class(root, info_name="fedlama")
    ):
        for option in command.get_params(context):
            if getattr(option, "is_flag", False):
                flags.append(option.opts[0])
                assert option.metavar == "", option.opts
    assert {"--resume", "--watch", "--json", "--help", "--version"} <= set(flags)


def test_the_command_line_knows_the_same_partitions():
    annotation = get_type_hints(show, include_extras=False)["partition"]
    literal = next(one for one in get_args(annotation) if get_origin(one) is Literal)
    assert get_args(literal) == tuple(PARTITIONS)


@pytest.mark.parametrize(
    ("keys", "active"),
    [({"clients": 3}, 3), ({"fraction": 0.5}, 0.5), ({"fraction": 1}, 1.0)],
)
def test_participation_by_clients_or_fraction(keys, active):
    config = parse_config(with_section("participation", **keys))
    assert config.participation.active == active
    assert type(config.participation.active) is type(active)
    assert "say the same" in refusal(with_section("participation", active=2, **keys))


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            {"clients": 0.5},
            "participation.clients must be a whole number, not 0.5: for a share of the clients",
        ),
        ({"clients": 0}, "participation.clients must be at least 1, not 0"),
        (
            {"fraction": 2},
            "participation.fraction must be above 0 and at most 1, not 2",
        ),
        ({"fraction": "half"}, "participation.fraction must be"),
    ],
)
def test_participation_that_is_out_of_range(keys, said):
    assert said in refusal(with_section("participation", **keys))
