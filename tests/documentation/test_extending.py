"""docs/extending.md: its examples are the files in examples/extending, each held to what every door is held to."""

import ast
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib import import_module
from typing import ClassVar

import numpy as np
import pytest
import torch

import fedlama
from documentation.pages import ROOT, python_blocks
from doors.harness import CLIENTS, check_door, network, run, same_bits, samples
from fedlama.local import PlainSync
from fedlama.report.numbers.comparison import compare
from fedlama.report.words.formats import UNKNOWN
from fedlama.report.words.notes import rate_text
from fedlama.study.runs import find_runs

NAMES = ("policy", "local_rule", "spring", "codec", "partition", "reader", "network")


def example(name: str):
    return import_module(f"extending.{name}")


def test_the_page_has_the_files_as_they_are():
    files = [
        (ROOT / "examples" / "extending" / f"{name}.py").read_text(encoding="utf-8")
        for name in NAMES
    ]
    assert python_blocks("docs/extending.md") == files


def test_what_the_examples_import_is_public_and_in_the_reference():
    """By its short name: `from fedlama.local import OnSGD`."""
    pages = sorted((ROOT / "docs" / "reference").glob("*.md"))
    reference = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    for name in NAMES:
        file = ROOT / "examples" / "extending" / f"{name}.py"
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom):
                continue
            if not node.module.startswith("fedlama"):
                continue
            room = import_module(node.module)
            for imported in node.names:
                assert imported.name in room.__all__
                path = f"{node.module}.{imported.name}"
                assert f"::: {path}\n" in reference or f"`{path}`" in reference


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_short(name):
    lines = (
        (ROOT / "examples" / "extending" / f"{name}.py")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    code = [
        line
        for line in lines
        if line.strip() and not line.startswith(("import ", "from ", '"""'))
    ]
    assert len(code) <= 22
    # README.md
    assert 10 <= len(lines) <= 35


def test_the_policy():
    result = check_door(policy=example("policy").HalfWait(3))
    chosen = {record.cycle: record.intervals for record in result.records}
    for cycle, intervals in chosen.items():
        before = [record for record in result.records if record.cycle == cycle - 1]
        if not before:
            assert set(intervals) == {3}
            continue
        # At a cycle's end every layer is due, so its last record has all d_l
        drift = before[-1].discrepancy
        expected = [
            6 if layer.adaptive and own < np.median(drift) else 3
            for layer, own in zip(result.layers, drift, strict=True)
        ]
        assert intervals == expected
    assert any(6 in intervals for intervals in chosen.values())


def test_runs_with_a_local_rule_and_a_codec_of_my_own_have_pages_and_hashes(tmp_path):
    """The rule has its learning rate from the SGD inside, and the codec is inside fedlama's own feedback."""
    local = example("local_rule").Clipped(fedlama.SGD(0.05, 4), limit=0.01)
    signs = example("codec").Signs()
    settings = {
        "plain": {},
        "coded": {"uplink": fedlama.compress.ErrorFeedback(signs)},
    }
    for name, options in settings.items():
        folder = tmp_path / name
        run(local=local, out=folder, **options)
        assert "<!doctype html" in (folder / "report.html").read_text().lower()
    recorded = (tmp_path / "coded" / "config.toml").read_text()
    hashes = recorded[recorded.index("[hashes]") :]
    assert "extending.local_rule:Clipped" in hashes
    assert "extending.codec:Signs" in hashes

    settings = compare(find_runs([tmp_path])).settings
    assert [rate_text(setting) for setting in settings] == ["0.05", "0.05"]


@dataclass(frozen=True)
class Falling(PlainSync):
    """A rule that knows its learning rate itself, under no name that a table has."""

    highest: float
    batch_size: int = 4
    slots: ClassVar = ()
    steps: ClassVar = None

    def rate(self, step):
        return self.highest / (1 + step)

    def step(self, row, gradient, own, server, *, rate, kernels):
        row.add_(gradient, alpha=-rate)


def test_a_rate_that_only_the_rule_knows_is_unknown(tmp_path):
    run(local=Falling(0.05), out=tmp_path / "run")
    (setting,) = compare(find_runs([tmp_path])).settings
    assert rate_text(setting) == UNKNOWN


def test_the_local_rule():
    sgd = fedlama.SGD(0.05, 4, momentum=0.5)
    clipped = example("local_rule").Clipped
    result = check_door(local=clipped(sgd, limit=0.01))
    assert not same_bits(result, run(local=sgd))
    assert same_bits(run(local=clipped(sgd, limit=1e9)), run(local=sgd))


def test_the_rule_on_the_bare_protocol_is_fedprox():
    mine = check_door(local=example("spring").Spring(0.05, 4, mu=0.5))
    ours = run(local=fedlama.FedProx(fedlama.SGD(0.05, 4), mu=0.5))
    assert same_bits(mine, ours)


def test_the_codec():
    signs = example("codec").Signs()
    x = torch.tensor([[1.0, -3.0, 0.5], [-0.5, 2.0, -1.0]])
    payload = signs.encode(x, key=7)
    received = signs.decode(payload.to_bytes(), key=7)
    assert torch.equal(
        received, torch.tensor([[1.0, -1.0, 1.0], [-1.0, 1.0, -1.0]]) * (8 / 6)
    )
    with pytest.raises(fedlama.InputError):
        signs.decode(payload.to_bytes()[:-1], key=7)

    plain = run()
    result = check_door(uplink=fedlama.compress.ErrorFeedback(signs, lifetime="run"))
    assert not same_bits(result, plain)
    assert result.uplink_bytes < plain.uplink_bytes


def test_the_partition():
    unequal = example("partition").Unequal(clients=4)
    data = fedlama.data.digits()
    sizes = unequal.assign(data, seed=0).sizes
    assert sizes.sum() == len(data.x_train)
    # Shares of 1, 1/2, 1/3 and 1/4 out of 25/12
    expected = len(data.x_train) * np.array([12, 6, 4, 3]) / 25
    # Four standard deviations of a binomial draw
    assert np.abs(sizes.numpy() - expected).max() < 60
    assert torch.equal(
        unequal.assign(data, seed=0).order, unequal.assign(data, seed=0).order
    )
    assert not torch.equal(
        unequal.assign(data, seed=0).order, unequal.assign(data, seed=1).order
    )
    # Batches of 5 leave no client of these with a single sample, on which BatchNorm could not train
    check_door(
        partition=example("partition").Unequal(clients=CLIENTS),
        local=fedlama.SGD(0.05, 5),
    )


def test_the_reader(tmp_path):
    path = tmp_path / "mine.csv"
    lines = ["client,label,a,b"]
    lines += [f"{number // 5},{number % 3},{number},{-number}" for number in range(20)]
    path.write_text("\n".join(lines))
    data = example("reader").load(path)
    assert data.x_test.tolist() == [[0, 0], [5, -5], [10, -10], [15, -15]]
    assert len(data.x_train) == len(data.clients) == 16
    assert data.clients.tolist() == [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4
    assert data.y_train.tolist() == [number % 3 for number in range(20) if number % 5]


def test_the_network():
    data = samples()
    module = example("network").build(data)
    assert module(data.x_train[:4]).shape == (4, 3)
    assert network()(data.x_train[:4]).shape == (4, 3)


def test_the_page_has_the_configuration_as_it_is():
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    config = (ROOT / "examples" / "extending" / "everything.toml").read_text(
        encoding="utf-8"
    )
    assert f"```toml\n{config}```" in page


@pytest.mark.slow
def test_the_configuration_runs_with_all_of_them(tmp_path):
    folder = tmp_path / "mine"
    shutil.copytree(ROOT / "examples" / "extending", folder)
    write_digits(folder / "samples.csv")
    command = [
        sys.executable,
        "-m",
        "fedlama",
        "run",
        "everything.toml",
        "--out",
        "run",
        "--workers",
        "2",
    ]
    subprocess.run(command, check=True, cwd=folder, capture_output=True, timeout=300)
    summary = json.loads((folder / "run" / "summary.json").read_text())
    assert summary["accuracy"] > 0.5  # of ten classes
    assert summary["uplink_share"] < 0.2  # a bit per number, and norms
    # Some waited
    assert {layer["aggregations"] for layer in summary["layers"]} > {96 // 6}


def write_digits(path):
    data = fedlama.data.digits()
    owners = np.arange(len(data.x_train)) % 16
    pixels = data.x_train.flatten(1).numpy() / 16
    table = np.column_stack([owners, data.y_train.numpy(), pixels])
    np.savetxt(path, table, delimiter=",", header="client,label,pixels…", fmt="%.4f")
