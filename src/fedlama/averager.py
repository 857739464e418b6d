"""Layer-wise averaging for any torch.distributed program: each rank is a client.

Replaces torch's PeriodicModelAverager in a local-SGD loop: call `average_parameters` after every optimizer step, or
hand the averager to PostLocalSGDOptimizer. Only the layers that are due are all-reduced, as one packed buffer.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.model_averaging.averagers import ModelAverager

from fedlama.base import InputError, RunError, check_whole
from fedlama.core import FedLAMA, Layout, Ledger, Message, PolicyState, RoundPlan, Rule, Traffic
from fedlama.rows import describe, pack, statistics, trainable
from fedlama.server import Server

NO_END = sys.maxsize  # a training loop of someone else's: we are not told when it ends


class LayerwiseModelAverager(ModelAverager):
    """FedLAMA between the ranks of a process group.

    A layer is averaged every `base_interval` or `increase_factor · base_interval` calls of `average_parameters`; which,
    is decided anew at the end of every cycle, alike on all ranks. Nothing is averaged during the first `warmup_steps`
    calls (as in PeriodicModelAverager, where DDP averages gradients then). With `buffers=True` BatchNorm's statistics
    are averaged whenever something is. `ledger` counts aggregations and bytes for each layer on this rank.
    """

    def __init__(
        self,
        module: nn.Module,
        base_interval: int,
        increase_factor: int,
        warmup_steps: int = 0,
        process_group: dist.ProcessGroup | None = None,
        *,
        rule: Rule = "crossing",
        layers: str = "tensor",
        adaptive: Sequence[str] | None = None,
        buffers: bool = False,
    ) -> None:
        self.policy = FedLAMA(base_interval, increase_factor, rule)
        check_whole("warmup_steps", warmup_steps, minimum=0)
        if process_group is None and not dist.is_initialized():
            raise InputError("there is no process group: call torch.distributed.init_process_group first")
        module = module.module if isinstance(module, nn.parallel.DistributedDataParallel) else module
        self.warmup_steps = warmup_steps
        self.layout = describe(module, layers, adaptive)
        self._parameters = [parameter for _, parameter in trainable(module)]
        self._buffers = [buffer for _, buffer in statistics(module)]
        if not buffers:
            self.layout = replace(self.layout, statistics=())
            self._buffers = []
        self._tensors_of_layer = self._group_tensors()
        self._server = Server(self.layout, self.policy)
        self._server_state = self._server.start(self._read_row())
        self.discrepancy_bytes = 0
        self._step = 0
        super().__init__(process_group)

    @property
    def step(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """How often `average_parameters` was called."""
        return self._step

    @step.setter
    def step(self, value: int) -> None:
        # PostLocalSGDOptimizer sets this when it loads a checkpoint: without our own state, a new cycle starts there
        self._step = value
        trained = max(0, value - self.warmup_steps)
        if not self.state.step <= trained < self.state.step + self.policy.next(self.state, NO_END).steps:
            count = len(self.layout.layers)
            self.state = replace(self.state, step=trained, cycle_start=trained, synchronised_at=(trained,) * count)

    @property
    def state(self) -> PolicyState:
        """Intervals, discrepancies and where the run stands."""
        return self._server_state.policy

    @state.setter
    def state(self, value: PolicyState) -> None:
        self._server_state = replace(self._server_state, policy=value)

    @property
    def ledger(self) -> Ledger:
        """Aggregations and bytes for each layer on this rank."""
        return self._server_state.ledger

    @property
    def sent_bytes(self) -> int:
        """All bytes that this rank handed to the process group, the distances included."""
        return self.ledger.uplink_bytes + self.discrepancy_bytes

    def average_parameters(self, params: Iterable[nn.Parameter] | Iterable[dict[str, Any]]) -> None:
        """Call after every optimizer step, on every rank, with the module's parameters or an optimizer's groups."""
        self._check(params)
        self._step += 1
        plan = self.policy.next(self.state, NO_END)
        if self._step - self.warmup_steps == self.state.step + plan.steps:
            self._aggregate(plan)

    def average_all(self) -> None:
        """Average what is not yet: for the end of a training that stops inside a cycle. Call on every rank."""
        trained = self._step - self.warmup_steps
        behind = tuple(layer for layer, at in enumerate(self.state.synchronised_at) if at < trained)
        if behind:
            cycle = range(self.state.cycle_start, trained)
            self._aggregate(RoundPlan(trained - self.state.step, behind, cycle, ends_cycle=True))

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on, as plain values."""
        return {
            "settings": self._settings(),
            "step": self._step,
            "state": asdict(self.state),
            "ledger": asdict(self.ledger),
            "discrepancy_bytes": self.discrepancy_bytes,
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on from a `state_dict` of the same module and settings."""
        try:
            settings, step, sent = dict(saved["settings"]), int(saved["step"]), int(saved["discrepancy_bytes"])
            ledger = Ledger.from_plain(saved["ledger"])
            state = PolicyState.from_plain(saved["state"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"this is not a state of a LayerwiseModelAverager ({error!r})") from None
        if ledger.sizes != self.ledger.sizes or len(state.intervals) != len(ledger.sizes):
            raise InputError("this state is of another model: its layers have other sizes")
        for name, value in self._settings().items():
            if settings.get(name) != value:
                raise InputError(f"this state was saved with {name} = {settings.get(name)!r}, not {value!r}")
        self._server_state = replace(self._server_state, policy=state, ledger=ledger, row=self._read_row())
        self._step = step
        self.discrepancy_bytes = sent

    def _settings(self) -> dict[str, Any]:
        return {**asdict(self.policy), "warmup_steps": self.warmup_steps}

    @torch.no_grad()
    def _aggregate(self, plan: RoundPlan) -> None:
        """Average the due layers, measure how far this rank was from them, and let the policy decide."""
        # Every rank must hand over the same tensors in the same order, whatever gradients it has: a rank that left one
        # out would wait for ever in a collective of another size.
        tensors = [self._parameters[index] for layer in plan.due for index in self._tensors_of_layer[layer]]
        tensors += self._buffers
        slices = [*self.layout.slices_of(plan.due), *self.layout.statistics]
        local = torch.empty_like(self._server_state.row)
        for tensor, part in zip(tensors, slices, strict=True):
            local[part] = tensor.detach().reshape(-1)
        reduce = AllReduce(self.layout, local, self.process_group)
        self._server_state = self._server.close(self._server_state, plan, reduce, self._traffic(plan, local))
        self.discrepancy_bytes += reduce.discrepancy_bytes
        for tensor, part in zip(tensors, slices, strict=True):
            tensor.detach().copy_(self._server_state.row[part].view_as(tensor))

    def _traffic(self, plan: RoundPlan, local: Tensor) -> Traffic:
        """What this rank hands to the process group: numbers as wide as its row's."""
        size = local.element_size()
        layers = {layer: self.layout.layers[layer].size * size for layer in plan.due}
        return Traffic(up=Message(layers, self.layout.statistics_size * size))

    def _read_row(self) -> Tensor:
        """This rank's model as a row; mixed dtypes go into the widest."""
        tensors = [*self._parameters, *self._buffers]
        dtype = torch.float32
        if tensors:
            dtype = functools.reduce(torch.promote_types, [tensor.dtype for tensor in tensors])
        row = torch.zeros(self.layout.width, dtype=dtype, device=tensors[0].device)
        slices = [*self.layout.tensor_slices, *self.layout.statistics]
        for tensor, part in zip(tensors, slices, strict=True):
            row[part] = tensor.detach().reshape(-1)
        return row

    def _group_tensors(self) -> list[list[int]]:
        index_at = {part.start: index for index, part in enumerate(self.layout.tensor_slices)}
        return [[index_at[part.start] for part in layer.slices] for layer in self.layout.layers]

    def _check(self, params: Iterable[nn.Parameter] | Iterable[dict[str, Any]]) -> None:
        given: list[nn.Parameter] = []
        for entry in params:
            given += entry["params"] if isinstance(entry, dict) else [entry]
        if {id(p) for p in given if p.requires_grad} != {id(p) for p in self._parameters}:
            raise InputError(
                f"the averager was built for a module with {len(self._parameters)} trainable parameters and was given "
                f"{len(given)} parameters that are not those: pass module.parameters() or optimizer.param_groups"
            )


class AllReduce:
    """Adds this rank's row up over the process group.

    Arguments:
        layout: Where the layers are in a row.
        local: This rank's row; only what is averaged need be filled.
        group: The ranks.
    """

    def __init__(self, layout: Layout, local: Tensor, group: dist.ProcessGroup | None) -> None:
        self.layout = layout
        self.local = local
        self.group = group
        self.discrepancy_bytes = 0  # handed over for the distances

    @property
    def clients(self) -> int:
        """How many ranks there are."""
        return dist.get_world_size(self.group)

    def mean(self, slices: Sequence[slice]) -> Tensor:
        """The average of these slices over the ranks: one all-reduce of one packed buffer."""
        mean = pack(self.local, slices) / self.clients
        dist.all_reduce(mean, group=self.group)
        return mean

    def spread(self, mean: Tensor, due: Sequence[int]) -> dict[int, float]:
        """Mean over ranks of ‖u_l − x_l‖², the numerator of Eq. 2: one small all-reduce."""
        squares: list[Tensor] = []
        for layer in due:
            slices = self.layout.layers[layer].slices
            difference = pack(self.local, slices) - pack(mean, slices)
            squares.append(difference.double().square().sum())
        squared = torch.stack(squares) / self.clients
        dist.all_reduce(squared, group=self.group)
        self.discrepancy_bytes += squared.numel() * squared.element_size()
        values = squared.tolist()
        for layer, value in zip(due, values, strict=True):
            if not math.isfinite(value):
                name = self.layout.layers[layer].name
                raise RunError(f"{name} is not finite on some rank: the training diverged")
        return dict(zip(due, values, strict=True))
