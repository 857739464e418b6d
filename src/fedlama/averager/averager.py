"""Layer-wise averaging for any torch.distributed program: each rank is a client.

Replaces torch's PeriodicModelAverager in a local-SGD loop: call `average_parameters` after every optimizer step, or
hand the averager to PostLocalSGDOptimizer. Only the layers that are due travel: packed into one all-reduce, which a
small one of their distances follows, or, where an `uplink` codes them, as an all-gather of messages that every rank
decodes, and a second one where a message is longer than its buffer. With an outer optimizer on top
(`server=fedlama.server.Momentum(0.9, nesterov=True)`) this is an adaptive, compressed DiLoCo.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.model_averaging.averagers import ModelAverager

from fedlama.averager.arguments import channel_of, facts_of, policy_of, settings_of
from fedlama.averager.closing import close_round, plan_of_the_rest
from fedlama.averager.messages import Messages
from fedlama.averager.ranks import HASH_BYTES, Ranks
from fedlama.averager.state import OWN, AveragerState, kept_rows
from fedlama.averager.tensors import ModuleTensors
from fedlama.base import InputError, check_whole
from fedlama.compress import Codec
from fedlama.core import (
    Ledger,
    Policy,
    PolicyState,
    RoundPlan,
    Variant,
    asks_for_movement,
)
from fedlama.local import MODEL
from fedlama.server import Server, ServerRule
from fedlama.server.rule import check_server_rule

# The training loop belongs to someone else: nobody here knows when it ends
NO_END = sys.maxsize


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
            gradients then). Rules and codes refer to the model at their end, which must be the same on all ranks.
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
        rule: Variant = "crossing",
        layers: str = "tensor",
        adaptive: Sequence[str] | None = None,
        buffers: bool = False,
        policy: Policy | None = None,
        server: ServerRule | None = None,
        uplink: Codec | None = None,
        seed: int = 0,
    ) -> None:
        self.policy = policy_of(policy, base_interval, increase_factor, rule)
        check_whole("warmup_steps", warmup_steps, minimum=0)
        if server is not None:
            check_server_rule("server", server)
        if process_group is None and not dist.is_initialized():
            raise InputError(
                "there is no process group: call torch.distributed.init_process_group first"
            )
        if isinstance(module, nn.parallel.DistributedDataParallel):
            module = module.module

        self.warmup_steps = warmup_steps
        self._tensors = ModuleTensors(module, layers, adaptive, buffers=buffers)
        self.layout = self._tensors.layout
        row = self._tensors.read()
        channel = channel_of(uplink, self.layout, seed, row.dtype)
        self._server = Server(self.layout, self.policy, rule=server, uplink=channel)
        self._server_state = self._server.start(row)
        self._ranks = Ranks(process_group, row.device)
        self._messages: Messages | None = None
        if channel is not None:
            self._messages = Messages(channel, self._ranks, row)
        self._common_model_checked = False
        # Handed over beside the layers: distances, or what pads a coded message
        self.overhead_bytes = 0
        self._step = 0
        super().__init__(process_group)
        self._check_same_settings()

    @property
    def step(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """How often `average_parameters` was called."""
        return self._step

    @step.setter
    def step(self, value: int) -> None:
        # PostLocalSGDOptimizer sets this when it loads a checkpoint: without our own state, a new cycle starts there
        self._step = value
        trained = max(0, value - self.warmup_steps)
        plan = self._server.plan(self._server_state, NO_END)
        begun = self.state.step
        this_round = range(begun, begun + plan.steps)
        if trained in this_round:
            return
        synchronised_at = (trained,) * len(self.layout.layers)
        self.state = replace(
            self.state,
            step=trained,
            cycle_start=trained,
            synchronised_at=synchronised_at,
        )

    @property
    def state(self) -> PolicyState:
        """Intervals, discrepancies and where the run stands."""
        return self._server_state.policy_state

    @state.setter
    def state(self, value: PolicyState) -> None:
        self._server_state = replace(self._server_state, policy_state=value)

    @property
    def ledger(self) -> Ledger:
        """Aggregations and bytes for each layer on this rank."""
        return self._server_state.ledger

    @property
    def sent_bytes(self) -> int:
        """All bytes that this rank handed to the process group for averaging, the overhead included."""
        return self.ledger.uplink_bytes + self.overhead_bytes

    @property
    def _trained_steps(self) -> int:
        """Steps since the warm-up, negative inside it: what the policy counts in."""
        return self._step - self.warmup_steps

    def average_parameters(
        self, params: Iterable[nn.Parameter] | Iterable[dict[str, Any]]
    ) -> None:
        """Call after every optimizer step, on every rank.

        Arguments:
            params: The module's parameters, or an optimizer's groups of them.
        """
        self._tensors.check_given(params)
        self._step += 1
        if self._step == self.warmup_steps:
            self._begin_from_the_module()
        # Planned anew at every step, which is cheap: so a plan need not be saved with the state.
        plan = self._server.plan(self._server_state, NO_END)
        round_end = self.state.step + plan.steps
        if self._trained_steps == round_end:
            self._aggregate(plan)

    def average_all(self) -> None:
        """Average what is not yet: for the end of a training that stops inside a cycle. Call on every rank."""
        plan = plan_of_the_rest(self.state, self._trained_steps)
        if plan.due:
            self._aggregate(plan)

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on: plain values, and rows of tensors where a rule, codec or policy needs some."""
        return self._state().to_plain()

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on from a `state_dict` of the same module and settings. Call on every rank.

        Arguments:
            saved: What `state_dict` gave on this rank.
        """
        state = AveragerState.from_plain(saved, self._state())
        row = state.rows.get(MODEL)
        if row is None:
            row = self._tensors.read()
        self._server_state = state.of_server(self._server_state, row)
        if self._messages is not None:
            residuals: dict[str, Tensor] = {}
            for name in self._messages.residuals:
                residuals[name] = state.rows[OWN + name]
            self._messages.restore(residuals, state.capacity)
        self._step = state.step
        self._common_model_checked = False
        self.overhead_bytes = state.overhead_bytes
        self._check_same_settings()

    def _begin_from_the_module(self) -> None:
        """The warm-up is over: rules and codes refer to the layers as they are now, not as they were built."""
        row = self._tensors.read()
        built = self._server_state.row
        # DistributedDataParallel averages gradients only: after a warm-up each rank has statistics of its own.
        for part in self.layout.statistics:
            row[part] = built[part]
        self._server_state = replace(self._server_state, row=row)

    def _state(self) -> AveragerState:
        capacity = 0
        residuals: dict[str, Tensor] = {}
        if self._messages is not None:
            capacity = self._messages.whole_length
            residuals = self._messages.residuals
        # Where averages are taken over as they are, the module itself is enough to go on.
        rows: dict[str, Tensor] = {}
        if self._needs_anchor():
            rows = kept_rows(self._server_state, residuals)
        return AveragerState(
            settings=self._settings(),
            step=self._step,
            policy_state=self.state,
            ledger=self.ledger,
            overhead_bytes=self.overhead_bytes,
            rows=rows,
            capacity=capacity,
        )

    def _needs_anchor(self) -> bool:
        """Whether a rule, a code or the policy refers to the last synchronised model.

        Inside a cycle the module is not that: there each rank has layers of its own.
        """
        if self._messages is not None or self._server_state.slots:
            return True
        return asks_for_movement(self.policy)

    def _settings(self) -> dict[str, Any]:
        return settings_of(
            self.policy,
            self.warmup_steps,
            server=self._server.rule,
            channel=self._server.uplink,
        )

    def _check_same_settings(self) -> None:
        facts = facts_of(
            self.layout,
            self._settings(),
            policy=self.state,
            step=self._step,
        )
        self._ranks.check_same_settings(facts)

    def _check_common_model(self) -> None:
        """Rules, codes and some policies refer to a common model.

        Not before the first average: a restarted rank is built inside a cycle, and its state comes later.
        """
        if self._common_model_checked or not self._needs_anchor():
            return
        self._ranks.check_same_model(self._server_state.row)
        self.overhead_bytes += HASH_BYTES
        self._common_model_checked = True

    @torch.no_grad()
    def _aggregate(self, plan: RoundPlan) -> None:
        """Average the due layers, measure how far this rank was from them, and let the policy decide."""
        self._check_common_model()
        # Every rank must hand over the same tensors in the same order, whatever gradients it has: a rank that left one
        # out would wait for ever in a collective of another size.
        row = self._server_state.row.clone()
        self._tensors.copy_to(row, plan.due)
        closed = close_round(
            self._server,
            self._server_state,
            plan,
            row,
            ranks=self._ranks,
            messages=self._messages,
            step=self._step,
        )
        self._server_state = closed.state
        self.overhead_bytes += closed.overhead_bytes
        self._tensors.copy_from(closed.state.row, plan.renewed)
