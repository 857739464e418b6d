"""Layer-wise averaging for any torch.distributed program: each rank is a client.

Replaces torch's PeriodicModelAverager in a local-SGD loop: call `average_parameters` after every optimizer step, or
hand the averager to PostLocalSGDOptimizer. Only the layers that are due travel: as one packed all-reduce, or, where an
`uplink` codes them, as one all-gather of messages that every rank decodes. With an outer optimizer on top
(`server=fedlama.server.Momentum(0.9, nesterov=True)`) this is an adaptive, compressed DiLoCo.
"""

from __future__ import annotations

import functools
import hashlib
import math
import struct
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.model_averaging.averagers import ModelAverager

from fedlama.base import InputError, RunError, check_whole
from fedlama.compress import Channel, Codec, Decoded, Place
from fedlama.core import FedLAMA, Layout, Ledger, Message, Policy, PolicyState, RoundPlan, Rule, Traffic
from fedlama.core.saved import check_saved
from fedlama.rows import describe, pack, statistics, trainable
from fedlama.server import LAST_CHANGE, Reduce, Server, ServerRule

NO_END = sys.maxsize  # a training loop of someone else's: we are not told when it ends
NOT_FINITE = 0xFFFFFFFF  # in place of a message's length
LENGTH = struct.Struct("<I")
HASH_BYTES = 16
SPARE = 8  # a buffer is longer by an eighth than the longest message of the round before


class LayerwiseModelAverager(ModelAverager):
    """FedLAMA between the ranks of a process group.

    A layer is averaged every `base_interval` or `increase_factor · base_interval` calls of `average_parameters`; which,
    is decided anew at the end of every cycle, alike on all ranks. `ledger` counts aggregations and bytes for each layer
    on this rank. All ranks must be built with the same arguments and module, which is checked.

    Arguments:
        module: What is trained; a DistributedDataParallel is looked into.
        base_interval: τ', in calls of `average_parameters`.
        increase_factor: φ, how many times longer the interval of a layer that drifts little becomes.
        warmup_steps: Nothing is averaged during the first calls (as in PeriodicModelAverager, where DDP averages
            gradients then).
        process_group: The ranks (default: all).
        rule: Which variant of Algorithm 2 chooses the layers.
        layers: What is averaged as one: each "tensor", or all tensors of one "module".
        adaptive: Patterns of the names of layers that may get a longer interval (default: those with a kernel).
        buffers: Average BatchNorm's statistics, too, whenever something is.
        policy: Another policy, in place of `base_interval`, `increase_factor` and `rule`.
        server: What every rank makes of an average: an outer optimizer such as `fedlama.server.Momentum(0.9)`.
        uplink: The code of what ranks send, such as `fedlama.compress.Rotate(1.6)`. Ranks stay for the whole run, so
            error feedback has lifetime "run".
        seed: Of the code's random draws; the same on all ranks.
    """

    def __init__(
        self,
        module: nn.Module,
        base_interval: int | None = None,
        increase_factor: int | None = None,
        warmup_steps: int = 0,
        process_group: dist.ProcessGroup | None = None,
        *,
        rule: Rule = "crossing",
        layers: str = "tensor",
        adaptive: Sequence[str] | None = None,
        buffers: bool = False,
        policy: Policy | None = None,
        server: ServerRule | None = None,
        uplink: Codec | None = None,
        seed: int = 0,
    ) -> None:
        self.policy = _policy(policy, base_interval, increase_factor, rule)
        check_whole("warmup_steps", warmup_steps, minimum=0)
        if process_group is None and not dist.is_initialized():
            raise InputError("there is no process group: call torch.distributed.init_process_group first")
        module = module.module if isinstance(module, nn.parallel.DistributedDataParallel) else module
        self.warmup_steps = warmup_steps
        self.layout = describe(module, layers, adaptive)
        self._parameters = [parameter for _, parameter in trainable(module)]
        self._buffers = [buffer for _, buffer in statistics(module)]
        if not buffers:
            self.layout = replace(self.layout, statistics=(), roles=())
            self._buffers = []
        self._tensors_of_layer = self._group_tensors()
        self._uplink = _channel(uplink, self.layout, seed)
        self._server = Server(self.layout, self.policy, rule=server, uplink=self._uplink)
        self._server_state = self._server.start(self._read_row())
        self._residuals: dict[str, Tensor] = {}
        if self._uplink is not None:
            self._residuals = {slot.name: torch.zeros_like(self._server_state.row) for slot in self._uplink.slots}
        self._has_common_model = False  # whether that was checked
        self._capacity = 0  # of the buffer for coded messages; 0 before the first
        self.overhead_bytes = 0  # handed over beside the layers: distances, or what pads a coded message
        self._step = 0
        super().__init__(process_group)
        self._check_ranks_agree()

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
        """All bytes that this rank handed to the process group for averaging, the overhead included."""
        return self.ledger.uplink_bytes + self.overhead_bytes

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
        """Everything needed to go on. Plain values, and rows of tensors where a rule or a codec keeps some."""
        state: dict[str, Any] = {
            "settings": self._settings(),
            "step": self._step,
            "state": asdict(self.state),
            "ledger": asdict(self.ledger),
            "overhead_bytes": self.overhead_bytes,
        }
        if self._keeps_rows:
            state["rows"] = {
                "model": self._server_state.row.clone(),
                **{f"server/{name}": row.clone() for name, row in self._server_state.slots.items()},
                **{f"own/{name}": row.clone() for name, row in self._residuals.items()},
            }
            state["capacity"] = self._capacity
        return state

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on from a `state_dict` of the same module and settings. Call on every rank."""
        try:
            settings = dict(saved["settings"])
            step = int(saved["step"])
            overhead = int(saved["overhead_bytes"])
            check_saved(saved["state"], saved["ledger"])
            ledger = Ledger.from_plain(saved["ledger"])
            state = PolicyState.from_plain(saved["state"])
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise InputError(f"this is not a state of a LayerwiseModelAverager ({error!r})") from None
        if ledger.sizes != self.ledger.sizes or len(state.intervals) != len(ledger.sizes):
            raise InputError("this state is of another model: its layers have other sizes")
        if step < 0 or overhead < 0 or min(state.intervals) < 1:
            raise InputError("this is not a state of a LayerwiseModelAverager: it counts below zero")
        for name, value in self._settings().items():
            if settings.get(name) != value:
                raise InputError(f"this state was saved with {name} = {settings.get(name)!r}, not {value!r}")
        rows = self._saved_rows(saved)
        slots = {name: rows[f"server/{name}"] for name in self._server_state.slots}
        self._residuals = {name: rows[f"own/{name}"] for name in self._residuals}
        self._server_state = replace(
            self._server_state, policy=state, ledger=ledger, row=rows.get("model", self._read_row()), slots=slots
        )
        self._step = step
        self.overhead_bytes = overhead
        self._capacity = int(saved.get("capacity", 0))
        self._check_ranks_agree()

    @property
    def _keeps_rows(self) -> bool:
        """Whether more than the module itself is needed to go on."""
        return bool(self._residuals or self._server_state.slots or self._uplink)

    def _saved_rows(self, saved: Mapping[str, Any]) -> dict[str, Tensor]:
        """The rows of a state, as many, as long and as finite as this averager needs them."""
        if not self._keeps_rows:
            return {}
        wanted = ["model", *(f"server/{name}" for name in self._server_state.slots)]
        wanted += [f"own/{name}" for name in self._residuals]
        rows = saved.get("rows")
        if not isinstance(rows, Mapping) or sorted(rows) != sorted(wanted):
            raise InputError("this state has other rows than this averager keeps: its rule or codec was another one")
        like = self._server_state.row
        checked: dict[str, Tensor] = {}
        for name, row in rows.items():
            if not isinstance(row, Tensor) or row.shape != like.shape or not bool(row.isfinite().all()):
                raise InputError(f"the row {name!r} of this state does not fit the module")
            checked[name] = row.to(like).clone()
        return checked

    def _settings(self) -> dict[str, Any]:
        """What must be the same on all ranks and in a state that is loaded."""
        settings: dict[str, Any] = {"policy": repr(self.policy)}
        if is_dataclass(self.policy) and not isinstance(self.policy, type):
            settings = asdict(self.policy)  # by name, so that a message can tell which one differs
        settings["warmup_steps"] = self.warmup_steps
        settings["server"] = repr(self._server.rule)
        settings["uplink"] = repr(self._uplink.codec) if self._uplink else "none"
        return settings

    def _check_ranks_agree(self) -> None:
        """Refuse ranks that differ: they would average other layers, or wait for each other for ever.

        Compared is a hash of the layout, of the settings and of where the run stands.
        """
        facts = [repr([(layer.name, layer.size) for layer in self.layout.layers]), repr(self.layout.statistics_size)]
        facts += [repr(self._settings()), repr(self.state.intervals), str(self.state.step), str(self._step)]
        rank = self._first_that_differs("\n".join(facts).encode())
        if rank is not None:
            raise InputError(
                f"rank {rank} of the group has another module or other settings than this one: build the averager "
                f"alike on all ranks"
            )

    def _check_common_model(self) -> None:
        """Refuse ranks that began with other weights, where rules and codes refer to a common model.

        Not before the first average: a restarted rank is built inside a cycle, and its state comes later.
        """
        if self._has_common_model or not self._keeps_rows:
            return
        rank = self._first_that_differs(self._server_state.row.cpu().numpy().tobytes())
        if rank is not None:
            raise InputError(
                f"rank {rank} of the group began with other weights than this one: broadcast the module first, because "
                f"coded changes and outer optimizers refer to a common model"
            )
        self.overhead_bytes += HASH_BYTES
        self._has_common_model = True

    def _first_that_differs(self, facts: bytes) -> int | None:
        """The first rank for which these facts are others; the answer is the same on all ranks."""
        digest = hashlib.sha256(facts).digest()[:HASH_BYTES]
        mine = torch.frombuffer(bytearray(digest), dtype=torch.uint8).to(self._server_state.row.device)
        everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size(self.process_group))]
        dist.all_gather(everyone, mine, group=self.process_group)
        for rank, other in enumerate(everyone):
            if not torch.equal(other, everyone[0]):
                return rank
        return None

    @torch.no_grad()
    def _aggregate(self, plan: RoundPlan) -> None:
        """Average the due layers, measure how far this rank was from them, and let the policy decide."""
        # Every rank must hand over the same tensors in the same order, whatever gradients it has: a rank that left one
        # out would wait for ever in a collective of another size.
        tensors = [self._parameters[index] for layer in plan.due for index in self._tensors_of_layer[layer]]
        tensors += self._buffers
        slices = [*self.layout.slices_of(plan.due), *self.layout.statistics]
        self._check_common_model()
        local = self._server_state.row.clone()
        for tensor, part in zip(tensors, slices, strict=True):
            local[part] = tensor.detach().reshape(-1)
        if self._uplink is None:
            self._close_plain(plan, local)
        else:
            self._close_coded(self._uplink, plan, local)
        for tensor, part in zip(tensors, slices, strict=True):
            tensor.detach().copy_(self._server_state.row[part].view_as(tensor))

    def _close_plain(self, plan: RoundPlan, local: Tensor) -> None:
        """Numbers as wide as the row's, added up by all-reduce."""
        size = local.element_size()
        layers = {layer: self.layout.layers[layer].size * size for layer in plan.due}
        traffic = Traffic(up=Message(layers, self.layout.statistics_size * size))
        reduce = AllReduce(self.layout, local, self.process_group)
        self._close(plan, reduce, traffic)
        self.overhead_bytes += reduce.discrepancy_bytes

    def _close_coded(self, uplink: Channel, plan: RoundPlan, local: Tensor) -> None:
        """Messages that every rank decodes, all of them and in the same order, so that all get the same bits."""
        anchor = self._server_state.row
        rank = dist.get_rank(self.process_group)
        content: bytes | None = None
        difference = local - anchor
        if bool(difference.isfinite().all()):
            warm = self._server_state.slots.get(LAST_CHANGE)
            message = uplink.simulate(
                difference, plan.due, self._place(rank), anchor=anchor, own=self._residuals, warm=warm
            )
            content = message.to_bytes()
        contents = self._exchange(content)
        messages: list[Decoded] = []
        for other, received in enumerate(contents):
            messages.append(uplink.unpack(received, plan.due, self._place(other), anchor=anchor))
        reduce = GatheredReduce(uplink, plan, anchor, messages, self._place(0))
        traffic = Traffic(up=messages[rank].charged)
        self._close(plan, reduce, traffic)

    def _close(self, plan: RoundPlan, reduce: Reduce, traffic: Traffic) -> None:
        self._server_state = self._server.close(self._server_state, plan, reduce, traffic)

    def _place(self, rank: int) -> Place:
        return Place(round=self.state.round + 1, client=rank)

    def _exchange(self, content: bytes | None) -> list[bytes]:
        """Every rank's message, by one all-gather of buffers of one length.

        The length is that of the longest message of the round before and an eighth more, which all ranks know. Where a
        message is longer than that, everyone sees its length, and a second all-gather brings the rest.
        """
        if not self._capacity:
            self._capacity = LENGTH.size + 4 * sum(self.layout.sizes)
        length = NOT_FINITE if content is None else len(content)
        buffer = LENGTH.pack(length) + (content or b"")
        received = self._all_gather(buffer[: self._capacity], self._capacity)
        lengths = [LENGTH.unpack_from(one)[0] for one in received]
        if NOT_FINITE in lengths:
            rank = lengths.index(NOT_FINITE)
            raise RunError(f"the weights of rank {rank} are not finite after step {self._step}: the training diverged")
        longest = LENGTH.size + max(lengths)
        if longest > self._capacity:
            rest = self._all_gather(buffer[self._capacity :], longest - self._capacity)
            received = [first + second for first, second in zip(received, rest, strict=True)]
        self._capacity = longest + longest // SPARE
        messages: list[bytes] = []
        for one, count in zip(received, lengths, strict=True):
            messages.append(one[LENGTH.size : LENGTH.size + count])
        self.overhead_bytes -= length
        return messages

    def _all_gather(self, content: bytes, length: int) -> list[bytes]:
        """Buffers of this length from all ranks; what is handed over is counted."""
        device = self._server_state.row.device
        mine = torch.zeros(length, dtype=torch.uint8)
        if content:
            mine[: len(content)] = torch.frombuffer(bytearray(content), dtype=torch.uint8)
        mine = mine.to(device)
        everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size(self.process_group))]
        dist.all_gather(everyone, mine, group=self.process_group)
        self.overhead_bytes += length
        return [one.cpu().numpy().tobytes() for one in everyone]

    def _read_row(self) -> Tensor:
        """This rank's model as a row; mixed dtypes go into the widest, and codes need float32."""
        tensors = [*self._parameters, *self._buffers]
        dtype = functools.reduce(torch.promote_types, [tensor.dtype for tensor in tensors])
        if self._uplink is not None and dtype != torch.float32:
            raise InputError(f"an uplink codes float32, and the module is {dtype}: build it with .float()")
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


class GatheredReduce:
    """Adds up what every rank decoded from all messages: the same numbers in the same order everywhere.

    Arguments:
        uplink: The code.
        plan: The round.
        anchor: The row that the messages change.
        messages: What was decoded, by rank.
        place: Where the round belongs.
    """

    def __init__(
        self, uplink: Channel, plan: RoundPlan, anchor: Tensor, messages: Sequence[Decoded], place: Place
    ) -> None:
        self.uplink = uplink
        self.plan = plan
        self.anchor = anchor
        self.messages = messages
        self.place = place

    @property
    def clients(self) -> int:
        """How many ranks there are."""
        return len(self.messages)

    def mean(self, slices: Sequence[slice]) -> Tensor:
        """The anchor and the average change of these slices."""
        change = pack(self.messages[0].row, slices).double()
        for message in self.messages[1:]:
            change += pack(message.row, slices).double()
        mean = pack(self.anchor, slices).double() + change.to(self.anchor.device) / self.clients
        return mean.to(self.anchor.dtype)

    def spread(self, mean: Tensor, due: Sequence[int]) -> dict[int, float]:
        """Σ_i w_i ‖u_l − x_l^i‖² as it would be without the code, from the norms that travelled."""
        mean_sq: dict[int, float] = {}
        for layer in due:
            slices = self.uplink.layout.layers[layer].slices
            moved = pack(mean, slices).double() - pack(self.anchor, slices).double()
            mean_sq[layer] = float(torch.dot(moved, moved))
        weights = [1 / self.clients] * self.clients
        return self.uplink.spread(weights, self.messages, mean_sq, self.place)


def _policy(policy: Policy | None, base_interval: int | None, increase_factor: int | None, rule: Rule) -> Policy:
    if policy is None:
        if base_interval is None or increase_factor is None:
            raise InputError("say how often to average: base_interval and increase_factor, or policy=")
        return FedLAMA(base_interval, increase_factor, rule)
    if base_interval is not None or increase_factor is not None:
        raise InputError("base_interval and increase_factor belong to the policy: leave them out beside policy=")
    return policy


def _channel(codec: Codec | None, layout: Layout, seed: int) -> Channel | None:
    if codec is None:
        return None
    channel = Channel(codec, layout, seed=seed, direction="uplink")
    for slot in channel.slots:
        if slot.lifetime != "run":
            raise InputError(
                "ranks stay for the whole run, so write fedlama.compress.ErrorFeedback(codec, lifetime='run')"
            )
    return channel
