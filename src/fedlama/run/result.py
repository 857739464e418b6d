"""What came of a run, for people who look at it in Python: short texts, tables, a picture, and predictions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from fedlama.base import InputError, reason, shown
from fedlama.data import Preparation
from fedlama.run.curves import draw_curves
from fedlama.run.directory import WEIGHTS
from fedlama.run.predicting import PREDICTED_AT_ONCE, as_trained
from fedlama.run.recorded import RecordedRun
from fedlama.run.relative import Relative, share_of
from fedlama.run.texts import facts_table, network_text, plain_score
from fedlama.training import records

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class Result(records.TrainingResult):
    """A finished run: its numbers, one record per round, and the trained module.

    `accuracy` is None where the metric is another one: `score` is the metric, whatever it is, and `metric` has its name
    and direction. `cost` and `uplink_share` are shares of what `cost_of` names, FedAvg at the policy's own base
    interval; `relative_to` compares two results.

    Arguments:
        accuracy: The accuracy of the averaged global model on the test set; None where another metric was evaluated.
        loss: Its loss there; None where nobody evaluated it, which only a run over Flower leaves out.
        cost: C of Eq. 5, relative to aggregating everything every base interval: to what `cost_of` names.
        uplink_bytes: What all clients sent.
        downlink_bytes: What all clients received.
        statistics_bytes: The part of the uplink (and, without faults or codecs, of the downlink) that is BatchNorm
            statistics.
        iterations: Global steps taken.
        seed: The run's.
        seconds: How long it took.
        uplink_share: Uplink bytes divided by those of uncompressed FedAvg at the base interval with as many clients.
        codec: The uplink's.
        server: The server's rule.
        local: The clients' rule.
        layers: The account of every layer.
        policy: The policy.
        cost_of: What `cost` and `uplink_share` are shares of: FedAvg at the policy's base interval.
        metric: What the model is judged by: its name, and which direction is better; None where there is no metric.
        metrics: A metric other than the accuracy, by its name.
        clients: How clients fare by themselves, if that was asked for.
        average_score: The metric of a moving average of the global model, if that was evaluated beside it.
        records: One per round.
        model: A module of your own with the global weights.
        preparation: How samples became the module's inputs.
        is_classifier: Whether targets were classes.
        client_names: What each client is called, where the data has a name for it.
    """

    def relative_to(self, other: records.Summary) -> Relative:
        """Bytes as shares of another run's, and the difference in what both are judged by.

        Arguments:
            other: Another result of the same network, such as that of FedAvg.
        """
        if not isinstance(other, records.Summary):
            raise InputError(f"relative_to takes another result, not {shown(other)}")
        if self.network != other.network:
            raise InputError(
                f"relative_to takes a result of the same network: this one has {network_text(self)}, the other "
                f"{network_text(other)}"
            )

        score = None
        own_score = self.score
        other_score = other.score
        if (
            self.metric == other.metric
            and own_score is not None
            and other_score is not None
        ):
            score = own_score - other_score

        loss = None
        if self.loss is not None and other.loss is not None:
            loss = self.loss - other.loss

        own_bytes = self.uplink_bytes + self.downlink_bytes
        other_bytes = other.uplink_bytes + other.downlink_bytes
        return Relative(
            to=other.policy or "the other run",
            uplink=share_of(self.uplink_bytes, other.uplink_bytes),
            downlink=share_of(self.downlink_bytes, other.downlink_bytes),
            total=share_of(own_bytes, other_bytes),
            score=score,
            loss=loss,
            measure=self.metric,
        )

    def outputs(self, x: Any) -> Tensor:
        """What the trained module gives for samples, prepared as in training.

        Arguments:
            x: Samples as the data had them, the first dimension counting them: a numpy array or a tensor.
        """
        if self.preparation is None:
            raise InputError(
                "this result does not know how its samples were prepared: call result.model yourself"
            )
        samples = as_trained(x, self.preparation)

        was_training = self.model.training
        self.model.eval()
        parts: list[Tensor] = []
        try:
            with torch.no_grad():
                for part in samples.split(PREDICTED_AT_ONCE):
                    parts.append(self.model(self.preparation(part)))
        finally:
            # The user may go on training it.
            self.model.train(was_training)
        return torch.cat(parts)

    def predict(self, x: Any) -> Tensor:
        """For each sample its class, or what the module gives where targets are not classes.

        Arguments:
            x: Samples as the data had them, the first dimension counting them: a numpy array or a tensor. They are
                prepared as in training: pixels (uint8) are scaled and standardised, and a `transform` is applied.
        """
        outputs = self.outputs(x)
        if not self.is_classifier:
            return outputs
        return outputs.argmax(dim=1)

    def to_frame(self) -> Any:
        """One row per round as a pandas DataFrame; bytes are those of the round, `cost` is that so far."""
        if find_spec("pandas") is None:
            raise InputError(
                "to_frame needs pandas, which is not installed: run `pip install pandas`"
            )
        pandas: Any = import_module("pandas")
        rows = [_row(record) for record in self.records]
        return pandas.DataFrame(rows)

    def plot(self) -> Figure:
        """The metric over bytes and over steps, as a matplotlib figure."""
        name = self.policy or "this run"
        return draw_curves({name: self.records}, self.metric)

    def __repr__(self) -> str:
        facts: list[str] = []
        for name, value in self._facts():
            facts.append(f"{name} {value}")
        listed = ", ".join(facts)
        return f"Result({listed})"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return facts_table(self._facts())

    def _facts(self) -> list[tuple[str, str]]:
        facts = [("policy", self.policy or "unknown")]
        if self.metric is not None and self.score is not None:
            score = plain_score(self.score, self.metric)
            facts.append((self.metric.name, score))
        if self.loss is not None:
            facts.append(("test loss", f"{self.loss:.4g}"))

        whom = self.cost_of or "FedAvg"
        cost = f"{self.cost:.1%} of {whom}"
        facts.append(("cost", cost))
        if self.uplink_share is not None:
            share = f"{self.uplink_share:.1%} of {whom}"
            facts.append(("uplink", share))

        worst = self._worst_clients()
        if worst is not None:
            facts.append(("worst decile of clients", worst))
        facts += [
            ("rounds", f"{len(self.records):,}"),
            ("steps", f"{self.iterations:,}"),
            ("seed", str(self.seed)),
        ]
        return facts

    def _worst_clients(self) -> str | None:
        clients = self.clients
        if clients is None or clients.worst_decile is None:
            return None
        if self.metric is None:
            return None
        score = plain_score(clients.worst_decile, self.metric)
        return f"{score} ({clients.on} samples)"


def result_of(found: records.TrainingResult) -> Result:
    """A result as users get it."""
    return Result(**_values_of(found))


def _values_of(summary: records.Summary) -> dict[str, Any]:
    """The fields by name, not copied: tensors and records stay the same ones."""
    values: dict[str, Any] = {}
    for field in fields(summary):
        values[field.name] = getattr(summary, field.name)
    return values


def read_result(
    run: RecordedRun,
    module: nn.Module,
    *,
    preparation: Preparation,
    is_classifier: bool,
    client_names: tuple[str, ...] | None,
) -> Result:
    """The result of a finished run, back from its directory.

    Arguments:
        run: As read from its directory, with a summary.
        module: One of the kind that was trained, which gets the weights.
        preparation: How samples become its inputs.
        is_classifier: Whether targets are classes.
        client_names: What each client is called, where the data has a name for it.
    """
    assert run.summary is not None, "the run is finished"
    weights = run.path / WEIGHTS
    try:
        module.load_state_dict(load_file(weights))
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(
            f"{weights}: cannot be read into this model ({reason(error)})"
        ) from None

    return Result(
        **_values_of(run.summary),
        records=run.records,
        model=module,
        preparation=preparation,
        is_classifier=is_classifier,
        client_names=client_names,
    )


def _row(record: records.Record) -> Mapping[str, Any]:
    row: dict[str, Any] = {
        "round": record.round,
        "step": record.step,
        "cycle": record.cycle,
        "loss": record.loss,
        "test_loss": record.test_loss,
    }
    # Rounds that have another metric have no accuracy to show.
    if record.accuracy is not None or not record.metrics:
        row["accuracy"] = record.accuracy
    row.update(record.metrics)
    return {
        **row,
        "uplink_bytes": record.uplink_bytes,
        "downlink_bytes": record.downlink_bytes,
        "cost": record.cost,
        "uplink_share": record.uplink_share,
        "layers_due": len(record.due),
        "excluded": len(record.excluded),
    }
