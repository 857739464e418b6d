"""Records of rounds, as a run writes them and as a published one has them: packed."""

import gzip

import pytest

from fedlama import IID, SGD, FedAvg, data, models, simulate
from fedlama.base import InputError
from fedlama.run import reading
from fedlama.run.recorded import read_run
from fedlama.study.runs import find_runs


@pytest.fixture
def run(tmp_path):
    simulate(
        models.mlp,
        data.digits(),
        policy=FedAvg(3),
        local=SGD(learning_rate=0.1, batch_size=8),
        partition=IID(clients=4),
        iterations=6,
        out=tmp_path / "run",
    )
    return tmp_path / "run"


def pack(run):
    plain = run / "rounds.jsonl"
    packed = run / "rounds.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    return packed


def test_packed_records_are_those_of_the_run(run):
    records = read_run(run).records
    assert len(records) == 2
    pack(run)
    assert read_run(run).records == records
    # Of one that diverged there is no summary.
    (run / "summary.json").unlink()
    (found,) = find_runs([run])
    assert found.records == records


def test_a_damaged_packed_file_is_one_sentence(run):
    packed = pack(run)
    whole = packed.read_bytes()
    for damaged in (whole[:-9], b"\x1f\x8b\x08" + whole[5:], b"no gzip"):
        packed.write_bytes(damaged)
        with pytest.raises(InputError, match=r"rounds\.jsonl\.gz: cannot be unpacked"):
            read_run(run)


def test_a_small_file_may_not_fill_the_memory(run, monkeypatch):
    packed = pack(run)
    monkeypatch.setattr(reading, "MAX_UNPACKED", 1000)
    packed.write_bytes(gzip.compress(b" " * 1001))
    with pytest.raises(InputError, match="unpacked it has more than 1,000 bytes"):
        read_run(run)
