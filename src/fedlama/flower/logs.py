"""What a run says in Flower's log: every round, its scores, and how the run ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from logging import INFO, WARNING

from flwr.common import log

from fedlama.core import Ledger
from fedlama.flower.results import LOSS
from fedlama.server.exclusions import Exclusion
from fedlama.training.records import ACCURACY, Record


def log_round(record: Record, excluded: Sequence[Exclusion]) -> None:
    """One line for every round.

    Arguments:
        record: The round's.
        excluded: Who did not count in its last attempt.
    """
    log(
        INFO,
        "round %s: step %s, loss %.4f, excluded %s",
        record.round,
        record.step,
        record.loss,
        excluded,
    )


def log_scores(round_: int, scores: Mapping[str, float], ledger: Ledger) -> None:
    """One line for every evaluation.

    Arguments:
        round_: The round after which the model was evaluated.
        scores: What `evaluate_fn` said, by name.
        ledger: The bytes so far.
    """
    log(
        INFO,
        "round %s: %s; so far %.1f kB up and %.1f kB down",
        round_,
        _scores_text(scores),
        ledger.uplink_bytes / 1000,
        ledger.downlink_bytes / 1000,
    )


def log_end(last: Record, *, share: float, reference: str, where: str) -> None:
    """The last line: what came of the run, at which price, and where it is.

    Arguments:
        last: The last record.
        share: The run's uplink bytes as a share of those of the reference.
        reference: What that is, in words.
        where: The run directory, in words.
    """
    scores: dict[str, float] = dict(last.metrics)
    if last.accuracy is not None:
        scores[ACCURACY] = last.accuracy
    if last.test_loss is not None:
        scores[LOSS] = last.test_loss
    log(
        INFO,
        "the run has ended: %s; %.1f %% of the uplink of %s; %s",
        _scores_text(scores) or "not evaluated",
        100 * share,
        reference,
        where,
    )


def log_other_training(said: str) -> None:
    """A warning where a run goes on with clients that train otherwise than before.

    Arguments:
        said: How they train now, as they say.
    """
    log(
        WARNING,
        "the clients say that they train otherwise than the run directory has it: %s",
        said,
    )


def _scores_text(scores: Mapping[str, float]) -> str:
    parts = [f"{name} {value:.4f}" for name, value in scores.items()]
    return ", ".join(parts)
