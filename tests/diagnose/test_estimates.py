"""Curvature, noise, dissimilarity and what layers gain: against numbers worked out by hand."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import fedlama
from fedlama.core import Layout, TensorEntry
from fedlama.data import Batches, Natural
from fedlama.diagnose.curvature import NoCurvatureError, largest_eigenvalue
from fedlama.diagnose.gradients import GradientMoments, dissimilarity, gradient_moments
from fedlama.diagnose.layers import Prediction, predict, spread_of_roots
from fedlama.diagnose.probe import Probe
from fedlama.diagnose.recommendation import recommend


class Offsets(nn.Module):
    """outputs = weight − inputs: with half its squared norm as the loss, a gradient is weight − mean of the inputs."""

    def __init__(self, width, value=0.0):
        super().__init__()
        self.weight = nn.Parameter(torch.full((1, width), value))

    def forward(self, inputs):
        return self.weight - inputs


def half_square(outputs, _targets):
    return outputs.square().sum(dim=1).mean() / 2


def probe_of(samples, clients, module, loss=half_square, batch_size=1):
    samples = np.asarray(samples, dtype=np.float32)
    targets = np.zeros(len(samples), dtype=np.float32)
    data = fedlama.data.arrays(samples, targets, samples, targets, clients=clients)
    shards = Natural().assign(data, 0)
    return Probe(module, Batches(data, shards, batch_size, 0), loss, 0)


def ignore(share):
    pass


def test_gradient_moments_by_hand():
    # Six samples of each client, a batch of one: an epoch sees each once. Client 0 has 0, 0, 0, 2, 2, 2 with mean 1,
    # client 1 has 4 throughout. Gradients at weight 0 are minus the samples.
    samples = [[0], [2], [0], [2], [0], [2], [4], [4], [4], [4], [4], [4]]
    found = gradient_moments(
        probe_of(samples, [0] * 6 + [1] * 6, Offsets(1)), [0, 1], 2, ignore
    )
    # Variances 6/5 and 0. ‖∇F_0‖² is 1 − 1.2/6 = .8, ‖∇F_1‖² 16. Their product is 1·4 = 4.
    assert found.noise == pytest.approx(0.6)
    assert found.largest_noise == pytest.approx(1.2)
    assert found.clients == pytest.approx((0.8 + 16) / 2)
    # Both clients are all there are: ‖∇F‖² = (.8 + 16 + 2·4)/4
    assert found.mean == pytest.approx(6.2)
    assert found.loss == pytest.approx((1 + 8) / 2)


def test_a_few_of_many_clients_say_less_about_the_mean():
    samples = [[1, 0], [0, 1]]
    probe = probe_of(samples, [0, 1], Offsets(2))
    both = gradient_moments(probe, [0, 1], 2, ignore)
    # (1, 0) and (0, 1): the mean (½, ½) has ½. If they are two of very many such clients, the rest is unknown: 0.
    assert both.mean == pytest.approx(0.5)
    assert both.noise == 0  # one sample each: a stochastic gradient is the gradient
    some = gradient_moments(probe, [0, 1], 1_000_000, ignore)
    assert some.mean == pytest.approx(0, abs=1e-5)
    assert some.clients == pytest.approx(1)


def moments(clients, mean):
    return GradientMoments(
        loss=1.0, noise=0.0, largest_noise=0.0, clients=clients, mean=mean
    )


def test_dissimilarity_by_hand():
    # Between clients there is 4 at (mean 1, clients 5) and 6 at (3, 9): κ² = 4, and 9 ≤ β²·3 + 4 needs 5/3
    assert dissimilarity([moments(5.0, 1.0), moments(9.0, 3.0)]) == pytest.approx(
        (5 / 3, 4.0)
    )
    # 2 and 8: κ² = 2, and 9 ≤ β²·1 + 2 needs 7
    assert dissimilarity([moments(5.0, 3.0), moments(9.0, 1.0)]) == pytest.approx(
        (7.0, 2.0)
    )
    # 4 and 48: 50 ≤ β²·2 + 4 would need 23; with 10 there is 30 left
    assert dissimilarity([moments(5.0, 1.0), moments(50.0, 2.0)]) == (10.0, 30.0)
    # Where the mean gradient vanishes all is κ²
    assert dissimilarity([moments(5.0, 1.0), moments(7.0, 0.0)]) == (10.0, 7.0)
    # One client: β² = 1 and κ² = 0
    assert dissimilarity([moments(4.0, 4.0), moments(1.0, 1.0)]) == (1.0, 0.0)


@given(
    st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), min_size=1, max_size=4)
)
def test_dissimilarity_covers_every_point(drawn):
    points = [moments(mean + extra, mean) for mean, extra in drawn]
    unlike, left = dissimilarity(points)
    assert unlike >= 1
    assert left >= 0
    for point in points:
        assert point.clients <= unlike * point.mean + left + 1e-9 * (1 + point.clients)


class Bowl(nn.Module):
    """outputs = ½ wᵀHw for every sample, whatever the inputs."""

    def __init__(self, eigenvalues):
        super().__init__()
        width = len(eigenvalues)
        self.weight = nn.Parameter(torch.linspace(1, 2, width).reshape(1, width))
        basis, _ = torch.linalg.qr(
            torch.randn(width, width, generator=torch.Generator().manual_seed(0))
        )
        hessian = basis @ torch.diag(torch.tensor(eigenvalues)) @ basis.T
        self.register_buffer("hessian", hessian, persistent=False)

    def forward(self, inputs):
        value = (self.weight @ self.hessian @ self.weight.T).reshape(1) / 2
        return value.expand(len(inputs))


def mean_output(outputs, _targets):
    return outputs.mean()


@pytest.mark.parametrize("eigenvalues", [[5.0, 1.0, 0.1], [-7.0, 2.0, 1.0], [3.0]])
def test_the_largest_eigenvalue_whatever_its_sign(eigenvalues):
    probe = probe_of([[0.0], [0.0]], [0, 0], Bowl(eigenvalues), mean_output)
    assert largest_eigenvalue(probe, 0) == pytest.approx(
        max(map(abs, eigenvalues)), rel=0.02
    )


def test_a_flat_loss_has_no_curvature():
    class Line(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1, 1))

        def forward(self, inputs):
            return (self.weight * inputs).sum(dim=1)

    probe = probe_of([[1.0], [2.0]], [0, 0], Line(), mean_output)
    with pytest.raises(NoCurvatureError, match="cannot be differentiated twice"):
        largest_eigenvalue(probe, 0)


def test_a_product_that_is_not_finite_is_named():
    class Cusp(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(1, 1))

        def forward(self, inputs):
            return self.weight.abs().pow(1.5).reshape(1).expand(len(inputs))

    probe = probe_of([[1.0], [2.0]], [0, 0], Cusp(), mean_output)
    with pytest.raises(NoCurvatureError, match="product of client 0 is not finite"):
        largest_eigenvalue(probe, 0)


def test_dropout_does_not_disturb_power_iteration():
    module = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.5), nn.Linear(16, 1))
    torch.manual_seed(0)
    samples = np.linspace(-1, 1, 40).reshape(10, 4)
    probe = probe_of(samples, [0] * 10, module, half_square)
    assert largest_eigenvalue(probe, 0) == largest_eigenvalue(probe, 0)


def layout(*sizes):
    return Layout.pack(
        [
            TensorEntry(f"layer{index}", size, adaptive=True)
            for index, size in enumerate(sizes)
        ]
    )


def test_the_spread_of_roots_by_hand():
    # √d is 1 for three quarters of the numbers and 3 for the rest: mean 1.5, mean square 3, CV² = 3/2.25 − 1 = 1/3
    assert spread_of_roots([1.0, 9.0], [30, 10]) == pytest.approx((1 / 3) ** 0.5)
    assert spread_of_roots([4.0, 4.0], [30, 10]) == 0
    assert spread_of_roots([0.0, 0.0], [30, 10]) == 0
    # Half of the numbers at three times the root: mean 2, mean square 5, so 1/(1 + CV²) = 4/5; at ten times 60.5/100.
    for further, share in ((9.0, 0.8), (100.0, 30.25 / 50.5)):
        spread = spread_of_roots([1.0, further], [5, 5])
        assert 1 / (1 + spread**2) == pytest.approx(share)


@given(
    st.lists(
        st.tuples(st.integers(1, 1000), st.floats(1e-6, 1e3)), min_size=1, max_size=8
    ),
    st.integers(2, 8),
)
def test_no_policy_gains_more_than_the_spread_allows(drawn, factor):
    sizes = [size for size, _ in drawn]
    discrepancies = [d for _, d in drawn]
    best = 1 / (1 + spread_of_roots(discrepancies, sizes) ** 2)
    prediction, _ = predict(
        fedlama.FedLAMA(6, factor), layout(*sizes), discrepancies, 6 * factor * 4
    )
    assert prediction.at_equal_bytes >= best * (1 - 1e-9)


def test_a_prediction_by_hand():
    # d = 1 and 9 with 80 and 20 numbers: δ = 80/260 > 1 − λ = .2, so the first is long. 3 cycles of 24 steps:
    # the first at τ' = 6 sends 4·100, the others 80 + 4·20 each: 720 of 1200 numbers, 4 bytes each.
    prediction, intervals = predict(
        fedlama.FedLAMA(6, 4), layout(80, 20), [1.0, 9.0], 72
    )
    assert intervals == (24, 6)
    assert prediction.uplink_bytes == 4 * 720
    assert prediction.cost == 0.6
    # Σ n d τ: (80·24 + 180·6)/(260·6) = 3000/1560; a settled cycle sends .4 of FedAvg(6)
    assert prediction.discrepancy == pytest.approx(3000 / 1560)
    assert prediction.at_equal_bytes == pytest.approx(0.4 * 3000 / 1560)


def prediction(cost, discrepancy, at_equal_bytes):
    return Prediction("", 0, cost, discrepancy, at_equal_bytes)


def test_the_recommendation_takes_the_largest_factor_that_is_tolerable():
    lines = [
        prediction(1, 1, 1),
        prediction(0.6, 1.2, 0.72),
        prediction(0.4, 1.9, 0.76),
        prediction(0.3, 2.1, 0.63),
    ]
    assert recommend(lines, 0.8, 6).startswith(
        "Use FedLAMA(6, 4): it would send 40% of FedAvg(6)'s parameters"
    )
    steep = [
        prediction(1, 1, 1),
        prediction(0.6, 2.5, 0.9),
        prediction(0.4, 4, 1.2),
        prediction(0.3, 8, 1.5),
    ]
    assert recommend(steep, 0.8, 6).startswith("Use FedLAMA(6, 2)")
    alike = [
        prediction(1, 1, 1),
        prediction(0.6, 1.7, 0.99),
        prediction(0.4, 2.6, 1.02),
        prediction(0.3, 4, 1.2),
    ]
    assert recommend(alike, 0.1, 6).startswith(
        "Intervals of their own gain little here (no intervals have more than 1% less"
    )


def test_a_factor_that_gains_nothing_is_not_recommended():
    # As in a run of 24 steps: with 4 and 8, intervals would be chosen when it is over.
    short = [
        prediction(1, 1, 1),
        prediction(0.7, 1.3, 0.8),
        prediction(1, 1.9, 0.7),
        prediction(1, 1, 1),
    ]
    assert recommend(short, 0.8, 6).startswith(
        "Use FedLAMA(6, 2): it would send 70% of FedAvg(6)'s parameters"
    )
    level = [
        prediction(1, 1, 1),
        prediction(0.6, 1.8, 0.97),
        prediction(0.5, 1.9, 0.9),
        prediction(0.49, 1.95, 0.96),
    ]
    assert recommend(level, 0.8, 6).startswith("Use FedLAMA(6, 4)")
    shortest = [prediction(1, 1, 1)] + 3 * [prediction(1, 1.5, 0.7)]
    assert recommend(shortest, 0.8, 6).startswith(
        "Intervals of their own would gain in a longer run only"
    )


@pytest.mark.parametrize(
    ("root_spread", "recommended"),
    # In the first cycles: of small networks, and of ResNet20
    [(0.46, "frugal"), (1.14, "frugal"), (4.68, "frugal, averaged 0.5")],
)
def test_layers_are_averaged_less_often_beside_a_code_where_their_drift_varies(
    root_spread, recommended
):
    lines = [
        Prediction("FedAvg(6)", 4000, 1, 1, 1),
        prediction(0.6, 1.2, 0.72),
        prediction(0.4, 2.1, 0.76),
        prediction(0.3, 3.1, 0.8),
        Prediction("frugal, averaged 0.5", 35, 0.5, 2, 0.9),
        Prediction("frugal", 39, 1, 1, 1),
    ]
    coded = ("frugal, averaged 0.5", "frugal")
    said = recommend(lines, root_spread, 6, coded)
    assert said.startswith(f"Bits save most: {recommended} would send ")
    # Why the other one is not, although the table has fewer bytes for it
    assert (
        "frugal, averaged 0.5 would send less, but √d_l varies too little" in said
    ) == (recommended == "frugal")


def test_a_code_is_recommended_first():
    lines = [
        Prediction("FedAvg(6)", 4000, 1, 1, 1),
        prediction(0.6, 1.2, 0.72),
        prediction(0.4, 2.1, 0.76),
        prediction(0.3, 3.1, 0.8),
        Prediction("mine", 500, 1, 1, 1),
        Prediction("frugal", 39, 1, 1, 1),
    ]
    said = recommend(lines, 0.8, 6, coded=("mine", "frugal"))
    # 39 of 4,000 bytes
    assert said.startswith(
        "Bits save most: frugal would send 0.97% of FedAvg(6)'s uplink, for which its code adds noise. "
        "Without a code: use FedLAMA(6, 2): it would send 60% of FedAvg(6)'s parameters"
    )


def test_a_code_is_in_the_predicted_bytes_and_not_in_the_cost():
    # 80,000 numbers at one bit are 10,000 bytes; the norm, a scale and the format come on top
    one_layer = layout(80_000)
    plain, _ = predict(fedlama.FedAvg(6), one_layer, [1.0], 60)
    coded, _ = predict(
        fedlama.FedAvg(6),
        one_layer,
        [1.0],
        60,
        codec=fedlama.compress.Rotate(1.0),
        name="one bit",
    )
    assert plain.uplink_bytes == 10 * 4 * 80_000
    assert 10 * 10_000 < coded.uplink_bytes < 10 * 10_200
    assert (coded.policy, coded.cost) == ("one bit", 1.0)


def test_a_budget_is_predicted_to_be_kept():
    prediction, intervals = predict(
        fedlama.Budget(6, 48, 0.4), layout(600, 400), [1.0, 9.0], 480
    )
    assert prediction.cost <= 0.4
    # The layer that drifts less is averaged less often
    assert intervals[0] > intervals[1]


class _TanhOnce(torch.autograd.Function):
    """tanh, with a backward pass that torch does not see into, as one written with numpy."""

    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        return x.tanh()

    @staticmethod
    def backward(context, gradient):
        (x,) = context.saved_tensors
        return (gradient * (1 - x.tanh() ** 2)).detach()


class _Once(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(4, 8)
        self.second = nn.Linear(8, 3)

    def forward(self, inputs):
        return self.second(_TanhOnce.apply(self.first(inputs)))


def test_derivatives_that_torch_leaves_out_without_a_word_are_noticed():
    inputs = torch.randn(6, 4, generator=torch.Generator().manual_seed(1)).tolist()
    probe = probe_of(
        inputs, [0] * 6, _Once(), lambda outputs, _: outputs.square().mean()
    )
    with pytest.raises(NoCurvatureError, match="second derivatives do not agree"):
        largest_eigenvalue(probe, 0)
