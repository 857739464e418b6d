"""The server side: a Flower strategy whose rounds are those of `fedlama.server.Server`."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from logging import INFO
from pathlib import Path
from typing import Any, NoReturn, get_args

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from torch import nn

from fedlama.base import MAX_SEED, InputError, RunError, check_number, check_whole
from fedlama.compress import Channel, Codec, CodedMessage, ErrorFeedback, Place
from fedlama.core import Message as Bytes
from fedlama.core import Policy, RoundPlan, Traffic
from fedlama.flower.modules import arrays_of, module_of, tensors_of
from fedlama.flower.nodes import Nodes, population_of
from fedlama.flower.recording import Recording, config_of
from fedlama.flower.updates import Reader, Update, UpdatesReduce
from fedlama.flower.wire import (
    Keep,
    Task,
    all_slices,
    codec_to_plain,
    coded_array,
    layout_digest,
    place_to_plain,
    plain_array,
    task_record,
)
from fedlama.rows import Binding, describe
from fedlama.server import Mean, Server, ServerRule, ServerState
from fedlama.training.arguments import check_choice, check_codecs
from fedlama.training.checkpoint import Checkpoint, Shapes
from fedlama.training.coding import Uplink, place_in_window
from fedlama.training.faults import FAILED_BEFORE, TOO_FEW_LEFT, Discarded, Exclusion, OnTooFew
from fedlama.training.participation import Participation
from fedlama.training.records import LayerSummary, Record
from fedlama.training.records import Result as FedlamaResult
from fedlama.training.rounds import total_of
from fedlama.training.simulation import WEIGHTINGS, default_evaluate_every
from fedlama.training.values import Position

MAX_ATTEMPTS = 10  # cohorts in a row that were too small

Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]


class LayerwiseStrategy(Strategy):
    """Layer-wise aggregation and codes on Flower: one Flower round is one round of the policy.

    Arguments:
        policy: Which layers are averaged when, such as `fedlama.FedLAMA(6, 4)` or `fedlama.FedAvg(6)`.
        server: What the server makes of an average (default: `fedlama.server.Mean()`).
        uplink: The code of what clients send, such as `fedlama.compress.Rotate(1.6)` (default: float32 as it is).
        downlink: The code of what clients that stay are sent.
        fraction: Which share of all clients trains at a time.
        clients: How many clients train at a time, in place of a share.
        window: How many steps a cohort stays (default: one cycle of the policy).
        weights: What a client weighs: "uniform", or "samples" for as much as it has samples.
        min_clients: With fewer updates a round does not count.
        on_too_few: What happens then: "repeat" it with new clients, or "stop".
        deadline: Seconds that a round may take; a client whose reply is not there by then is excluded until the next
            cycle.
        wait: Seconds to wait at the start for all clients to connect; the run then begins with those that did.
        seed: Decides the cohorts, and the clients' batches where they train with `client_app`.
        layers: What is averaged as one: each "tensor", or all tensors of one "module".
        adaptive: Patterns of the names of layers that may get a longer interval (default: those with a kernel).
        evaluate_every: `evaluate_fn` is called at cycle ends that pass a multiple of so many steps (default: about 20
            times in a run), and at the end.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        server: ServerRule | None = None,
        uplink: Codec | None = None,
        downlink: Codec | None = None,
        fraction: float = 1.0,
        clients: int | None = None,
        window: int | None = None,
        weights: str = "uniform",
        min_clients: int = 1,
        on_too_few: OnTooFew = "repeat",
        deadline: float = 600.0,
        wait: float = 120.0,
        seed: int = 0,
        layers: str = "tensor",
        adaptive: Sequence[str] | None = None,
        evaluate_every: int | None = None,
    ) -> None:
        if isinstance(policy, type) or not isinstance(policy, Policy):
            raise InputError(f"policy must be made with fedlama.FedLAMA(…) or fedlama.FedAvg(…), not {policy!r}")
        check_codecs(uplink=uplink, downlink=downlink)
        check_choice("weights", weights, WEIGHTINGS)
        check_choice("on_too_few", on_too_few, get_args(OnTooFew))
        check_whole("min_clients", min_clients, minimum=1)
        check_whole("seed", seed, minimum=0, maximum=MAX_SEED)
        check_number("deadline", deadline, above=0)
        check_number("wait", wait, above=0)
        if evaluate_every is not None:
            check_whole("evaluate_every", evaluate_every, minimum=1)
        self.participation = Participation(clients=clients, window=window)
        if clients is None:
            self.participation = Participation(fraction=float(fraction), window=window)
        self.participation.window_steps(policy)
        self.policy = policy
        self.server = server or Mean()
        self.uplink = uplink
        # The server stays as long as the run does, so what its code leaves out is never forgotten.
        self.downlink = downlink
        if downlink is not None and not downlink.slots:
            self.downlink = ErrorFeedback(downlink, lifetime="run")
        self.weights = weights
        self.min_clients = min_clients
        self.on_too_few = on_too_few
        self.deadline = deadline
        self.wait = wait
        self.seed = seed
        self.layers = layers
        self.adaptive = adaptive
        self.evaluate_every = evaluate_every
        self.records: list[Record] = []  # of the last run, one per round

    def start(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        *,
        iterations: int,
        evaluate_fn: Evaluate | None = None,
        model: nn.Module | None = None,
        save_to: str | Path | None = None,
        resume_from: str | Path | None = None,
    ) -> Result:
        """Train, and return Flower's result with the global model in it.

        Arguments:
            grid: Flower's.
            initial_arrays: The model before the first step: `ArrayRecord(model.state_dict())`, or
                `fedlama.flower.initial_arrays(build, seed)`.
            iterations: How many global steps to train; every client of a cohort takes each of them.
            evaluate_fn: Called with the round and the global model; of the MetricRecord that it returns, `accuracy`
                and `loss` go into the records.
            model: The module itself, where a record of arrays does not say enough: with frozen or tied weights, or
                with buffers other than BatchNorm's.
            save_to: A run directory to write: a record of every round and a checkpoint at each window's end.
            resume_from: A run directory that an earlier run wrote; this one goes on from its last checkpoint and
                writes there.
        """
        check_whole("iterations", iterations, minimum=1)
        if resume_from is not None and save_to is not None and Path(resume_from) != Path(save_to):
            raise InputError("a run that is resumed goes on in its own directory: give resume_from alone")
        module = module_of(initial_arrays)
        if model is not None:
            module = deepcopy(model)
            module.load_state_dict(tensors_of(initial_arrays))
        run = _Run(self, grid, module, iterations, evaluate_fn)
        folder = resume_from if resume_from is not None else save_to
        return run.play(None if folder is None else Path(folder), resume=resume_from is not None)

    def summary(self) -> None:
        """Log what the strategy is."""
        log(INFO, "\tLayerwiseStrategy: %s, uplink %s, downlink %s", self.policy, self.uplink, self.downlink)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Not used: `start` has a loop of its own."""
        _has_its_own_loop()

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Not used: `start` has a loop of its own."""
        _has_its_own_loop()

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Not used: `start` has a loop of its own."""
        _has_its_own_loop()

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Not used: `start` has a loop of its own."""
        _has_its_own_loop()


def _has_its_own_loop() -> NoReturn:
    raise RunError("LayerwiseStrategy plans its rounds itself: call its start()")


class _SendingChannel(Channel):
    """A channel that remembers the last message, whose bytes are to be sent."""

    last: CodedMessage | None = None

    def simulate(self, *args: Any, **options: Any) -> CodedMessage:
        """As a channel does."""
        self.last = super().simulate(*args, **options)
        return self.last


@dataclass(frozen=True)
class _Download:
    """What the clients that stay are sent before a round: the layers averaged in the round before."""

    layers: list[int]
    array: Array
    place: dict[str, Any] | None  # where it is coded


@dataclass
class _Cohort:
    """The clients of a window. `tags` has, for those whose state is up to date, the tag of it."""

    clients: list[int]
    entered: int  # the global step before which they came
    absent: set[int] = field(default_factory=set[int])
    tags: dict[int, str] = field(default_factory=dict[int, str])

    @property
    def present(self) -> list[int]:
        return [client for client in self.clients if client not in self.absent]


class _Run:
    """One call of `start`."""

    def __init__(
        self,
        strategy: LayerwiseStrategy,
        grid: Grid,
        module: nn.Module,
        iterations: int,
        evaluate_fn: Evaluate | None,
    ) -> None:
        self.strategy = strategy
        self.policy = strategy.policy
        self.participation = strategy.participation
        self.seed = strategy.seed
        self.iterations = iterations
        self.evaluate_fn = evaluate_fn
        self.evaluate_every = strategy.evaluate_every or default_evaluate_every(iterations)
        self.module = module
        self.layout = describe(module, strategy.layers, strategy.adaptive)
        self.binding = Binding(module, self.layout)
        self.digest = layout_digest(self.layout, self.binding.counter_width)
        self.name = secrets.token_hex(8)  # marks the states that clients keep; no draw depends on it
        self.nodes = Nodes(grid, seed=self.seed, deadline=strategy.deadline)
        self.window_steps = self.participation.window_steps(self.policy)
        self.uplink: Uplink | None = None
        up: Channel | None = None
        self.plain_codecs: dict[str, dict[str, Any] | None] = {"uplink": None, "downlink": None}
        if strategy.uplink is not None:
            up = Channel(strategy.uplink, self.layout, seed=self.seed, direction="uplink")
            self.uplink = Uplink(up, window_steps=self.window_steps, base_interval=self.policy.base_interval)
            self.plain_codecs["uplink"] = codec_to_plain(strategy.uplink)
        self.downlink: _SendingChannel | None = None
        if strategy.downlink is not None:
            self.downlink = _SendingChannel(strategy.downlink, self.layout, seed=self.seed, direction="downlink")
            self.plain_codecs["downlink"] = codec_to_plain(strategy.downlink)
        self.server = Server(self.layout, self.policy, rule=strategy.server, uplink=up, downlink=self.downlink)
        self.cohort: _Cohort | None = None
        self.download: _Download | None = None
        self.result = Result()
        self.started = time.perf_counter()

    def play(self, folder: Path | None, *, resume: bool) -> Result:
        """The whole run."""
        self.strategy.summary()
        self.nodes.wait_for(0, self.strategy.wait)
        population = population_of(self.nodes)
        self.participation.count(population)
        recording = Recording(folder, self._config(population) if folder else None, resume=resume)
        self.strategy.records = list(recording.earlier)
        position = self._first()
        if recording.checkpoint:
            position = self._resumed(recording.checkpoint)
        while position.step < self.iterations:
            plan = self.server.plan(position.server, self.iterations)
            before = position
            position, started, updates, excluded = self._round(before, plan, recording)
            record = self._record(before, started, position, plan, updates, excluded)
            self.strategy.records.append(record)
            recording.record(record)
            self.result.train_metrics_clientapp[record.round] = MetricRecord({"loss": record.loss})
            log(INFO, "round %s: step %s, loss %.4f, excluded %s", record.round, record.step, record.loss, excluded)
            if position.step % self.window_steps == 0 and position.step < self.iterations:
                self._save(position, recording)
        self._write_to_module(position)
        self.result.arrays = arrays_of(self.module)
        self._finish(position, recording)
        return self.result

    # -- one round

    def _round(
        self, position: Position, plan: RoundPlan, recording: Recording
    ) -> tuple[Position, Position, dict[int, Update], list[Exclusion]]:
        """Play a round until enough clients are left, or stop the run."""
        while True:
            cohort, reasons = self._begin(position, plan)
            tag = f"{self.name}/{position.state.cycle + 1}/{position.state.round + 1}/{position.attempt}"
            reader = Reader(position, plan, self.layout, self.uplink, tag=tag)
            updates, down = self._train(position, plan, cohort, reader)
            upload = total_of([update.upload for update in updates.values()])
            for client, update in updates.items():
                if update.reason is not None:
                    reasons[client] = update.reason
            cohort.absent.update(reasons)
            excluded = _entries(reasons, position.attempt)
            counted = {client: updates[client] for client in cohort.present}
            if len(counted) >= self.strategy.min_clients:
                after = self._close(position, plan, counted, Traffic(up=upload, down=down))
                cohort.tags = dict.fromkeys(counted, tag)
                return after, position, counted, excluded
            position = self._discard(position, cohort, excluded, Traffic(up=upload, down=down))
            if self.strategy.on_too_few == "stop" or position.attempt >= MAX_ATTEMPTS:
                self._save(position, recording)
                raise RunError(
                    f"stopped at step {position.step} of {self.iterations}: fewer than min_clients = "
                    f"{self.strategy.min_clients} clients were left in round {position.state.round + 1} "
                    f"({'; '.join(f'client {one}: {reason}' for one, reason in sorted(reasons.items())[:4])}); "
                    f"start with resume_from to go on from there"
                )
            self.nodes.wait_for(self.strategy.min_clients, self.strategy.deadline)

    def _begin(self, position: Position, plan: RoundPlan) -> tuple[_Cohort, dict[int, str]]:
        """The clients of the round, and why some of them are absent from its start."""
        enters = position.step % self.window_steps == 0 or position.discarded is not None
        if self.cohort is None or enters:
            window = position.step // self.window_steps
            drawn = self.participation.cohort(self.nodes.population, self.seed, window, position.attempt)
            self.cohort = _Cohort(drawn, entered=position.step)
        cohort = self.cohort
        if position.step != max(plan.cycle.start, cohort.entered):
            return cohort, {}
        # Whoever was excluded is back at a cycle's start, if there is somebody to talk to.
        self.nodes.refresh()
        there = self.nodes.present(cohort.clients)
        cohort.absent = set(cohort.clients) - set(there)
        return cohort, dict.fromkeys(sorted(cohort.absent), FAILED_BEFORE)

    def _train(
        self, position: Position, plan: RoundPlan, cohort: _Cohort, reader: Reader
    ) -> tuple[dict[int, Update], Bytes]:
        """Send every client its task; what each replied, and what all were sent."""
        sent: list[Bytes] = []
        whole = self._whole(position)
        entering = self.server.download(position.server, entering=True)
        staying = self.server.download(position.server, entering=False)

        def content(client: int, expects: str) -> RecordDict:
            if expects and self.download is not None:
                sent.append(staying)
                return self._task(position, plan, client, reader.tag, expects=expects, download=self.download)
            sent.append(entering)
            return self._task(position, plan, client, reader.tag, expects="", download=whole)

        def follow_up(client: int, reply: Message) -> RecordDict | None:
            if client in cohort.tags and reader.has_lost_its_state(reply):
                del cohort.tags[client]
                return content(client, "")
            return None

        contents = {client: content(client, cohort.tags.get(client, "")) for client in cohort.present}
        replies = self.nodes.train(contents, follow_up)
        updates = {client: reader.read(client, replies.get(client)) for client in cohort.present}
        return updates, total_of(sent)

    def _whole(self, position: Position) -> _Download:
        everything = list(range(len(self.layout.layers)))
        return _Download(everything, plain_array(position.row, all_slices(self.layout, everything)), None)

    def _task(
        self, position: Position, plan: RoundPlan, client: int, tag: str, *, expects: str, download: _Download
    ) -> RecordDict:
        after = position.step + plan.steps
        keep: Keep = "everything"
        if after >= self.iterations:
            keep = "nothing"
        elif after % self.window_steps == 0:
            keep = "run"
        task = Task(
            run=self.name,
            tag=tag,
            expects=expects,
            keep=keep,
            layout=self.digest,
            grouping=self.strategy.layers,
            seed=self.seed,
            client=client,
            window=position.step // self.window_steps,
            base_interval=self.policy.base_interval,
            step=position.step,
            steps=plan.steps,
            sent=download.layers,
            due=list(plan.due),
            trained=None if plan.trained is None else list(plan.trained),
            since=list(position.state.synchronised_at),
            counters=position.counters.tolist(),
            place=place_to_plain(self._place(position, plan, client)),
            sent_place=download.place,
            uplink=self.plain_codecs["uplink"],
            downlink=self.plain_codecs["downlink"],
        )
        return task_record(task, download.array)

    def _close(self, position: Position, plan: RoundPlan, counted: Mapping[int, Update], traffic: Traffic) -> Position:
        """Where the run stands after a round that counts."""
        weights = self._weights(list(counted))
        updates = list(counted.values())
        place = self._place(position, plan, client=0)
        window_ends = (position.step + plan.steps) % self.window_steps == 0
        reduce = UpdatesReduce(self.layout, updates, weights, uplink=self.uplink, position=position, plan=plan)
        after = self.server.close(
            position.server,
            plan,
            reduce,
            traffic,
            share=len(counted) / self.nodes.population,
            paces=[(weight, None) for weight in weights],
            place=place,
            window_ends=window_ends,
        )
        new = list(plan.renewed)
        if window_ends:
            self.download = None  # those who come next are sent the whole model
        elif self.downlink is None:
            self.download = _Download(new, plain_array(after.row, all_slices(self.layout, new)), None)
        else:
            assert self.downlink.last is not None, "closing a round coded its message"
            self.download = _Download(new, coded_array(self.downlink.last.to_bytes()), place_to_plain(place))
        counters = position.counters
        if len(counters):
            counters = torch.tensor([update.counters for update in updates], dtype=torch.int64).amax(dim=0)
        attempt = position.attempt if after.step % self.window_steps else 0
        return Position(after, counters, attempt)

    def _place(self, position: Position, plan: RoundPlan, client: int) -> Place:
        return place_in_window(
            position, plan, client, window_steps=self.window_steps, base_interval=self.policy.base_interval
        )

    def _weights(self, clients: Sequence[int]) -> list[float]:
        counts = [1] * len(clients)
        if self.strategy.weights == "samples":
            counts = [self.nodes.samples[client] for client in clients]
        total = sum(counts)
        return [count / total for count in counts]

    def _discard(
        self, position: Position, cohort: _Cohort, excluded: Sequence[Exclusion], traffic: Traffic
    ) -> Position:
        """Where the run stands after an attempt that came to nothing."""
        server = self.server.discard(position.server, traffic)
        blameless = _entries(dict.fromkeys(cohort.present, TOO_FEW_LEFT), position.attempt)
        entries = sorted([*excluded, *blameless], key=lambda entry: entry["client"])
        earlier = position.discarded or Discarded()
        discarded = earlier.extended(entries, position.server.ledger, server.ledger)
        return replace(position, server=server, attempt=position.attempt + 1, discarded=discarded)

    # -- what is said and kept of it

    def _record(
        self,
        before: Position,
        started: Position,
        after: Position,
        plan: RoundPlan,
        updates: Mapping[int, Update],
        excluded: Sequence[Exclusion],
    ) -> Record:
        """The round as observers see it; attempts that came to nothing belong to it."""
        ledger = after.server.ledger
        scores = self._scores(after, plan)
        discrepancy: list[float | None] = [None] * len(self.layout.layers)
        for layer in plan.due:
            discrepancy[layer] = after.state.discrepancy[layer]
        weights = self._weights(list(updates))
        loss = 0.0
        for weight, update in zip(weights, updates.values(), strict=True):
            loss += weight * update.loss
        discarded = started.discarded or Discarded()
        return Record(
            round=after.state.round,
            step=after.step,
            cycle=before.state.cycle + 1,
            due=[self.layout.layers[layer].name for layer in plan.due],
            intervals=list(before.state.intervals),
            discrepancy=discrepancy,
            loss=loss,
            test_loss=scores.get("loss"),
            accuracy=scores.get("accuracy"),
            uplink_bytes=ledger.uplink_bytes - started.server.ledger.uplink_bytes + discarded.uplink_bytes,
            downlink_bytes=ledger.downlink_bytes - started.server.ledger.downlink_bytes + discarded.downlink_bytes,
            cost=ledger.relative_cost(after.step, self.policy.base_interval),
            excluded=[*discarded.excluded, *excluded],
        )

    def _scores(self, position: Position, plan: RoundPlan) -> dict[str, float]:
        """What `evaluate_fn` says, at a cycle end that passes a multiple of `evaluate_every`, and at the end."""
        every = self.evaluate_every
        passes = plan.ends_cycle and position.step // every > plan.cycle.start // every
        if self.evaluate_fn is None or not (passes or position.step >= self.iterations):
            return {}
        self._write_to_module(position)
        metrics = self.evaluate_fn(position.state.round, arrays_of(self.module))
        if metrics is None:
            return {}
        self.result.evaluate_metrics_serverapp[position.state.round] = metrics
        return {name: float(value) for name, value in metrics.items() if isinstance(value, int | float)}

    def _write_to_module(self, position: Position) -> None:
        self.binding.point_at(position.server.evaluated.clone())
        self.binding.load_counters(position.counters)

    def _first(self) -> Position:
        counters = torch.zeros(self.binding.counter_width, dtype=torch.int64)
        self.binding.save_counters(counters)
        return Position(self.server.start(self.binding.read()), counters)

    def _save(self, position: Position, recording: Recording) -> None:
        """At a window's end clients keep nothing that the next round needs, so the server's state is the run."""
        slots = {name: values.numpy() for name, values in position.server.slots.items()}
        checkpoint = Checkpoint(
            state=position.state,
            ledger=position.server.ledger,
            broadcast=position.server.broadcast,
            row=position.row.numpy(),
            counters=position.counters.numpy(),
            server_slots=slots,
            attempt=position.attempt,
            discarded=position.discarded,
        )
        recording.save(checkpoint.encode(), position.state)

    def _resumed(self, content: bytes) -> Position:
        shapes = Shapes(
            width=self.layout.width,
            counter_width=self.binding.counter_width,
            server_slots=tuple(slot.name for slot in self.server.slots),
        )
        saved = Checkpoint.decode(content, shapes)
        server = ServerState(
            policy=saved.state,
            ledger=saved.ledger,
            row=torch.from_numpy(saved.row),
            slots={name: torch.from_numpy(values) for name, values in saved.server_slots.items()},
            broadcast=saved.broadcast,
        )
        return Position(server, torch.from_numpy(saved.counters), saved.attempt, saved.discarded)

    def _config(self, population: int) -> Any:
        strategy = self.strategy
        return config_of(
            policy=self.policy,
            server=strategy.server,
            uplink=strategy.uplink,
            downlink=strategy.downlink,
            participation=self.participation,
            population=population,
            iterations=self.iterations,
            evaluate_every=self.evaluate_every,
            weights=strategy.weights,
            layers=strategy.layers,
            seed=self.seed,
        )

    def _finish(self, position: Position, recording: Recording) -> None:
        """Write the summary; a run that was never evaluated has none."""
        last = self.strategy.records[-1]
        if last.test_loss is None:
            return
        ledger = position.server.ledger
        layers: list[LayerSummary] = []
        for index, layer in enumerate(self.layout.layers):
            layers.append(
                LayerSummary(
                    name=layer.name,
                    size=layer.size,
                    adaptive=layer.adaptive,
                    aggregations=ledger.aggregations[index],
                    interval=position.state.intervals[index],
                    uplink_bytes=ledger.layer_uplink[index],
                    downlink_bytes=ledger.layer_downlink[index],
                )
            )
        self.binding.release()
        recording.finish(
            FedlamaResult(
                accuracy=last.accuracy,
                loss=last.test_loss,
                cost=ledger.relative_cost(position.step, self.policy.base_interval),
                uplink_bytes=ledger.uplink_bytes,
                downlink_bytes=ledger.downlink_bytes,
                statistics_bytes=ledger.statistics_uplink,
                iterations=self.iterations,
                seed=self.seed,
                seconds=time.perf_counter() - self.started,
                layers=layers,
                records=self.strategy.records,
                model=self.module,
            )
        )


def _entries(reasons: Mapping[int, str], attempt: int) -> list[Exclusion]:
    return [Exclusion(client=client, reason=reasons[client], attempt=attempt + 1) for client in sorted(reasons)]
