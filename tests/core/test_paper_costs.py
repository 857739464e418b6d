"""The communication costs that the paper prints for FEMNIST, to the second digit, from policy and ledger alone."""

import pytest

from fedlama import FedLAMA
from fedlama.core import Evidence, Layout, Ledger, TensorEntry, Traffic

TENSORS = [
    ("conv1.weight", 5 * 5 * 1 * 32),
    ("conv1.bias", 32),
    ("conv2.weight", 5 * 5 * 32 * 64),
    ("conv2.bias", 64),
    ("fc1.weight", 3136 * 2048),
    ("fc1.bias", 2048),
    ("fc2.weight", 2048 * 62),
    ("fc2.bias", 62),
]
LEAF_CNN = Layout.pack(
    [
        TensorEntry(name, size, adaptive=name.endswith("weight"))
        for name, size in TENSORS
    ]
)
LARGE = 4  # the 3136×2048 kernel
STEPS, BASE = 2000, 10


def cost(policy):
    """A made-up d of ½ for the large kernel and 1 elsewhere.

    D = ½·6,422,528 + 181,182 and the kernels hold 6,601,504 numbers: at the large kernel, which is first,
    1 − λ = 178,976 / 6,601,504 = .027 < δ = .947, so that it alone is lengthened.
    """
    state, ledger = policy.start(LEAF_CNN.layers), Ledger.open(LEAF_CNN)
    while state.step < STEPS:
        plan = policy.next(state, STEPS)
        spread = {
            layer: (0.5 if layer == LARGE else 1.0)
            * (state.step + plan.steps - state.synchronised_at[layer])
            * LEAF_CNN.sizes[layer]
            for layer in plan.due
        }
        ledger = ledger.charge(
            Traffic(up=ledger.plain_message(plan.due)), aggregated=plan.due
        )
        state = policy.observe(state, plan, Evidence(spread), LEAF_CNN.layers)
    long = [index for index, interval in enumerate(state.intervals) if interval != BASE]
    return ledger, long


def test_the_leaf_cnn_has_the_papers_size():
    assert sum(LEAF_CNN.sizes) == 6_603_710
    assert LEAF_CNN.sizes[LARGE] / sum(LEAF_CNN.sizes) == pytest.approx(
        0.972564, abs=5e-7
    )


@pytest.mark.parametrize(
    ("factor", "warmup_rounds", "printed"),
    [
        # The large kernel is averaged W + (200 − W)/φ times out of 200, all else 200 times:
        (2, 8, "53.32 %"),  # 104: 1 − .972564 · 96/200
        (4, 8, "29.98 %"),  # 56: 1 − .972564 · 144/200
        (2, 2, "51.86 %"),  # 101: 1 − .972564 · 99/200
        (2, 6, "52.83 %"),  # 103: 1 − .972564 · 97/200
    ],
)
def test_costs_decode_exactly(factor, warmup_rounds, printed):
    ledger, long = cost(
        FedLAMA(BASE, factor, rule="released", warmup_rounds=warmup_rounds)
    )
    assert long == [LARGE]
    assert ledger.aggregations[LARGE] == warmup_rounds + (200 - warmup_rounds) // factor
    assert {ledger.aggregations[index] for index in range(8) if index != LARGE} == {200}
    assert f"{100 * ledger.relative_cost(STEPS, BASE):.2f} %" == printed
