"""FedLUAR, FedPart, Fixed and Budget in the simulator: against the naive twin, over workers, killed and resumed."""

import json
from copy import deepcopy

import pytest
import torch
from torch import nn

import fedlama
from fedlama.core import Evidence, Layout, TensorEntry
from fedlama.data import Batches, Natural, arrays
from fedlama.run.config import parse_config
from fedlama.run.execute import execute
from reference import by_plan

SAMPLES = (7, 8, 11, 15, 12)
BATCH = 4
SEED = 5
RATE = 0.05
MOMENTUM = 0.5


def network():
    return nn.Sequential(
        nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 3)
    )


def samples():
    generator = torch.Generator().manual_seed(1)
    owners = torch.arange(len(SAMPLES)).repeat_interleave(torch.tensor(SAMPLES))
    x = torch.randn(sum(SAMPLES), 6, generator=generator) + owners[:, None] * 0.3
    y = torch.randint(0, 3, (sum(SAMPLES),), generator=generator)
    return arrays(x, y, x, y, clients=owners)


POLICIES = {
    "fedluar": fedlama.FedLUAR(3, 2),
    "fedpart": fedlama.FedPart(3, full_rounds=2, group_rounds=1),
    "fixed": fedlama.Fixed(3, {"2.*": 6}),
    "budget": fedlama.Budget(3, 12, 0.6),
    "budget staggered": fedlama.Budget(3, 12, 0.6, staggered=True, drift="relative"),
}
ITERATIONS = 48


def simulate(policy, execution="one-by-one", workers=1, **options):
    built = []

    def build():
        module = network()
        built.append(deepcopy(module))
        return module

    result = fedlama.simulate(
        build,
        samples(),
        policy=policy,
        local=fedlama.SGD(RATE, BATCH, momentum=MOMENTUM),
        participation=fedlama.Participation(3, 12),
        iterations=ITERATIONS,
        seed=SEED,
        execution=execution,
        workers=workers,
        **options,
    )
    return result, built[0]


def rounds_of(policy, result):
    """What the records tell of each round, as the twin wants it."""
    names = [layer.name for layer in result.layers]
    rounds, step = [], 0
    for record in result.records:
        absent = [name for name in names if name not in record.due]
        recycled = absent if isinstance(policy, fedlama.FedLUAR) else []
        trained = record.due if isinstance(policy, fedlama.FedPart) else names
        rounds.append(
            {
                "steps": record.step - step,
                "due": record.due,
                "recycled": recycled,
                "trained": trained,
            }
        )
        step = record.step
    return rounds


@pytest.mark.parametrize("execution", ["one-by-one", "stacked"])
@pytest.mark.parametrize("name", POLICIES)
def test_the_weights_are_those_of_the_twin(name, execution):
    policy = POLICIES[name]
    result, model = simulate(policy, execution)
    data = samples()
    participation = fedlama.Participation(3, 12)
    by_plan(
        model,
        batch=Batches(data, Natural().assign(data, SEED), BATCH, SEED).at,
        cohort=lambda window: participation.cohort(len(SAMPLES), SEED, window),
        window=12,
        rounds=rounds_of(policy, result),
        learning_rate=RATE,
        momentum=MOMENTUM,
    )
    for key, tensor in model.state_dict().items():
        assert torch.allclose(
            result.model.state_dict()[key], tensor, rtol=1e-4, atol=1e-5
        ), key


def test_fedluar_draws_what_the_twin_would_draw():
    policy = POLICIES["fedluar"]
    result, model = simulate(policy)
    data = samples()
    participation = fedlama.Participation(3, 12)
    measured = by_plan(
        model,
        batch=Batches(data, Natural().assign(data, SEED), BATCH, SEED).at,
        cohort=lambda window: participation.cohort(len(SAMPLES), SEED, window),
        window=12,
        rounds=rounds_of(policy, result),
        learning_rate=RATE,
        momentum=MOMENTUM,
    )
    tensors = [
        TensorEntry(name, value.numel(), adaptive=value.dim() > 1)
        for name, value in network().named_parameters()
    ]
    layers = Layout.pack(tensors).layers
    state = policy.start(layers)
    for record, shown in zip(result.records, measured, strict=True):
        plan = policy.next(state, ITERATIONS)
        assert [layers[index].name for index in plan.due] == record.due
        moved = {index: shown[layers[index].name][0] for index in plan.due}
        norm = {index: shown[layers[index].name][1] for index in plan.due}
        state = policy.observe(
            state, plan, Evidence(dict.fromkeys(plan.due, 1.0), moved, norm), layers
        )
    assert len({tuple(record.due) for record in result.records[1:]}) > 1


def test_bytes_of_recycled_layers_go_down_and_not_up():
    result, _ = simulate(POLICIES["fedluar"])
    sizes = {layer.name: layer.size for layer in result.layers}
    for record, following in zip(
        result.records, [*result.records[1:], None], strict=True
    ):
        assert record.uplink_bytes == 3 * 4 * sum(sizes[name] for name in record.due)
        # Everything is new for those who stay as well as for those who enter
        if following is not None:
            assert following.downlink_bytes == 3 * 4 * sum(sizes.values())
    # Two of three kernels are not sent in all rounds but the first: κ counts averages.
    kernels = [layer for layer in result.layers if layer.name.endswith("weight")]
    assert sum(layer.aggregations for layer in kernels) == 3 + 15 * 1
    assert {
        layer.aggregations for layer in result.layers if layer.name.endswith("bias")
    } == {16}


def test_bytes_of_fedpart():
    result, _ = simulate(POLICIES["fedpart"])
    sizes = {layer.name: layer.size for layer in result.layers}
    dues = [record.due for record in result.records[:6]]
    everything = list(sizes)
    assert dues == [
        everything,
        everything,
        everything[:2],
        everything[2:4],
        everything[4:],
        everything,
    ]
    for before, record in zip(
        [None, *result.records[:-1]], result.records, strict=False
    ):
        assert record.uplink_bytes == 3 * 4 * sum(sizes[name] for name in record.due)
        # Those who stay are sent what is new
        if before is not None and before.step % 12:
            assert record.downlink_bytes == 3 * 4 * sum(
                sizes[name] for name in before.due
            )


def test_the_budget_holds():
    result, _ = simulate(POLICIES["budget"])
    assert result.cost <= 0.6
    assert len({tuple(record.intervals) for record in result.records}) > 1


@pytest.mark.parametrize("execution", ["one-by-one", "stacked"])
@pytest.mark.parametrize("name", POLICIES)
def test_the_bits_do_not_depend_on_the_number_of_workers(name, execution):
    one, _ = simulate(POLICIES[name], execution)
    three, _ = simulate(POLICIES[name], execution, workers=3)
    assert one.records == three.records
    for key, tensor in one.model.state_dict().items():
        assert torch.equal(tensor, three.model.state_dict()[key]), key


def test_a_recycled_layer_under_codes_in_both_directions():
    codes = {
        "uplink": fedlama.compress.Quantize(8),
        "downlink": fedlama.compress.Quantize(8),
    }
    one, _ = simulate(POLICIES["fedluar"], **codes)
    three, _ = simulate(POLICIES["fedluar"], workers=3, **codes)
    assert one.records == three.records
    plain, _ = simulate(POLICIES["fedluar"])
    assert one.uplink_bytes < 0.5 * plain.uplink_bytes
    assert one.downlink_bytes < plain.downlink_bytes


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        (
            fedlama.FedLUAR(3, 3),
            r"policy\.recycled = 3 must be less than the number of adaptive layers, 3",
        ),
        (fedlama.Fixed(3, {"conv*": 6}), r"pattern 'conv\*' matches no layer"),
        (
            fedlama.FedPart(3, groups=4),
            r"policy\.groups must be at most the number of adaptive layers, 3, not 4",
        ),
    ],
)
def test_a_policy_that_does_not_fit_the_model_is_refused(policy, sentence):
    with pytest.raises(fedlama.InputError, match=sentence):
        simulate(policy)


SECTIONS = {
    "fedluar": {"kind": "fedluar", "base_interval": 3, "recycled": 1},
    "fedpart": {
        "kind": "fedpart",
        "base_interval": 3,
        "full_rounds": 1,
        "group_rounds": 1,
    },
    "fedpart by pattern": {
        "kind": "fedpart",
        "base_interval": 3,
        "full_rounds": 1,
        "groups": ["conv*", "fc*"],
    },
    "fixed": {"kind": "fixed", "base_interval": 3, "intervals": {"*.weight": 12}},
    "budget": {
        "kind": "budget",
        "base_interval": 3,
        "cycle": 12,
        "share": 0.5,
        "staggered": True,
    },
}


class KilledError(Exception):
    pass


def kill_after(rounds):
    def observer(record):
        if record.round >= rounds:
            raise KilledError

    return observer


def contents(folder):
    summary = json.loads((folder / "summary.json").read_text())
    del summary["seconds"]
    names = ("rounds.jsonl", "config.toml", "checkpoint/model.safetensors")
    return {
        "summary": summary,
        **{name: (folder / name).read_bytes() for name in names},
    }


@pytest.mark.parametrize("name", SECTIONS)
def test_a_run_that_was_killed_ends_with_the_same_bits(name, tmp_path):
    config = parse_config(
        {
            "data": {"name": "digits"},
            "model": {"name": "small_cnn"},
            "partition": {"kind": "dirichlet", "clients": 12, "min_samples": 5},
            "participation": {"active": 4, "window": 24},
            "policy": SECTIONS[name],
            "local": {"momentum": 0.9, "batch_size": 16},
            "train": {"iterations": 48, "checkpoint_minutes": 0.0},
            "output": {"tensorboard": False},
        }
    )
    execute(config, tmp_path / "whole", workers=1)
    with pytest.raises(KilledError):
        execute(config, tmp_path / "run", [kill_after(9)], workers=1)
    execute(config, tmp_path / "run", workers=3, resume=True)
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")
