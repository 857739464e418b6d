"""Another runtime on the same server: rows in a list, as a deployment has them, give what the simulator gives."""

from copy import deepcopy

import pytest
import torch

import fedlama
from doors.harness import CLIENTS, network, samples
from fedlama.core import Traffic
from fedlama.data import Batches, Natural
from fedlama.rows import Binding, describe
from fedlama.server import ListReduce, Server

SEED, RATE, ITERATIONS = 5, 0.05, 36


def in_memory(policy, module):
    """All clients, one after the other, each a copy of the module; the server gets their rows."""
    data = samples()
    batches = Batches(data, Natural().assign(data, SEED), 4, SEED)
    layout = describe(module)
    server = Server(layout, policy)
    state = server.start(Binding(deepcopy(module), layout).read())
    rows = {client: state.row.clone() for client in range(CLIENTS)}
    intervals = []
    while state.step < ITERATIONS:
        plan = server.plan(state, ITERATIONS)
        for client, row in rows.items():
            local = deepcopy(module).train()
            binding = Binding(local, layout)
            binding.point_at(row)
            for step in range(state.step, state.step + plan.steps):
                inputs, targets = batches.at(client, step)
                binding.clear_gradients()
                torch.nn.functional.cross_entropy(local(inputs), targets).backward()
                for part, gradient in zip(
                    binding.stretches, binding.gradients(), strict=True
                ):
                    row[part] -= RATE * gradient
            binding.collect()
        down = server.download(
            state, entering=state.step % policy.longest_cycle == 0
        ).times(CLIENTS)
        up = state.ledger.plain_message(plan.due).times(CLIENTS)
        reduce = ListReduce(layout, list(rows.values()), [1.0] * CLIENTS)
        state = server.close(state, plan, reduce, Traffic(up=up, down=down))
        intervals.append(list(state.policy_state.intervals))
        for row in rows.values():
            for part in [*layout.slices_of(plan.due), *layout.statistics]:
                row[part] = state.row[part]
    return state, intervals


@pytest.mark.parametrize("policy", [fedlama.FedAvg(3), fedlama.FedLAMA(2, 3)])
def test_a_list_of_updates_gives_what_the_simulator_gives(policy):
    built = []

    def build():
        module = network()
        built.append(deepcopy(module))
        return module

    result = fedlama.simulate(
        build,
        samples(),
        policy=policy,
        local=fedlama.SGD(RATE, 4),
        iterations=ITERATIONS,
        seed=SEED,
    )
    state, intervals = in_memory(policy, built[0])
    # A record has the intervals in force during its round, the list those after it
    assert [record.intervals for record in result.records[1:]] == intervals[:-1]
    assert state.ledger.aggregations == tuple(
        layer.aggregations for layer in result.layers
    )
    assert state.ledger.uplink_bytes == result.uplink_bytes
    assert state.ledger.downlink_bytes == result.downlink_bytes
    trained = Binding(result.model, describe(result.model)).read()
    torch.testing.assert_close(state.row, trained, rtol=1e-4, atol=1e-6)
