"""What came of a run, for people who look at it in Python: short texts, tables, a picture, and predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from html import escape
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from fedlama.base import InputError, printable, reason, shown
from fedlama.data import Dataset, Preparation
from fedlama.run.curves import draw_curves
from fedlama.run.directory import WEIGHTS
from fedlama.run.recorded import Run
from fedlama.training import records

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PREDICTED_AT_ONCE = 256  # samples
PIXELS = range(256)


@dataclass(frozen=True, repr=False)
class Relative:
    """One result beside another.

    Arguments:
        to: The other's policy.
        uplink: Uplink bytes as a share of the other's.
        downlink: Downlink bytes as a share of the other's.
        total: Bytes up and down as a share of the other's.
        score: The metric minus the other's; None where one of them has none, or they have different ones.
        loss: The test loss minus the other's.
        measure: What the metric is called, and which direction is better.
    """

    to: str
    uplink: float
    downlink: float
    total: float
    score: float | None
    loss: float
    measure: records.Measure | None

    def __str__(self) -> str:
        parts = [
            f"{self.uplink:.1%} of {self.to}'s uplink bytes",
            f"{self.total:.1%} of all its bytes",
        ]
        parts += [f"{name} {value}" for name, value in self._differences()]
        return ", ".join(parts)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        shares = [
            ("uplink", f"{self.uplink:.1%} of {self.to}"),
            ("all bytes", f"{self.total:.1%} of {self.to}"),
        ]
        return _html_table([*shares, *self._differences()])

    def _differences(self) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        if self.measure is not None and self.score is not None:
            found.append((self.measure.name, _difference(self.score, self.measure)))
        found.append(("test loss", f"{self.loss:+.3f}"))
        return found


def _html_table(facts: Sequence[tuple[str, str]]) -> str:
    rows = [f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in facts]
    return f"<table>{''.join(rows)}</table>"


def _difference(score: float, measure: records.Measure) -> str:
    if measure.is_accuracy:
        return f"{100 * score:+.2f} points"
    better = "higher" if measure.higher_is_better else "lower"
    return f"{score:+.4g} ({better} is better)"


@dataclass(frozen=True, repr=False)
class Result(records.Result):
    """A finished run: its numbers, one record per round, and the trained module.

    `accuracy` is None where the metric is another one: `score` is the metric, whatever it is, and `metric` has its name
    and direction. `cost` and `uplink_share` are shares of what `cost_of` names, FedAvg at the policy's own base
    interval; `relative_to` compares two results.
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
                f"relative_to takes a result of the same network: this one has {_network_text(self)}, the other "
                f"{_network_text(other)}"
            )
        score = None
        if self.metric == other.metric and self.score is not None and other.score is not None:
            score = self.score - other.score
        return Relative(
            to=other.policy or "the other run",
            uplink=_share(self.uplink_bytes, other.uplink_bytes),
            downlink=_share(self.downlink_bytes, other.downlink_bytes),
            total=_share(self.uplink_bytes + self.downlink_bytes, other.uplink_bytes + other.downlink_bytes),
            score=score,
            loss=self.loss - other.loss,
            measure=self.metric,
        )

    def outputs(self, x: Any) -> Tensor:
        """What the trained module gives for samples, prepared as in training.

        Arguments:
            x: Samples as the data had them, the first dimension counting them: a numpy array or a tensor.
        """
        if self.preparation is None:
            raise InputError("this result does not know how its samples were prepared: call result.model yourself")
        samples = _as_trained(x, self.preparation)
        was_training = self.model.training
        self.model.eval()
        parts: list[Tensor] = []
        try:
            with torch.no_grad():
                for part in samples.split(PREDICTED_AT_ONCE):
                    parts.append(self.model(self.preparation(part)))
        finally:
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
            raise InputError("to_frame needs pandas, which is not installed: run `pip install pandas`")
        pandas: Any = import_module("pandas")
        return pandas.DataFrame([_row(record) for record in self.records])

    def plot(self) -> Figure:
        """The metric over bytes and over steps, as a matplotlib figure."""
        return draw_curves({self.policy or "this run": self.records}, self.metric)

    def __repr__(self) -> str:
        facts = ", ".join(f"{name} {value}" for name, value in self._facts())
        return f"Result({facts})"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return _html_table(self._facts())

    def _facts(self) -> list[tuple[str, str]]:
        facts = [("policy", self.policy or "unknown")]
        if self.metric is not None and self.score is not None:
            facts.append((self.metric.name, score_text(self.score, self.metric)))
        facts.append(("test loss", f"{self.loss:.4g}"))
        whom = self.cost_of or "FedAvg"
        facts.append(("cost", f"{self.cost:.1%} of {whom}"))
        if self.uplink_share is not None:
            facts.append(("uplink", f"{self.uplink_share:.1%} of {whom}"))
        if self.clients is not None and self.clients.worst_decile is not None and self.metric is not None:
            worst = score_text(self.clients.worst_decile, self.metric)
            facts.append(("worst decile of clients", f"{worst} ({self.clients.on} samples)"))
        facts.append(("rounds", f"{len(self.records):,}"))
        facts.append(("steps", f"{self.iterations:,}"))
        facts.append(("seed", str(self.seed)))
        return facts


def result_of(found: records.Result) -> Result:
    """A result as users get it."""
    return Result(**{one.name: getattr(found, one.name) for one in fields(found)})


def read_result(
    run: Run,
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
        raise InputError(f"{weights}: cannot be read into this model ({reason(error)})") from None
    summary = {one.name: getattr(run.summary, one.name) for one in fields(run.summary)}
    return Result(
        **summary,
        records=run.records,
        model=module,
        preparation=preparation,
        is_classifier=is_classifier,
        client_names=client_names,
    )


def score_text(score: float, measure: records.Measure) -> str:
    """A metric as people read it: an accuracy in percent."""
    if measure.is_accuracy:
        return f"{score:.1%}"
    return f"{score:.4g}"


def _network_text(summary: records.Summary) -> str:
    size = sum(layer.size for layer in summary.layers)
    text = f"{size:,} parameters in {len(summary.layers):,} layers"
    if summary.layers:
        text += f" from {printable(summary.layers[0].name)} on"
    return text


def _share(part: float, whole: float) -> float:
    if not whole:
        return float("nan")
    return part / whole


def _row(record: records.Record) -> Mapping[str, Any]:
    row: dict[str, Any] = {
        "round": record.round,
        "step": record.step,
        "cycle": record.cycle,
        "loss": record.loss,
        "test_loss": record.test_loss,
    }
    if record.accuracy is not None or not record.metrics:
        row["accuracy"] = record.accuracy
    row.update(record.metrics)
    row["uplink_bytes"] = record.uplink_bytes
    row["downlink_bytes"] = record.downlink_bytes
    row["cost"] = record.cost
    row["uplink_share"] = record.uplink_share
    row["layers_due"] = len(record.due)
    row["excluded"] = len(record.excluded)
    return row


def _as_trained(x: Any, preparation: Preparation) -> Tensor:
    """Samples in the type that the training samples had; what would mean something else is refused."""
    samples = _as_tensor(x)
    if samples.dim() < 1 or tuple(samples.shape[1:]) != preparation.sample_shape:
        raise InputError(
            f"samples must have shape (number of samples, {', '.join(map(str, preparation.sample_shape))}), as in "
            f"training, not {tuple(samples.shape)}"
        )
    if not len(samples):
        raise InputError("there is no sample to predict: x is empty")
    wanted = preparation.dtype
    if samples.dtype == wanted:
        return samples
    if wanted == torch.uint8:
        if samples.is_floating_point() or int(samples.min()) < PIXELS.start or int(samples.max()) >= PIXELS.stop:
            raise InputError(
                f"the model was trained on uint8 samples, which are scaled here: give them as they were, not as "
                f"{samples.dtype}"
            )
        return samples.to(wanted)
    if wanted.is_floating_point:
        return samples.to(wanted)
    if samples.is_floating_point():
        raise InputError(f"the model was trained on whole numbers, not on {samples.dtype}")
    return samples.to(wanted)


def _as_tensor(x: Any) -> Tensor:
    if isinstance(x, Tensor):
        return x.detach().cpu()
    if isinstance(x, Dataset):
        raise InputError("predict takes samples, such as data.x_test, not a whole data set")
    if isinstance(x, Path | str):
        raise InputError(f"predict takes samples, not {shown(x)}")
    try:
        return torch.from_numpy(np.array(x))
    except (TypeError, ValueError):
        raise InputError(f"predict takes samples as an array of numbers, not {shown(x)}") from None
