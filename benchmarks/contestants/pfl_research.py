"""Apple's pfl-research: FederatedAveraging on its simulated backend, one torchrun process × one thread a core.

Tuned as a good user would: a user's data set is made of just the samples its steps need, in memory, evaluation is off
(pfl always evaluates in its first iteration, so `metrics` computes nothing), and metrics are not printed.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.job import Job, Stopwatch


class Classifier(nn.Module):
    """A module as pfl wants it."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(self.network(inputs), targets)

    def metrics(self, inputs: Tensor, targets: Tensor) -> dict[str, Weighted]:
        return {"samples": Weighted(0, len(targets))}


class Timer(TrainingProcessCallback):
    """Stops the time after every round."""

    def __init__(self, watch: Stopwatch) -> None:
        self.watch = watch

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: Any, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        self.watch.round_ends(central_iteration + 1)
        return False, Metrics()


def main() -> None:
    job = Job.from_environment()
    torch.set_num_threads(1)
    # Pfl draws from numpy's global generator, alike in all processes
    np.random.seed(job.seed)
    samples, watch = job.samples(), Stopwatch(job)
    classifier = Classifier(job.build())

    def user_dataset(client: int) -> PyTorchTensorDataset:
        indices = samples.draw(client, job.steps * job.batch)
        return PyTorchTensorDataset(
            (samples.inputs(indices), samples.y[indices]), user_id=str(client)
        )

    model = PyTorchModel(
        model=classifier,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(classifier.parameters(), 1.0),
    )
    users = FederatedDataset(
        user_dataset, get_user_sampler("minimize_reuse", list(range(job.clients)))
    )
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=job.warmup + job.rounds,
            evaluation_frequency=10**9,
            train_cohort_size=job.active,
            val_cohort_size=None,
        ),
        SimulatedBackend(training_data=users, val_data=users),
        model,
        NNTrainHyperParams(
            local_num_epochs=1,
            local_learning_rate=job.learning_rate,
            local_batch_size=job.batch,
        ),
        NNEvalHyperParams(local_batch_size=None),
        callbacks=[Timer(watch)],
        send_metrics_to_platform=False,
    )
    if os.environ.get("RANK", "0") == "0":
        watch.report()


if __name__ == "__main__":
    main()
