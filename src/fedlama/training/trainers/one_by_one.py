"""Clients are trained one after the other: the module is pointed at a client's row and takes its steps there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from fedlama.base import InputError, RunError, random_key
from fedlama.data import Batches
from fedlama.local import LocalRule
from fedlama.rows import Binding, views
from fedlama.training.evaluation import Loss
from fedlama.training.modules import is_about_single_samples, seed_module_draws

# Of local steps; bfloat16 is autocast, and weights stay float32
Precision = Literal["float32", "bfloat16"]
PRECISIONS = get_args(Precision)


@dataclass
class _Piece:
    """A stretch of a row, or a part of one, as the local rule sees it and changes it in place.

    `inside` is where it is in the stretch.
    """

    inside: slice | None
    row: Tensor
    slots: Mapping[str, Tensor]
    server_rows: Mapping[str, Tensor]
    kernels: Tensor


class OneByOneTrainer:
    """Trains any client's row with one module.

    Arguments:
        binding: The module at work in this process.
        batches: What clients are trained on.
        rule: What a client does with a gradient.
        loss: A function of outputs and targets.
        seed: The run's, of the module's own draws (dropout).
        precision: Of local steps: "float32" or "bfloat16".
    """

    block = 1

    def __init__(
        self,
        binding: Binding,
        batches: Batches,
        rule: LocalRule,
        loss: Loss,
        seed: int,
        precision: str = "float32",
    ) -> None:
        self.binding = binding
        self.batches = batches
        self.rule = rule
        self.loss = loss
        self.seed = seed
        self._precision = torch.autocast(
            binding.device.type,
            torch.bfloat16,
            enabled=precision == "bfloat16",
        )
        self._frozen: list[Tensor] = []
        for parameter in binding.module.parameters():
            if not parameter.requires_grad:
                self._frozen.append(parameter)
        self._frozen_versions = self._versions()
        self._kernels = binding.kernel_mask()

    def train(
        self,
        clients: list[int],
        rows: Tensor,
        *,
        slots: Mapping[str, Tensor],
        counters: Tensor,
        server_rows: Mapping[str, Tensor],
        steps: range,
        local_steps: Sequence[range],
        trained: Sequence[slice] | None = None,
    ) -> Tensor:
        """Take these global steps on every client's row, in place; the mean loss of each client."""
        losses = torch.zeros(len(clients), dtype=torch.float64, device=rows.device)
        for row_index, client in enumerate(clients):
            own = views(slots, row_index)
            losses[row_index] = self._train_one(
                client,
                rows[row_index],
                own=own,
                counters=counters[row_index],
                server_rows=server_rows,
                steps=steps,
                local_steps=local_steps[row_index],
                trained=trained,
            )
        if clients:
            # Once per round: whatever a module does to itself, it does for every client.
            self.binding.check_unchanged(rows[-1])
        return losses

    def _train_one(
        self,
        client: int,
        row: Tensor,
        *,
        own: Mapping[str, Tensor],
        counters: Tensor,
        server_rows: Mapping[str, Tensor],
        steps: range,
        local_steps: range,
        trained: Sequence[slice] | None,
    ) -> Tensor:
        if not local_steps:
            return self._measured(client, row, counters, steps, local_steps.start)
        binding = self.binding
        self._begin(client, row, counters, steps)
        stretches: list[list[_Piece]] = []
        for part in binding.stretches:
            pieces = self._pieces(part, trained, row, own, server_rows)
            stretches.append(pieces)

        total = torch.zeros((), dtype=torch.float64, device=row.device)
        batches = self.batches.of_steps(client, local_steps)
        by_step = zip(local_steps, batches, strict=True)
        for number, (step, batch) in enumerate(by_step):
            binding.clear_gradients()
            inputs, targets = batch
            loss = self._forward(client, step, inputs, targets)
            if not loss.requires_grad:
                raise InputError(
                    "the loss does not depend on the model's parameters: it was detached, or computed without gradients"
                )
            loss.backward()
            total += loss.detach()

            # The schedule of the rate goes by global steps, whatever the client's own pace.
            global_step = steps.start + number * len(steps) // len(local_steps)
            rate = self.rule.rate(global_step)
            self._step(stretches, rate)

        binding.collect()
        binding.save_counters(counters)
        if self._versions() != self._frozen_versions:
            raise RunError(
                "the model writes to a parameter that does not require a gradient, which every client would share: "
                "register it as a buffer instead"
            )
        return total / len(local_steps)

    def _begin(self, client: int, row: Tensor, counters: Tensor, steps: range) -> None:
        """Make the module a client's: its numbers, its counters, and its own draws in these steps."""
        binding = self.binding
        binding.point_at(row)
        binding.load_counters(counters)
        # Dropout draws the same numbers whoever was trained before, and in whichever process
        key = random_key(self.seed, "module", client, steps.start)
        seed_module_draws(key, binding.device)

    def _step(self, stretches: Sequence[Sequence[_Piece]], rate: float) -> None:
        """Let the rule take one step with the gradients that the module has now."""
        gradients = self.binding.gradients()
        for pieces, gradient in zip(stretches, gradients, strict=True):
            for piece in pieces:
                own_gradient = gradient
                if piece.inside is not None:
                    own_gradient = gradient[piece.inside]
                self.rule.step(
                    piece.row,
                    own_gradient,
                    piece.slots,
                    piece.server_rows,
                    rate=rate,
                    kernels=piece.kernels,
                )

    def _versions(self) -> list[int]:
        """How often each frozen parameter was written to: torch counts it."""
        return [parameter._version for parameter in self._frozen]

    def _measured(
        self, client: int, row: Tensor, counters: Tensor, steps: range, next_step: int
    ) -> Tensor:
        """The loss of a client that takes no step in these global ones, on its next batch; nothing changes."""
        binding = self.binding
        # A copy, because the forward pass may write to the statistics
        self._begin(client, row.clone(), counters, steps)
        one_step = range(next_step, next_step + 1)
        batches = self.batches.of_steps(client, one_step)
        ((inputs, targets),) = batches

        with torch.no_grad():
            loss = self._forward(client, next_step, inputs, targets)
        binding.collect()
        binding.point_at(row)
        return loss.double()

    def _pieces(
        self,
        stretch: slice,
        trained: Sequence[slice] | None,
        row: Tensor,
        own: Mapping[str, Tensor],
        server_rows: Mapping[str, Tensor],
    ) -> list[_Piece]:
        """What the rule works on in a stretch of the row: all of it, or the tensors in it that are trained."""
        if trained is None:
            return [self._piece(stretch, None, row, own, server_rows)]
        pieces: list[_Piece] = []
        for part in trained:
            begins_here = stretch.start <= part.start < stretch.stop
            if not begins_here:
                continue
            inside = slice(
                part.start - stretch.start,
                part.stop - stretch.start,
            )
            piece = self._piece(
                part,
                inside,
                row,
                own,
                server_rows,
            )
            pieces.append(piece)
        return pieces

    def _piece(
        self,
        part: slice,
        inside: slice | None,
        row: Tensor,
        own: Mapping[str, Tensor],
        server_rows: Mapping[str, Tensor],
    ) -> _Piece:
        """The views are made once per client, because slicing costs as much as a short update."""
        return _Piece(
            inside=inside,
            row=row[part],
            slots=views(own, part),
            server_rows=views(server_rows, part),
            kernels=self._kernels[part],
        )

    def _forward(
        self, client: int, step: int, inputs: Tensor, targets: Tensor
    ) -> Tensor:
        try:
            with self._precision:
                return self.loss(self.binding.module(inputs), targets)
        except ValueError as error:
            if not is_about_single_samples(error):
                raise
            name = self.batches.shards.name_of(client)
            raise RunError(
                f"{name} has one sample in its batch at step {step}, and BatchNorm cannot train on that: "
                f"choose another local.batch_size ({self.batches.batch_size}) or a larger partition.min_samples"
            ) from None
