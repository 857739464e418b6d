"""Clients of a Flower run that send numbers which are well formed and harmful."""

from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("flwr", reason="fedlama[flower] is not installed")

from flwr.app import Array, ArrayRecord, Message, RecordDict

import fedlama
from fedlama.base import InputError
from fedlama.compress import Cast, Channel
from fedlama.flower import layerwise
from fedlama.flower.packing import CODED, PLAIN, Packed
from fedlama.flower.reports import Report, report_record
from fedlama.flower.updates import ReplyReader
from fedlama.rows import Binding, describe
from fedlama.server import Server
from fedlama.server.exclusions import TOO_LARGE
from fedlama.server.tolerance import Tolerance
from fedlama.training.coding import Uplink
from fedlama.training.position import Position
from flower.grid import MemoryGrid
from flower.test_strategy import CLIENTS, POLICY, app, network, strategy, train


def with_numbers_of(reply, number):
    """The same reply with this number in place of all that it holds."""
    array = reply.content["layers"]["layers"]
    count = len(array.data) // 4
    data = torch.full((count,), number).numpy().tobytes()
    large = Array(dtype="uint8", shape=array.shape, stype=array.stype, data=data)
    return RecordDict({"layers": ArrayRecord({"layers": large})})


@pytest.mark.parametrize("number", [1e20, 1e30, 3e38])
def test_finite_numbers_beyond_the_norm_limit_do_not_reach_the_model(number):
    def misbehave(partition, message, reply):
        if message.metadata.message_type != "train" or partition != 2:
            return reply
        return Message(with_numbers_of(reply, number), reply_to=message)

    plan = strategy(clients=None, norm_limit=50.0)
    grid = MemoryGrid(app(), range(CLIENTS), misbehave=misbehave)
    result = train(grid, plan, iterations=16)
    excluded = [entry for record in plan.records for entry in record.excluded]
    assert {entry["client"] for entry in excluded} == {2}
    assert {entry["reason"] for entry in excluded} == {TOO_LARGE}
    for values in result.arrays.to_torch_state_dict().values():
        assert values.abs().max() < 100


# 64 · 12 weights of the first layer move by 1, nothing else does: the norm is √768 = 27.7….
@pytest.mark.parametrize(("limit", "is_excluded"), [(27.0, True), (28.0, False)])
@pytest.mark.parametrize("uplink", [None, Cast("float16")])
def test_a_norm_beyond_the_limit_by_hand(limit, is_excluded, uplink):
    def moves(module, steps, context):
        if context.node_config["partition-id"] == 1:
            with torch.no_grad():
                module[1].weight += 1.0
        return 0.5

    plan = strategy(fedlama.FedAvg(1), clients=None, norm_limit=limit, uplink=uplink)
    grid = MemoryGrid(layerwise(network)(moves), range(CLIENTS))
    train(grid, plan, iterations=1)
    excluded = plan.records[0].excluded
    expected = []
    if is_excluded:
        expected.append({"client": 1, "reason": TOO_LARGE, "attempt": 1})
    assert excluded == expected


@pytest.mark.parametrize("limit", [0.0, -1.0, float("inf"), 1e31])
def test_a_norm_limit_is_above_zero_and_fits_a_float(limit):
    with pytest.raises(InputError, match="norm_limit"):
        strategy(norm_limit=limit)


def says(grid, partition, clients):
    grid.context(partition).node_config["num-partitions"] = clients


@pytest.mark.parametrize("clients", [10**15, 2**20, 1, 4])
def test_most_nodes_say_how_many_clients_there_are(clients):
    grid = MemoryGrid(app(), range(CLIENTS))
    # Node ids fall with the partition, so this one has the smallest and is read first.
    says(grid, CLIENTS - 1, max(clients, CLIENTS))
    if clients < CLIENTS:
        grid.context(CLIENTS - 1).node_config["partition-id"] = 0
        says(grid, CLIENTS - 1, clients)
    plan = strategy(clients=None, wait=0.1)
    train(grid, plan, iterations=2)
    assert [entry["client"] for entry in plan.records[0].excluded] == [CLIENTS - 1]


def test_of_a_tie_between_nodes_the_smaller_number_counts():
    grid = MemoryGrid(app(), [0, 1], population=2)
    says(grid, 1, 1000)
    plan = strategy(clients=None, wait=0.1)
    train(grid, plan, iterations=2)
    assert [entry["client"] for entry in plan.records[0].excluded] == [1]


def test_nodes_that_come_later_still_outvote_the_first():
    class Arriving(MemoryGrid):
        """Its first node is alone when it is asked."""

        asked = 0

        def get_node_ids(self):
            self.asked += 1
            nodes = super().get_node_ids()
            return nodes[-1:] if self.asked == 1 else nodes

    grid = Arriving(app(), range(CLIENTS))
    grid.join(7, population=1000)
    plan = strategy(clients=None, wait=60.0)
    train(grid, plan, iterations=2)
    # All of the others are there, so the run begins at once.
    assert grid.asked < 10
    assert not plan.records[0].excluded


def test_a_run_with_a_few_clients_at_a_time_is_not_drawn_from_a_number_that_one_node_says():
    grid = MemoryGrid(app(), range(CLIENTS))
    says(grid, CLIENTS - 1, 10**15)
    plan = strategy(clients=2, wait=0.1)
    train(grid, plan, iterations=16)
    drawn = {partition for partition, kind, *_ in grid.sent if kind == "train"}
    assert drawn <= set(range(CLIENTS))


@pytest.mark.parametrize("kind", [PLAIN, CODED])
def test_a_length_is_compared_before_memory_is_asked_for(kind, monkeypatch):
    """A row is as large as the model, and every client of a round may send what is not one."""
    module = network()
    layout = describe(module)
    binding = Binding(module, layout)
    server = Server(layout, POLICY)
    position = Position(server.start(binding.read()), torch.zeros(1, dtype=torch.int64))
    uplink = None
    if kind == CODED:
        channel = Channel(Cast("float16"), layout, seed=0, direction="uplink")
        uplink = Uplink(channel, window_steps=8, base_interval=2)
    reader = ReplyReader(
        position,
        server.plan(position.server_state, 8),
        layout,
        uplink,
        tag="now",
        tolerance=Tolerance(),
    )
    too_long = Packed(kind, bytes(1 << 20))
    content = report_record(Report(tag="now", counters=[1]), too_long)
    reply = SimpleNamespace(has_error=lambda: False, content=content)

    def asks_for_memory(*_, **options):
        raise AssertionError("memory was asked for")

    for name in ("clone", "new_zeros", "new_empty"):
        monkeypatch.setattr(torch.Tensor, name, asks_for_memory)
    for name in ("zeros", "empty", "zeros_like", "empty_like", "frombuffer"):
        monkeypatch.setattr(torch, name, asks_for_memory)
    update = reader.read(0, reply)
    assert update.reason.startswith("refused: wrong shape")
