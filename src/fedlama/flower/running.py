"""One run over Flower's grid: plan a round, play it, and say what came of it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flwr.app import MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result
from torch import nn

from fedlama.core import RoundPlan
from fedlama.flower.cohorts import FlowerCohorts
from fedlama.flower.describing import config_of, local_options, local_rules
from fedlama.flower.evaluating import Evaluate, Evaluation, numbers_of
from fedlama.flower.global_model import GlobalModel
from fedlama.flower.logs import log_end, log_other_training, log_round, log_scores
from fedlama.flower.making import make_downlink, make_server, make_uplink
from fedlama.flower.nodes import Nodes
from fedlama.flower.options import Options
from fedlama.flower.queries import MAX_CLIENTS, EndedRun
from fedlama.flower.recording import Recording, recorded_local
from fedlama.flower.results import result_of, scores_of
from fedlama.flower.rounds import FlowerRounds, PlayedRound
from fedlama.flower.samples import SamplesLimit
from fedlama.flower.saving import checkpoint_of, position_from
from fedlama.flower.sending import Sender
from fedlama.flower.shipments import Identity
from fedlama.flower.tasks import Keep
from fedlama.rows import describe
from fedlama.run.config import Config
from fedlama.server.reduce import weighted_sum
from fedlama.training.options import default_evaluate_every
from fedlama.training.position import Position
from fedlama.training.records import Record, fedavg_at
from fedlama.training.round_records import record_of


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
        self.policy = options.deciding_policy
        self.seed = options.seed
        self.iterations = iterations
        usual_interval = default_evaluate_every(iterations)
        self.evaluate_every = options.evaluate_every or usual_interval
        self.layout = describe(module, options.layers, options.adaptive)
        self.model = GlobalModel(module, self.layout)
        self.evaluation = Evaluation(
            evaluate_fn,
            self.model,
            every=self.evaluate_every,
            iterations=iterations,
        )
        self.nodes = Nodes(
            grid,
            seed=self.seed,
            deadline=options.deadline,
            rule=options.rule_name,
            weights=options.weights,
            limit=SamplesLimit(options),
        )
        self.cohorts = FlowerCohorts(
            self.nodes,
            options.participation,
            self.policy,
            seed=self.seed,
        )
        self.uplink = make_uplink(options, self.layout, self.cohorts)
        self.downlink = make_downlink(options, self.layout)
        self.server = make_server(
            options,
            self.layout,
            uplink=self.uplink,
            downlink=self.downlink,
        )

        self.records: list[Record] = []
        self.result = Result()
        self.started = time.perf_counter()

    def play(self, folder: Path | None, *, resume: bool) -> Result:
        """The whole run.

        Arguments:
            folder: The run directory to write; None for none.
            resume: Whether to go on with the run that is there.
        """
        if folder is not None:
            # Refuses what a run directory has no name for, however many clients there will be.
            self._config(MAX_CLIENTS, {})
        self.nodes.wait_for(0, self.options.wait)
        population = self.nodes.check_population()
        # Refuses more active clients than there are, and more updates than they send, before a folder is made.
        active = self.options.participation.count(population)
        self.options.tolerance.check_can_be_met(active, option="min_clients")
        recording = self._open(folder, population, resume=resume)
        self.records += recording.earlier
        if recording.is_finished:
            recording.load_model(self.model.module)
            self.result.arrays = self.model.arrays
            return self.result

        identity = self._identity(recording.run_name)
        sender = Sender(identity, self.server, self.cohorts, self.downlink)
        rounds = FlowerRounds(
            self.options,
            nodes=self.nodes,
            cohorts=self.cohorts,
            server=self.server,
            uplink=self.uplink,
            sender=sender,
            recording=recording,
        )

        if recording.checkpoint:
            # Whoever trained before the break may keep something, too.
            rounds.keepers.update(range(population))
        try:
            self._train(rounds, recording)
        except Exception:
            # What outlives a window is found again by a run that goes on; what the next round needs never is.
            keep: Keep = "run" if recording.can_be_resumed else "nothing"
            self._forget(rounds, keep=keep)
            raise
        # After the summary: a run that is ended before it is resumed, and needs what clients have.
        self._forget(rounds, keep="nothing")
        return self.result

    def _train(self, rounds: FlowerRounds, recording: Recording) -> None:
        """All rounds that are left, up to the summary."""
        position = self.model.first_position(self.server)
        if recording.checkpoint:
            position = position_from(
                recording.checkpoint,
                self.server,
                self.layout,
                self.model.counter_width,
            )
        while position.step < self.iterations:
            plan = self.server.plan(position.server_state, self.iterations)
            played = rounds.play(position, plan)
            position = played.after
            weights = rounds.weights(list(played.losses))
            self._say(played, weights, plan, recording)

            can_go_on = self._can_go_on_after(plan, position.step)
            if can_go_on and position.step < self.iterations:
                recording.save(checkpoint_of(position), position.policy_state)

        self._finish(position, recording)

    def _can_go_on_after(self, plan: RoundPlan, step: int) -> bool:
        """Whether clients keep nothing after this round that the next one needs and the server does not have."""
        if self.cohorts.ends_window(step):
            return True
        if not plan.ends_cycle:
            return False
        # All copies are equal now. What else clients keep, the server can give nobody back.
        if self.uplink is not None and self.uplink.keeps_on_clients:
            return False
        return not any(member.keeps for member in self.nodes.members.values())

    def _forget(self, rounds: FlowerRounds, *, keep: Keep) -> None:
        """Have clients free what they keep: Flower holds it until a SuperNode is started anew."""
        run = EndedRun(name=rounds.sender.identity.run, keep=keep)
        self.nodes.forget(sorted(rounds.keepers), run)

    # -- what is said and kept of it

    def _say(
        self,
        played: PlayedRound,
        weights: Sequence[float],
        plan: RoundPlan,
        recording: Recording,
    ) -> None:
        """Record a round, for Flower too."""
        losses = list(played.losses.values())
        loss = weighted_sum(weights, losses)
        number = played.after.policy_state.round
        metrics = self.evaluation.metrics(played.after, plan)
        if metrics is not None:
            self.result.evaluate_metrics_serverapp[number] = metrics
        scores = numbers_of(metrics)
        record = record_of(
            started=played.started,
            after=played.after,
            plan=plan,
            layout=self.layout,
            policy=self.policy,
            clients=self._cohort_size(),
            excluded=played.excluded,
            loss=loss,
            scores=scores_of(scores),
        )
        self.records.append(record)
        recording.record(record)

        self.result.train_metrics_clientapp[number] = MetricRecord({"loss": loss})
        log_round(record, played.excluded)
        if scores:
            log_scores(record.round, scores, played.after.server_state.ledger)

    def _cohort_size(self) -> int:
        """How many clients train at a time."""
        population = self.nodes.population
        return self.options.participation.count(population)

    def _finish(self, position: Position, recording: Recording) -> None:
        """Give Flower the model, and write it with a summary."""
        self.model.write(position)
        self.result.arrays = self.model.arrays
        self.model.release()
        seconds = time.perf_counter() - self.started
        result = result_of(
            position,
            self.records,
            self.model.module,
            layout=self.layout,
            options=self.options,
            population=self.nodes.population,
            local=local_rules(self.nodes.members.values()),
            higher_is_better=self.evaluation.higher_is_better,
            seconds=seconds,
        )
        recording.finish(result)
        log_end(
            self.records[-1],
            share=position.uplink_share(self.policy, self._cohort_size()),
            reference=fedavg_at(self.policy.base_interval),
            where=recording.where,
        )

    # -- what it is made of

    def _identity(self, name: str) -> Identity:
        return Identity(
            run=name,
            seed=self.seed,
            iterations=self.iterations,
            grouping=self.options.layers,
            layout=self.model.digest,
            rule=self.options.rule_name,
            uplink=self.options.uplink,
            downlink=self.options.downlink,
        )

    def _open(self, folder: Path | None, population: int, *, resume: bool) -> Recording:
        name = secrets.token_hex(8)
        if folder is None:
            return Recording(None, None, run_name=name, resume=False)
        said = local_options(self.nodes.members.values())
        config = self._config(population, said)
        recorded: Mapping[str, Any] | None = None
        if resume:
            recorded = recorded_local(folder)
        if recorded is not None:
            # Who is there, and what it says, is no part of which run this is: one client could keep it from going on.
            now = config
            config = self._config(population, recorded)
            if said and now.local != config.local:
                log_other_training(local_rules(self.nodes.members.values()))
        return Recording(folder, config, run_name=name, resume=resume)

    def _config(self, population: int, local: Mapping[str, Any]) -> Config:
        """What a run directory says of the run."""
        return config_of(
            self.options,
            population=population,
            iterations=self.iterations,
            evaluate_every=self.evaluate_every,
            local=local,
        )
