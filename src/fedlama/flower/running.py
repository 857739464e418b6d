"""One run over Flower's grid: plan a round, let its clients train, close it, and say what came of it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from logging import INFO
from pathlib import Path

import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.common import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result
from torch import nn

from fedlama.base import RunError
from fedlama.compress import Channel
from fedlama.core import Message as Bytes
from fedlama.core import RoundPlan, Traffic
from fedlama.flower.cohorts import Cohort, Cohorts
from fedlama.flower.modules import arrays_of
from fedlama.flower.nodes import Nodes
from fedlama.flower.options import Options
from fedlama.flower.recording import Recording, config_of, record_of, result_of
from fedlama.flower.saving import checkpoint_of, position_from
from fedlama.flower.sending import Identity, Sender, SendingChannel
from fedlama.flower.updates import Reader, Update, UpdatesReduce
from fedlama.flower.wire import layout_digest
from fedlama.local import steps_per_interval
from fedlama.rows import Binding, describe
from fedlama.server import Server
from fedlama.training.coding import Uplink
from fedlama.training.faults import TOO_FEW_LEFT, Discarded, Exclusion
from fedlama.training.records import Record
from fedlama.training.rounds import total_of
from fedlama.training.simulation import default_evaluate_every
from fedlama.training.values import Position

MAX_ATTEMPTS = 10  # cohorts in a row that were too small
MAX_NAMED = 4  # clients in an error

Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]


@dataclass(frozen=True, kw_only=True)
class PlayedRound:
    """A round that counts.

    Arguments:
        started: Where its last attempt began; what earlier ones left behind is in there.
        after: Where the run stands now.
        losses: The training loss of every client that counts, by client.
        excluded: Who did not count, and why.
    """

    started: Position
    after: Position
    losses: dict[int, float]
    excluded: list[Exclusion]


class FlowerRun:
    """One call of the strategy's `start`.

    Arguments:
        options: What the strategy was given.
        grid: Flower's.
        module: The model before the first step.
        iterations: How many global steps to train.
        evaluate_fn: Called with the round and the global model.
    """

    def __init__(
        self,
        options: Options,
        grid: Grid,
        module: nn.Module,
        iterations: int,
        evaluate_fn: Evaluate | None,
    ) -> None:
        self.options = options
        self.policy = options.policy
        self.seed = options.seed
        self.iterations = iterations
        self.evaluate_fn = evaluate_fn
        self.evaluate_every = options.evaluate_every or default_evaluate_every(iterations)
        self.module = module
        self.layout = describe(module, options.layers, options.adaptive)
        self.binding = Binding(module, self.layout)
        self.nodes = Nodes(grid, seed=self.seed, deadline=options.deadline, rule=options.rule_name)
        self.cohorts = Cohorts(self.nodes, options.participation, self.policy, seed=self.seed)
        self.uplink = self._make_uplink()
        self.server = self._make_server()
        self.records: list[Record] = []
        self.result = Result()
        self.started = time.perf_counter()

    def play(self, folder: Path | None, *, resume: bool) -> Result:
        """The whole run.

        Arguments:
            folder: The run directory to write; None for none.
            resume: Whether to go on with the run that is there.
        """
        self.nodes.wait_for(0, self.options.wait)
        population = self.nodes.check_population()
        self.options.participation.count(population)
        recording = self._open(folder, population, resume=resume)
        self.sender = Sender(self._identity(recording.run_name), self.server, self.cohorts)
        self.records += recording.earlier
        position = self._first()
        if recording.checkpoint:
            position = position_from(recording.checkpoint, self.server, self.layout, self.binding.counter_width)
        while position.step < self.iterations:
            plan = self.server.plan(position.server, self.iterations)
            played = self._round(position, plan, recording)
            position = played.after
            self._say(played, plan, recording)
            if self.cohorts.ends_window(position.step) and position.step < self.iterations:
                recording.save(checkpoint_of(position), position.state)
        self._finish(position, recording)
        return self.result

    # -- one round

    def _round(self, position: Position, plan: RoundPlan, recording: Recording) -> PlayedRound:
        """Play a round until enough clients are left, or stop the run."""
        options = self.options
        while True:
            cohort, reasons = self.cohorts.at(position, plan)
            tag = self._tag(position)
            updates, down = self._train(position, plan, cohort, tag)
            uploads: list[Bytes] = []
            for client, update in updates.items():
                uploads.append(update.upload)
                if update.reason is not None:
                    reasons[client] = update.reason
            traffic = Traffic(up=total_of(uploads), down=down)
            cohort.absent.update(reasons)
            excluded = _entries(reasons, position.attempt)
            counted = {client: updates[client] for client in cohort.present}
            if len(counted) >= options.min_clients:
                cohort.tags = dict.fromkeys(counted, tag)
                after = self._close(position, plan, counted, traffic)
                return PlayedRound(
                    started=position,
                    after=after,
                    losses={client: update.loss for client, update in counted.items()},
                    excluded=excluded,
                )
            position = self._discard(position, cohort, excluded, traffic)
            if options.on_too_few == "stop" or position.attempt >= MAX_ATTEMPTS:
                recording.save(checkpoint_of(position), position.state)
                raise self._too_few(position, reasons)
            self.nodes.wait_for(options.min_clients, options.deadline)

    def _tag(self, position: Position) -> str:
        """Marks what clients have after this attempt at the next round."""
        run = self.sender.identity.run
        cycle = position.state.cycle + 1
        number = position.state.round + 1
        return f"{run}/{cycle}/{number}/{position.attempt}"

    def _train(self, position: Position, plan: RoundPlan, cohort: Cohort, tag: str) -> tuple[dict[int, Update], Bytes]:
        """Send every client its task; what each replied, and what all were sent."""
        reader = Reader(position, plan, self.layout, self.uplink, tag=tag)
        sender = self.sender.round(position, plan, tag)

        def send_the_whole_model(client: int, reply: Message) -> RecordDict | None:
            if client not in cohort.tags or not reader.has_lost_its_state(reply):
                return None
            del cohort.tags[client]
            return sender.content(client, expects="")

        contents: dict[int, RecordDict] = {}
        for client in cohort.present:
            contents[client] = sender.content(client, expects=cohort.tags.get(client, ""))
        replies = self.nodes.train(contents, send_the_whole_model)
        updates: dict[int, Update] = {}
        for client in cohort.present:
            updates[client] = reader.read(client, replies.get(client))
        return updates, total_of(sender.sent)

    def _close(self, position: Position, plan: RoundPlan, counted: Mapping[int, Update], traffic: Traffic) -> Position:
        """Where the run stands after a round that counts."""
        clients = list(counted)
        updates = list(counted.values())
        weights = self._weights(clients)
        paces: list[tuple[float, int | None]] = []
        for client, weight in zip(clients, weights, strict=True):
            paces.append((weight, self._pace(client, position)))
        place = self.sender.place(position, plan, client=0)
        reduce = UpdatesReduce(
            self.layout,
            updates,
            weights,
            uplink=self.uplink,
            position=position,
            plan=plan,
        )
        after = self.server.close(
            position.server,
            plan,
            reduce,
            traffic,
            sent=total_of([update.upload for update in updates]).layers,
            share=len(counted) / self.nodes.population,
            paces=paces,
            place=place,
            window_ends=self.cohorts.ends_window(position.step + plan.steps),
        )
        self.sender.keep_for_those_who_stay(after, plan, place)
        counters = position.counters
        if len(counters):
            # Whole-number buffers are equal on every client or count upwards, so the server keeps the largest.
            of_clients = torch.tensor([update.counters for update in updates], dtype=torch.int64)
            counters = of_clients.amax(dim=0)
        attempt = position.attempt
        if self.cohorts.ends_window(after.step):
            attempt = 0
        return Position(after, counters, attempt)

    def _weights(self, clients: Sequence[int]) -> list[float]:
        """What these clients weigh; it adds up to one."""
        counts = [1] * len(clients)
        if self.options.weights == "samples":
            counts = [self.nodes.samples[client] for client in clients]
        total = sum(counts)
        return [count / total for count in counts]

    def _pace(self, client: int, position: Position) -> int | None:
        """How many steps a client takes per base interval; it follows from its samples, so nobody has to send it."""
        local = self.options.local
        if local is None:
            return None
        return steps_per_interval(
            local.steps,
            samples=self.nodes.samples[client],
            batch_size=local.batch_size,
            seed=self.seed,
            window=self.cohorts.window_of(position.step),
            client=client,
        )

    def _discard(self, position: Position, cohort: Cohort, excluded: Sequence[Exclusion], traffic: Traffic) -> Position:
        """Where the run stands after an attempt that came to nothing."""
        # Those who did nothing wrong are in the record, too: they trained for nothing.
        blameless = dict.fromkeys(cohort.present, TOO_FEW_LEFT)
        entries = [*excluded, *_entries(blameless, position.attempt)]
        entries.sort(key=lambda entry: entry["client"])
        before = position.server
        after = self.server.discard(before, traffic)
        earlier = position.discarded
        if earlier is None:
            earlier = Discarded()
        discarded = earlier.extended(entries, before.ledger, after.ledger)
        return replace(
            position,
            server=after,
            attempt=position.attempt + 1,
            discarded=discarded,
        )

    def _too_few(self, position: Position, reasons: Mapping[int, str]) -> RunError:
        named: list[str] = []
        for client in sorted(reasons)[:MAX_NAMED]:
            named.append(f"client {client}: {reasons[client]}")
        return RunError(
            f"stopped at step {position.step} of {self.iterations}: fewer than min_clients = "
            f"{self.options.min_clients} clients were left in round {position.state.round + 1} "
            f"({'; '.join(named)}); start with resume_from to go on from there"
        )

    # -- what is said and kept of it

    def _say(self, played: PlayedRound, plan: RoundPlan, recording: Recording) -> None:
        """Record a round, for Flower too."""
        loss = 0.0
        weights = self._weights(list(played.losses))
        for weight, of_client in zip(weights, played.losses.values(), strict=True):
            loss += weight * of_client
        record = record_of(
            started=played.started,
            after=played.after,
            plan=plan,
            loss=loss,
            scores=self._scores(played.after, plan),
            excluded=played.excluded,
            layout=self.layout,
            base_interval=self.policy.base_interval,
        )
        self.records.append(record)
        recording.record(record)
        self.result.train_metrics_clientapp[record.round] = MetricRecord({"loss": loss})
        log(INFO, "round %s: step %s, loss %.4f, excluded %s", record.round, record.step, loss, played.excluded)

    def _scores(self, position: Position, plan: RoundPlan) -> dict[str, float]:
        """What `evaluate_fn` says, at a cycle end that passes a multiple of `evaluate_every`, and at the end."""
        every = self.evaluate_every
        passes = plan.ends_cycle and position.step // every > plan.cycle.start // every
        is_due = passes or position.step >= self.iterations
        if self.evaluate_fn is None or not is_due:
            return {}
        self._write_to_module(position)
        metrics = self.evaluate_fn(position.state.round, arrays_of(self.module))
        if metrics is None:
            return {}
        self.result.evaluate_metrics_serverapp[position.state.round] = metrics
        scores: dict[str, float] = {}
        for name, value in metrics.items():
            if isinstance(value, int | float):
                scores[name] = float(value)
        return scores

    def _finish(self, position: Position, recording: Recording) -> None:
        """Give Flower the model, and write the summary; a run that was never evaluated has none."""
        self._write_to_module(position)
        self.result.arrays = arrays_of(self.module)
        last = self.records[-1]
        if last.test_loss is None:
            return
        self.binding.release()
        result = result_of(
            position,
            self.records,
            self.module,
            layout=self.layout,
            options=self.options,
            population=self.nodes.population,
            local=self.nodes.local_rules(),
            seconds=time.perf_counter() - self.started,
        )
        recording.finish(result)

    def _write_to_module(self, position: Position) -> None:
        self.binding.point_at(position.server.evaluated.clone())
        self.binding.load_counters(position.counters)

    def _first(self) -> Position:
        counters = torch.zeros(self.binding.counter_width, dtype=torch.int64)
        self.binding.save_counters(counters)
        return Position(self.server.start(self.binding.read()), counters)

    # -- what it is made of

    def _make_uplink(self) -> Uplink | None:
        codec = self.options.uplink
        if codec is None:
            return None
        channel = Channel(codec, self.layout, seed=self.seed, direction="uplink")
        return Uplink(channel, window_steps=self.cohorts.window_steps, base_interval=self.policy.base_interval)

    def _make_server(self) -> Server:
        uplink: Channel | None = None
        if self.uplink is not None:
            uplink = self.uplink.channel
        downlink: Channel | None = None
        if self.options.downlink is not None:
            downlink = SendingChannel(self.options.downlink, self.layout, seed=self.seed, direction="downlink")
        return Server(
            self.layout,
            self.policy,
            rule=self.options.server,
            local=self.options.local,
            uplink=uplink,
            downlink=downlink,
        )

    def _identity(self, name: str) -> Identity:
        return Identity(
            run=name,
            seed=self.seed,
            iterations=self.iterations,
            grouping=self.options.layers,
            layout=layout_digest(self.layout, self.binding.counter_width),
            rule=self.options.rule_name,
            uplink=self.options.uplink,
            downlink=self.options.downlink,
        )

    def _open(self, folder: Path | None, population: int, *, resume: bool) -> Recording:
        name = secrets.token_hex(8)
        if folder is None:
            return Recording(None, None, run_name=name, resume=False)
        config = config_of(
            self.options,
            population=population,
            iterations=self.iterations,
            evaluate_every=self.evaluate_every,
            local=self.nodes.local_options(),
        )
        return Recording(folder, config, run_name=name, resume=resume)


def _entries(reasons: Mapping[int, str], attempt: int) -> list[Exclusion]:
    entries: list[Exclusion] = []
    for client in sorted(reasons):
        entries.append(Exclusion(client=client, reason=reasons[client], attempt=attempt + 1))
    return entries
