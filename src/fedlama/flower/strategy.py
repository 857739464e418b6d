"""The server side: a Flower strategy whose rounds are those of `fedlama.server.Server`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from logging import INFO
from pathlib import Path
from typing import NoReturn

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from torch import nn

from fedlama.base import (
    InputError,
    RunError,
    check_number,
    check_option,
    check_whole,
)
from fedlama.compress import Codec, ErrorFeedback
from fedlama.core import Policy
from fedlama.core.policy_checks import check_policy
from fedlama.flower.codes import codec_to_plain
from fedlama.flower.evaluating import Evaluate
from fedlama.flower.modules import module_of, tensors_of
from fedlama.flower.options import Options
from fedlama.flower.running import FlowerRun
from fedlama.local import LocalRule
from fedlama.local.rule import check_local_rule
from fedlama.rows import Grouping
from fedlama.server import Mean, ServerRule
from fedlama.server.rule import check_server_rule
from fedlama.server.tolerance import OnTooFew, Tolerance
from fedlama.training.arguments import check_codecs
from fedlama.training.coding import check_window
from fedlama.training.options import RunOptions
from fedlama.training.participation import Participation
from fedlama.training.records import Record


class LayerwiseStrategy(Strategy):
    """Layer-wise aggregation and codes on Flower: one Flower round is one round of the policy.

    Arguments:
        policy: Which layers are averaged when, such as `fedlama.FedLAMA(6, 4)` or `fedlama.FedAvg(6)`.
        server: What the server makes of an average (default: `fedlama.server.Mean()`).
        local: The clients' local rule, where it has a part on the server (`Scaffold`, `FedNova`, `FedDyn`); clients
            with another rule are then refused. Other rules need not be named here.
        uplink: The code of what clients send, such as `fedlama.compress.Rotate(1.6)` (default: float32 as it is).
        downlink: The code of what clients that stay are sent.
        fraction: Which share of all clients trains at a time (default: all of them).
        clients: How many clients train at a time, in place of a share.
        window: How many steps a cohort stays (default: one cycle of the policy). Where clients keep something, such as
            momentum, a run that is resumed begins its last window anew: the longer it is, the more is lost.
        weights: What a client weighs: "uniform", or "samples" for as much as it has samples, as Flower's FedAvg weighs
            them.
        max_samples: The most samples that a client may say it has; one that says more takes no part (default: where
            weights or epochs depend on them, a hundred times the median of the clients that answer before the run).
        norm_limit: The largest L2 norm of an update of the due layers; clients above it are excluded until the next
            cycle (default: none, and one client that sends large numbers can ruin the model).
        min_clients: With fewer updates a round does not count; at most as many as train at a time.
        on_too_few: What happens then: "repeat" it with new clients, or "stop".
        deadline: Seconds that a round may take; a client whose reply is not there by then is excluded until the next
            cycle.
        wait: Seconds to wait at the start for all clients to connect and to say who they are; the run then begins with
            those that did. A node that is asked at the last moment has thirty seconds to answer.
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
        local: LocalRule | None = None,
        uplink: Codec | None = None,
        downlink: Codec | None = None,
        fraction: float | None = None,
        clients: int | None = None,
        window: int | None = None,
        weights: str = "uniform",
        max_samples: int | None = None,
        norm_limit: float | None = None,
        min_clients: int = 1,
        on_too_few: OnTooFew = "repeat",
        deadline: float = 600.0,
        wait: float = 120.0,
        seed: int = 0,
        layers: Grouping = "tensor",
        adaptive: Sequence[str] | None = None,
        evaluate_every: int | None = None,
    ) -> None:
        check_policy("policy", policy)
        if server is not None:
            check_server_rule("server", server)
        if local is not None:
            check_local_rule("local", local, "fedlama.FedNova(…) or the like")
        check_codecs(uplink=uplink, downlink=downlink)
        for codec in (uplink, downlink):
            if codec is not None:
                # Refuses those that clients do not know.
                codec_to_plain(codec)
        check_option(RunOptions, "weights", weights)
        if max_samples is not None:
            check_whole("max_samples", max_samples, minimum=1)
        tolerance = Tolerance(
            min_clients=min_clients,
            on_too_few=on_too_few,
            norm_limit=norm_limit,
        )
        check_option(RunOptions, "seed", seed)
        check_number("deadline", deadline, above=0)
        check_number("wait", wait, above=0)
        check_option(RunOptions, "evaluate_every", evaluate_every)
        if isinstance(clients, float):
            raise InputError(
                f"clients must be a whole number, not {clients}: for a share of the clients write fraction={clients}"
            )
        participation = Participation(clients=clients, fraction=fraction, window=window)
        if clients is not None:
            tolerance.check_can_be_met(clients, option="min_clients")
        check_window(uplink, policy, participation.window_steps(policy))
        if downlink is not None and not downlink.slots:
            # The server stays as long as the run does, so what its code leaves out is never forgotten.
            downlink = ErrorFeedback(downlink, lifetime="run")
        self.options = Options(
            policy=policy,
            server=server or Mean(),
            local=local,
            uplink=uplink,
            downlink=downlink,
            participation=participation,
            weights=weights,
            max_samples=max_samples,
            tolerance=tolerance,
            deadline=deadline,
            wait=wait,
            seed=seed,
            layers=layers,
            adaptive=adaptive,
            evaluate_every=evaluate_every,
        )
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
                and `loss` go into the records, and without an `accuracy` the first other number. More of that is
                better, unless the function has an attribute `higher_is_better = False`. Without a `loss` a run
                directory has no summary.
            model: The module itself, where a record of arrays does not say enough: with frozen or tied weights, or
                with buffers other than BatchNorm's.
            save_to: A run directory to write: a record of every round, and a checkpoint at each cycle's end, or at each
                window's where clients keep something that the next cycle needs (momentum, error feedback, the rows of
                Scaffold and FedDyn).
            resume_from: A run directory that an earlier run wrote; this one goes on from the last checkpoint, or from
                the beginning where there is none, and writes there. Of a finished run, nothing is trained again.
        """
        check_option(RunOptions, "iterations", iterations)
        if (
            resume_from is not None
            and save_to is not None
            and Path(resume_from) != Path(save_to)
        ):
            raise InputError(
                "a run that is resumed goes on in its own directory: give resume_from alone"
            )
        module = module_of(initial_arrays)
        if model is not None:
            module = deepcopy(model)
            module.load_state_dict(tensors_of(initial_arrays))
        self.summary()
        run = FlowerRun(
            options=self.options,
            grid=grid,
            module=module,
            iterations=iterations,
            evaluate_fn=evaluate_fn,
        )
        self.records = run.records
        if resume_from is not None:
            return run.play(Path(resume_from), resume=True)
        if save_to is not None:
            return run.play(Path(save_to), resume=False)
        return run.play(None, resume=False)

    def summary(self) -> None:
        """Log what the strategy is."""
        options = self.options
        log(INFO, "\tLayerwiseStrategy: %s", options.policy)
        log(INFO, "\tuplink %s, downlink %s", options.uplink, options.downlink)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Not used: `start` has a loop of its own.

        Arguments:
            server_round: Flower's number of the round.
            arrays: The model.
            config: What Flower tells clients.
            grid: Flower's way to the nodes.
        """
        _has_its_own_loop()

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Not used: `start` has a loop of its own.

        Arguments:
            server_round: Flower's number of the round.
            replies: Of the nodes.
        """
        _has_its_own_loop()

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Not used: `start` has a loop of its own.

        Arguments:
            server_round: Flower's number of the round.
            arrays: The model.
            config: What Flower tells clients.
            grid: Flower's way to the nodes.
        """
        _has_its_own_loop()

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Not used: `start` has a loop of its own.

        Arguments:
            server_round: Flower's number of the round.
            replies: Of the nodes.
        """
        _has_its_own_loop()


def _has_its_own_loop() -> NoReturn:
    raise RunError("LayerwiseStrategy plans its rounds itself: call its start()")
