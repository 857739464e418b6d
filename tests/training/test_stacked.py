"""Stacked execution and reduced precision: the same training, faster."""

from inspect import signature

import pytest
import torch
from torch import nn

import fedlama
from fedlama.processes.world import DistributedWorld
from fedlama.rows import Binding, describe
from fedlama.training.trainers import (
    BLOCK,
    OneByOneTrainer,
    StackedTrainer,
    Trainer,
    block_of,
    can_stack,
    suits_stacking,
)


def simulate(**changes):
    arguments = {
        "model": fedlama.models.mlp,
        "policy": fedlama.FedLAMA(3, 2),
        "local": fedlama.SGD(
            0.1, 16, momentum=0.9, weight_decay=1e-3, decayed="kernels"
        ),
        # Short batches and clients smaller than one
        "partition": fedlama.Dirichlet(30, 0.5, min_samples=3),
        "participation": BLOCK + 3,
        "iterations": 30,
        "weights": "samples",
        **changes,
    }
    return fedlama.simulate(arguments.pop("model"), fedlama.data.digits(), **arguments)


def weights_of(result):
    return torch.cat(
        [parameter.detach().reshape(-1) for parameter in result.model.parameters()]
    )


@pytest.mark.parametrize("model", [fedlama.models.mlp, fedlama.models.small_cnn])
def test_stacked_and_one_by_one_are_the_same_training(model):
    stacked, alone = (
        simulate(model=model, execution=name) for name in ("stacked", "one-by-one")
    )
    torch.testing.assert_close(
        weights_of(stacked), weights_of(alone), rtol=1e-4, atol=1e-5
    )
    assert [record.intervals for record in stacked.records] == [
        record.intervals for record in alone.records
    ]
    assert [record.loss for record in stacked.records] == pytest.approx(
        [r.loss for r in alone.records], rel=1e-4
    )
    assert stacked.uplink_bytes == alone.uplink_bytes


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_stacks_give_the_same_bits_on_any_number_of_workers(workers):
    one, many = (
        simulate(execution="stacked"),
        simulate(execution="stacked", workers=workers),
    )
    assert one.records == many.records
    assert torch.equal(weights_of(one), weights_of(many))


def test_a_clients_bits_do_not_depend_on_its_neighbours_in_the_stack():
    data, rule = fedlama.data.digits(), fedlama.SGD(0.1, 16, momentum=0.9)
    shards = fedlama.Dirichlet(30, 0.5, min_samples=3).assign(data, 0)
    module = fedlama.models.mlp()
    binding = Binding(module, describe(module))
    trainer = StackedTrainer(
        binding, fedlama.data.Batches(data, shards, 16, seed=0), rule
    )

    def trained(clients, wanted):
        rows = binding.read().repeat(len(clients), 1)
        slots = {"velocity": torch.zeros_like(rows)}
        losses = trainer.train(
            clients,
            rows,
            slots=slots,
            counters=torch.zeros(len(clients), 0),
            server_rows={"model": rows[0]},
            steps=range(5),
            local_steps=[range(5)] * len(clients),
        )
        return rows[clients.index(wanted)], losses[clients.index(wanted)]

    alone, among, elsewhere = (
        trained(clients, 4) for clients in ([4], list(range(BLOCK)), [9, 2, 4])
    )
    assert torch.equal(alone[0], among[0])
    assert torch.equal(alone[0], elsewhere[0])
    assert alone[1] == among[1] == elsewhere[1]


@pytest.mark.parametrize("kind", [Trainer, OneByOneTrainer, StackedTrainer])
def test_what_could_be_mistaken_for_something_else_is_given_by_name(kind):
    given = signature(kind.train).parameters.values()
    by_name = [one.name for one in given if one.kind is one.KEYWORD_ONLY]
    assert by_name == [
        "slots",
        "counters",
        "server_rows",
        "steps",
        "local_steps",
        "trained",
    ]


def test_auto_is_a_rule_on_the_model_never_a_timing():
    data, loss = fedlama.data.digits(), nn.functional.cross_entropy

    def suits(module):
        return suits_stacking(module, describe(module), data, loss, "float32")

    assert suits(fedlama.models.mlp())
    assert suits(fedlama.models.small_cnn())
    assert suits(fedlama.models.mlp(hidden=(600, 600)))  # 405,610 parameters
    # 543,210 parameters: too large
    assert not suits(fedlama.models.mlp(hidden=(700, 700)))
    convolution = [nn.Conv2d(1, 40, 3), nn.ReLU(), nn.Flatten()]
    # 58,450
    assert suits(nn.Sequential(*convolution, nn.Linear(1440, 40), nn.Linear(40, 10)))
    # 72,960
    assert not suits(
        nn.Sequential(*convolution, nn.Linear(1440, 50), nn.Linear(50, 10))
    )
    assert not suits(nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.Dropout(0.1)))
    assert not suits(nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 10)))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {
                "model": lambda: nn.Sequential(
                    nn.Flatten(), nn.Linear(64, 10), nn.Dropout(0.1)
                )
            },
            "Dropout",
        ),
        (
            {
                "loss": lambda outputs, targets: (
                    outputs.logsumexp(1) - outputs.max(1)[0]
                ).mean()
            },
            "loss is not the default",
        ),
        ({"precision": "bfloat16"}, "precision"),
    ],
)
def test_what_cannot_be_stacked_is_refused_with_the_reason(changes, reason):
    with pytest.raises(
        fedlama.InputError,
        match=f"execution = 'stacked' does not fit this training: .*{reason}",
    ):
        simulate(execution="stacked", **changes)


def test_a_user_module_is_not_stacked_unseen():
    class Own(nn.Module):
        def forward(self, x):
            return x

    assert "Own" in can_stack(
        Own(), fedlama.data.digits(), nn.functional.cross_entropy, "float32"
    )


def test_bfloat16_learns_and_keeps_float32_weights():
    reduced, full = (
        simulate(precision="bfloat16", iterations=60),
        simulate(iterations=60, execution="one-by-one"),
    )
    assert weights_of(reduced).dtype == torch.float32
    assert not torch.equal(weights_of(reduced), weights_of(full))
    assert reduced.loss == pytest.approx(full.loss, rel=0.2)
    assert reduced.uplink_bytes == pytest.approx(full.uplink_bytes, rel=0.5)


@pytest.mark.parametrize(
    ("key", "value"), [("execution", "fast"), ("precision", "float16")]
)
def test_an_unknown_choice_names_the_choices(key, value):
    with pytest.raises(
        fedlama.InputError, match=f"{key} must be one of .*, not '{value}'"
    ):
        simulate(**{key: value})


def with_gradient_hook():
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    module[1].weight.register_hook(lambda gradient: gradient * 0)
    return module


def with_forward_hook():
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    module[1].register_forward_hook(lambda layer, inputs, outputs: outputs * 2)
    return module


def with_a_module_used_twice():
    shared = nn.Linear(64, 64)
    return nn.Sequential(nn.Flatten(), shared, nn.ReLU(), shared, nn.Linear(64, 10))


@pytest.mark.parametrize(
    "model", [with_gradient_hook, with_forward_hook, with_a_module_used_twice]
)
def test_a_module_with_code_or_ties_of_its_own_is_trained_one_by_one(model):
    auto, alone = simulate(model=model), simulate(model=model, execution="one-by-one")
    assert torch.equal(weights_of(auto), weights_of(alone))
    with pytest.raises(fedlama.InputError, match=r"hooks|twice"):
        simulate(model=model, execution="stacked")


@pytest.mark.parametrize(
    "model",
    [
        lambda: nn.Sequential(
            nn.Flatten(), nn.Linear(64, 20, bias=False), nn.Tanh(), nn.Linear(20, 10)
        ),
        lambda: nn.Sequential(
            nn.Flatten(), nn.Sequential(nn.Linear(64, 20), nn.GELU()), nn.Linear(20, 10)
        ),
        lambda: nn.Sequential(nn.Flatten(), nn.LayerNorm(64), nn.Linear(64, 10)),
    ],
)
def test_chains_and_others_are_stacked_alike(model):
    stacked, alone = (
        simulate(model=model, execution=name) for name in ("stacked", "one-by-one")
    )
    torch.testing.assert_close(
        weights_of(stacked), weights_of(alone), rtol=1e-4, atol=1e-5
    )


def test_whole_blocks_are_dealt_to_workers():
    # 11 clients in blocks of 8 on two workers: 8 and 3, never 6 and 5, which would pad both to 8
    shares = [
        DistributedWorld(rank, 2).share([16.0] * 11, together=8) for rank in range(2)
    ]
    assert sorted(map(len, shares)) == [3, 8]
    assert sorted(shares[0] + shares[1]) == list(range(11))


def test_a_larger_models_stacks_are_lower_so_that_eight_clients_are_work_for_two_processes():
    def height(width):
        return block_of(
            describe(
                nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))
            )
        )

    assert height(100) == BLOCK  # 7,510 parameters
    assert height(1000) == BLOCK // 2  # 75,010
