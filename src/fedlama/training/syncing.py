"""Before a due layer is uploaded, the local rule may update its slots, or what is sent."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fedlama.core import Layout
from fedlama.rows import ReadOnly, views
from fedlama.training.cohorts import Cohort
from fedlama.training.current import Round
from fedlama.training.job import Job


def sync_due_layers(
    current: Round, job: Job, layout: Layout, server_rows: Mapping[str, Tensor]
) -> None:
    """Call the local rule's `sync` on every due layer of the clients that are present here.

    Arguments:
        current: The round, after its steps.
        job: The run.
        layout: Where the layers are in a row.
        server_rows: What the local rule may look at.
    """
    cohort = current.cohort
    synchronised_at = current.position.policy_state.synchronised_at
    base_interval = job.policy.base_interval
    present = list(cohort.trained_parts(block=1))
    # By the step since which they count: most layers were averaged last after the same round.
    taken_since: dict[int, Tensor] = {}
    shared: list[ReadOnly] = []
    for layer in current.plan.due:
        # A layer may be due after several rounds: its steps count since it was last averaged
        start = synchronised_at[layer]
        since = range(start, current.steps.stop)
        if start not in taken_since:
            counts = _steps_taken(cohort, since, base_interval)
            taken_since[start] = counts
            shared.append(ReadOnly({"taken": counts}))
        taken = taken_since[start]
        for part in layout.layers[layer].slices:
            server = views(server_rows, part)
            for some_rows in present:
                own = views(cohort.slots, (some_rows, part))
                job.local.sync(
                    cohort.rows[some_rows, part],
                    own,
                    server,
                    steps=since,
                    taken=taken[some_rows],
                )
    for counts_as_made in shared:
        counts_as_made.check(job.local)


def _steps_taken(cohort: Cohort, since: range, base_interval: int) -> Tensor:
    """How many steps each client of this process took itself in these global ones, [mine, 1]."""
    local_steps = cohort.local_steps(since, base_interval)
    counts = [[len(own_steps)] for own_steps in local_steps]
    return torch.tensor(counts, device=cohort.rows.device)
