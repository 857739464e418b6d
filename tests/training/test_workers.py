"""Any number of worker processes gives the same bits, and a worker that dies ends the run with one clear sentence."""

import os
import signal
import time
from pathlib import Path

import pytest
import torch
from torch import nn

import fedlama
from fedlama.processes.workers import run_workers
from fedlama.processes.world import DistributedWorld, World, launched_by_torchrun


def net_with_everything() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(512, 10),
    )


def simulate(workers: int, **changes):
    arguments = {
        "policy": fedlama.FedLAMA(3, 2),
        "local": fedlama.SGD(0.1, 16, momentum=0.9),
        "partition": fedlama.Dirichlet(20, 0.5, min_samples=3),
        "participation": 7,
        "iterations": 27,
        "weights": "samples",
        "evaluate_every": 6,
    }
    return fedlama.simulate(
        net_with_everything,
        fedlama.data.digits(),
        workers=workers,
        **{**arguments, **changes},
    )


def same_bits(first: fedlama.Result, second: fedlama.Result) -> bool:
    weights = zip(
        first.model.state_dict().values(),
        second.model.state_dict().values(),
        strict=True,
    )
    return (
        first.records == second.records
        and first.layers == second.layers
        and {**first.summary(), "seconds": 0} == {**second.summary(), "seconds": 0}
        and all(torch.equal(a, b) for a, b in weights)
    )


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_the_result_does_not_depend_on_the_number_of_workers(workers):
    # 7 clients of very different size on 2, 3 and 4 workers, with weights, dropout, BatchNorm and momentum
    assert same_bits(simulate(1), simulate(workers))


def test_more_workers_than_clients_leaves_some_idle_and_changes_nothing():
    assert same_bits(simulate(1, participation=2), simulate(3, participation=2))


def test_uniform_weights_and_fedavg_are_the_same_too():
    changes = {"weights": "uniform", "policy": fedlama.FedAvg(3)}
    assert same_bits(simulate(1, **changes), simulate(2, **changes))


def test_on_record_is_called_in_the_parent_in_order():
    seen, parent = [], os.getpid()
    simulate(2, on_record=lambda record: seen.append((record.round, os.getpid())))
    assert seen == [(number, parent) for number in range(1, 10)]


def test_an_exception_of_the_callback_reaches_the_caller_and_ends_the_workers():
    def refuse(record):
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        simulate(2, on_record=refuse)


def test_divergence_is_told_once_and_alike_with_any_number_of_workers():
    messages = []
    for workers in (1, 2):
        with pytest.raises(fedlama.RunError) as caught:
            simulate(workers, local=fedlama.SGD(1e12, 16))
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert "learning_rate" in messages[0]


def test_a_killed_worker_ends_the_run_within_seconds_and_is_named():
    def work(world, emit):
        if world.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        world.sum_(torch.ones(3))

    started = time.monotonic()
    with pytest.raises(fedlama.RunError, match=r"worker 1 of 2 was ended by SIGKILL"):
        run_workers(2, work, print, "gloo")
    assert time.monotonic() - started < 30  # a hang would last gloo's half hour


def test_a_worker_that_raises_is_named_with_its_own_error_not_a_lost_connection():
    def work(world, emit):
        if world.rank == 2:
            raise KeyError("the reason")
        world.sum_(torch.ones(3))

    with pytest.raises(fedlama.RunError, match="worker 2 of 3 failed") as caught:
        run_workers(3, work, print, "gloo")
    assert "the reason" in str(caught.value)


def test_an_error_that_names_gloo_is_no_lost_connection():
    def work(world, emit):
        if world.rank == 2:
            raise KeyError("my gloo layer")
        world.sum_(torch.ones(3))

    # Under this name the processes really add up through gloo, and lose each other.
    with pytest.raises(fedlama.RunError, match="worker 2 of 3 failed") as caught:
        run_workers(3, work, print, "cpu:gloo")
    assert "my gloo layer" in str(caught.value)


def test_no_process_is_left_behind_when_the_parent_is_killed(tmp_path):
    pids = tmp_path / "pids"
    child = os.fork()
    if child == 0:

        def work(world, emit):
            with pids.open("a") as file:
                file.write(f"{os.getpid()}\n")
            for step in range(10_000):
                time.sleep(0.05)
                world.sum_(torch.ones(1))
                emit(step)

        run_workers(2, work, lambda item: None, "gloo")
        os._exit(0)
    _wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    time.sleep(0.3)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    workers = [int(pid) for pid in pids.read_text().split()]
    _wait_until(lambda: not any(_alive(pid) for pid in workers))


def test_no_temporary_folder_is_made_that_a_killed_parent_would_leave(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def work(world, emit):
        world.sum_(torch.ones(1))
        emit(sorted(path.name for path in tmp_path.iterdir()))

    found: list[list[str]] = []
    run_workers(2, work, found.append, "gloo")
    assert found == [[]]


def _wait_until(condition, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def _alive(pid: int) -> bool:
    try:
        return (
            Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        )
    except FileNotFoundError:
        return False


def test_work_is_dealt_so_that_uneven_cohorts_stay_balanced():
    costs = [16, 16, 16, 4, 4, 4, 4, 4]  # 68 in all
    shares = [DistributedWorld(rank, 2).share(costs) for rank in range(2)]
    assert sorted(shares[0] + shares[1]) == list(range(8))
    # by hand: 16 | 16, 16 → first (32 | 16), four small ones → second (32 | 32), the last → first
    assert [sum(costs[job] for job in share) for share in shares] == [36, 32]
    assert World().share(costs) == list(range(8))


def test_torchrun_is_recognised_by_its_environment():
    assert not launched_by_torchrun({})
    assert not launched_by_torchrun({"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "1"})
    assert launched_by_torchrun(
        {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "2", "RANK": "0"}
    )


@pytest.mark.parametrize("workers", [0, -1, 1.5, True])
def test_a_number_of_workers_that_means_nothing_is_refused(workers):
    with pytest.raises(fedlama.InputError, match="workers must be"):
        simulate(workers)
