"""How many processes share a run on GPUs, decided on stand-ins for `torch.cuda`."""

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from fedlama import IID, SGD, FedAvg, InputError, data, models, simulate
from fedlama.cli.diagnose import diagnose
from fedlama.processes.devices import (
    available_cores,
    backend_for,
    check_workers,
    default_workers,
    is_on_gpu,
)
from fedlama.processes.exchange import Exchange, SharedWorld
from fedlama.processes.world import DistributedWorld, World
from fedlama.run import execute as executing
from fedlama.run.config import parse_config
from fedlama.run.resolve import resolve
from fedlama.study.side_by_side import _row_bytes, cells_at_once
from fedlama.study.study_file import parse_study
from fedlama.training import running

GpuMachine = Callable[..., None]


@pytest.fixture
def gpu_machine(monkeypatch) -> GpuMachine:
    """A machine with GPUs on which nothing may start CUDA."""

    def starts_cuda(*arguments: object) -> None:
        raise AssertionError(
            "this starts CUDA, and processes forked after it could not use a GPU"
        )

    def make(gpus: int, *, initialised: bool = False) -> None:
        monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: initialised)
        for name in (
            "is_available",
            "current_device",
            "init",
            "set_device",
            "get_device_properties",
        ):
            monkeypatch.setattr(torch.cuda, name, starts_cuda)

    return make


@pytest.mark.parametrize(
    ("device", "gpus", "expected"),
    [
        ("auto", 2, 2),
        ("cuda", 2, 2),
        ("cuda:1", 2, 1),
        ("auto", 1, 1),
        ("cpu", 2, None),
        ("auto", 0, None),
    ],
)
def test_the_default_is_one_worker_per_gpu_and_otherwise_one_per_core(
    gpu_machine, device, gpus, expected
):
    gpu_machine(gpus)
    assert default_workers(device) == (expected or available_cores())
    assert is_on_gpu(device) == (expected is not None)


def test_a_run_starts_with_the_default_of_its_device(
    gpu_machine, monkeypatch, tmp_path
):
    gpu_machine(3)
    asked: list[int] = []

    def stop_at_workers(*arguments: object, workers: int, **options: object) -> None:
        asked.append(workers)
        raise InputError("far enough")

    monkeypatch.setattr(executing, "simulate", stop_at_workers)
    for device in ("auto", "cuda", "cpu"):
        config = parse_config(
            {"data": {"name": "digits"}, "train": {"iterations": 6, "device": device}}
        )
        with pytest.raises(InputError, match="far enough"):
            executing.execute(config, tmp_path / device)
    assert asked == [3, 3, available_cores()]


def test_a_diagnosis_starts_one_worker_per_gpu(gpu_machine, monkeypatch, tmp_path):
    gpu_machine(3)
    asked: list[int] = []

    def stop_at_workers(*arguments: object, workers: int, **options: object) -> None:
        asked.append(workers)
        raise InputError("far enough")

    monkeypatch.setattr("fedlama.diagnose.diagnose", stop_at_workers)
    config = tmp_path / "config.toml"
    config.write_text('data.name = "digits"\ntrain.iterations = 24\n')
    with pytest.raises(InputError, match="far enough"):
        diagnose(config)
    assert asked == [3]


def test_runs_of_a_study_have_all_gpus_one_after_the_other(gpu_machine, monkeypatch):
    tables = {
        "data": {"name": "digits"},
        "train": {"iterations": 6},
        "study": {"seeds": [0, 1], "setting": [{"name": "one"}, {"name": "two"}]},
    }
    cells = parse_study(tables).cells({})
    gpu_machine(2)
    assert cells_at_once(cells, workers=2) == 1
    gpu_machine(0)
    assert cells_at_once(cells, workers=2) == 2


def test_a_studys_memory_counts_what_codes_keep(monkeypatch):
    kept = {"codec": "rotate", "bits": 1.0, "error_feedback": "run"}
    rows = {}
    for name, uplink in {"plain": {"codec": "none"}, "kept": kept}.items():
        tables = {
            "data": {"name": "digits"},
            "train": {"iterations": 6},
            "uplink": uplink,
        }
        rows[name] = _row_bytes(resolve(parse_config(tables)))
    assert rows["kept"] == 2 * rows["plain"]  # the residual is as wide as the model


def test_more_workers_than_gpus_are_refused(gpu_machine):
    gpu_machine(2)
    with pytest.raises(
        InputError, match=r"workers = 3, but device 'cuda' is 2 GPUs here.*at most 2"
    ):
        check_workers("cuda", 3)
    with pytest.raises(
        InputError, match=r"workers = 2, but device 'cuda:0' is one GPU here.*at most 1"
    ):
        check_workers("cuda:0", 2)
    check_workers("cuda", 2)
    check_workers("cpu", 3)


def test_workers_are_not_forked_from_a_process_that_has_used_cuda(gpu_machine):
    gpu_machine(2, initialised=True)
    with pytest.raises(InputError, match=r"already used CUDA.*torchrun"):
        check_workers("auto", 2)
    check_workers("auto", 1)
    check_workers("cpu", 2)


def small_run(**options: object) -> None:
    simulate(
        lambda: models.mlp(10, inputs=64),
        data.digits(),
        policy=FedAvg(2),
        local=SGD(learning_rate=0.1, batch_size=8),
        partition=IID(4),
        iterations=2,
        **options,  # type: ignore[arg-type]
    )


def test_simulate_refuses_before_anything_starts_cuda(gpu_machine):
    gpu_machine(2)
    with pytest.raises(InputError, match="at most 2"):
        small_run(workers=3)
    gpu_machine(2, initialised=True)
    with pytest.raises(InputError, match="already used CUDA"):
        small_run(workers=2, device="cuda")
    gpu_machine(0)
    with pytest.raises(InputError, match="torch finds no CUDA device"):
        small_run(workers=2, device="cuda")


def test_simulate_forks_one_worker_per_gpu_without_starting_cuda(
    gpu_machine, monkeypatch
):
    gpu_machine(2)
    asked: list[tuple[int, str]] = []

    def stop_at_workers(count: int, work: object, take: object, backend: str) -> None:
        asked.append((count, backend))
        raise InputError("far enough")

    monkeypatch.setattr(running, "run_workers", stop_at_workers)
    with pytest.raises(InputError, match="far enough"):
        small_run(workers=2)
    assert asked == [(2, backend_for("cuda"))]


def test_each_process_has_a_gpu_of_its_own(gpu_machine):
    gpu_machine(2)
    exchange = Exchange(2)
    assert [SharedWorld(exchange, rank).device("auto") for rank in range(2)] == [
        torch.device("cuda:0"),
        torch.device("cuda:1"),
    ]
    assert DistributedWorld(5, 8, local_rank=1).device("cuda") == torch.device("cuda:1")
    assert World().device("cuda") == torch.device("cuda")
    assert World().device("cpu") == torch.device("cpu")


def test_numbers_on_the_cpu_are_added_by_gloo_and_those_on_gpus_by_nccl(gpu_machine):
    gpu_machine(2)
    backends = dist.BackendConfig(
        dist.Backend(backend_for("auto"))
    ).get_device_backend_map()
    assert backends == {"cpu": "gloo", "cuda": "nccl"}
    assert backend_for("cpu") == "gloo"
    gpu_machine(0)
    assert backend_for("auto") == "gloo"
