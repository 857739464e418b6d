"""How training samples fall on clients: a `Partition` is a recipe, and its `assign` gives the `Shards`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fedlama.base import InputError, Limits, check_options, random_key
from fedlama.data.dataset import Dataset
from fedlama.data.shards import Shards

MAX_REDRAWS = 1000
DEFAULT_CLIENTS = 32

Clients = Annotated[int, Limits(minimum=1)]
Alpha = Annotated[float, Limits(above=0)]
MinSamples = Annotated[int, Limits(minimum=1)]


@runtime_checkable
class Partition(Protocol):
    """A recipe for dealing samples to clients."""

    def assign(self, data: Dataset, seed: int) -> Shards:
        """Deal the training samples.

        Arguments:
            data: Whose samples.
            seed: The run's; the same seed gives the same shards on every machine.
        """
        ...


def _generator(seed: int, attempt: int = 0) -> np.random.Generator:
    key = random_key(seed, "partition", attempt)
    philox = np.random.Philox(key=key)
    return np.random.Generator(philox)


def _check_clients(clients: int, at_most: int, what: str = "training samples") -> None:
    if clients > at_most:
        raise InputError(
            f"partition.clients is {clients}, but there are only {at_most} {what}: a client would be empty"
        )


@dataclass(frozen=True)
class IID:
    """Samples shuffled and dealt out evenly.

    Arguments:
        clients: How many clients there are.
    """

    clients: Clients

    def __post_init__(self) -> None:
        check_options(self, "partition.")

    def assign(self, data: Dataset, seed: int) -> Shards:
        """Deal the training samples of `data`; the draws follow from `seed`."""
        samples = len(data.x_train)
        _check_clients(self.clients, samples)
        owners = _dealt_out(samples, self.clients, seed)
        return Shards.by_owner(owners, self.clients)


def _dealt_out(things: int, clients: int, seed: int) -> NDArray[np.int64]:
    """For each of so many things a client, drawn so that all clients have the same number of them, or one more."""
    generator = _generator(seed)
    shuffled = generator.permutation(things)

    # Cut into as many pieces as there are clients, whose lengths differ by one at most
    places = np.arange(things)
    pieces = places * clients // things

    owners = np.empty(things, dtype=np.int64)
    owners[shuffled] = pieces
    return owners


@dataclass(frozen=True)
class Dirichlet:
    """Label skew as in FedML: each class is split over the clients by a Dirichlet(alpha) draw.

    A client that already has its fair share of samples gets nothing more of later classes. The whole is redrawn until
    every client has `min_samples`.

    Arguments:
        clients: How many clients there are.
        alpha: The smaller it is, the fewer classes a client has.
        min_samples: The fewest samples that a client may have.
    """

    clients: Clients
    alpha: Alpha
    min_samples: MinSamples = 10

    def __post_init__(self) -> None:
        check_options(self, "partition.")

    def assign(self, data: Dataset, seed: int) -> Shards:
        """Deal the training samples of `data`; the draws follow from `seed`."""
        _check_clients(self.clients, len(data.x_train))
        labels = _class_labels(data)
        samples = len(labels)
        classes: list[NDArray[np.int64]] = []
        for label in np.unique(labels):
            members = np.flatnonzero(labels == label)
            classes.append(members)

        for attempt in range(1 + MAX_REDRAWS):
            generator = _generator(seed, attempt)
            owners = self._draw(classes, samples, generator)
            if owners is None:
                continue

            sizes = np.bincount(owners, minlength=self.clients)
            if sizes.min() >= self.min_samples:
                return Shards.by_owner(owners, self.clients)

        raise InputError(
            f"partition.min_samples = {self.min_samples} was not reached for every one of {self.clients} clients at "
            f"alpha {self.alpha:g} in {MAX_REDRAWS:,} redraws of {samples:,} samples: "
            f"set partition.min_samples lower (1 is the least), or use fewer clients or a larger alpha"
        )

    def _draw(
        self,
        classes: list[NDArray[np.int64]],
        total: int,
        generator: np.random.Generator,
    ) -> NDArray[np.int64] | None:
        """An owner for each of the `total` samples, from the samples of each class."""
        owners = np.empty(total, dtype=np.int64)
        clients = np.arange(self.clients)
        concentration = np.full(self.clients, self.alpha)

        # A client that has its fair share gets nothing more.
        fair_share = total / self.clients
        held = np.zeros(self.clients, dtype=np.int64)
        for members in classes:
            samples = generator.permutation(members)
            shares = generator.dirichlet(concentration)
            shares[held >= fair_share] = 0
            total_share = shares.sum()
            if not total_share > 0:
                # Every client with room drew a share that underflowed to zero
                return None

            # The samples of this class, cut where the shares say.
            size = len(samples)
            ends = np.cumsum(shares / total_share)
            cuts = ends[:-1] * size
            cuts = cuts.astype(np.int64)
            counts = np.diff(cuts, prepend=0, append=size)

            owners[samples] = np.repeat(clients, counts)
            held += counts
        return owners


@dataclass(frozen=True)
class Natural:
    """The data's own client ids (writers, devices), each a client; or grouped at random into `clients` clients.

    Arguments:
        clients: How many clients the ids are put together to; by default each is a client.
    """

    clients: Clients | None = None

    def __post_init__(self) -> None:
        check_options(self, "partition.")

    def assign(self, data: Dataset, seed: int) -> Shards:
        """Deal the training samples of `data`; the draws follow from `seed`."""
        if data.clients is None:
            raise InputError(
                f"{data.name} has no client ids of its own: choose partition iid or dirichlet"
            )
        owners = data.clients.numpy()
        last = int(owners.max())
        ids = last + 1
        if self.clients is None or self.clients == ids:
            return Shards.by_owner(owners, ids, data.client_names)

        # Whole writers are dealt out, not samples: the data of one stays with one client.
        _check_clients(self.clients, ids, "client ids in the data")
        group_of_id = _dealt_out(ids, self.clients, seed)
        groups = group_of_id[owners]
        return Shards.by_owner(groups, self.clients)


def default_kind(has_ids: bool) -> type[Natural] | type[IID]:
    """The partition that is meant where nobody names one.

    Arguments:
        has_ids: Whether the data knows whose its samples are.
    """
    if has_ids:
        return Natural
    return IID


def default_partition(data: Dataset) -> Partition:
    """What is meant where nobody says how samples fall on clients.

    Arguments:
        data: With client ids of its own, each is a client; otherwise 32 clients have as many samples each.
    """
    kind = default_kind(has_ids=data.clients is not None)
    if kind is Natural:
        return Natural()
    return IID(DEFAULT_CLIENTS)


def _class_labels(data: Dataset) -> NDArray[np.int64]:
    if data.y_train.is_floating_point() or data.y_train.dim() != 1:
        raise InputError(
            "a Dirichlet partition needs one class label per sample: use IID or the data's own client ids"
        )
    return data.y_train.numpy()
