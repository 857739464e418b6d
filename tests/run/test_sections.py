"""Options have one home: a class and its section of the file agree, and a choice is one line of a registry."""

from dataclasses import dataclass
from inspect import signature
from typing import Annotated, ClassVar, Literal, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SerializeAsAny, ValidationError

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
    data,
    models,
    simulate,
)
from fedlama.base import Limits, annotated_fields, check_options
from fedlama.run.choice_sections import ChoiceSection
from fedlama.run.config import parse_config
from fedlama.run.messages import explain
from fedlama.run.overrides import apply_overrides, merged
from fedlama.run.partitions import PartitionSection
from fedlama.run.sections import Section
from fedlama.run.tables import (
    CHOOSING,
    FaultsSection,
    LocalSection,
    ModelSection,
    ParticipationSection,
    PolicySection,
    TrainSection,
)

SMALLEST = {"data": {"name": "digits"}, "train": {"iterations": 8}}


# A registry of its own: two rules, one around the other.


@dataclass(frozen=True)
class Plain:
    rate: Annotated[float, Limits(above=0)]
    marks: tuple[Annotated[int, Limits(minimum=1)], ...] = ()

    def __post_init__(self) -> None:
        check_options(self, "rule.")


@dataclass(frozen=True)
class Pulled:
    base: Plain
    mu: Annotated[float, Limits(minimum=0, maximum=8)]
    where: Literal["here", "there"] = "here"

    def __post_init__(self) -> None:
        check_options(self, "rule.")


class RuleSection(ChoiceSection[Plain | Pulled]):
    """[rule]"""

    table = "rule"
    chosen_by = "rule"
    default = "plain"
    choices: ClassVar = {"plain": Plain, "pulled": Pulled}
    defaults: ClassVar = {"rate": 0.5}


class File(Section):
    rule: SerializeAsAny[RuleSection] = RuleSection.of_choice("plain")()


def refusal(table: dict) -> str:
    tables = {"rule": table}
    with pytest.raises(ValidationError) as caught:
        File.model_validate(tables)
    return "\n".join(explain(caught.value, File, tables, "my.toml"))


def test_the_options_of_the_choice_are_the_keys_of_the_section():
    assert File.model_validate({}).rule.build() == Plain(0.5)
    assert File.model_validate(
        {"rule": {"rate": 0.25, "marks": [3]}}
    ).rule.build() == Plain(0.25, (3,))
    table = {"rule": "pulled", "mu": 2, "marks": [1, 2], "where": "there"}
    assert File.model_validate({"rule": table}).rule.build() == Pulled(
        Plain(0.5, (1, 2)), 2.0, "there"
    )


def test_what_is_written_holds_the_keys_of_the_choice_and_no_others():
    assert File.model_validate({}).model_dump() == {
        "rule": {"rule": "plain", "rate": 0.5, "marks": []}
    }
    file = File.model_validate({"rule": {"rule": "pulled", "mu": 1.0}})
    written = {"rule": "pulled", "rate": 0.5, "marks": [], "mu": 1.0, "where": "here"}
    assert file.model_dump() == {"rule": written}
    assert File.model_validate(file.model_dump()) == file


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"rule": "puled"}, "rule.rule = 'puled': must be one of plain, pulled; did you mean 'pulled'?"),
        ({"rule": ["plain"]}, "rule.rule = ['plain']: must be one of plain, pulled; did you mean 'plain'?"),
        ({"rule": "pulled"}, "rule.mu is missing; it has no default"),
        ({"rule": "pulled", "mu": 9}, "rule.mu = 9: must be at most 8"),
        ({"rule": "pulled", "mu": 1, "marks": [0]}, "rule.marks.0 = 0: must be at least 1"),
        ({"rule": "pulled", "mu": 1, "mus": 1}, "unknown key 'rule.mus'; did you mean 'mu'? "
         "[rule] takes rule, rate, marks, mu, where"),
        ({"wher": 1}, "unknown key 'rule.wher'; [rule] takes rule, rate, marks"),
        ({"mu": 1}, "rule.mu means nothing with rule = 'plain', only with 'pulled'"),
        ("pulled", "rule = 'pulled': must be a table"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_about_the_choice_that_was_made(table, sentence):
    assert refusal(table) == f"my.toml: {sentence}"


# Sections and classes agree: what one refuses the other refuses.

FIELDS = [
    (
        FedLAMA,
        PolicySection.of_choice("fedlama"),
        {"base_interval": 6, "increase_factor": 2},
    ),
    (SGD, LocalSection.of_choice("sgd"), {"learning_rate": 0.1, "batch_size": 4}),
    (Faults, FaultsSection, {}),
    (Participation, ParticipationSection, {}),
    (IID, PartitionSection.of_choice("iid"), {"clients": 4}),
    (
        Dirichlet,
        PartitionSection.of_choice("dirichlet"),
        {"clients": 4, "alpha": 0.5},
    ),
    (Natural, PartitionSection.of_choice("natural"), {}),
]
CASES = [
    pytest.param(kind, section, given_, name, id=f"{kind.__name__}.{name}")
    for kind, section, given_ in FIELDS
    for name in annotated_fields(kind)
    if name in section.model_fields
]
numbers = st.sampled_from(
    [
        0,
        1,
        2,
        -1,
        0.0,
        1.0,
        0.5,
        -0.5,
        1.5,
        1e30,
        1e31,
        3.3e38,
        3.5e38,
        float("nan"),
        float("inf"),
    ]
)
values = (
    numbers
    | st.integers(-3, 12)
    | st.floats()
    | st.lists(st.integers(-1, 3), max_size=2)
    | st.text(max_size=3)
)


@pytest.mark.parametrize(("kind", "section", "others", "name"), CASES)
@given(
    value=values
    | st.sampled_from(
        ["all", "kernels", "crossing", "printed", "stop", "repeat", True, False, None]
    )
)
def test_a_class_takes_what_its_section_takes(kind, section, others, name, value):
    try:
        read = section.model_validate({**others, name: value})
    except ValidationError:
        read = None
    try:
        made = kind(**{**others, name: value})
    except (InputError, TypeError):
        made = None
    if read is not None and getattr(read, name) is not None:
        assert made is not None, "the file takes what the class refuses"
    # Python converts more than a file
    if made is not None and type(value) is type(getattr(kind(**others), name)):
        assert read is not None, "the class takes what the file refuses"


@pytest.mark.parametrize(("kind", "section", "others", "name"), CASES)
def test_defaults_are_those_of_the_class(kind, section, others, name):
    if name in others:
        pytest.skip("the class has no default")
    found = getattr(section.model_validate(others), name)
    assert (tuple(found) if isinstance(found, list) else found) == getattr(
        kind(**others), name
    )


# A choice that is changed takes the options of the choice before with it.


@dataclass(frozen=True)
class Budget:
    base_interval: Annotated[int, Limits(minimum=1)]
    share: Annotated[float, Limits(above=0, maximum=1)] = 0.1


class ThreePolicies(PolicySection):
    """[policy] with one more choice."""

    choices: ClassVar = {**PolicySection.choices, "budget": Budget}


@pytest.fixture
def third_policy(monkeypatch):
    monkeypatch.setitem(CHOOSING, "policy", ThreePolicies)


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (
            {"share": 0.1},
            r"policy\.share means nothing with kind = 'fedlama', only with 'budget'",
        ),
        (
            {"kind": "fedavg", "share": 0.1},
            r"policy\.share means nothing with kind = 'fedavg', only with 'budget'",
        ),
        (
            {"kind": "budget", "rule": "printed"},
            r"policy\.rule means nothing with kind = 'budget', only with 'fedlama'",
        ),
    ],
)
def test_a_file_may_not_set_options_of_another_choice(table, sentence):
    with pytest.raises(ValidationError, match=sentence):
        ThreePolicies.model_validate(table)


def test_an_override_of_the_choice_drops_the_options_of_the_one_before(third_policy):
    tables = {
        **SMALLEST,
        "policy": {"kind": "budget", "base_interval": 3, "share": 0.2},
    }
    assert apply_overrides(tables, ["policy.kind=fedavg"])["policy"] == {
        "kind": "fedavg",
        "base_interval": 3,
    }
    changed = apply_overrides(
        tables, ["policy.kind=fedlama", "policy.increase_factor=2"]
    )
    assert parse_config(changed).policy.build() == FedLAMA(3, 2)
    assert merged(tables, {"policy": {"kind": "fedlama"}})["policy"] == {
        "kind": "fedlama",
        "base_interval": 3,
    }


def test_what_the_override_itself_says_stays_and_is_refused(third_policy):
    tables = {**SMALLEST, "policy": {"kind": "fedlama", "increase_factor": 3}}
    wrong = merged(tables, {"policy": {"kind": "budget", "rule": "printed"}})
    assert wrong["policy"] == {"kind": "budget", "rule": "printed"}
    with pytest.raises(ValidationError, match=r"policy\.rule means nothing"):
        ThreePolicies.model_validate(wrong["policy"])


def test_another_choice_drops_what_code_of_my_own_was_given():
    own = {"kind": "mymodule:Mine", "base_interval": 3, "factor": 2}
    tables = {**SMALLEST, "policy": own}
    left = {"kind": "fedavg", "base_interval": 3}
    changed = apply_overrides(tables, ["policy.kind=fedavg"])
    assert changed["policy"] == left
    assert parse_config(changed).policy.build() == FedAvg(3)
    assert merged(tables, {"policy": {"kind": "fedavg"}})["policy"] == left


@pytest.mark.parametrize("order", [1, -1])
def test_an_unknown_key_that_is_set_with_the_choice_is_refused(order):
    tables = {**SMALLEST, "policy": {"kind": "mymodule:Mine", "factor": 2}}
    said = ["policy.kind=fedavg", "policy.factor=3"][::order]
    with pytest.raises(InputError, match=r"unknown key 'policy\.factor'"):
        parse_config(apply_overrides(tables, said))


def test_other_code_of_my_own_is_given_what_the_one_before_was():
    tables = {**SMALLEST, "policy": {"kind": "mymodule:Mine", "factor": 2}}
    changed = apply_overrides(tables, ["policy.kind=mymodule:Other"])["policy"]
    assert changed == {"kind": "mymodule:Other", "factor": 2}


def test_the_local_rule_was_called_kind_before():
    read = parse_config({**SMALLEST, "local": {"kind": "sgd", "batch_size": 4}})
    assert read == parse_config({**SMALLEST, "local": {"rule": "sgd", "batch_size": 4}})
    assert read.model_dump()["local"]["rule"] == "sgd"
    with pytest.raises(InputError, match=r"unknown key 'local\.kind'"):
        parse_config({**SMALLEST, "local": {"rule": "sgd", "kind": "sgd"}})


# The keys of [train] and [model] that are arguments of simulate: the same values, the same defaults.


@pytest.mark.parametrize(
    "name",
    [
        "weights",
        "evaluate",
        "average_steps",
        "execution",
        "precision",
        "device",
        "layers",
        "adaptive",
    ],
)
def test_a_key_has_the_default_of_its_argument(name):
    section = ModelSection if name in ModelSection.model_fields else TrainSection
    assert (
        section.model_fields[name].default
        == signature(simulate).parameters[name].default
    )


@pytest.mark.parametrize(
    "name", ["weights", "evaluate", "execution", "precision", "layers"]
)
def test_an_argument_takes_the_values_of_its_key_and_no_others(name):
    section = ModelSection if name in ModelSection.model_fields else TrainSection
    options = {
        "policy": FedAvg(2),
        "local": SGD(learning_rate=0.1, batch_size=8),
        "partition": IID(4),
        "iterations": 2,
    }
    for value in get_args(section.model_fields[name].annotation):
        simulate(
            lambda: models.mlp(10, inputs=64), data.digits(), **options, **{name: value}
        )
    with pytest.raises(InputError, match=name):
        simulate(
            lambda: models.mlp(10, inputs=64),
            data.digits(),
            **options,
            **{name: "other"},
        )
