"""The written-out backward pass of a chain against autograd's."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

import fedlama
from fedlama.training.chain import Chain

DIGITS = fedlama.data.digits()
ACTIVATIONS = st.lists(st.sampled_from([nn.ReLU, nn.Tanh, nn.Sigmoid]), max_size=2)


@st.composite
def chains(draw):
    layers, width = [nn.Flatten()], 64
    for _ in range(draw(st.integers(0, 2))):
        wider = draw(st.integers(1, 9))
        layers += [nn.Linear(width, wider, bias=draw(st.booleans())), *(kind() for kind in draw(ACTIVATIONS))]
        width = wider
    return nn.Sequential(*layers, nn.Linear(width, 10, bias=draw(st.booleans())))


@given(chains(), st.integers(1, 3), st.integers(1, 5))
def test_gradients_and_losses_are_autograds(module, clients, samples):
    module = module.double()
    named = dict(module.named_parameters())
    generator = torch.Generator().manual_seed(0)
    stacks = [torch.randn(clients, *p.shape, generator=generator, dtype=torch.float64) * 0.3 for p in named.values()]
    inputs = torch.randn(clients, samples, 1, 8, 8, generator=generator, dtype=torch.float64)
    targets = torch.randint(0, 10, (clients, samples), generator=generator)
    weights = torch.rand(clients, samples, generator=generator, dtype=torch.float64)
    gradients = [torch.full_like(stack, torch.nan) for stack in stacks]
    chain = Chain.of(module, list(named), DIGITS)
    assert chain is not None
    losses = chain.backward(stacks, inputs, targets, weights, gradients)
    for client in range(clients):
        own = {name: stack[client].requires_grad_() for name, stack in zip(named, stacks, strict=True)}
        each = cross_entropy(functional_call(module, own, (inputs[client],)), targets[client], reduction="none")
        loss = (each * weights[client]).sum()
        expected = torch.autograd.grad(loss, list(own.values()))
        assert losses[client].item() == pytest.approx(loss.item(), rel=1e-12)
        for gradient, one in zip(gradients, expected, strict=True):
            torch.testing.assert_close(gradient[client], one, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.GELU(), nn.Linear(8, 10)),  # its derivative needs its input
        nn.Sequential(nn.Linear(64, 10)),  # digits are images
        nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Linear(64, 10)),
        nn.Sequential(nn.Flatten(2), nn.Linear(64, 10)),
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 10)),
        nn.Linear(64, 10),
    ],
)
def test_what_is_no_chain_is_left_to_autograd(module):
    assert Chain.of(module, [name for name, _ in module.named_parameters()], DIGITS) is None
