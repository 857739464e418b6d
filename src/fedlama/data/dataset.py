"""A data set: training and test samples as tensors, and who owns the training samples if that is known."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedlama.base import InputError, random_key, shown
from fedlama.data.preparation import Preparation, Transform

AUGMENTATIONS = (None, "crop-flip")
NO_CLIENT = -1  # the owner of a test sample that no client of the training samples owns


@dataclass(frozen=True, repr=False)
class Dataset:
    """Samples as they are stored; `inputs` turns them into what a model computes with.

    Arguments:
        x_train: Training samples: uint8 (pixels), float32, or int64 (tokens).
        y_train: Their targets: int64 (classes, counted from 0) or float32.
        x_test: Test samples.
        y_test: Their targets.
        clients: An owner, counted from 0, for each training sample, if that is known.
        name: What messages and reports call the data.
        classes: How many classes there are; None where targets are not classes.
        scale: What uint8 samples are divided by.
        mean: What is subtracted from uint8 samples then: a number, or one per channel.
        std: What they are divided by in the end: a number, or one per channel.
        augment: What happens to the samples of a training batch: nothing, "crop-flip" (see `batches`), or a function of
            your own of a batch of inputs. Its draws from torch's generator are a function of the seed, the client and
            the step.
        transform: A function of your own of a batch of inputs, applied to all of them: in training, evaluation and
            prediction. It should draw nothing.
        client_names: What each client is called, where its id is not simply its number.
        test_clients: An owner for each test sample, −1 where that is no client of the training samples, if it is known.
    """

    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor
    clients: Tensor | None = None
    name: str = "arrays"
    classes: int | None = None
    scale: float = 255.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    augment: str | Transform | None = None
    transform: Transform | None = None
    client_names: tuple[str, ...] | None = None
    test_clients: Tensor | None = None

    def __post_init__(self) -> None:
        if self.transform is not None and not callable(self.transform):
            raise InputError(
                f"transform must be a function of a batch of inputs, not {shown(self.transform)}"
            )
        if callable(self.augment):
            return

        if self.augment not in AUGMENTATIONS:
            allowed = ", ".join(map(str, AUGMENTATIONS))
            given = shown(self.augment)
            raise InputError(
                f"augment must be one of {allowed}, not {given}, which is no function either"
            )
        if self.augment and self.x_train.dim() != 4:
            shape = tuple(self.x_train.shape[1:])
            raise InputError(
                f"augment = {shown(self.augment)} needs images of [channels, height, width], not {shape}"
            )

    def inputs(self, samples: Tensor) -> Tensor:
        """Stored samples as a model's input.

        Arguments:
            samples: As they are stored, one per row.
        """
        return self.preparation(samples)

    @cached_property
    def preparation(self) -> Preparation:
        """How `inputs` does it, without the samples themselves."""
        return Preparation(
            sample_shape=tuple(self.x_train.shape[1:]),
            dtype=self.x_train.dtype,
            scale=self.scale,
            mean=tuple(self.mean),
            std=tuple(self.std),
            transform=self.transform,
        )

    def to(self, device: torch.device) -> Dataset:
        """The same data set on another device.

        Arguments:
            device: Where samples and targets are to be.
        """
        return replace(
            self,
            x_train=self.x_train.to(device),
            y_train=self.y_train.to(device),
            x_test=self.x_test.to(device),
            y_test=self.y_test.to(device),
        )

    def hold_out(self, share: float, seed: int) -> Dataset:
        """Tested on a share of the training samples, which are no longer trained on; the test samples are dropped.

        Arguments:
            share: Of the training samples, above 0 and below 1.
            seed: Of the run, which decides which samples those are.
        """
        samples = len(self.x_train)
        count = max(1, round(share * samples))
        if count >= samples:
            raise InputError(
                f"{self.name} has {samples} training samples: holding {share:g} of them out leaves none"
            )

        # In the order of the files, so that only the choice is drawn.
        key = random_key(seed, "validation")
        philox = np.random.Philox(key=key)
        draws = np.random.Generator(philox)
        permutation = draws.permutation(samples)
        order = torch.from_numpy(permutation)
        held = order[:count].sort().values
        kept = order[count:].sort().values
        part = replace(
            self,
            x_train=self.x_train[kept],
            y_train=self.y_train[kept],
            x_test=self.x_train[held],
            y_test=self.y_train[held],
            clients=None,
            client_names=None,
            test_clients=None,
        )
        if self.clients is None:
            return part

        # Without gaps: a client that lost its only sample is left out.
        there, numbers = torch.unique(self.clients[kept], return_inverse=True)
        before = int(self.clients.max()) + 1
        held_owners = self.clients[held]
        return replace(
            part,
            clients=numbers,
            client_names=self._names_of(there.tolist(), before),
            test_clients=places_of(held_owners.numpy(), there.numpy()),
        )

    def _names_of(self, there: list[int], before: int) -> tuple[str, ...] | None:
        """What the clients that are still there are called; one that moves up keeps its old number as its name.

        Arguments:
            there: Their numbers among the clients before.
            before: How many clients there were.
        """
        if self.client_names is not None:
            return tuple(self.client_names[old] for old in there)
        if len(there) < before:
            return tuple(str(old) for old in there)

        # All are there, and their numbers say it all.
        return None

    def content_hash(self) -> str:
        """One SHA-256 over all samples, targets and owners: which data it is, wherever it came from."""
        digest = hashlib.sha256()
        for part in (
            self.x_train,
            self.y_train,
            self.x_test,
            self.y_test,
            self.clients,
        ):
            if part is None:
                continue
            header = f"{part.dtype} {tuple(part.shape)}\n"
            digest.update(header.encode())
            numbers = part.contiguous().numpy().reshape(-1)
            digest.update(numbers.view(np.uint8).data)
        return digest.hexdigest()

    def __repr__(self) -> str:
        facts: list[str] = []
        for name, value in self._facts():
            # The shape of a sample has no name.
            fact = f"{value} {name}".strip()
            facts.append(fact)
        listed = ", ".join(facts)
        return f"Dataset({self.name}: {listed})"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        rows: list[str] = []
        for name, value in self._facts():
            head = escape(name or "a sample")
            cell = escape(value)
            row = f"<tr><th>{head}</th><td>{cell}</td></tr>"
            rows.append(row)
        caption = escape(self.name)
        body = "".join(rows)
        return f"<table><caption>{caption}</caption>{body}</table>"

    def _facts(self) -> list[tuple[str, str]]:
        """What there is to say in a line: a name, empty for the shape of a sample, and a value."""
        train = len(self.x_train)
        test = len(self.x_test)
        lengths = map(str, self.x_train.shape[1:])
        shape = "×".join(lengths) or "one number"
        dtype = str(self.x_train.dtype)
        kind = dtype.removeprefix("torch.")
        facts = [
            ("training samples", f"{train:,}"),
            ("test samples", f"{test:,}"),
            ("", f"{shape} {kind}"),
        ]
        if self.classes is not None:
            facts.append(("classes", f"{self.classes:,}"))
        if self.clients is not None:
            clients = int(self.clients.max()) + 1
            facts.append(("clients", f"{clients:,}"))
        return facts


def places_of(ids: NDArray[Any], known: NDArray[Any]) -> Tensor:
    """For each id its place among those known, which are in order; −1 for one that is not known."""
    places = np.searchsorted(known, ids)
    # An id beyond all that are known has the place after the last
    last = len(known) - 1
    inside = np.minimum(places, last)
    is_known = known[inside] == ids

    found = np.where(is_known, inside, NO_CLIENT)
    return torch.from_numpy(found.astype(np.int64))
