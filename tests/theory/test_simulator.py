"""The simulator, given these quadratics as a user's own module, loss and data, has the exact moments.

Many federations with the same objectives and independent noise are packed into one model: parameters have a row for
each copy. A run is then a sample of `COPIES` independent runs, and its distances are sums over all of them.
"""

import numpy as np
import pytest
import torch
from torch import nn

import fedlama

from .instances import draws_of
from .quadratics import Quadratics, ServerMomentum, exact_run, quadratic_form

COPIES = 1500
STANDARD_ERRORS = 4


class Copies(nn.Module):
    """The loss of one client's sample: its quadratic plus noise · parameters, summed over the copies."""

    def __init__(self, problem, start):
        super().__init__()
        widths = np.cumsum((0, *problem.sizes))
        for index, size in enumerate(problem.sizes):
            values = torch.tensor(
                start[widths[index] : widths[index + 1]], dtype=torch.float32
            )
            self.register_parameter(
                f"layer{index}", nn.Parameter(values.expand(COPIES, size).clone())
            )
        hessians = torch.tensor(problem.hessians, dtype=torch.float32)
        targets = torch.tensor(problem.targets, dtype=torch.float32)
        self.register_buffer("hessians", hessians, persistent=False)
        self.register_buffer("targets", targets, persistent=False)

    def rows(self):
        return torch.cat(list(self.parameters()), dim=1)

    def forward(self, samples):
        client = samples[:, 0].long()
        noise = samples[:, 1:].unflatten(1, (COPIES, -1))
        rows = self.rows()
        apart = rows - self.targets[client].unsqueeze(1)
        quadratic = (
            torch.einsum("brp,bpq,brq->b", apart, self.hessians[client], apart) / 2
        )
        return quadratic + (noise * rows).sum(dim=(1, 2))


def mean_loss(losses, _targets):
    return losses.mean()


def data_for(problem, steps, seed):
    """A sample for each step of each client: fresh noise, so that no draw is used twice. Tested without noise."""
    draws = draws_of("samples", seed)
    roots = np.linalg.cholesky(problem.noise)
    count = problem.clients
    noise = np.einsum(
        "ipq,isrq->isrp",
        roots,
        draws.normal(size=(count, steps, COPIES, problem.width)),
    )
    clients = np.repeat(np.arange(count), steps)
    samples = np.concatenate(
        [clients[:, None], noise.reshape(count * steps, -1)], axis=1
    ).astype(np.float32)
    tested = np.zeros((count, samples.shape[1]), dtype=np.float32)
    tested[:, 0] = np.arange(count)
    return fedlama.data.arrays(
        samples,
        np.zeros(len(samples), dtype=np.float32),
        tested,
        np.zeros(count, dtype=np.float32),
        clients=clients,
        name="quadratics",
    )


def federation():
    """Four clients and three layers, of which the noise and the pulls make the first drift most, the last least."""
    draws = draws_of("federation")
    sizes = (1, 2, 3)
    width = sum(sizes)
    basis, _ = np.linalg.qr(draws.normal(size=(4, width, width)))
    eigenvalues = draws.uniform(0.3, 1.5, size=(4, width))
    hessians = np.einsum("ipq,iq,irq->ipr", basis, eigenvalues, basis)
    hessians = (hessians + hessians.transpose(0, 2, 1)) / 2
    scale = np.array([1.0, 0.6, 0.6, 0.3, 0.3, 0.3])
    targets = scale * draws.normal(size=(4, width))
    noise = (
        np.stack([np.diag(scale**2)] * 4)
        * np.array([1.0, 0.5, 1.0, 2.0])[:, None, None]
    )
    return Quadratics(hessians, targets, noise, sizes)


def compare(policy, cycles=4, rate=0.15, **exact_options):
    """Run both; returns what `simulate` was not told of."""
    problem = federation()
    start = np.full(problem.width, 2.0)
    told = exact_run(
        problem,
        policy,
        learning_rate=rate,
        start=start,
        cycles=cycles,
        **exact_options.pop("exact", {}),
    )
    steps = cycles * policy.longest_cycle
    result = fedlama.simulate(
        lambda: Copies(problem, start),
        data_for(problem, steps, seed=0),
        policy=policy,
        local=fedlama.SGD(learning_rate=rate, batch_size=1),
        partition=fedlama.Natural(),
        participation=1.0,
        window=steps,
        iterations=steps,
        loss=mean_loss,
        evaluate_every=1,
        **exact_options,
    )
    assert_same_schedule(result, told, policy)
    assert_same_end(problem, result, told)
    assert_same_losses(problem, result, told)
    return result, told


def assert_same_schedule(result, told, policy):
    cycle_ends = [
        record for record in result.records if record.step % policy.longest_cycle == 0
    ]
    assert [tuple(record.intervals) for record in cycle_ends] == told.intervals


def assert_same_end(problem, result, told):
    """E u_T, Cov u_T and E‖∇F(u_T)‖², each within its standard error."""
    rows = result.model.rows().detach().double().numpy()
    mean, covariance = told.means[-1], told.covariances[-1]
    error = np.sqrt(np.diag(covariance) / COPIES)
    assert (np.abs(rows.mean(axis=0) - mean) <= STANDARD_ERRORS * error).all()
    apart = rows - mean
    variances = np.diag(covariance)
    # Of a Gaussian's sample covariance
    errors = np.sqrt((np.outer(variances, variances) + covariance**2) / COPIES)
    assert (
        np.abs(apart.T @ apart / COPIES - covariance) <= STANDARD_ERRORS * errors
    ).all()
    gradients = (rows - problem.optimum) @ problem.mean_hessian
    squared = (gradients**2).sum(axis=1)
    assert (
        abs(squared.mean() - told.squared_gradients[-1])
        <= STANDARD_ERRORS * squared.std() / COPIES**0.5
    )


def assert_same_losses(problem, result, told):
    """The global model's loss after every cycle is the mean of F(u_t) over the copies."""
    measured = [
        record.test_loss for record in result.records if record.test_loss is not None
    ]
    at_optimum = problem.loss(problem.optimum, np.zeros_like(problem.mean_hessian))
    moments = zip(told.means[1:], told.covariances[1:], strict=True)
    for loss, (mean, covariance) in zip(measured, moments, strict=True):
        expected = quadratic_form(
            problem.mean_hessian / 2, mean - problem.optimum, covariance
        )
        error = (expected.variance / COPIES) ** 0.5
        assert (
            abs(loss / COPIES - at_optimum - expected.expectation)
            <= STANDARD_ERRORS * error + 1e-5 * at_optimum
        )


def assert_same_distances(problem, result, told, also_relative=0.0):
    """d_l of every layer at every synchronisation; `also_relative` is for what blurs distances beside the noise."""
    last = [0] * len(problem.sizes)
    compared = 0
    for record, spreads in zip(result.records, told.spreads, strict=True):
        for layer, spread in spreads.items():
            steps_apart = record.step - last[layer]
            last[layer] = record.step
            # Of one copy, on average
            measured = record.discrepancy[layer] * steps_apart * problem.sizes[layer]
            error = (spread.variance / COPIES) ** 0.5
            assert (
                abs(measured - spread.expectation)
                <= STANDARD_ERRORS * error + also_relative * spread.expectation
            )
            compared += 1
    return compared


POLICIES = (
    fedlama.FedAvg(1),
    fedlama.FedAvg(5),
    fedlama.FedLAMA(2, 4),
    fedlama.FedLAMA(3, 2, rule="released"),
    fedlama.FedLAMA(4, 2, rule="accelerate"),
)


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_the_simulator_has_the_exact_moments(policy):
    result, told = compare(policy)
    assert assert_same_distances(federation(), result, told) == sum(
        map(len, told.spreads)
    )
    if policy.increase_factor > 1:
        # Short and long layers
        assert all(len(set(intervals)) == 2 for intervals in told.intervals[1:])


@pytest.mark.parametrize("policy", [fedlama.FedAvg(3), fedlama.FedLAMA(2, 4)], ids=str)
@pytest.mark.parametrize(("beta", "rate"), [(0.0, 0.6), (0.6, 0.8)])
def test_server_momentum_has_the_exact_moments(policy, beta, rate):
    result, told = compare(
        policy,
        exact={"server": ServerMomentum(beta, rate)},
        server=fedlama.server.Momentum(beta, rate=rate),
    )
    assert_same_distances(federation(), result, told)


def coding_error(codec):
    """E‖x̂ − x‖²/‖x‖² of numbers that a rotation made normal; measured on the codec alone."""
    numbers = torch.from_numpy(
        draws_of("coding").normal(size=(100, 1024)).astype(np.float32)
    )
    decoded = codec.decode(codec.encode(numbers, key=1), key=1)
    return float((decoded - numbers).square().sum() / numbers.square().sum())


@pytest.mark.parametrize("policy", [fedlama.FedAvg(3), fedlama.FedLAMA(2, 4)], ids=str)
def test_the_noise_of_an_unbiased_codec_enters_the_covariance(policy):
    """A rotation spreads a client's error evenly over the numbers of a layer, whatever they are."""
    codec = fedlama.compress.Rotate(1.5, small_bits=1.5)
    share = coding_error(codec)
    assert 0.1 < share < 0.3
    result, told = compare(
        policy,
        exact={"coding_noise": lambda squared, size: share * squared / size},
        uplink=codec,
    )
    # Distances come from coded differences: right on average, with the code's noise in them.
    assert_same_distances(federation(), result, told, also_relative=0.03)
    # Without its noise the covariance would be seen to be wrong.
    silent = exact_run(
        federation(),
        policy,
        learning_rate=0.15,
        start=np.full(6, 2.0),
        cycles=4,
        schedule=lambda t: told.intervals[t],
    )
    with pytest.raises(AssertionError):
        assert_same_end(federation(), result, silent)


def test_the_comparison_can_fail():
    """A learning rate that is 3 % off is seen."""
    problem = federation()
    result, _ = compare(fedlama.FedLAMA(2, 4))
    other = exact_run(
        problem,
        fedlama.FedLAMA(2, 4),
        learning_rate=0.1455,
        start=np.full(6, 2.0),
        cycles=4,
    )
    with pytest.raises(AssertionError):
        assert_same_end(problem, result, other)
