"""docs/tracking.md: its trackers are the files in examples/tracking, and each is called as its library wants it.

wandb and mlflow are not installed for the tests: stand-ins take the calls and check them.
"""

import sys
from importlib import import_module
from types import ModuleType

import pytest

import fedlama
from documentation.pages import ROOT, python_blocks

NAMES = ("to_tensorboard", "to_wandb", "to_mlflow")


def simulate(on_record, **options):
    return fedlama.simulate(
        fedlama.models.mlp,
        fedlama.data.digits(),
        policy=fedlama.FedLAMA(6, 2),
        local=fedlama.SGD(learning_rate=0.1, batch_size=16),
        partition=fedlama.IID(clients=4),
        iterations=24,
        evaluate_every=12,
        on_record=on_record,
        **options,
    )


def test_the_page_has_the_files_as_they_are():
    files = [
        (ROOT / "examples" / "tracking" / f"{name}.py").read_text(encoding="utf-8")
        for name in NAMES
    ]
    first, *trackers = python_blocks("docs/tracking.md")
    assert trackers == files
    exec(compile(first, "docs/tracking.md", "exec"), {})


class StandIn:
    """Takes what a tracker is told: names and plain numbers, at steps that only grow."""

    def __init__(self):
        self.told: list[tuple[int, dict]] = []

    def log(self, numbers, step):
        assert not self.told or step > self.told[-1][0]
        for name, number in numbers.items():
            assert type(name) is str
            assert type(number) in (int, float)
        self.told.append((step, numbers))


def check(told: list[tuple[int, dict]], result: fedlama.Result, accuracy: str) -> None:
    assert [step for step, _ in told] == [record.step for record in result.records]
    evaluated = {
        step: numbers[accuracy] for step, numbers in told if accuracy in numbers
    }
    assert evaluated == {
        record.step: record.accuracy
        for record in result.records
        if record.accuracy is not None
    }
    assert len(evaluated) == 2


def test_wandb():
    stand_in = StandIn()
    result = simulate(import_module("tracking.to_wandb").ToWandb(stand_in))
    check(stand_in.told, result, "test/accuracy")


def error(outputs, targets):
    return (outputs.argmax(dim=1) != targets).float().mean()


OWN_METRIC = fedlama.Metric(error, name="error", higher_is_better=False)


def check_own_metric(
    told: list[tuple[int, dict]], result: fedlama.Result, name: str
) -> None:
    evaluated = {step: numbers[name] for step, numbers in told if name in numbers}
    assert evaluated == {
        record.step: record.metrics["error"]
        for record in result.records
        if record.metrics
    }
    assert len(evaluated) == 2
    assert not any("accuracy" in key for _, numbers in told for key in numbers)


def test_a_metric_of_ones_own_has_its_name_and_there_is_no_accuracy(monkeypatch):
    stand_in = StandIn()
    result = simulate(
        import_module("tracking.to_wandb").ToWandb(stand_in), metric=OWN_METRIC
    )
    check_own_metric(stand_in.told, result, "test/error")

    stand_in = StandIn()
    module = ModuleType("mlflow")
    module.log_metrics = stand_in.log  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mlflow", module)
    monkeypatch.delitem(sys.modules, "tracking.to_mlflow", raising=False)
    result = simulate(import_module("tracking.to_mlflow").to_mlflow, metric=OWN_METRIC)
    check_own_metric(stand_in.told, result, "test_error")


def test_mlflow(monkeypatch):
    stand_in = StandIn()
    module = ModuleType("mlflow")
    module.log_metrics = stand_in.log  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mlflow", module)
    monkeypatch.delitem(sys.modules, "tracking.to_mlflow", raising=False)
    result = simulate(import_module("tracking.to_mlflow").to_mlflow)
    check(stand_in.told, result, "test_accuracy")


def test_tensorboard(tmp_path):
    events = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator"
    )
    tracker = import_module("tracking.to_tensorboard").ToTensorBoard(tmp_path)
    result = simulate(tracker)
    tracker.writer.close()
    told = events.EventAccumulator(str(tmp_path)).Reload()
    losses = told.Scalars("train/loss")
    assert [event.step for event in losses] == [
        record.step for record in result.records
    ]
    assert [event.value for event in losses] == pytest.approx(
        [record.loss for record in result.records]
    )
    assert told.Scalars("test/accuracy")[-1].value == pytest.approx(result.accuracy)
