"""Whether a run can go on from a checkpoint.

A checkpoint may come from elsewhere, and its checksum proves only that it arrived as it was written. What it says is
therefore held against the run before anything is trained: afterwards it would be a division by zero deep in the loop.
"""

from __future__ import annotations

from fedlama.base import InputError, reason
from fedlama.core import Evidence, Layout, PolicyState
from fedlama.core.policy_checks import next_checked, observe_checked
from fedlama.core.saved import MAX_COUNT
from fedlama.server.exclusions import Attempts
from fedlama.training.checkpoint import Checkpoint
from fedlama.training.job import Job
from fedlama.training.participation import is_between_windows

MAX_ROUNDS_AHEAD = 1000
MAX_REASON = 200  # characters


def check_resumable(saved: Checkpoint, job: Job, layout: Layout) -> None:
    """Raise InputError unless the run can go on from here.

    Arguments:
        saved: A checkpoint whose tensors fit the run.
        job: The run.
        layout: Its model's.
    """
    ledger = saved.ledger
    same_layers = ledger.sizes == layout.sizes
    same_statistics = ledger.statistics_size == layout.statistics_size
    if not (same_layers and same_statistics):
        raise InputError("its account is of another model")
    _check_times(saved.policy_state, job)
    _check_attempts(saved, job)
    _check_slots(saved, job)
    _check_policy(saved.policy_state, job, layout)


def _check_times(state: PolicyState, job: Job) -> None:
    if state.step >= job.options.iterations:
        raise InputError(
            f"it is of step {state.step:,} of a run of {job.options.iterations:,}"
        )

    # A round takes at least one step, and a cycle at least one round
    is_possible = (
        state.round <= state.step
        and state.cycle <= state.round
        and state.cycle_start <= state.step
    )
    if not is_possible:
        raise InputError(
            f"it says that round {state.round:,} of cycle {state.cycle:,}, which began at step {state.cycle_start:,}, "
            f"ended at step {state.step:,}"
        )

    latest = max(state.synchronised_at)
    if latest > state.step:
        raise InputError("it says that a layer was averaged in the future")


def _check_attempts(saved: Checkpoint, job: Job) -> None:
    """Only faults make a round one to be repeated."""
    discarded = saved.discarded
    was_repeated = bool(saved.attempt) or discarded is not None
    if was_repeated and job.faults is None:
        raise InputError("it is of a run with faults")
    if not 0 <= saved.attempt < MAX_COUNT:
        raise InputError("its number of attempts is none")
    if discarded is not None:
        _check_discarded(discarded, len(job.shards))


def _check_discarded(discarded: Attempts, clients: int) -> None:
    for count in (discarded.uplink_bytes, discarded.downlink_bytes):
        if not 0 <= count < MAX_COUNT:
            raise InputError("its bytes of discarded attempts are no number of bytes")
    for entry in discarded.excluded:
        is_client = 0 <= entry["client"] < clients
        is_attempt = 0 < entry["attempt"] < MAX_COUNT
        # It will be printed
        reason_given = entry["reason"]
        is_short = len(reason_given) <= MAX_REASON
        is_reason = is_short and reason_given.isprintable()
        if not (is_client and is_attempt and is_reason):
            raise InputError("it excludes a client that is not there, or for no reason")


def _check_slots(saved: Checkpoint, job: Job) -> None:
    """Inside a window there are the slots of its cohort, and nowhere else."""
    step = saved.policy_state.step
    inside_window = not is_between_windows(step, job.window_steps)
    # Where a cohort was given up, the next one begins with nothing
    has_cohort = inside_window and saved.discarded is None
    keeps_slots = bool(job.client_slots)
    expected = has_cohort and keeps_slots
    found = bool(saved.cohort_slots)
    if found != expected:
        raise InputError("it does not hold what its clients keep at this step")


def _check_policy(state: PolicyState, job: Job, layout: Layout) -> None:
    """Let the policy go on for a cycle, with made-up evidence: what it keeps for itself is known to nobody else."""
    until = min(state.step + job.policy.longest_cycle, job.options.iterations)
    for _ in range(MAX_ROUNDS_AHEAD):
        try:
            state = _after_a_round(state, job, layout)
        except Exception as error:
            # Whatever a policy raises over a state that it did not write
            kind = type(error).__name__
            raise InputError(
                f"{job.policy} cannot go on from its state ({kind}: {reason(error)})"
            ) from None
        if state.step >= until:
            return


def _after_a_round(state: PolicyState, job: Job, layout: Layout) -> PolicyState:
    """The state after the next round, if everything that is measured were one."""
    plan = next_checked(
        job.policy,
        state,
        job.options.iterations,
        layers=len(layout.layers),
    )

    ones = dict.fromkeys(plan.due, 1.0)
    one_byte_each = dict.fromkeys(plan.due, 1)
    evidence = Evidence(
        spread=ones,
        moved=ones,
        norm=ones,
        sent=one_byte_each,
        clients=1,
    )
    # It is handed a copy of its own state: the checkpoint's is what the run goes on from.
    return observe_checked(
        job.policy,
        state,
        plan,
        evidence,
        layout.layers,
    )
