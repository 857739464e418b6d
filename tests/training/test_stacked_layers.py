"""The forward and backward pass of a stack against every client's own copy of the module."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call

from fedlama.training.trainers.layers import (
    STACKABLE,
    StackedLinear,
    stacked_forward,
    why_not_stackable,
)

DOUBLE = torch.float64


def compare_with_single_copies(module, clients, samples, shape):
    """Outputs and gradients of a stack are those of the module with each client's parameters, one by one."""
    module = module.double()
    generator = torch.Generator().manual_seed(0)
    parameters = {}
    for name, parameter in module.named_parameters():
        values = 0.3 * torch.randn(
            clients, *parameter.shape, generator=generator, dtype=DOUBLE
        )
        parameters[name] = values.requires_grad_()
    inputs = torch.randn(clients, samples, *shape, generator=generator, dtype=DOUBLE)
    outputs = stacked_forward(module, parameters, inputs)
    factors = torch.randn(outputs.shape, generator=generator, dtype=DOUBLE)
    gradients = torch.autograd.grad(
        (outputs * factors).sum(), list(parameters.values())
    )
    for client in range(clients):
        own = {
            name: values[client].detach().requires_grad_()
            for name, values in parameters.items()
        }
        expected = functional_call(module, own, (inputs[client],))
        torch.testing.assert_close(outputs[client], expected, rtol=1e-10, atol=1e-12)
        expected_gradients = torch.autograd.grad(
            (expected * factors[client]).sum(), list(own.values())
        )
        for gradient, one in zip(gradients, expected_gradients, strict=True):
            torch.testing.assert_close(gradient[client], one, rtol=1e-10, atol=1e-12)


@st.composite
def perceptrons(draw):
    layers, width = [nn.Flatten()], 12
    for _ in range(draw(st.integers(0, 2))):
        wider = draw(st.integers(1, 9))
        activation = draw(
            st.sampled_from([nn.ReLU, nn.Tanh, nn.GELU, nn.Sigmoid, nn.Identity])
        )
        layers += [nn.Linear(width, wider, bias=draw(st.booleans())), activation()]
        width = wider
    return nn.Sequential(*layers, nn.Linear(width, 10, bias=draw(st.booleans())))


@given(perceptrons(), st.integers(1, 3), st.integers(1, 5))
def test_perceptrons(module, clients, samples):
    compare_with_single_copies(module, clients, samples, (1, 4, 3))


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(
            nn.Conv2d(2, 3, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(12, 5),
        ),
        nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1),
            nn.GroupNorm(2, 4),
            nn.AvgPool2d(2),
            nn.Flatten(1, 2),
        ),
        nn.Sequential(nn.Flatten(2), nn.LayerNorm(36), nn.Conv1d(2, 3, 5), nn.ELU()),
        nn.Sequential(
            nn.LayerNorm(6, elementwise_affine=False), nn.Linear(6, 4), nn.SiLU()
        ),
        nn.Sequential(
            nn.AdaptiveAvgPool2d(2),
            nn.Unflatten(1, (2, 1)),
            nn.Sequential(nn.Linear(2, 3), nn.LeakyReLU()),
        ),
        nn.Sequential(nn.Linear(6, 3), nn.ReLU(inplace=True), nn.Linear(3, 2)),
    ],
)
def test_layers_of_every_kind(module):
    compare_with_single_copies(module, clients=3, samples=4, shape=(2, 6, 6))


def test_every_stackable_kind_is_compared():
    compared = {
        nn.Sequential,
        nn.Linear,
        nn.Conv1d,
        nn.Conv2d,
        nn.LayerNorm,
        nn.GroupNorm,
        nn.Flatten,
        nn.Unflatten,
    }
    compared |= {nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.Identity}
    compared |= {nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid}
    assert set(STACKABLE) == compared


def test_a_linear_kernels_gradient_lies_in_memory_as_the_kernel_does():
    weight = torch.randn(3, 5, 4, requires_grad=True)
    StackedLinear.apply(
        torch.randn(3, 2, 4), weight, torch.zeros(3, 5)
    ).sum().backward()
    assert weight.grad.is_contiguous()


@pytest.mark.parametrize(
    "module",
    [nn.Flatten(0), nn.Flatten(-2), nn.Unflatten(0, (2, 2)), nn.Unflatten("a", ())],
)
def test_what_mixes_samples_is_not_stacked(module):
    assert "mix" in why_not_stackable(module)


@pytest.mark.parametrize(
    "module", [nn.Flatten(), nn.Flatten(2), nn.Unflatten(1, (2, 2)), nn.Linear(2, 2)]
)
def test_what_takes_each_sample_by_itself_is(module):
    assert why_not_stackable(module) is None
