"""Which policies a diagnosis compares: the one that is planned, FedAvg, FedLAMA with several factors, a budget."""

from __future__ import annotations

from collections.abc import Collection

from fedlama.core import Budget, FedAvg, FedLAMA, Policy
from fedlama.diagnose.recommendation import FACTORS

# Of FedAvg(τ')'s bytes, about what FedLAMA with factor 4 often costs
BUDGET_SHARE = 0.4


def fedlama_beside(policy: Policy) -> FedLAMA:
    """The FedLAMA whose first cycles are run, and which the theorem is about, where this policy is planned.

    Of another policy it has τ' and the longest cycle.

    Arguments:
        policy: Any.
    """
    if not isinstance(policy, FedLAMA):
        factor = policy.longest_cycle // policy.base_interval
        return FedLAMA(policy.base_interval, max(1, factor))

    rule = policy.rule
    if rule == "accelerate":
        # A diagnosis is about sending less.
        rule = "crossing"
    return FedLAMA(
        policy.base_interval,
        policy.increase_factor,
        rule,
        policy.warmup_rounds,
    )


def compared(planned: Policy, coded: Collection[Policy] = ()) -> list[Policy]:
    """FedAvg first, then FedLAMA with each factor, a budget, and what is planned unless it is among them.

    Arguments:
        planned: The policy of the run.
        coded: The policies that are predicted with a code: what is planned with one is not predicted without.
    """
    beside = fedlama_beside(planned)
    interval = beside.base_interval
    policies: list[Policy] = [FedAvg(interval)]
    for factor in FACTORS:
        fedlama = FedLAMA(interval, factor, beside.rule, beside.warmup_rounds)
        policies.append(fedlama)

    # The budget may spread its intervals as far as FedLAMA does with the largest factor.
    longest = interval * FACTORS[-1]
    budget = Budget(interval, longest, BUDGET_SHARE)
    policies.append(budget)
    if planned not in policies and planned not in coded:
        policies.append(planned)
    return policies
