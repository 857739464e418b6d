"""What a run will need and what there is, by hand, and against what a run really takes."""

import resource
from dataclasses import replace
from multiprocessing import get_context

import numpy as np
import pytest
import torch
from torch import nn

import fedlama
from fedlama.base import InputError, RunError
from fedlama.data import arrays
from fedlama.processes.memory import (
    available_memory,
    explain_out_of_memory,
    is_in_memory,
)
from fedlama.rows import Slot
from fedlama.training.checkpointing import Checkpointing, Control
from fedlama.training.memory import (
    AWAY,
    MemoryDemand,
    check_memory,
    data_bytes,
    human,
    local_processes,
)

VELOCITY = Slot("velocity", without="set local.momentum to 0")
WIDE = MemoryDemand(
    clients=128,
    processes=2,
    width=36_500_000,
    parameter_width=36_400_000,
    slots=(VELOCITY,),
    data_bytes=180_000_000,
)


def test_128_clients_of_the_wide_network_by_hand():
    assert WIDE.parts() == {
        "128 rows of 36.5 M numbers": 128 * 36_500_000 * 4,  # 18.7 GB
        "their velocity": 128 * 36_500_000 * 4,  # 18.7 GB
        # each of two processes: the global row before and after a round and the mean, and gradient, its copy and a mask
        # of the parameters
        "gradients and averaging": 2 * (36_500_000 * 12 + 36_400_000 * 12),
        "data": 180_000_000,
    }
    assert 37.0e9 < WIDE.total() - WIDE.parts()["gradients and averaging"] < 37.6e9


def test_blocks_and_checkpoints_by_hand():
    demand = MemoryDemand(
        clients=16, processes=3, width=100, parameter_width=80, slots=(VELOCITY,), data_bytes=1000,
        prepared_bytes=4000, block=8, saved_clients=16,
    )  # fmt: skip
    parts = demand.parts()
    assert parts["16 rows of 100 numbers"] == 16 * 400
    assert parts["their velocity"] == 16 * 400
    assert parts["gradients and averaging"] == 3 * (
        100 * 12 + 80 * 12 + 8 * (400 + 400)
    )
    assert parts["checkpoints"] == (3 + 3) * 16 * 400
    assert parts["data"] == 1000 + 3 * 4000


def test_the_refusal_has_the_numbers_and_what_to_change():
    with pytest.raises(InputError) as caught:
        check_memory(WIDE, available=20_000_000_000)
    sentence = str(caught.value)
    for words in (
        "the run needs about 39.3 GB",
        "128 rows of 36.5 M numbers 18.7 GB",
        "their velocity 18.7 GB",
        "data 0.2 GB",
        "20.2 GB are available",  # the data is in memory already
        "lower participation.active",
        "local.momentum",
        "torchrun",
    ):
        assert words in sentence
    assert "\n" not in sentence


def test_what_fits_exactly_is_admitted():
    needed = WIDE.total() - WIDE.data_bytes
    check_memory(WIDE, available=needed)
    with pytest.raises(InputError, match="needs about"):
        check_memory(WIDE, available=needed - 1)


def test_amounts_for_people():
    assert [
        human(amount) for amount in (300, 99_000_000, 100_000_000, 37_123_000_000)
    ] == [
        *("0.0 MB", "99.0 MB", "0.1 GB", "37.1 GB"),
    ]


def test_processes_of_this_machine():
    assert local_processes(4, {}) == (4, 4)
    torchrun = {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "2"}
    assert local_processes(1, torchrun) == (2, 8)
    assert local_processes(3, {**torchrun, "WORLD_SIZE": "1"}) == (3, 3)


def machine(root, meminfo="", cgroup="", **files):
    (root / "proc/self").mkdir(parents=True, exist_ok=True)
    (root / "proc/meminfo").write_text(meminfo)
    (root / "proc/self/cgroup").write_text(cgroup)
    for name, content in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


MEMINFO = "MemTotal: 100 kB\nMemAvailable:   50 kB\n"


def test_available_of_the_machine(tmp_path):
    assert available_memory(machine(tmp_path, MEMINFO)) == 50 * 1024


def test_nothing_is_known_elsewhere(tmp_path):
    assert available_memory(tmp_path / "no such") is None


def test_available_of_a_container_of_the_second_version(tmp_path):
    """The group above has the limit; file caches can be dropped."""
    files = {
        "a/memory.max": "40000\n", "a/memory.current": "30000\n", "a/memory.stat": "anon 5\ninactive_file 2000\n",
        "a/b/memory.max": "max\n", "a/b/memory.current": "100\n",
    }  # fmt: skip
    assert available_memory(machine(tmp_path, MEMINFO, "0::/a/b\n", **files)) == 12_000


def test_available_of_a_container_of_the_first_version(tmp_path):
    """Inside a container its group is often seen at the root, whatever the path says."""
    files = {
        "memory/memory.limit_in_bytes": "9000\n",
        "memory/memory.usage_in_bytes": "9500\n",
    }
    cgroup = "5:cpu,cpuacct:/x\n4:memory:/docker/1234\n"
    assert available_memory(machine(tmp_path, MEMINFO, cgroup, **files)) == 0


# The innermost counts, wherever it stands in the list
MOUNTS = """tmpfs /tmp tmpfs rw 0 0
/dev/vdb /tmp/a\\040disk ext4 rw 0 0
/dev/vdc /tmpfiles xfs rw 0 0
/dev/vda / ext4 rw 0 0
"""


@pytest.mark.parametrize(
    ("folder", "takes_memory"),
    [
        ("/tmp", True),
        ("/tmp/below", True),
        ("/tmp/a disk/here", False),
        ("/tmpfiles", False),
        ("/var/tmp", False),
    ],
)
def test_a_folder_whose_files_take_memory(tmp_path, folder, takes_memory):
    machine(tmp_path)
    (tmp_path / "proc/mounts").write_text(MOUNTS)
    assert is_in_memory(folder, tmp_path) is takes_memory


def test_of_a_system_without_a_list_of_mounts_nothing_is_said(tmp_path):
    assert not is_in_memory("/tmp", tmp_path / "no such")


@pytest.mark.parametrize("takes_memory", [True, False])
def test_what_clients_left_in_a_folder_in_memory_counts(monkeypatch, takes_memory):
    """3 windows of 2 of 4 clients: at most all 4 were seen, each with one control variate of the model's width."""
    monkeypatch.setattr(
        "fedlama.training.memory.is_in_memory", lambda folder: takes_memory
    )
    checked = []
    monkeypatch.setattr("fedlama.training.setup.check_memory", checked.append)
    tiny(
        hidden=8,
        participation=2,
        iterations=3,
        local=fedlama.Scaffold(fedlama.SGD(0.01, batch_size=4)),
    )
    (demand,) = checked
    # Every tensor begins at a multiple of 16: 8 numbers of a bias take 16, and 10 of the last one
    assert demand.width == 512 * 8 + 16 + 8 * 10 + 16
    if takes_memory:
        assert demand.parts()[AWAY] == 4 * demand.width * 4
    else:
        assert AWAY not in demand.parts()


def test_whoever_has_too_little_memory_for_them_is_told_of_the_folder():
    control = Slot("control", "run")
    demand = replace(WIDE, slots=(control,), stored_clients=1_000)
    with pytest.raises(InputError, match="let TMPDIR name a folder on a disk"):
        check_memory(demand, available=100_000_000_000)
    check_memory(replace(demand, stored_clients=0), available=100_000_000_000)


def tiny(clients=4, hidden=2048, **options):
    rng = np.random.default_rng(0)
    x, y = rng.random((4 * clients, 512), dtype=np.float32), np.arange(4 * clients) % 10
    data = arrays(x, y, x[:8], y[:8])
    job = {
        "policy": fedlama.FedAvg(1),
        "local": fedlama.SGD(0.01, batch_size=4, momentum=0.9),
        "partition": fedlama.IID(clients),
        "iterations": 1,
    }
    return fedlama.simulate(
        lambda: nn.Sequential(nn.Linear(512, hidden), nn.ReLU(), nn.Linear(hidden, 10)),
        data,
        **{**job, **options},
    )


def test_a_run_that_will_not_fit_is_refused_before_anything_is_forked(monkeypatch):
    monkeypatch.setattr("fedlama.training.memory.available_memory", lambda: 1_000_000)
    monkeypatch.setattr(
        "fedlama.training.running.run_workers",
        lambda *arguments: pytest.fail("was forked"),
    )
    with pytest.raises(
        InputError,
        match=r"4 rows of 1\.1 M numbers .* are available: lower participation.active",
    ):
        tiny(workers=2)


@pytest.mark.parametrize("is_short", [False, True])
def test_where_memory_is_short_a_run_is_saved_between_windows(monkeypatch, is_short):
    if is_short:
        monkeypatch.setattr("fedlama.training.setup.fits", lambda demand: False)
    checked = []
    monkeypatch.setattr("fedlama.training.setup.check_memory", checked.append)
    control = Control()
    keeping = Checkpointing(control, lambda content, state: None)
    # A window of two cycles: a checkpoint may fall inside it, and then holds the cohort's slots
    tiny(participation=2, window=2, checkpointing=keeping)
    assert control.between_windows is is_short
    (demand,) = checked
    assert (demand.saved_clients == 0) is is_short


def test_whoever_checks_the_memory_changes_nothing(monkeypatch):
    monkeypatch.setattr("fedlama.training.simulation.choose_when_to_save", unchanged)
    monkeypatch.setattr("fedlama.training.memory.available_memory", lambda: 1_000_000)
    control = Control()
    with pytest.raises(InputError, match="are available"):
        tiny(checkpointing=Checkpointing(control, lambda content, state: None))
    assert control.between_windows is False


def unchanged(setup, workers):
    """In place of the choice."""


def _in_a_fork(work):
    receiver, sender = get_context("fork").Pipe(duplex=False)
    process = get_context("fork").Process(target=lambda: sender.send(work()))
    process.start()
    sender.close()
    answer = receiver.recv()
    process.join()
    return answer


def test_a_limit_of_the_process_counts():
    def limited():
        have = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()  # noqa: PTH123, SIM115
        resource.setrlimit(
            resource.RLIMIT_AS, (have + 20_000_000, resource.RLIM_INFINITY)
        )
        try:
            tiny(clients=8)
        except InputError as error:
            return str(error)
        return "it was not refused"

    said = _in_a_fork(limited)
    assert "8 rows of 1.1 M numbers" in said
    assert "are available" in said


def test_the_estimate_is_about_what_a_run_takes():
    clients = 24

    def measured():
        tiny(clients=1)  # what torch itself takes once
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        tiny(clients=clients)
        return 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)

    width = 512 * 2048 + 2048 + 2048 * 10 + 16
    demand = MemoryDemand(clients, 1, width, width, (VELOCITY,), data_bytes=0)
    more_than_one_client = (
        demand.total()
        - MemoryDemand(1, 1, width, width, (VELOCITY,), data_bytes=0).total()
    )
    assert (
        0.7 * more_than_one_client < _in_a_fork(measured) < 1.3 * more_than_one_client
    )


def test_the_data_counts_as_it_is_stored():
    data = arrays(
        np.zeros((5, 1, 2, 2), np.uint8), [0] * 5, np.zeros((1, 1, 2, 2), np.uint8), [0]
    )
    assert data_bytes(data) == 6 * 4 + 6 * 8


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.cuda.OutOfMemoryError("known by its type, whatever it says"),
        RuntimeError(
            "DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"
        ),
    ],
)
def test_memory_that_runs_out_is_told(error):
    with (
        pytest.raises(RunError, match="the memory did not suffice"),
        explain_out_of_memory(),
    ):
        raise error


def test_other_errors_are_not_called_that():
    with pytest.raises(RuntimeError, match="shapes"), explain_out_of_memory():
        raise RuntimeError("shapes do not match")


def test_an_allocation_that_fails_is_told_by_torch_as_expected():
    with (
        pytest.raises(RunError, match="the memory did not suffice"),
        explain_out_of_memory(),
    ):
        torch.empty(1 << 60, dtype=torch.uint8)


def test_clients_that_are_away_are_in_the_checkpoints_by_hand():
    # 1,000 clients seen, one row of 100 float32 that outlives windows: on its way it is in memory four times
    control = Slot("control", "run")
    demand = MemoryDemand(
        clients=4, processes=1, width=100, parameter_width=100, slots=(VELOCITY, control), data_bytes=0,
        seen_clients=1_000,
    )  # fmt: skip
    assert demand.parts()["checkpoints"] == 4 * 1_000 * 400


def test_of_very_many_clients_that_are_away_one_piece_is_in_memory_by_hand():
    # A piece has 8 MiB: fewer than the rows of 100,000 clients, 7.7 GB
    control = Slot("control", "run")
    demand = MemoryDemand(
        clients=4, processes=1, width=19_210, parameter_width=19_210, slots=(control,), data_bytes=0,
        seen_clients=100_000,
    )  # fmt: skip
    assert demand.parts()["checkpoints"] == 4 * 8 * 1024 * 1024
    more = replace(demand, seen_clients=1_000_000)
    assert more.parts() == demand.parts()
    # A client's own rows are read together, however long they are
    long = replace(demand, width=36_500_000, slots=(control, Slot("gradient", "run")))
    assert long.parts()["checkpoints"] == 4 * 2 * 36_500_000 * 4
