"""A network, data, rules and functions of one's own in a configuration: `name = "mymodule:build"`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import fedlama
from fedlama.run.config import load_config, parse_config
from fedlama.run.directory import RunDirectory
from fedlama.run.execute import changed_code, execute
from fedlama.run.own_code import reference_to
from fedlama.run.recorded import read_run
from fedlama.run.references import is_reference
from fedlama.run.resolve import resolve
from fedlama.study.runs import find_runs

MODULE = """
import fedlama
import torch
from torch import nn

LIMIT = 3


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))

    def forward(self, inputs):
        return self.body(inputs)


def build():
    return Net()


def build_for(data, width):
    return nn.Sequential(nn.Flatten(), nn.Linear(data.x_train[0].numel(), width), nn.Linear(width, data.classes))


def load(every=1):
    digits = fedlama.data.digits()
    return fedlama.data.arrays(
        digits.x_train[::every], digits.y_train[::every], digits.x_test, digits.y_test,
        clients=[f"hospital-{number % 12}" for number in range(len(digits.x_train[::every]))], name="mine",
    )


def load_arrays():
    digits = fedlama.data.digits()
    return digits.x_train, digits.y_train, digits.x_test, digits.y_test


def slow(learning_rate, batch_size=16):
    return fedlama.SGD(learning_rate / 2, batch_size)


def halved(inputs):
    return inputs / 2


def noisy(inputs):
    return inputs + 0.1 * torch.randn_like(inputs)


def cross(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets, label_smoothing=0.1)


def error(outputs, targets):
    return (outputs.argmax(dim=1) != targets).double().mean()


error.higher_is_better = False


def fails():
    raise ValueError("no such disk")


class Halves:
    def __init__(self, first=0.5):
        self.first = first

    def assign(self, data, seed):
        import numpy

        samples = len(data.x_train)
        owners = (numpy.arange(samples) >= self.first * samples).astype(numpy.int64)
        return fedlama.data.Shards.by_owner(owners, 2)


def nothing(**options):
    return None
"""

TABLES = {
    "data": {"name": "mymodule:load"},
    "model": {"name": "mymodule:build"},
    "policy": {"base_interval": 2, "increase_factor": 2},
    "local": {"batch_size": 16},
    "train": {"iterations": 8, "evaluate_every": 4},
    "output": {"tensorboard": False},
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a module in it, importable as that of a configuration is."""
    (tmp_path / "mymodule.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mymodule", raising=False)
    yield tmp_path
    sys.modules.pop("mymodule", None)
    resolve_caches_clear()


def resolve_caches_clear():
    from fedlama.run.resolve import data_hash, load_data

    load_data.cache_clear()
    data_hash.cache_clear()


def tables(**changes):
    merged = {name: dict(table) for name, table in TABLES.items()}
    for name, table in changes.items():
        merged[name] = {**merged.get(name, {}), **table}
    return merged


def run(folder, name="run", **changes):
    return execute(parse_config(tables(**changes)), folder / name, workers=1)


@pytest.mark.parametrize("workers", [1, 2])
def test_my_network_and_my_data_in_a_configuration(folder, workers):
    import mymodule

    result = execute(parse_config(TABLES), folder / "run", workers=workers)
    by_hand = fedlama.simulate(
        mymodule.build,
        mymodule.load(),
        policy=fedlama.FedLAMA(2, 2),
        local=fedlama.SGD(0.1, 16),
        iterations=8,
        evaluate_every=4,
    )
    assert result.records == by_hand.records
    found = read_run(folder / "run")
    assert found.tables["model"]["name"] == "mymodule:build"
    assert found.tables["data"]["sha256"] == mymodule.load().content_hash()
    assert set(found.tables["hashes"]) == {"mymodule:build", "mymodule:load"}
    assert len(found.tables["hashes"]["mymodule:build"]) == 64
    assert found.tables["partition"] == {"kind": "natural", "clients": 12}


def test_options_reach_my_functions(folder):
    changes = {
        "model": {"name": "mymodule:build_for", "options": {"width": 5}},
        "data": {"options": {"every": 3}},
    }
    resolved = resolve(parse_config(tables(**changes)))
    assert resolved.model()[1].weight.shape == (5, 64)
    assert len(resolved.data.x_train) == 479
    with pytest.raises(
        fedlama.InputError,
        match=r"model.options means nothing unless model.name is module:name",
    ):
        parse_config(tables(model={"name": "mlp", "options": {"width": 5}}))
    with pytest.raises(
        fedlama.InputError,
        match=r"partition.options means nothing unless partition.kind is module:name",
    ):
        parse_config(tables(partition={"kind": "iid", "options": {"every": 5}}))


def test_my_own_class_is_a_builder_and_a_tuple_is_data(folder):
    resolved = resolve(
        parse_config(
            tables(
                model={"name": "mymodule:Net"}, data={"name": "mymodule:load_arrays"}
            )
        )
    )
    assert type(resolved.model()).__name__ == "Net"
    assert len(resolved.data.x_train) == 1437


def test_a_rule_a_loss_and_a_metric_of_my_own(folder):
    import mymodule

    result = run(
        folder,
        local={"rule": "mymodule:slow", "learning_rate": 0.2},
        train={
            "loss": "mymodule:cross",
            "metric": "mymodule:error",
            "metric_name": "mistakes",
        },
    )
    by_hand = fedlama.simulate(
        mymodule.build,
        mymodule.load(),
        policy=fedlama.FedLAMA(2, 2),
        local=fedlama.SGD(0.1, 16),
        loss=mymodule.cross,
        metric=fedlama.Metric(mymodule.error, "mistakes"),
        iterations=8,
        evaluate_every=4,
    )
    assert result.records == by_hand.records
    assert result.records[-1].metrics.keys() == {"mistakes"}
    plain = json.loads((folder / "run" / "summary.json").read_text())
    assert plain["metric"] == {"name": "mistakes", "higher_is_better": False}
    assert plain["accuracy"] is None
    found = find_runs([folder / "run"])[0]
    assert found.measure.name == "mistakes"
    assert not found.measure.higher_is_better
    assert found.summary.score == found.summary.metrics["mistakes"]


def test_a_partition_of_my_own_is_pinned_by_who_has_which_sample(folder):
    run(folder, partition={"kind": "mymodule:Halves", "options": {"first": 0.25}})
    recorded = read_run(folder / "run").tables["partition"]
    assert recorded["clients"] == 2
    again = resolve(parse_config(tables(partition=recorded)))
    assert again.shards.sizes.tolist() == [360, 1077]  # of 1,437 samples
    with pytest.raises(
        fedlama.InputError,
        match=r"partition.sha256 = .* that of mymodule:Halves with this seed is",
    ):
        resolve(parse_config(tables(partition={**recorded, "options": {"first": 0.5}})))


def test_a_loss_may_be_a_class_of_torch(folder):
    resolved = resolve(
        parse_config(tables(train={"loss": "torch.nn:CrossEntropyLoss"}))
    )
    assert isinstance(resolved.loss, torch.nn.CrossEntropyLoss)
    # Torch's version is recorded
    assert resolved.config.hashes.keys() == {"mymodule:build", "mymodule:load"}


def test_a_transform_is_applied_everywhere_and_an_augmentation_in_training_only(folder):
    plain = run(folder, "plain")
    halved = run(folder, "halved", data={"transform": "mymodule:halved"})
    noisy = run(folder, "noisy", data={"augment": "mymodule:noisy"})
    assert halved.records[0].loss != plain.records[0].loss != noisy.records[0].loss
    resolved = resolve(
        parse_config(
            tables(data={"transform": "mymodule:halved", "augment": "mymodule:noisy"})
        )
    )
    samples = resolved.data.x_test[:3]
    assert torch.equal(resolved.data.inputs(samples), samples.float() / 255 / 2)
    again = execute(
        parse_config(tables(data={"augment": "mymodule:noisy"})),
        folder / "again",
        workers=2,
    )
    assert again.records == noisy.records


@pytest.mark.parametrize(
    ("section", "key", "value", "sentence"),
    [
        (
            "model",
            "name",
            "nomodule:build",
            "there is no module nomodule: looked for nomodule.py in",
        ),
        ("model", "name", "mymodul:build", "did you mean 'mymodule'"),
        (
            "model",
            "name",
            "mymodule:biuld",
            "mymodule has no biuld; did you mean 'build'",
        ),
        # Not nn, which is a module
        ("model", "name", "mymodule:nnn", "mymodule has no nnn; it has "),
        ("model", "name", "mymodule:LIMIT", "is 3, not a function or a class"),
        (
            "model",
            "name",
            "mymodule:fails",
            r"raised ValueError: no such disk \(mymodule.py, line \d+\)",
        ),
        ("model", "name", "mymodule:nothing", "must return an nn.Module, not None"),
        ("model", "name", "mymodule:", "must be the name of a model, or module:name"),
        ("data", "name", "mymodule:fails", "raised ValueError: no such disk"),
        (
            "data",
            "name",
            "mymodule:nothing",
            r"must return what fedlama.data.arrays\(…\) makes",
        ),
        ("data", "transform", "mymodule:fails", "transform failed on a batch of shape"),
        (
            "data",
            "augment",
            "nowhere",
            "must be module:name, a function in a module of your own",
        ),
        ("local", "rule", "mymodule:nothing", "must return a local rule, not None"),
        ("local", "rule", "mymodule:slow", "raised TypeError"),
        ("policy", "kind", "mymodule:build", "raised TypeError"),
        ("partition", "kind", "mymodule:nothing", "must return a partition"),
        ("uplink", "codec", "mymodule:nothing", "must return a codec, not None"),
        ("train", "loss", "mymodule:losss", "mymodule has no losss"),
        ("train", "metric", "mymodule:LIMIT", "is 3, not a function"),
    ],
)
def test_a_bad_reference_is_told_in_one_sentence(folder, section, key, value, sentence):
    with pytest.raises(fedlama.InputError, match=sentence) as caught:
        run(folder, **{section: {key: value}})
    assert len(str(caught.value).splitlines()) == 1
    assert f"{section}.{key}" in str(caught.value) or section == "data"
    assert not (folder / "run").exists()


def test_a_module_that_cannot_be_imported_is_told_with_its_line(folder):
    (folder / "broken.py").write_text("x = 1\ny = x / 0\n")
    with pytest.raises(
        fedlama.InputError,
        match=r"importing broken raised ZeroDivisionError.*\(broken.py, line 2\)",
    ):
        run(folder, model={"name": "broken:build"})
    (folder / "needy.py").write_text("import nosuchpackage\n")
    with pytest.raises(
        fedlama.InputError,
        match="importing needy raised ModuleNotFoundError: No module named",
    ):
        run(folder, model={"name": "needy:build"})
    (folder / "random.py").write_text("def build(): pass\n")
    with pytest.raises(
        fedlama.InputError, match="has the name of a module that is imported already"
    ):
        run(folder, model={"name": "random:build"})


def test_what_is_a_reference_and_what_is_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert is_reference("mymodule:build")
    assert is_reference("pack.age:Class.method")
    assert not any(
        is_reference(text)
        for text in ("digits", "a:", ":b", "a:b:c", "/data/a:b.npz", "a b:c", "1a:b")
    )
    Path("a:b").touch()
    assert not is_reference("a:b")
    assert reference_to(fedlama.models.mlp) == "fedlama.models.small:mlp"
    assert is_reference(reference_to(lambda: None))


def test_a_second_change_keeps_the_hash_of_what_is_recorded(folder):
    config = resolve(parse_config(tables())).config
    out = RunDirectory.create(folder / "run", config)

    def going_on_with(digit):
        changed = config.model_copy(update={"hashes": {"mymodule:build": digit * 64}})
        told = changed_code(folder / "run" / "config.toml", changed)
        RunDirectory(out.path, changed, resume=True).continue_after(0)
        return told

    (first,) = going_on_with("a")
    assert f"changed since the run in {out.path} began (SHA-256" in first
    (second,) = going_on_with("b")
    assert (
        f"changed since the run in {out.path} last went on (SHA-256 aaaaaaaaaaaa…, now bbbbbbbbbbbb…)"
        in second
    )
    hashes = read_run(out.path).tables["hashes"]
    assert hashes["mymodule:build until round 0"] == config.hashes["mymodule:build"]
    assert hashes["mymodule:build"] == "b" * 64
    assert going_on_with("b") == []


def test_a_finished_run_of_another_network_is_no_result_of_this_one(folder):
    run(folder)
    state = torch.get_rng_state()
    assert execute(parse_config(tables()), folder / "run", resume=True) is None
    assert torch.equal(state, torch.get_rng_state())
    (folder / "mymodule.py").write_text(
        MODULE.replace("nn.Flatten(), nn.Linear", "nn.Flatten(), nn.ReLU(), nn.Linear")
    )
    sys.modules.pop("mymodule")
    with pytest.raises(
        fedlama.InputError,
        match=r"run holds a run of another network \(\d+ parameters in \d layers",
    ):
        execute(parse_config(tables()), folder / "run", resume=True)


WITHOUT_A_FILE = """
from functools import partial
import fedlama
from torch import nn
from fedlama.run.own_code import hash_of

def build(width=3):
    inner = lambda: [nn.Linear(64, width) for _ in (1, 2) if width in {4, 5, "six"}]
    return inner

class Net(nn.Module):
    def forward(self, x):
        return x + 1

for thing in (build, Net, lambda: 7, partial(build, width=4), partial(fedlama.FedAvg, 6), partial(build, Net)):
    print(hash_of(thing))
print(hash_of(fedlama.FedAvg))
"""


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        (("", ""), []),
        (("64, width", "65, width"), [0, 3, 5]),
        (("width=3", "width=9"), [0, 3, 5]),
        (("x + 1", "x - 1"), [1, 5]),
        (("lambda: 7", "lambda: 8"), [2]),
        (("width=4", "width=5"), [3]),
        (("FedAvg, 6", "FedAvg, 7"), [4]),
    ],
)
def test_code_without_a_file_has_a_hash_that_tells_its_changes(change, changed):
    def hashes(text):
        done = subprocess.run(
            [sys.executable, "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.split()

    before = hashes(WITHOUT_A_FILE)
    after = hashes(WITHOUT_A_FILE.replace(*change))
    assert [place for place in range(7) if before[place] != after[place]] == changed
    assert before[6] == "None"  # fedlama's version is recorded


# From the command line, where every run is a process of its own.


def command(folder, *words, fails=False):
    done = subprocess.run(
        [sys.executable, "-m", "fedlama", *words],
        cwd=folder.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode != 0) == fails, done.stderr
    return done


@pytest.mark.slow
def test_the_folder_of_the_configuration_is_importable_and_changed_code_is_told(
    tmp_path,
):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "mymodule.py").write_text(MODULE)
    (folder / "c.toml").write_text(
        '[data]\nname = "mymodule:load"\n[model]\nname = "mymodule:build"\n[train]\niterations = 8\n'
        "[policy]\nbase_interval = 2\nincrease_factor = 2\n[output]\ntensorboard = false\n"
    )
    command(folder, "run", "mine/c.toml", "--out", "runs/c", "--workers", "2")
    assert (
        "changed"
        not in command(
            folder, "run", "mine/c.toml", "--out", "runs/c", "--resume"
        ).stderr
    )
    (folder / "mymodule.py").write_text(MODULE + "\n# another line\n")
    told = command(folder, "run", "mine/c.toml", "--out", "runs/c", "--resume").stderr
    assert told.count("changed since") == 1  # the network and the data are in one file
    assert (
        told.count(
            "the code of mymodule changed since the run in runs/c began (SHA-256"
        )
        == 1
    )
    wrong = command(
        folder,
        "run",
        "mine/c.toml",
        "--set",
        "model.name=mymodule:biuld",
        "--out",
        "runs/d",
        fails=True,
    )
    assert wrong.returncode == 2
    assert wrong.stderr.startswith(
        "fedlama: model.name = 'mymodule:biuld': mymodule has no biuld; did you mean"
    )
    assert "Traceback" not in wrong.stderr
    # A report shows the run, and does not run the code that it names.
    (folder / "mymodule.py").write_text("raise RuntimeError('imported')\n")
    assert "report:" in command(folder, "report", "runs/c").stdout
    page = (tmp_path / "runs" / "c" / "report.html").read_text()
    assert "mine on 12 clients" in page


@pytest.mark.slow
def test_my_own_code_in_a_study_and_under_torchrun(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "mymodule.py").write_text(MODULE)
    text = (
        '[data]\nname = "mymodule:load"\n[model]\nname = "mymodule:build"\n[train]\niterations = 8\n'
        "[policy]\nbase_interval = 2\n[output]\ntensorboard = false\n"
    )
    (folder / "c.toml").write_text(text)
    (folder / "s.toml").write_text(
        text + '[study]\nseeds = [0, 1]\n[[study.setting]]\npolicy.kind = "fedavg"\n'
        '[[study.setting]]\nname = "slow"\nlocal.rule = "mymodule:slow"\nlocal.learning_rate = 0.2\n'
    )
    done = command(folder, "study", "mine/s.toml", "--out", "studies/s")
    assert "slow" in done.stdout
    assert len(find_runs([tmp_path / "studies" / "s"])) == 4
    command(folder, "run", "mine/c.toml", "--out", "runs/alone", "--workers", "1")
    launch = [
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "fedlama",
        "run",
    ]
    subprocess.run(
        [sys.executable, *launch, "mine/c.toml", "--out", "runs/together"],
        cwd=tmp_path,
        capture_output=True,
        check=True,
    )
    rounds = [
        (tmp_path / "runs" / name / "rounds.jsonl").read_bytes()
        for name in ("alone", "together")
    ]
    assert rounds[0] == rounds[1]


def test_load_config_makes_its_folder_importable(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "besides.py").write_text(
        "from fedlama.models import mlp\n\n\ndef build():\n    return mlp()\n"
    )
    (tmp_path / "c.toml").write_text(
        '[data]\nname = "digits"\n[model]\nname = "besides:build"\n[train]\niterations = 2\n'
    )
    resolved = resolve(load_config(tmp_path / "c.toml"))
    assert resolved.model().fc1.in_features == 64
    # A module of the same name in another folder is another module.
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "besides.py").write_text("def build():\n    return 3\n")
    (tmp_path / "other" / "c.toml").write_text((tmp_path / "c.toml").read_text())
    with pytest.raises(fedlama.InputError, match=r"must return an nn\.Module, not 3"):
        resolve(load_config(tmp_path / "other" / "c.toml")).model()
    sys.modules.pop("besides", None)
