"""LayerwiseModelAverager in real torchrun programs: same decisions as the simulator, bytes as handed over."""

import json
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import averager_program as program
import pytest
import torch
import torch.distributed as dist
from torch import nn

import fedlama

HERE = Path(__file__).parent
REPOSITORY = HERE.parent.parent


def torchrun(*arguments: str, ranks: int = 2) -> subprocess.CompletedProcess[str]:
    launcher = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(ranks),
    ]
    return subprocess.run(
        [*launcher, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=REPOSITORY,
    )


def ranks_of(mode: str, folder: Path, ranks: int = 2) -> list[dict]:
    finished = torchrun(
        str(HERE / "averager_program.py"), mode, str(folder), ranks=ranks
    )
    assert finished.returncode == 0, finished.stderr
    return seen_by(folder, ranks)


def seen_by(folder: Path, ranks: int) -> list[dict]:
    return [
        json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(ranks)
    ]


@pytest.fixture(scope="module")
def simulated() -> fedlama.Result:
    """The same training in the simulator: two clients, all active, momentum 0."""
    return fedlama.simulate(
        program.build,
        fedlama.data.digits(),
        policy=fedlama.FedLAMA(program.BASE, program.FACTOR),
        local=fedlama.SGD(program.RATE, program.BATCH),
        partition=fedlama.IID(2),
        iterations=program.STEPS,
        seed=program.SEED,
    )


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["plain", "post-local", "restart"])
def test_a_program_under_torchrun_takes_the_simulators_decisions(
    mode, tmp_path, simulated
):
    first, second = ranks_of(mode, tmp_path)
    # Both ranks hold the same model at cycle ends
    assert first["cycle_end_weights"] == second["cycle_end_weights"]
    assert first["intervals"] == second["intervals"]
    cycle = program.BASE * program.FACTOR
    after_cycle = [
        later.intervals
        for earlier, later in pairwise(simulated.records)
        if earlier.step % cycle == 0
    ]
    assert first["intervals"][:-1] == after_cycle
    assert any(len(set(intervals)) == 2 for intervals in after_cycle), (
        "no layer was ever lengthened: a weak test"
    )
    assert first["aggregations"] == [layer.aggregations for layer in simulated.layers]
    last = simulated.records[-1].discrepancy
    assert first["discrepancy"] == pytest.approx(last, rel=1e-4)
    weights = torch.cat([p.detach().reshape(-1) for p in simulated.model.parameters()])
    torch.testing.assert_close(
        torch.tensor(first["cycle_end_weights"][-1]), weights, rtol=1e-4, atol=1e-6
    )
    assert first["step"] == program.STEPS


@pytest.mark.slow
def test_the_bytes_counted_are_the_bytes_handed_to_the_process_group(
    tmp_path, simulated
):
    for seen in ranks_of("plain", tmp_path):
        assert seen["sent_bytes"] == seen["handed_bytes"]
        # two collectives per round: the packed layers, and one float64 per due layer
        assert seen["collectives"] == 2 * len(simulated.records)
        distances = 8 * sum(layer.aggregations for layer in simulated.layers)
        assert seen["handed_bytes"] == simulated.uplink_bytes // 2 + distances


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "ranks"), [("coded", 2), ("diloco", 3)])
def test_coded_messages_leave_all_ranks_with_the_same_model(mode, ranks, tmp_path):
    plain = ranks_of("plain", tmp_path, ranks)[0]
    seen = ranks_of(mode, tmp_path, ranks)
    for one in seen:
        assert one["cycle_end_weights"] == seen[0]["cycle_end_weights"]
        assert one["intervals"] == seen[0]["intervals"]
        assert one["sent_bytes"] == one["handed_bytes"]
        # one packed all-gather per round, and a second one where a message was longer than its buffer
        assert one["collectives"] <= 1.3 * plain["collectives"] / 2
        assert one["ledger_bytes"] < 0.1 * plain["ledger_bytes"]
        # an eighth to spare, and what was not foreseen where layers were due together for the first time
        assert one["handed_bytes"] < 1.3 * one["ledger_bytes"]


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3])
def test_all_ranks_hold_the_same_layers_after_every_synchronisation(ranks, tmp_path):
    modes = ["plain", "coded", "diloco", "budget", "relative"]
    finished = torchrun(
        str(HERE / "averager_program.py"), ",".join(modes), str(tmp_path), ranks=ranks
    )
    assert finished.returncode == 0, finished.stderr
    for mode in modes:
        first, *others = seen_by(tmp_path / mode, ranks)
        layers = len(first["aggregations"])
        assert any(len(hashes) < layers for hashes in first["rounds"]), (
            f"{mode}: all layers are always due: a weak test"
        )
        for other in others:
            assert other["rounds"] == first["rounds"], mode
            assert other["own"] == first["own"], mode
            assert other["intervals"] == first["intervals"], mode
            assert other["aggregations"] == first["aggregations"], mode
            if mode == "budget":
                assert other["ledger_bytes"] != first["ledger_bytes"], (
                    "all messages were as long: a weak test"
                )


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["coded", "diloco", "relative"])
def test_a_run_with_a_common_model_goes_on_from_its_state(mode, tmp_path):
    whole = ranks_of(mode, tmp_path)[0]
    again, other = ranks_of(f"{mode}-restart", tmp_path)
    assert again["own"] == other["own"] == whole["own"]
    assert again["cycle_end_weights"] == whole["cycle_end_weights"]
    assert again["aggregations"] == whole["aggregations"]
    assert again["sent_bytes"] == again["handed_bytes"]


@pytest.mark.slow
def test_the_example_runs_as_its_docstring_says():
    finished = torchrun("examples/torchrun_averager.py")
    assert finished.returncode == 0, finished.stderr
    assert "accuracy 9" in finished.stdout
    assert "of full averaging" in finished.stdout


@pytest.mark.slow
def test_torchrun_runs_the_command_line_with_the_same_bits(tmp_path):
    config = tmp_path / "small.toml"
    config.write_text(
        '[data]\nname = "digits"\n[participation]\nactive = 5\n[train]\niterations = 48\n'
    )
    finished = torchrun(
        "-m", "fedlama", "run", str(config), "--out", str(tmp_path / "group")
    )
    assert finished.returncode == 0, finished.stderr
    command = [
        sys.executable,
        "-m",
        "fedlama",
        "run",
        str(config),
        "--out",
        str(tmp_path / "alone"),
        "--workers",
        "1",
    ]
    subprocess.run(command, check=True, capture_output=True)
    for name in ("rounds.jsonl", "checkpoint/model.safetensors", "config.toml"):
        assert (tmp_path / "group" / name).read_bytes() == (
            tmp_path / "alone" / name
        ).read_bytes()


@pytest.fixture
def alone():
    """A process group of one, so that refusals can be tested in this process."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def averager_with_bn(alone, **options):
    module = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    return module, fedlama.LayerwiseModelAverager(module, 2, 2, **options)


def test_parameter_groups_and_parameters_are_both_taken(alone):
    module, averager = averager_with_bn(alone)
    averager.average_parameters(module.parameters())
    averager.average_parameters(
        torch.optim.SGD(module.parameters(), lr=0.1).param_groups
    )
    assert averager.step == 2
    assert averager.ledger.aggregations == (1,) * 6


def test_other_parameters_are_refused(alone):
    _, averager = averager_with_bn(alone)
    with pytest.raises(
        fedlama.InputError, match="was built for a module with 6 trainable parameters"
    ):
        averager.average_parameters(nn.Linear(3, 3).parameters())


def test_nothing_is_averaged_during_warmup(alone):
    module, averager = averager_with_bn(alone, warmup_steps=3)
    for _ in range(4):
        averager.average_parameters(module.parameters())
    assert averager.sent_bytes == 0
    # The second step after the warm-up
    averager.average_parameters(module.parameters())
    assert averager.ledger.aggregations == (1,) * 6


def test_a_policy_that_asks_for_norms_has_its_anchor_in_the_state(alone):
    def build():
        module = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
        return module, fedlama.LayerwiseModelAverager(
            module, policy=fedlama.Budget(1, 4, 0.5, drift="relative")
        )

    module, averager = build()
    anchor = averager._server_state.row.clone()
    shift(module, 1.0)  # a step inside the cycle
    averager.average_parameters(module.parameters())
    saved = averager.state_dict()
    assert list(saved["rows"]) == ["model"]
    behind = averager.layout.layers[0]
    assert averager.state.synchronised_at[0] == 0
    for part in behind.slices:
        assert torch.equal(saved["rows"]["model"][part], anchor[part])
    again, resumed = build()
    again.load_state_dict(module.state_dict())
    resumed.load_state_dict(saved)
    assert torch.equal(resumed._server_state.row, saved["rows"]["model"])


def test_a_policy_that_asks_for_nothing_has_no_rows_in_the_state(alone):
    _, averager = averager_with_bn(alone)
    assert "rows" not in averager.state_dict()


def shift(module: nn.Module, by: float) -> None:
    with torch.no_grad():
        for tensor in module.parameters():
            tensor.add_(by)


def test_an_outer_optimizer_refers_to_the_model_at_the_end_of_the_warmup(alone):
    module = nn.Linear(4, 8)
    nn.init.zeros_(module.weight)
    nn.init.zeros_(module.bias)
    rule = fedlama.server.Momentum(0.5, nesterov=False)
    averager = fedlama.LayerwiseModelAverager(module, 1, 1, warmup_steps=3, server=rule)
    for _ in range(3):
        shift(module, 100.0)
        averager.average_parameters(module.parameters())
    shift(module, 1.0)
    averager.average_parameters(module.parameters())
    assert torch.equal(module.weight, torch.full((8, 4), 301.0))
    shift(module, 1.0)
    averager.average_parameters(module.parameters())
    # the momentum is half of the change before, which was 1, and not 301
    assert torch.equal(module.weight, torch.full((8, 4), 302.5))


def test_a_code_refers_to_the_model_at_the_end_of_the_warmup(alone):
    module = nn.Linear(64, 64, bias=False)
    averager = fedlama.LayerwiseModelAverager(
        module, 1, 1, warmup_steps=3, uplink=fedlama.compress.Rotate(4.0)
    )
    generator = torch.Generator().manual_seed(2)
    for _ in range(3):
        with torch.no_grad():
            module.weight += 100 * torch.randn(64, 64, generator=generator)
        averager.average_parameters(module.parameters())
    change = torch.randn(64, 64, generator=generator)
    with torch.no_grad():
        module.weight += change
    exact = module.weight.detach().clone()
    averager.average_parameters(module.parameters())
    error = (module.weight - exact).norm()
    assert 0 < error < 0.2 * change.norm()


def test_statistics_that_differ_after_a_warmup_do_not_hinder(alone):
    module, averager = averager_with_bn(
        alone, warmup_steps=1, buffers=True, uplink=fedlama.compress.Rotate(4.0)
    )
    before = averager._server_state.row.clone()
    shift(module, 1.0)
    # DistributedDataParallel leaves them to each rank
    module[1].running_mean.fill_(3.0)
    averager.average_parameters(module.parameters())
    anchor = averager._server_state.row
    for part in averager.layout.statistics:
        assert torch.equal(anchor[part], before[part])
    for part in averager.layout.tensor_slices:
        assert torch.allclose(anchor[part], before[part] + 1)
    for _ in range(2):
        averager.average_parameters(module.parameters())
    assert averager.ledger.aggregations == (1,) * 6


def test_a_budget_counts_the_bytes_of_one_rank(alone):
    module = nn.Linear(4, 8)
    averager = fedlama.LayerwiseModelAverager(module, policy=fedlama.Budget(1, 2, 1.0))
    averager._ranks = TwoAlike(averager._ranks)
    averager.average_parameters(module.parameters())
    assert averager.state.own["bytes"] == [4 * 32, 4 * 8]
    assert averager.ledger.uplink_bytes == 4 * 40  # what this rank sent


class TwoAlike:
    """Two ranks that always have the same numbers."""

    count = 2
    own = 0

    def __init__(self, ranks) -> None:
        self.ranks = ranks

    def sum_(self, tensor: torch.Tensor) -> None:
        tensor *= 2

    def gather(self, content: bytes, length: int) -> list[bytes]:
        return 2 * self.ranks.gather(content, length)


def test_batchnorm_buffers_travel_when_asked(alone):
    module, averager = averager_with_bn(alone, buffers=True)
    for _ in range(2):
        averager.average_parameters(module.parameters())
    # 4·8 + 8 + 8 + 8 + 8·2 + 2 = 74 parameters, 16 statistics, 6 distances of 8 bytes
    assert averager.sent_bytes == 4 * (74 + 16) + 8 * 6


def test_average_all_closes_a_cycle_that_was_cut(alone):
    module, averager = averager_with_bn(alone)
    averager.average_parameters(module.parameters())
    averager.average_all()
    assert averager.ledger.aggregations == (1,) * 6
    averager.average_all()  # nothing was trained since: nothing is sent
    assert averager.ledger.aggregations == (1,) * 6


def test_average_all_averages_just_the_layers_that_are_behind(alone):
    module, averager = averager_with_bn(alone)
    # One cycle; the walk lengthens no layer while all distances are zero
    for _ in range(4):
        averager.average_parameters(module.parameters())
    averager.state = replace(averager.state, intervals=(4, 2, 2, 2, 2, 2))
    # Inside the second cycle, right after the short layers were averaged
    for _ in range(2):
        averager.average_parameters(module.parameters())
    assert averager.ledger.aggregations == (2, 3, 3, 3, 3, 3)
    averager.average_all()
    assert averager.ledger.aggregations == (3, 3, 3, 3, 3, 3)


@pytest.mark.parametrize("step", [1, 2, 3, 4, 9])
def test_a_step_restored_without_our_state_goes_on_averaging(alone, step):
    module, averager = averager_with_bn(alone)
    averager.step = step  # as PostLocalSGDOptimizer.load_state_dict does
    for _ in range(4):
        averager.average_parameters(module.parameters())
    assert min(averager.ledger.aggregations) >= 1


def test_bytes_of_a_float64_module_are_counted_as_handed_over(alone):
    module = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8)).double()
    averager = fedlama.LayerwiseModelAverager(module, 1, 2, buffers=True)
    averager.average_parameters(module.parameters())
    # 4·8 + 8 + 8 + 8 = 56 parameters and 16 statistics of 8 bytes, 4 distances of 8 bytes
    assert averager.sent_bytes == 8 * (56 + 16) + 8 * 4


def test_a_state_of_another_model_is_refused(alone):
    _, averager = averager_with_bn(alone)
    other = fedlama.LayerwiseModelAverager(nn.Linear(3, 3), 2, 2)
    with pytest.raises(fedlama.InputError, match="another model"):
        averager.load_state_dict(other.state_dict())


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"warmup_steps": 8}, "saved with warmup_steps = 0, not 8"),
        ({"rule": "released"}, "saved with rule = 'crossing', not 'released'"),
    ],
)
def test_a_state_of_other_settings_is_refused_by_name(alone, change, sentence):
    _, averager = averager_with_bn(alone)
    _, other = averager_with_bn(alone, **change)
    with pytest.raises(fedlama.InputError, match=sentence):
        other.load_state_dict(averager.state_dict())


class Heavy:
    """A server rule that is no dataclass."""

    slots = ()

    def __init__(self, rate):
        self.rate = rate

    def apply(self, anchor, mean, own, *, count):
        return anchor + self.rate * (mean - anchor)


def test_a_rule_that_is_no_dataclass_is_known_by_its_fields(alone):
    def averager(rule):
        return fedlama.LayerwiseModelAverager(nn.Linear(3, 3), 2, 2, server=rule)

    saved = averager(Heavy(0.5)).state_dict()
    averager(Heavy(0.5)).load_state_dict(saved)
    with pytest.raises(
        fedlama.InputError, match=r"Heavy\(rate=0.5\)', not 'Heavy\(rate=1"
    ):
        averager(Heavy(1.0)).load_state_dict(saved)


def test_a_state_of_something_else_is_refused(alone):
    _, averager = averager_with_bn(alone)
    with pytest.raises(
        fedlama.InputError, match="not a state of a LayerwiseModelAverager"
    ):
        averager.load_state_dict({})


def test_workers_inside_a_program_with_a_group_of_its_own_are_refused(alone):
    with pytest.raises(fedlama.InputError, match="already has a process group"):
        fedlama.simulate(
            program.build,
            fedlama.data.digits(),
            policy=fedlama.FedAvg(2),
            local=fedlama.SGD(0.1, 8),
            partition=fedlama.IID(2),
            iterations=2,
            workers=2,
        )


def test_nan_weights_are_named_by_layer(alone):
    module, averager = averager_with_bn(alone)
    with torch.no_grad():
        module[0].bias.fill_(torch.nan)
    averager.average_parameters(module.parameters())
    with pytest.raises(fedlama.RunError, match=r"0\.bias is not finite"):
        averager.average_parameters(module.parameters())


def test_a_recycled_layer_takes_its_last_change_on_every_rank(alone):
    module = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    averager = fedlama.LayerwiseModelAverager(module, policy=fedlama.FedLUAR(1, 1))
    first = [tensor.detach().clone() for tensor in module.parameters()]
    with torch.no_grad():
        module[0].weight += 0.5
        module[1].weight += 4.0
    averager.average_parameters(module.parameters())
    (recycled,) = averager.policy.next(averager.state, 100).recycled
    with torch.no_grad():
        for tensor in module.parameters():
            tensor.add_(7.0)  # of the recycled layer nobody asks
    averager.average_parameters(module.parameters())
    change = [0.5, 4.0][recycled]
    tensors = list(module.parameters())
    assert torch.allclose(tensors[recycled], first[recycled] + 2 * change)
    other = 1 - recycled
    assert torch.allclose(tensors[other], first[other] + [0.5, 4.0][other] + 7.0)
    assert averager.ledger.aggregations[recycled] == 1
    assert averager.ledger.aggregations[other] == 2


def test_a_policy_that_freezes_layers_is_refused(alone):
    with pytest.raises(fedlama.InputError, match=r"FedPart\(4\) freezes layers"):
        fedlama.LayerwiseModelAverager(nn.Linear(2, 2), policy=fedlama.FedPart(4))


def test_without_a_process_group_the_sentence_says_what_to_call():
    with pytest.raises(fedlama.InputError, match="init_process_group"):
        fedlama.LayerwiseModelAverager(nn.Linear(2, 2), 2, 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "sentence"),
    [
        ("other-interval", "has another module or other settings"),
        ("other-module", "has another module or other settings"),
        ("other-adaptive", "has another module or other settings"),
        ("other-seed", "has another module or other settings"),
        ("other-weights", "began with other weights"),
        ("too-large", "rank 1 are not finite, or too large to be sent, after step 3"),
    ],
)
def test_ranks_that_differ_are_refused_and_nobody_waits(mode, sentence, tmp_path):
    finished = torchrun(str(HERE / "averager_program.py"), mode, str(tmp_path))
    assert finished.returncode != 0
    assert finished.stderr.count(sentence) >= 2  # both ranks say so


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"step": -5}, "counts below zero"),
        ({"step": "x"}, "not a state"),
        ({"state": {"intervals": (0,) * 6}}, "not a state"),
        ({"state": {"intervals": ("x",) * 6}}, "not a state"),
        ({"state": {"discrepancy": (float("nan"),) * 6}}, "not a state"),
        ({"ledger": {"layer_uplink": (-1,) * 6}}, "not a state"),
    ],
)
def test_a_forged_state_is_refused(alone, change, sentence):
    _, averager = averager_with_bn(alone)
    saved = averager.state_dict()
    for name, value in change.items():
        saved[name] = {**saved[name], **value} if isinstance(value, dict) else value
    before = averager.state_dict()
    with pytest.raises(fedlama.InputError, match=sentence):
        averager.load_state_dict(saved)
    assert averager.state_dict() == before


def test_a_module_in_bfloat16_can_have_an_outer_optimizer(alone):
    module = nn.Linear(4, 2).bfloat16()
    averager = fedlama.LayerwiseModelAverager(
        module, 1, 2, server=fedlama.server.Momentum(0.9)
    )
    # Compares the ranks' weights byte by byte before
    averager.average_parameters(module.parameters())
    assert averager.ledger.aggregations == (1, 1)


@pytest.mark.parametrize("capacity", [-1, "long", None])
def test_a_state_with_a_buffer_of_no_length_is_refused(alone, capacity):
    averager = fedlama.LayerwiseModelAverager(
        nn.Linear(4, 2), 1, 2, uplink=fedlama.compress.Rotate(1.6)
    )
    saved = averager.state_dict() | {"capacity": capacity}
    with pytest.raises(
        fedlama.InputError, match="not a state of a LayerwiseModelAverager"
    ):
        averager.load_state_dict(saved)


def test_ranks_agree_on_a_buffer_whether_they_began_anew_or_went_back(alone):
    """A rank that loads a state in place, beside one that was started again: an all-gather needs one length."""

    def begun():
        torch.manual_seed(0)
        module = nn.Linear(64, 64, bias=False)
        codec = fedlama.compress.Rotate(1.6)
        return module, fedlama.LayerwiseModelAverager(module, 1, 1, uplink=codec)

    def step(module, averager):
        generator = torch.Generator().manual_seed(averager.step)
        with torch.no_grad():
            module.weight += torch.randn(64, 64, generator=generator)
        averager.average_parameters(module.parameters())

    went_back, again = begun(), begun()
    step(*went_back)
    weights = {name: row.clone() for name, row in went_back[0].state_dict().items()}
    saved = went_back[1].state_dict()
    step(*went_back)

    handed = []
    for module, averager in (went_back, again):
        module.load_state_dict(weights)
        averager.load_state_dict(saved)
        before = averager.sent_bytes
        step(module, averager)
        handed.append(averager.sent_bytes - before)
    assert handed[0] == handed[1]
