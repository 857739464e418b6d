"""Arguments that are nearly right, and modules that change while they are trained: each ends in one sentence."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import fedlama
from fedlama.base import InputError, RunError, check_options
from fedlama.data import arrays

X = torch.randn(24, 5, generator=torch.Generator().manual_seed(0))
Y = torch.arange(24) % 3


def run(model=lambda: nn.Linear(5, 3), **changes):
    options = {
        "policy": fedlama.FedLAMA(2, 2),
        "local": fedlama.SGD(0.1, 4),
        "partition": fedlama.IID(4),
        "iterations": 8,
        **changes,
    }
    return fedlama.simulate(model, arrays(X, Y, X, Y), **options)


def detached(outputs, targets):
    return cross_entropy(outputs, targets).detach()


def number(outputs, targets):
    return float(cross_entropy(outputs, targets))


def complex_loss(outputs, targets):
    return cross_entropy(outputs, targets).to(torch.complex64)


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (number, "the loss must be a tensor with one number, not "),
        (
            lambda outputs, targets: None,
            "the loss must be a tensor with one number, not None",
        ),
        (
            lambda outputs, targets: (outputs.argmax(1) != targets).sum(),
            "floating-point number, not torch.int64",
        ),
        (complex_loss, "floating-point number, not torch.complex64"),
        (detached, "the loss does not depend on the model's parameters"),
        (
            lambda outputs, targets: torch.tensor(1.0),
            "the loss does not depend on the model's parameters",
        ),
    ],
)
def test_a_loss_without_a_gradient_is_refused(loss, said):
    with pytest.raises(InputError, match=said):
        run(loss=loss)


@pytest.mark.parametrize(
    "metric", [lambda *_: "good", lambda *_: None, lambda *_: [0.5], lambda *_: 1j]
)
def test_a_metric_that_is_no_number_is_refused(metric):
    with pytest.raises(InputError, match="the metric must be a number, not"):
        run(metric=metric)


def test_metrics_that_are_numbers_of_any_kind():
    for value in (0.5, True, torch.tensor([[0.5]]), X.numpy()[0, 0]):
        assert run(
            metric=lambda outputs, targets, value=value: value
        ).score == pytest.approx(float(value))


@pytest.mark.parametrize("device", [None, 0, 1.5, ["cpu"], torch.device("cpu")])
def test_a_device_that_is_no_name(device):
    with pytest.raises(InputError, match="device must be auto, cpu or cuda, not"):
        run(device=device)


@pytest.mark.parametrize(
    "device", ["mps", "meta", "xpu", "xla", "vulkan", "fpga", "hpu"]
)
def test_devices_that_are_neither_cpu_nor_cuda(device):
    with pytest.raises(
        InputError, match=f"device '{device}': fedlama computes on a CPU or with CUDA"
    ):
        run(device=device)


@pytest.mark.parametrize(
    "device", ["", "cuda:99999999999999999999", "\x1b[31m", "cpu:x", "cuda:-1"]
)
def test_devices_that_torch_does_not_know(device):
    with pytest.raises(InputError, match=r"^device '"):
        run(device=device)


def test_a_cuda_device_that_is_not_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(
        InputError, match="'cuda:2': this machine has 2 CUDA devices, counted from 0"
    ):
        run(device="cuda:2")


@pytest.mark.parametrize("kind", [fedlama.IID, fedlama.Dirichlet])
def test_a_class_is_no_partition(kind):
    with pytest.raises(InputError, match=f"not the class {kind.__name__}"):
        run(partition=kind)


@pytest.mark.parametrize("adaptive", [[3], 3, [None], ["weight", b"bias"], {"weight"}])
def test_patterns_that_are_no_texts(adaptive):
    with pytest.raises(InputError, match="adaptive must be a list of patterns"):
        run(adaptive=adaptive)


@pytest.mark.parametrize(
    "name", ["weights", "execution", "evaluate", "precision", "layers"]
)
@pytest.mark.parametrize("value", [None, 3, ["uniform"], X.numpy(), "\x1b" * 10_000])
def test_choices_of_any_type(name, value):
    with pytest.raises(InputError, match=f"{name} must be one of") as refused:
        run(**{name: value})
    assert len(str(refused.value)) < 400


def test_an_option_of_any_type():
    for value in (X.numpy(), ["x"] * 10_000, None):
        with pytest.raises(
            InputError, match="decayed must be one of all, kernels, not"
        ) as refused:
            check_options(fedlama.SGD(0.1, 4, decayed=value))
        assert len(str(refused.value)) < 400


class Changing(nn.Module):
    """Does something to itself in its first forward pass of a training."""

    def __init__(self, change):
        super().__init__()
        self.first = nn.Linear(5, 4)
        self.last = nn.Linear(4, 3)
        self.change = change

    def forward(self, x):
        if self.training:
            self.change(self)
        return self.last(self.first(x).relu())


def freeze(module):
    module.first.weight.requires_grad_(False)


def add(module):
    if not hasattr(module, "extra"):
        module.extra = nn.Parameter(torch.ones(3))


def replace(module):
    module.last.bias = nn.Parameter(torch.zeros(3))


def remove(module):
    module.last.bias = None


def swap_numbers(module):
    module.first.weight.data = module.first.weight.data.clone()


def drop_gradients(module):
    module.zero_grad(set_to_none=True)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (freeze, "first.weight is frozen now"),
        (add, "extra was not there at the start"),
        (replace, "last.bias was replaced by another parameter"),
        (remove, "last.bias is not there any more"),
        (swap_numbers, "first.weight was given other numbers"),
        (drop_gradients, "first.weight was given another gradient"),
    ],
)
def test_a_module_that_changes_while_it_trains_is_noticed_in_the_first_round(
    change, said, workers
):
    records = []
    with pytest.raises(RunError, match=said):
        run(
            lambda: Changing(change),
            execution="one-by-one",
            on_record=records.append,
            workers=workers,
        )
    assert not records


class ChangingLate(Changing):
    """Grows a parameter when it is evaluated after a training."""

    trained = False

    def forward(self, x):
        if not self.training and self.trained:
            add(self)
        self.trained = self.trained or self.training
        return super().forward(x)


def test_a_module_that_changes_when_it_is_evaluated():
    with pytest.raises(RunError, match="extra was not there at the start"):
        run(lambda: ChangingLate(lambda module: None), execution="one-by-one")
