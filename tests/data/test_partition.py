"""How samples fall on clients: the published method, the same on every machine, for any number of clients."""

import numpy as np
import pytest
import torch

from fedlama.base import InputError, random_key
from fedlama.data import IID, Dataset, Dirichlet, Natural, digits


def labelled(y, clients=None):
    y = torch.as_tensor(y)
    owners = None if clients is None else torch.as_tensor(clients)
    return Dataset(
        torch.zeros(len(y), 1, dtype=torch.uint8),
        y,
        torch.zeros(1, 1, dtype=torch.uint8),
        y[:1],
        owners,
    )


def dealt(shards):
    """Every client's samples; each sample must be someone's exactly once."""
    assert sorted(shards.order.tolist()) == list(range(len(shards.order)))
    assert int(shards.offsets[0]) == 0
    assert int(shards.offsets[-1]) == len(shards.order)
    return [shards.of(client).tolist() for client in range(len(shards))]


def generator(seed, attempt=0):
    return np.random.Generator(
        np.random.Philox(key=random_key(seed, "partition", attempt))
    )


def fedml(labels, clients, alpha, min_samples, seed):
    """FedML's non_iid_partition_with_dirichlet_distribution, loop for loop."""
    for attempt in range(1001):
        rng = generator(seed, attempt)
        batches = [[] for _ in range(clients)]
        for label in sorted(set(labels.tolist())):
            indices = rng.permutation(
                [i for i, y in enumerate(labels.tolist()) if y == label]
            )
            shares = rng.dirichlet(np.repeat(alpha, clients))
            shares = np.array(
                [
                    p * (len(batch) < len(labels) / clients)
                    for p, batch in zip(shares, batches, strict=True)
                ]
            )
            shares = shares / shares.sum()
            cuts = (np.cumsum(shares) * len(indices)).astype(int)[:-1]
            parts = np.split(indices, cuts)
            batches = [
                batch + part.tolist()
                for batch, part in zip(batches, parts, strict=True)
            ]
        if min(len(batch) for batch in batches) >= min_samples:
            return [sorted(batch) for batch in batches]
    raise AssertionError


@pytest.mark.parametrize(
    ("clients", "alpha", "min_samples"),
    [(7, 0.1, 1), (20, 0.3, 10), (5, 1.0, 10), (3, 100.0, 10)],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_dirichlet_is_fedml(clients, alpha, min_samples, seed):
    data = digits()
    shards = Dirichlet(clients, alpha, min_samples).assign(data, seed)
    assert dealt(shards) == fedml(data.y_train, clients, alpha, min_samples, seed)


def test_dirichlet_is_fixed():
    """The same split on every machine, and in every version: results are published with it."""
    shards = Dirichlet(8, 0.5).assign(digits(), 0)
    assert shards.sizes.tolist() == [197, 161, 137, 183, 204, 148, 221, 186]
    assert shards.of(3)[:8].tolist() == [5, 14, 21, 40, 41, 48, 55, 75]


def test_alpha_sets_the_skew():
    def largest_share(alpha):
        data = digits()
        shards = Dirichlet(10, alpha, min_samples=1).assign(data, 0)
        counts = [
            data.y_train[shards.of(client)].bincount(minlength=10)
            for client in range(10)
        ]
        return float(np.mean([int(count.max()) / int(count.sum()) for count in counts]))

    assert largest_share(0.1) > 0.4 > largest_share(1.0) > 0.15 > largest_share(1000.0)


def test_a_minimum_that_cannot_be_reached_is_refused_after_a_thousand_redraws(
    monkeypatch,
):
    drawn = []
    draw = Dirichlet._draw
    monkeypatch.setattr(
        Dirichlet, "_draw", lambda *given: drawn.append(1) or draw(*given)
    )
    with pytest.raises(InputError) as caught:
        Dirichlet(30, 0.05).assign(labelled(np.arange(310) % 3), 0)
    assert len(drawn) == 1001
    for word in (
        "partition.min_samples = 10",
        "30 clients",
        "alpha 0.05",
        "1,000 redraws",
        "310 samples",
    ):
        assert word in str(caught.value)


def test_shares_that_vanish_are_drawn_again():
    """At a tiny alpha every share but one underflows to zero; where that one is full, nobody is left."""
    with pytest.raises(InputError, match="redraws"):
        Dirichlet(4, 1e-4, min_samples=1).assign(labelled(np.arange(40) % 2), 0)


def test_iid_deals_evenly():
    data = digits()
    shards = IID(10).assign(data, 0)
    assert set(shards.sizes.tolist()) == {143, 144}
    dealt(shards)
    assert data.y_train[shards.of(0)].unique().numel() == 10
    assert IID(1).assign(data, 0).of(0).tolist() == list(range(1437))


def test_iid_is_fixed():
    shards = IID(5).assign(digits(), 0)
    first = [shards.of(client)[:4].tolist() for client in range(5)]
    assert first == [
        [10, 14, 15, 19],
        [5, 16, 20, 28],
        [0, 1, 2, 6],
        [7, 8, 21, 29],
        [3, 4, 12, 23],
    ]
    assert IID(5).assign(digits(), 1).of(0)[:4].tolist() == [0, 2, 12, 13]


def test_natural_is_the_owners():
    shards = Natural().assign(labelled([0, 0, 0, 0, 0], clients=[2, 0, 1, 0, 2]), 0)
    assert dealt(shards) == [[1, 3], [2], [0, 4]]


def test_grouped_natural_keeps_owners_together():
    owners = np.repeat(np.arange(10), np.arange(1, 11))
    shards = Natural(3).assign(labelled(owners, clients=owners), 0)
    held = [sorted(set(owners[part].tolist())) for part in dealt(shards)]
    assert held == [[0, 1, 5, 8], [3, 4, 9], [2, 6, 7]]
    assert len(Natural(10).assign(labelled(owners, clients=owners), 0)) == 10


def test_a_million_clients_cost_one_offset_each():
    samples, clients = 2_000_000, 1_000_000
    data = labelled(torch.zeros(samples, dtype=torch.int64))
    shards = IID(clients).assign(data, 0)
    assert len(shards) == clients
    assert (
        shards.offsets.nbytes + shards.order.nbytes == 8 * (clients + 1) + 8 * samples
    )
    assert shards.sizes.unique().tolist() == [2]
    owned = labelled(data.y_train, clients=torch.arange(samples) // 2)
    assert torch.equal(Natural().assign(owned, 0).order, torch.arange(samples))


@pytest.mark.parametrize(
    ("assign", "word"),
    [
        (lambda: IID(0), "partition.clients must be at least 1, not 0"),
        (
            lambda: IID(5).assign(labelled([0, 1]), 0),
            "partition.clients is 5, but there are only 2 training samples",
        ),
        (lambda: Dirichlet(2, 0.0), "partition.alpha must be above 0"),
        (lambda: Dirichlet(2, float("nan")), "partition.alpha"),
        (lambda: Dirichlet(2, float("inf")), "partition.alpha"),
        (lambda: Dirichlet(2, 1.0, 0), "partition.min_samples"),
        (lambda: Dirichlet(2, 1.0).assign(labelled(torch.zeros(9)), 0), "class label"),
        (lambda: Natural().assign(labelled([0, 1]), 0), "no client ids of its own"),
        (lambda: Natural(0), "partition.clients"),
        (
            lambda: Natural(3).assign(labelled([0, 1], clients=[0, 1]), 0),
            "only 2 client ids",
        ),
    ],
)
def test_wrong_partitions(assign, word):
    with pytest.raises(InputError, match=word):
        assign()
