"""[partition] takes its kinds and their options from the classes in `run/choices.py`: a line there is enough."""

from dataclasses import dataclass
from typing import Annotated

import pytest

from fedlama import IID, Dirichlet, InputError, Natural, data
from fedlama.base import Limits, check_options
from fedlama.run.choices import PARTITIONS
from fedlama.run.config import Config, parse_config
from fedlama.run.overrides import apply_overrides, merged
from fedlama.run.partitions import PartitionSection
from fedlama.run.resolve import resolve

SMALLEST = {"data": {"name": "digits"}, "train": {"iterations": 8}}


@dataclass(frozen=True)
class Pathological:
    """A partition whose options no other partition has."""

    clients: Annotated[int, Limits(minimum=1)]
    classes_per_client: Annotated[int, Limits(minimum=1)] = 2

    def __post_init__(self) -> None:
        check_options(self, "partition.")

    def assign(self, data, seed):
        return IID(self.clients).assign(data, seed)


@pytest.fixture
def fourth_kind(monkeypatch):
    """One line in the registry."""
    monkeypatch.setitem(PARTITIONS, "pathological", Pathological)


def read(**table) -> Config:
    return parse_config({**SMALLEST, "partition": table})


def refusal(**table) -> str:
    with pytest.raises(InputError) as caught:
        read(**table)
    return str(caught.value)


def test_a_line_in_the_registry_is_a_kind_with_its_options(fourth_kind):
    config = read(kind="pathological", clients=4)
    assert config.partition.build(has_ids=False) == Pathological(4, 2)
    config = read(kind="pathological", clients=4, classes_per_client=3)
    assert config.partition.build(has_ids=False) == Pathological(4, 3)
    config = read(kind="pathological")
    assert config.partition.build(has_ids=True) == Pathological(32, 2)


def test_its_options_are_written_out_and_read_again(fourth_kind):
    config = read(kind="pathological", clients=4)
    written = resolve(config).config.model_dump(exclude_none=True)["partition"]
    assert written == {"kind": "pathological", "clients": 4, "classes_per_client": 2}
    assert read(**written).partition.build(has_ids=False) == Pathological(4, 2)


def test_its_values_are_described_by_the_same_keys(fourth_kind):
    assert PartitionSection.table_of(Pathological(4, 3)) == {
        "kind": "pathological",
        "clients": 4,
        "classes_per_client": 3,
    }


def test_its_limits_and_its_keys_are_those_of_the_class(fourth_kind):
    said = refusal(kind="pathological", classes_per_client=0)
    assert "partition.classes_per_client = 0: must be at least 1" in said
    said = refusal(kind="pathological", classes_per_clint=1)
    assert "did you mean 'classes_per_client'?" in said
    said = refusal(kind="iid", classes_per_client=1)
    only = "means nothing with kind = 'iid', only with 'pathological'"
    assert f"partition.classes_per_client {only}" in said


def test_an_option_without_a_kind_means_the_kind_that_has_it(fourth_kind):
    config = read(classes_per_client=3)
    assert config.partition.build(has_ids=True) == Pathological(32, 3)
    said = refusal(alpha=0.5, classes_per_client=3)
    assert "means nothing with kind = 'dirichlet', only with 'pathological'" in said


def test_an_option_is_not_given_twice_to_code_of_my_own():
    said = refusal(kind="mymodule:Halves", first=0.5, options={"first": 0.25})
    assert "partition.first and partition.options.first say the same" in said


def test_a_kind_that_is_left_open_is_decided_by_the_data():
    left_open = read(clients=8).partition
    assert left_open.kind is None
    assert left_open.decided(has_ids=False).kind == "iid"
    assert left_open.decided(has_ids=True).kind == "natural"
    assert left_open.build(has_ids=False) == IID(8)
    assert left_open.build(has_ids=True) == Natural(8)


@pytest.mark.parametrize(
    "table",
    [
        {},
        {"clients": 8},
        {"alpha": 0.1},
        {"kind": "natural"},
        {"kind": "dirichlet", "clients": 8},
        {"kind": "mymodule:Halves", "options": {"first": 0.25}},
    ],
)
def test_a_section_is_read_again_from_what_it_writes(table):
    config = read(**table)
    assert Config.model_validate_json(config.model_dump_json()) == config


def test_defaults_are_written_out():
    resolved = resolve(read(min_samples=3)).config
    assert resolved.model_dump(exclude_none=True)["partition"] == {
        "kind": "dirichlet",
        "clients": 32,
        "alpha": 0.5,
        "min_samples": 3,
    }


@pytest.mark.parametrize(
    ("partition", "table"),
    [
        (IID(4), {"kind": "iid", "clients": 4}),
        (Natural(), {"kind": "natural"}),
        (
            Dirichlet(4, 0.5),
            {"kind": "dirichlet", "clients": 4, "alpha": 0.5, "min_samples": 10},
        ),
    ],
)
def test_a_value_and_its_table(partition, table):
    assert PartitionSection.table_of(partition) == table
    assert read(**table).partition.build(has_ids=True) == partition


def test_the_table_of_code_of_my_own_has_its_options():
    table = PartitionSection.table_of(Pathological(4, 3))
    assert table["kind"].endswith(":Pathological")
    assert table["options"] == {"clients": 4, "classes_per_client": 3}
    dealt = IID(4).assign(data.digits(), 0)
    assert list(PartitionSection.table_of(dealt)) == ["kind"]


def test_another_kind_drops_the_options_of_the_one_before():
    tables = {**SMALLEST, "partition": {"kind": "dirichlet", "alpha": 0.1}}
    assert apply_overrides(tables, ["partition.kind=iid"])["partition"] == {
        "kind": "iid"
    }
    assert merged(tables, {"partition": {"kind": "natural", "clients": 3}})[
        "partition"
    ] == {"kind": "natural", "clients": 3}


def test_another_kind_drops_what_code_of_my_own_was_given():
    own = {"kind": "mymodule:Halves", "clients": 8, "first": 0.5}
    own |= {"options": {"alpha": 1}, "sha256": "0" * 64}
    tables = {**SMALLEST, "partition": own}
    left = {"kind": "iid", "clients": 8}
    assert apply_overrides(tables, ["partition.kind=iid"])["partition"] == left
    assert merged(tables, {"partition": {"kind": "iid"}})["partition"] == left
    said = {"kind": "iid", "frist": 1}
    assert merged(tables, {"partition": said})["partition"] == {"clients": 8, **said}
