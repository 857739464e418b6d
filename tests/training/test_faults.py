"""Clients that fail, come late or return nonsense: who is left out, what is counted, and that the rest goes on."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import mse_loss

import fedlama
from fedlama.data import arrays
from fedlama.server.exclusions import (
    FAILED_BEFORE,
    FAILED_DURING,
    LATE,
    NOT_FINITE,
    TOO_FEW_LEFT,
    TOO_LARGE,
    Attempts,
)
from fedlama.training.checkpointing import Checkpointing, Control
from fedlama.training.faults import FaultPlace

CLIENTS, MODEL_BYTES = 6, 4 * (5 * 4 + 4 + 4 * 3 + 3)
SOME_OF_EVERYTHING = {
    "fail_before": 0.15,
    "fail_during": 0.2,
    "straggle": 0.1,
    "corrupt": 0.1,
    "norm_limit": 50.0,
}


class Scripted(fedlama.Faults):
    """`script[(client, first step of the round or cycle, attempt)]` is what happens."""

    script: dict = {}  # noqa: RUF012 - set once, on a subclass

    def _happens(self, stretch, client, step):
        return self.script.get((client, step, stretch.attempt))

    def fails_before(self, stretch, client):
        return self._happens(stretch, client, stretch.cycle.start) == FAILED_BEFORE

    def misses(self, stretch, client):
        what = self._happens(stretch, client, stretch.steps.start)
        return what if what in (FAILED_DURING, LATE) else None

    def broken_number(self, stretch, client):
        return (
            float("nan")
            if self._happens(stretch, client, stretch.steps.start) == NOT_FINITE
            else None
        )


def scripted(script, **settings):
    return type("Script", (Scripted,), {"script": script})(corrupt=1.0, **settings)


def samples(shift=0.0):
    """Nine samples a client; `shift` moves those of client 2."""
    generator = torch.Generator().manual_seed(7)
    owners = torch.arange(9 * CLIENTS) % CLIENTS
    x = (
        torch.randn(len(owners), 5, generator=generator)
        + shift * (owners == 2)[:, None]
    )
    y = torch.randint(0, 3, (len(owners),), generator=generator)
    return arrays(x, y, x[:20], y[:20], clients=owners)


def small():
    return nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))


def with_batch_norm():
    return nn.Sequential(
        nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 3)
    )


def run(faults, model=small, data=None, **changes):
    options = {
        "policy": fedlama.FedAvg(2),
        "local": fedlama.SGD(0.1, 3),
        "iterations": 8,
        "seed": 3,
        **changes,
    }
    return fedlama.simulate(
        model, samples() if data is None else data, faults=faults, **options
    )


def everything(faults, **changes):
    """Partial participation, windows of several cycles, momentum, unequal layers, BatchNorm and dropout."""
    options = {
        "model": with_batch_norm,
        "policy": fedlama.FedLAMA(2, 2),
        "local": fedlama.SGD(0.05, 3, momentum=0.9),
        "participation": 4,
        "window": 8,
        "weights": "samples",
        "iterations": 30,
        **changes,
    }
    return run(faults, **options)


def same_bits(first, second):
    pairs = zip(
        first.model.state_dict().values(),
        second.model.state_dict().values(),
        strict=True,
    )
    return replace(first, seconds=0, model=None) == replace(
        second, seconds=0, model=None
    ) and all(torch.equal(one, other) for one, other in pairs)


def entry(client, reason, attempt=1):
    return {"client": client, "reason": reason, "attempt": attempt}


# -- who is left out, and what is counted


def test_bytes_and_reasons_by_hand():
    """Cycles of 4 steps, two rounds each, every layer due in all of them: an upload is the whole model."""
    result = run(
        scripted(
            {
                (0, 0, 0): FAILED_BEFORE,
                (1, 0, 0): FAILED_DURING,
                (2, 0, 0): LATE,
                (3, 2, 0): NOT_FINITE,
            }
        ),
        policy=fedlama.FedLAMA(2, 2, warmup_rounds=100),
        iterations=8,
    )
    assert [record.excluded for record in result.records] == [
        [entry(0, FAILED_BEFORE), entry(1, FAILED_DURING), entry(2, LATE)],
        [entry(3, NOT_FINITE)],
        [],
        [],
    ]
    # Round 1: sent to all but client 0; client 1 leaves before it sends, client 2 sends too late. Round 2: clients 3, 4
    # and 5 are left, and what client 3 sends does not count. From round 3 on everyone is back.
    assert [record.downlink_bytes // MODEL_BYTES for record in result.records] == [
        5,
        3,
        6,
        6,
    ]
    assert [record.uplink_bytes // MODEL_BYTES for record in result.records] == [
        4,
        3,
        6,
        6,
    ]
    assert result.uplink_bytes == 19 * MODEL_BYTES
    assert result.downlink_bytes == 20 * MODEL_BYTES
    assert result.cost == 1  # C counts averages, not clients


class Watched(fedlama.FedAvg):
    """Keeps what it is told."""

    told: list = []  # noqa: RUF012 - set once, on a subclass

    def observe(self, state, plan, evidence, layers):
        self.told.append(evidence)
        return super().observe(state, plan, evidence, layers)


def watched(*arguments):
    return type("Watched", (Watched,), {"told": []})(*arguments)


@pytest.mark.parametrize(
    "faults",
    [
        fedlama.Faults(straggle=0.4),
        fedlama.Faults(corrupt=0.4, exclude_nonfinite=True),
        fedlama.Faults(fail_before=0.2, fail_during=0.2),
    ],
)
def test_a_policy_is_told_the_bytes_of_those_who_were_averaged(faults):
    policy = watched(2)
    result = run(faults, policy=policy, iterations=12)
    assert any(record.excluded for record in result.records)
    assert len(policy.told) == len(result.records)
    sizes = (20, 4, 12, 3)
    for evidence in policy.told:
        of_one_client = {
            layer: total / evidence.clients for layer, total in evidence.sent.items()
        }
        assert of_one_client == {layer: 4 * size for layer, size in enumerate(sizes)}


def one_weight(targets):
    """w starts at 1, and client i sees x = 1 and y = targets[i]: its first step is −η·2·(1 − y)."""

    def model():
        module = nn.Linear(1, 1, bias=False)
        nn.init.ones_(module.weight)
        return module

    y = torch.tensor(targets)[:, None]
    return model, arrays(
        torch.ones_like(y),
        y,
        torch.ones(1, 1),
        torch.zeros(1, 1),
        clients=torch.arange(len(y)),
    )


def one_step(targets, faults, **changes):
    model, data = one_weight(targets)
    options = {
        "policy": fedlama.FedAvg(1),
        "local": fedlama.SGD(0.5, 1),
        "iterations": 1,
        "loss": mse_loss,
    }
    return fedlama.simulate(model, data, faults=faults, **{**options, **changes})


def test_a_norm_beyond_the_limit_by_hand():
    # Updates are −1, −2 and −1, so the weights become 0, −1 and 0, and d = (0 + 1 + 0 − …): see below
    # 2 is not beyond 2
    expected = {
        None: (-1 / 3, []),
        1.5: (0.0, [entry(1, TOO_LARGE)]),
        2.0: (-1 / 3, []),
    }
    for limit, (weight, excluded) in expected.items():
        result = one_step([0.0, -1.0, 0.0], fedlama.Faults(norm_limit=limit))
        assert result.model.weight.item() == pytest.approx(weight, abs=1e-7)
        assert result.records[0].excluded == excluded


def test_discrepancy_and_loss_are_over_those_who_were_averaged():
    # Weights −1, 0 and NaN of losses 4, 1 and whatever: u = −0.5, d = (0.25 + 0.25) / 2, loss 2.5
    result = one_step([-1.0, 0.0, 0.5], scripted({(2, 0, 0): NOT_FINITE}))
    assert result.model.weight.item() == -0.5
    assert result.records[0].discrepancy == [0.25]
    assert result.records[0].loss == 2.5


def test_weights_are_those_of_the_others():
    owners = torch.tensor([0, 1, 1, 1, 2, 2])  # one, three and two samples
    y = torch.tensor([-1.0, 0.0, 0.0, 0.0, 5.0, 5.0])[:, None]
    model, _ = one_weight([0.0])
    data = arrays(
        torch.ones_like(y), y, torch.ones(1, 1), torch.zeros(1, 1), clients=owners
    )
    options = {
        "policy": fedlama.FedAvg(1),
        "local": fedlama.SGD(0.5, 1),
        "iterations": 1,
        "loss": mse_loss,
    }
    result = fedlama.simulate(
        model, data, faults=scripted({(2, 0, 0): LATE}), weights="samples", **options
    )
    assert result.model.weight.item() == -0.25  # (1·−1 + 3·0) / 4


@pytest.mark.parametrize("reason", [FAILED_BEFORE, FAILED_DURING, LATE])
@pytest.mark.parametrize("execution", ["stacked", "one-by-one"])
def test_a_client_that_is_left_out_has_no_influence(reason, execution):
    always = scripted({(2, step, 0): reason for step in range(0, 8, 2)})
    first = run(always, execution=execution)
    assert {one["client"] for record in first.records for one in record.excluded} == {2}
    # It would diverge at once
    data = replace(
        samples(shift=1e30), x_test=samples().x_test, y_test=samples().y_test
    )
    assert same_bits(first, run(always, data=data, execution=execution))


def test_a_client_that_really_diverges_is_left_out_and_named():
    targets = [0.0, -3e38, 0.0]  # the square of the second one's error is infinite
    result = one_step(targets, fedlama.Faults(), iterations=3)
    assert [record.excluded for record in result.records] == [
        [entry(1, NOT_FINITE)]
    ] * 3
    assert result.model.weight.item() == 0
    for faults in (None, fedlama.Faults(exclude_nonfinite=False)):
        with pytest.raises(
            fedlama.RunError, match=r"the loss of client 1 was not finite in round 1"
        ):
            one_step(targets, faults)


def test_whoever_left_takes_no_part_again_before_the_next_cycle():
    result = run(
        scripted({(4, 0, 0): LATE}),
        policy=fedlama.FedLAMA(2, 3, warmup_rounds=100),
        iterations=12,
    )
    assert [record.uplink_bytes // MODEL_BYTES for record in result.records] == [
        6,
        5,
        5,
        6,
        6,
        6,
    ]
    assert [record.excluded for record in result.records] == [
        [entry(4, LATE)],
        [],
        [],
        [],
        [],
        [],
    ]


def test_no_faults_at_all_change_nothing():
    assert same_bits(everything(None), everything(fedlama.Faults()))
    assert same_bits(
        everything(None), everything(fedlama.Faults(norm_limit=1e30, straggle=0.0))
    )


# -- too few are left


def everyone_late(first_step, attempts):
    return {
        (client, first_step, attempt): LATE
        for client in range(CLIENTS - 1)
        for attempt in range(attempts)
    }


@pytest.mark.parametrize("first_step", [0, 4])
def test_a_round_with_too_few_is_repeated_and_what_was_sent_stays_counted(first_step):
    """With everyone taking part the new clients are the old ones, on the same batches: the same model comes out."""
    plain = run(None)
    result = run(scripted(everyone_late(first_step, 2), min_clients=2))
    attempts = [
        [entry(client, LATE, n) for client in range(5)] + [entry(5, TOO_FEW_LEFT, n)]
        for n in (1, 2)
    ]
    at = first_step // 2
    assert [record.excluded for record in result.records] == [
        [*attempts[0], *attempts[1]] if number == at else [] for number in range(4)
    ]
    for record, calm in zip(result.records, plain.records, strict=True):
        repeated = 3 if record.round == at + 1 else 1
        assert record.uplink_bytes == repeated * calm.uplink_bytes
        assert record.downlink_bytes == repeated * calm.downlink_bytes
        assert replace(
            record, excluded=[], uplink_bytes=0, downlink_bytes=0
        ) == replace(calm, uplink_bytes=0, downlink_bytes=0)
    assert (result.cost, result.accuracy) == (plain.cost, plain.accuracy)
    assert torch.equal(result.model[0].weight, plain.model[0].weight)


def test_new_clients_are_drawn_and_stay_for_the_window():
    participation = fedlama.Participation(2, 8)
    cohorts = [participation.cohort(CLIENTS, 3, 0, attempt) for attempt in range(2)]
    assert cohorts[0] != cohorts[1]
    # Round 3 of the window fails with the first cohort; in round 4 a client of the second one is late
    late = {(client, 4, 0): LATE for client in cohorts[0]} | {
        (cohorts[1][0], 6, 1): LATE
    }
    result = run(scripted(late), participation=participation)
    assert [record.excluded for record in result.records] == [
        [],
        [],
        [entry(client, LATE) for client in cohorts[0]],
        [entry(cohorts[1][0], LATE, 2)],
    ]
    assert [record.uplink_bytes // MODEL_BYTES for record in result.records] == [
        2,
        2,
        4,
        2,
    ]


def test_distances_are_counted_from_where_new_clients_began():
    """Cycles of 4 steps; the second round of the second cycle is repeated, and its long layer is due after it."""
    options = {
        "policy": fedlama.FedLAMA(2, 2),
        "iterations": 8,
        "local": fedlama.SGD(1e-3, 9),
    }
    plain, late = (
        run(None, **options),
        {(client, 6, 0): LATE for client in range(CLIENTS)},
    )
    assert [len(record.due) for record in plain.records][2] < 4  # something is long
    result = run(scripted(late), **options)
    long = next(
        index
        for index, name in enumerate(["0.weight", "0.bias", "2.weight", "2.bias"])
        if name not in plain.records[2].due
    )
    # Copies drift for 2 steps instead of 4: the squared distance is about a quarter, divided by half as many steps
    assert result.records[3].discrepancy[long] == pytest.approx(
        plain.records[3].discrepancy[long] / 2, rel=0.05
    )


class Keeper:
    """Keeps what `simulate` saves, as a run directory does."""

    def __init__(self):
        self.saved, self.records, self.sentences = b"", [], []

    def run(self, faults, **options):
        """Start, and resume as often as the run stops."""
        while True:
            done = self.records[: self.round] if self.saved else []
            keeping = Checkpointing(Control(), self._keep, self.saved, list(done))
            self.records = list(done)
            try:
                return everything(
                    faults,
                    checkpointing=keeping,
                    on_record=self.records.append,
                    **options,
                )
            except fedlama.RunError as error:
                self.sentences.append(str(error))

    def _keep(self, content, state):
        self.saved, self.round = content, state.round


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_that_stops_for_want_of_clients_resumes_to_what_repeating_gives(workers):
    settings = {"straggle": 0.3, "fail_before": 0.3, "min_clients": 3}
    keeper = Keeper()
    stopping = keeper.run(
        fedlama.Faults(**settings, on_too_few="stop"), workers=workers
    )
    repeating = everything(fedlama.Faults(**settings))
    assert len(keeper.sentences) > 3
    assert all(
        "--resume continues from there with new clients" in sentence
        for sentence in keeper.sentences
    )
    assert same_bits(stopping, repeating)
    assert stopping.uplink_bytes == sum(
        record.uplink_bytes for record in stopping.records
    )
    assert stopping.downlink_bytes == sum(
        record.downlink_bytes for record in stopping.records
    )


def test_repeating_in_vain_ends_after_many_attempts(monkeypatch):
    monkeypatch.setattr("fedlama.training.attempts.MAX_ATTEMPTS", 5)
    with pytest.raises(
        fedlama.RunError,
        match=r"stopped at step 0 of 8: fewer than faults.min_clients = 6 clients were left in round 1 at 5 attempts",
    ):
        run(fedlama.Faults(straggle=0.9, min_clients=6))


def test_more_clients_than_train_at_a_time_are_refused():
    with pytest.raises(
        fedlama.InputError,
        match=r"faults\.min_clients is 4, but only 3 clients train at a time",
    ):
        run(fedlama.Faults(min_clients=4), participation=3)


# -- the same bits


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("model", [small, with_batch_norm])
def test_faults_do_not_depend_on_the_number_of_workers(workers, model):
    faults = fedlama.Faults(**SOME_OF_EVERYTHING, min_clients=2)
    alone = everything(faults, model=model)
    reasons = {one["reason"] for record in alone.records for one in record.excluded}
    assert {FAILED_BEFORE, FAILED_DURING, LATE, NOT_FINITE, TOO_LARGE} <= reasons
    assert same_bits(alone, everything(faults, model=model, workers=workers))


def test_another_seed_has_other_faults():
    faults = fedlama.Faults(**SOME_OF_EVERYTHING)
    first, second = (everything(faults, seed=seed).records for seed in (3, 4))
    assert [record.excluded for record in first] != [
        record.excluded for record in second
    ]


# -- the draws


def stretch(first=0, last=24, *, seed=0, attempt=0, cycle=range(24)):
    return FaultPlace(seed, 1, attempt, cycle, range(first, last))


@pytest.mark.parametrize("name", ["fail_before", "fail_during", "straggle", "corrupt"])
def test_probabilities_are_probabilities(name):
    faults = fedlama.Faults(**{name: 0.25})
    hit = {
        "fail_before": lambda client: faults.fails_before(stretch(), client),
        "fail_during": lambda client: faults.misses(stretch(), client) == FAILED_DURING,
        "straggle": lambda client: faults.misses(stretch(), client) == LATE,
        "corrupt": lambda client: faults.broken_number(stretch(), client) is not None,
    }[name]
    count = sum(hit(client) for client in range(4000))
    # Four standard deviations
    assert abs(count - 1000) < 4 * (4000 * 0.25 * 0.75) ** 0.5


@given(st.sets(st.integers(1, 23)), st.integers(0, 2**32), st.integers(0, 100))
def test_a_client_leaves_in_one_round_of_a_cycle_however_it_is_divided(
    cuts, seed, client
):
    bounds = [0, *sorted(cuts), 24]
    faults = fedlama.Faults(fail_during=1.0)
    rounds = [stretch(first, last, seed=seed) for first, last in pairwise(bounds)]
    assert [faults.misses(one, client) for one in rounds].count(FAILED_DURING) == 1


def test_faults_of_another_attempt_are_others():
    faults = fedlama.Faults(straggle=0.5)
    hit = [
        [faults.misses(stretch(attempt=attempt), client) for client in range(50)]
        for attempt in range(2)
    ]
    assert hit[0] != hit[1]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"straggle": 1.5},
            r"faults\.straggle must be at least 0 and at most 1, not 1\.5",
        ),
        ({"fail_before": -0.1}, r"faults\.fail_before must be"),
        ({"fail_during": "often"}, r"faults\.fail_during must be"),
        ({"norm_limit": 0.0}, r"faults\.norm_limit must be above 0"),
        ({"min_clients": 0}, r"faults\.min_clients must be at least 1"),
        (
            {"on_too_few": "wait"},
            r"faults\.on_too_few must be one of repeat, stop, not 'wait'",
        ),
        (
            {"corrupt": 0.1, "exclude_nonfinite": False},
            r"leave faults\.exclude_nonfinite at true",
        ),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings, sentence):
    with pytest.raises(fedlama.InputError, match=sentence):
        fedlama.Faults(**settings)


def test_something_else_than_faults_is_refused():
    with pytest.raises(
        fedlama.InputError,
        match=r"faults must be made with fedlama\.Faults\(…\), not dict",
    ):
        run({"straggle": 0.1})


def test_what_a_given_up_attempt_leaves_behind_survives_json():
    left = Attempts((entry(3, LATE),), 12, 34)
    plain = {"excluded": [entry(3, LATE)], "uplink_bytes": 12, "downlink_bytes": 34}
    assert Attempts.from_plain(plain) == left
    assert Attempts.from_plain(None) is None
