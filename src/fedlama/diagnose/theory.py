"""The constants of Theorem 5.3, estimated at two points, and what the theorem says with them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from torch import nn

from fedlama.core import (
    BoundTerms,
    convergence_terms,
    largest_learning_rate,
    linear_speedup_rounds,
)
from fedlama.data import Batches
from fedlama.diagnose.curvature import NoCurvatureError, smoothness
from fedlama.diagnose.findings import Constants, Theory
from fedlama.diagnose.gradients import GradientMoments, dissimilarity, gradient_moments
from fedlama.diagnose.probe import Probe
from fedlama.training.evaluation import Loss
from fedlama.training.modules import torch_settings

CURVATURE_CLIENTS = 3
BEFORE = 0.4  # the share of a diagnosis that is done before gradients are looked at

DiagnosisProgress = Callable[[float, str], None]


def look_at_both_ends(
    start: nn.Module,
    end: nn.Module,
    batches: Batches,
    loss: Loss,
    seed: int,
    probed: Sequence[int],
    on_progress: DiagnosisProgress,
) -> tuple[list[GradientMoments], float | None, dict[str, str]]:
    """Gradients and curvature at the first weights and after the first cycles."""
    points: list[GradientMoments] = []
    curvature: float | None = 0.0
    omitted: dict[str, str] = {}
    done = BEFORE

    def advance_by(weight: float, what: str) -> Callable[[float], None]:
        def advance(share: float) -> None:
            nonlocal done
            done += weight * share
            on_progress(min(done, 1.0), what)

        return advance

    with torch_settings(uses_gpu=False):
        for module, where in ((start, "at the start"), (end, "after the cycles")):
            probe = Probe(module, batches, loss, seed)
            gradients = advance_by(0.1, f"gradients {where}")
            points.append(
                gradient_moments(probe, probed, len(batches.shards), gradients)
            )
            if curvature is None:
                continue
            try:
                found = smoothness(
                    probe,
                    probed[:CURVATURE_CLIENTS],
                    advance_by(0.2, f"curvature {where}"),
                )
                curvature = max(curvature, found)
            except NoCurvatureError as error:
                curvature = None
                omitted["smoothness"] = str(error)
    if curvature == 0.0:
        curvature = None
        omitted["smoothness"] = (
            "the Hessian is zero where we looked: the loss is linear there, or not twice differentiable"
        )
    return points, curvature, omitted


def constants_of(
    points: Sequence[GradientMoments], curvature: float | None
) -> Constants:
    """The largest that was seen, where a constant has to hold everywhere."""
    unlike, left = dissimilarity(points)
    start = points[0]
    return Constants(
        smoothness=curvature,
        gradient_variance=max(point.noise for point in points),
        largest_variance=max(point.largest_noise for point in points),
        dissimilarity=unlike,
        heterogeneity=left,
        # Instead of F(u_0) − F*, whose F* nobody knows
        initial_gap=max(start.loss, 0.0),
    )


def theory_of(
    constants: Constants,
    learning_rate: float,
    interval: int,
    iterations: int,
    clients: int,
) -> Theory | None:
    """The theorem's limit, and its terms there and at the configured rate; None without L."""
    if constants.smoothness is None:
        return None
    problem = {
        "smoothness": constants.smoothness,
        "interval": interval,
        "clients": clients,
        "initial_gap": constants.initial_gap,
        "gradient_variance": constants.gradient_variance,
        "heterogeneity": constants.heterogeneity,
        "dissimilarity": constants.dissimilarity,
    }
    limit = largest_learning_rate(
        smoothness=constants.smoothness,
        interval=interval,
        dissimilarity=constants.dissimilarity,
    )
    cycles = max(1, math.ceil(iterations / interval))
    at_limit = convergence_terms(learning_rate=limit, rounds=cycles, **problem)
    # Each term is a power of η: beyond the limit the formulas still tell which one grows how.
    ratio = learning_rate / limit
    at_configured = BoundTerms(
        optimisation=at_limit.optimisation / ratio,
        noise=at_limit.noise * ratio,
        drift=at_limit.drift * ratio**2,
        heterogeneity=at_limit.heterogeneity * ratio**2,
    )
    horizon = None
    if constants.initial_gap > 0 or constants.gradient_variance > 0:
        horizon = linear_speedup_rounds(**problem)
    return Theory(limit, at_limit, at_configured, horizon)
