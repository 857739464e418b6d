"""κ_l, C and bytes, counted by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlama import FedAvg, FedLAMA
from fedlama.core import Evidence, Layout, Ledger, Message, TensorEntry, Traffic

# Two layers of 90 and 10 numbers and 5 numbers of statistics. Padding (to 96, 16 and 16) is on no account.
LAYOUT = Layout.pack(
    [TensorEntry("a", 90, adaptive=True), TensorEntry("b", 10)],
    [TensorEntry("running_mean", 5)],
)


def account(policy, iterations, *, clients=3, window=None, layout=LAYOUT, d=(1.0, 2.0)):
    """The ledger of a run in which every layer always shows the same discrepancy, and how it stood after each round."""
    ledger, state = Ledger.open(layout), policy.start(layout.layers)
    window = window or policy.longest_cycle
    broadcast = Message()
    history = []
    while state.step < iterations:
        plan = policy.next(state, iterations)
        enters = state.step % window == 0
        down = ledger.plain_message() if enters else broadcast
        ledger = ledger.charge(Traffic(down=down.times(clients)))
        broadcast = ledger.plain_message(plan.due)
        ledger = ledger.charge(
            Traffic(up=broadcast.times(clients)), aggregated=plan.due
        )
        apart = {
            layer: state.step + plan.steps - state.synchronised_at[layer]
            for layer in plan.due
        }
        spread = {
            layer: d[layer] * apart[layer] * layout.sizes[layer] for layer in plan.due
        }
        state = policy.observe(state, plan, Evidence(spread), layout.layers)
        history.append(ledger)
    return history


def test_a_run_counted_by_hand():
    # FedLAMA(1, 2), 4 steps: rounds average (a, b), (a, b) | (b), (a, b): a is long in the second cycle.
    # One number of one client is 4 bytes; 3 clients: 12 bytes a number.
    history = account(FedLAMA(1, 2), 4)
    assert [entry.aggregations for entry in history] == [(1, 1), (2, 2), (2, 3), (3, 4)]
    # 90 κ_a + 10 κ_b
    assert [entry.communication_cost for entry in history] == [100, 200, 210, 310]
    # Up: rounds of 90+10, 90+10, 10, 90+10 numbers, and 5 of statistics each.
    assert [entry.layer_uplink for entry in history] == [
        (1080, 120),
        (2160, 240),
        (2160, 360),
        (3240, 480),
    ]
    assert [entry.statistics_uplink for entry in history] == [60, 120, 180, 240]
    assert history[-1].uplink_bytes == 3240 + 480 + 240
    # Down, as a round starts: the whole model to a new cohort in rounds 1 and 3, what was averaged before in 2 and 4.
    assert [entry.layer_downlink for entry in history] == [
        (1080, 120),
        (2160, 240),
        (3240, 360),
        (3240, 480),
    ]
    assert [entry.statistics_downlink for entry in history] == [60, 120, 180, 240]
    assert history[-1].downlink_bytes == 3240 + 480 + 240


def test_a_cohort_that_stays_is_sent_only_what_was_averaged():
    # The same run in one window: round 3 starts after everything was averaged, round 4 after b alone.
    history = account(FedLAMA(1, 2), 4, window=4)
    assert [entry.layer_downlink for entry in history] == [
        (1080, 120),
        (2160, 240),
        (3240, 360),
        (3240, 480),
    ]


def test_some_clients_enter_and_some_stay():
    # 2 enter (100 numbers and 5 of statistics each), 1 stays (b's 10 and the statistics).
    empty = Ledger.open(LAYOUT)
    down = empty.plain_message().times(2).plus(empty.plain_message([1]))
    ledger = empty.charge(Traffic(down=down))
    assert ledger.layer_downlink == (2 * 90 * 4, 3 * 10 * 4)
    assert ledger.statistics_downlink == 3 * 5 * 4
    assert ledger.aggregations == (0, 0)


def test_an_empty_message_costs_nothing():
    assert (
        Ledger.open(LAYOUT).charge(Traffic(down=Message().times(4))).downlink_bytes == 0
    )


def test_compressed_bytes_are_charged_as_encoded():
    ledger = Ledger.open(LAYOUT).charge(
        Traffic(up=Message({0: 77}, 2 * 5 * 4)), aggregated=[0]
    )
    assert (ledger.layer_uplink, ledger.aggregations) == ((77, 0), (1, 0))
    assert ledger.uplink_bytes == 77 + 2 * 5 * 4


def test_bytes_of_a_round_that_came_to_nothing_are_charged_and_not_counted():
    ledger = Ledger.open(LAYOUT).charge(Traffic(up=Message({0: 77, 1: 3}, 0)))
    assert (ledger.layer_uplink, ledger.aggregations) == ((77, 3), (0, 0))


@given(
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 50),
    st.integers(1, 3),
    st.floats(0.01, 100),
)
def test_what_goes_up_comes_down(base, factor, iterations, cycles, d_a):
    # Every average is sent on, but the last, which makes up for the model that everyone got at the start.
    policy = FedLAMA(base, factor)
    last = account(
        policy, iterations, window=cycles * policy.longest_cycle, d=(d_a, 1.0)
    )[-1]
    assert last.layer_uplink == last.layer_downlink
    assert last.statistics_uplink == last.statistics_downlink
    assert (
        last.uplink_bytes
        == last.downlink_bytes
        == sum(last.layer_uplink) + last.statistics_uplink
    )


def test_statistics_are_in_the_bytes_and_not_in_the_cost():
    without = Layout.pack([TensorEntry("a", 90, adaptive=True), TensorEntry("b", 10)])
    with_, bare = account(FedAvg(2), 8)[-1], account(FedAvg(2), 8, layout=without)[-1]
    assert with_.communication_cost == bare.communication_cost == 4 * 100
    assert (
        with_.uplink_bytes - bare.uplink_bytes
        == with_.statistics_uplink
        == 4 * 3 * 5 * 4
    )
    assert bare.statistics_uplink == bare.statistics_downlink == 0


@given(st.integers(1, 9), st.integers(1, 60))
def test_fedavg_costs_one_by_definition_also_where_the_run_cuts_its_last_round(
    interval, iterations
):
    assert (
        account(FedAvg(interval), iterations)[-1].relative_cost(iterations, interval)
        == 1.0
    )


def test_relative_cost_by_hand():
    # C = 310 after 4 steps (above) of 4 · 100 at the base interval 1; FedAvg(2) against the base interval 1 costs half.
    assert account(FedLAMA(1, 2), 4)[-1].relative_cost(4, 1) == 310 / 400
    assert account(FedAvg(2), 8)[-1].relative_cost(8, 1) == 0.5


def test_uplink_share_by_hand():
    # 3,960 bytes after 4 steps (above); FedAvg(1) sends 105 numbers of 4 bytes, 4 times, from 3 clients.
    last = account(FedLAMA(1, 2), 4)[-1]
    assert last.uplink_share(4, 1, clients=3) == 3960 / (4 * 3 * 420)
    # 8 steps at the interval 6 are two averages: the second ends the run
    assert account(FedAvg(6), 8)[-1].uplink_share(8, 6, clients=3) == 1.0


def test_accelerate_costs_more_than_one():
    # One round of 6 steps, then two cycles in which a (10 ≫ 1) goes three times and b once: κ = 7, 3.
    # C = 7·90 + 3·10 = 660 against 3 · 100.
    last = account(FedLAMA(6, 3, rule="accelerate"), 18, d=(10.0, 1.0))[-1]
    assert last.aggregations == (7, 3)
    assert last.relative_cost(18, 6) == pytest.approx(2.2)


def test_an_open_account_is_empty():
    ledger = Ledger.open(LAYOUT)
    assert (ledger.communication_cost, ledger.uplink_bytes, ledger.downlink_bytes) == (
        0,
        0,
        0,
    )
    assert ledger.relative_cost(0, 6) == 0.0
    assert ledger.uplink_share(0, 6, clients=3) == 0.0
