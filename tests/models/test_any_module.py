"""Any nn.Module works through `fedlama.simulate`: what it holds is trained, averaged or left alone as it should be."""

import re
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

import fedlama

PAGE = Path(__file__).parents[2] / "docs" / "models.md"
TOKENS, CLASSES = 11, 3


class Transformer(nn.Module):
    """Guesses a token from the others of its sequence; the output layer's kernel is the embedding's."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, 8)
        layer = nn.TransformerEncoderLayer(
            8, nhead=2, dim_feedforward=12, dropout=dropout, batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, num_layers=2)
        self.output = nn.Linear(8, TOKENS, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, tokens):
        return self.output(self.encoder(self.embedding(tokens)).mean(dim=1))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, 4)
        self.lstm = nn.LSTM(4, 5, num_layers=2, batch_first=True)
        self.output = nn.Linear(5, CLASSES)

    def forward(self, tokens):
        hidden, _ = self.lstm(self.embedding(tokens))
        return self.output(hidden[:, -1])


class WithBuffers(nn.Module):
    """One buffer of every kind; training writes `seen`, `late` and `mean`."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, CLASSES)
        self.register_buffer("seen", torch.tensor(0))
        self.register_buffer("late", torch.zeros(2, dtype=torch.bool))
        self.register_buffer("order", torch.tensor([5, 3, 1, 0, 2, 4]))
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer(
            "mask", torch.tensor([0.0, 0.0, float("-inf")]), persistent=False
        )

    def forward(self, x):
        if self.training:
            self.seen += len(x)
            self.late[0] = self.seen > 10
            self.mean.lerp_(x.mean(dim=0), 0.5)
        return self.linear((x - self.mean)[:, self.order]) + self.mask.exp()


def regression():
    return nn.Sequential(
        nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1), nn.Flatten(start_dim=0)
    )


def batch_normalised():
    return nn.Sequential(
        nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, CLASSES)
    )


def group_normalised():
    return nn.Sequential(
        nn.Unflatten(1, (1, 6)),
        nn.Conv1d(1, 4, 3),
        nn.GroupNorm(2, 4),
        nn.Flatten(),
        nn.LayerNorm(16),
        nn.Linear(16, CLASSES),
    )


def partly_frozen():
    module = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, CLASSES))
    module[0].requires_grad_(False)
    return module


def with_dropout():
    return nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, CLASSES))


def random_data(kind="floats", targets=CLASSES):
    """Five samples of one client and seven of another, and four to test with."""
    draw = torch.Generator().manual_seed(1)
    x = (
        torch.randint(0, TOKENS, (16, 6), generator=draw)
        if kind == "tokens"
        else torch.randn(16, 6, generator=draw)
    )
    y = (
        torch.randint(0, targets, (16,), generator=draw)
        if targets
        else torch.randn(16, generator=draw)
    )
    return fedlama.data.arrays(
        x[:12], y[:12], x[12:], y[12:], clients=[0] * 5 + [1] * 7
    )


ZOO = {
    "transformer": (Transformer, random_data("tokens", TOKENS), cross_entropy),
    "recurrent": (Recurrent, random_data("tokens"), cross_entropy),
    "regression": (regression, random_data(targets=None), mse_loss),
    "frozen": (partly_frozen, random_data(), cross_entropy),
    "buffers": (WithBuffers, random_data(), cross_entropy),
    "batch norm": (batch_normalised, random_data(), cross_entropy),
    "group norm": (group_normalised, random_data(), cross_entropy),
}


def federate(build, data, **settings):
    defaults = {
        "policy": fedlama.FedAvg(2),
        "local": fedlama.SGD(0.1, batch_size=8),
        "iterations": 4,
    }
    return fedlama.simulate(build, data, **{**defaults, **settings})


def initial(build, data, **settings):
    """The module as `simulate` builds it, before the first step."""
    built = []

    def remember():
        built.append(build())
        built.append(deepcopy(built[0]))
        return built[0]

    federate(remember, data, **settings)
    return built[1]


def averaged_by_hand(module, data, loss, rounds, steps):
    """FedAvg as everybody writes it: a copy and an optimizer a client, a walk over the state dictionaries."""
    for _ in range(rounds):
        copies = [deepcopy(module), deepcopy(module)]
        for client, copy in enumerate(copies):
            mine = data.clients == client
            optimizer = torch.optim.SGD(
                [p for p in copy.parameters() if p.requires_grad], 0.1
            )
            for _ in range(steps):
                optimizer.zero_grad()
                loss(copy(data.x_train[mine]), data.y_train[mine]).backward()
                optimizer.step()
        first, second = (copy.state_dict() for copy in copies)
        for name, tensor in module.state_dict().items():
            whole = not tensor.is_floating_point()
            mean = (
                torch.maximum(first[name], second[name])
                if whole
                else (first[name] + second[name]) / 2
            )
            tensor.copy_(mean)
    return module


@pytest.mark.parametrize("name", ZOO)
def test_the_same_model_as_by_hand(name):
    build, data, loss = ZOO[name]
    expected = averaged_by_hand(
        initial(build, data, loss=loss), data, loss, rounds=2, steps=2
    )
    result = federate(build, data, loss=loss)
    torch.testing.assert_close(
        result.model.state_dict(), expected.state_dict(), rtol=1e-4, atol=1e-5
    )
    with torch.no_grad():
        assert result.loss == pytest.approx(
            loss(expected.eval()(data.x_test), data.y_test).item(), rel=1e-4
        )


@pytest.mark.parametrize("name", ZOO)
def test_layer_by_layer_it_costs_less(name):
    build, data, loss = ZOO[name]
    result = federate(
        build, data, loss=loss, policy=fedlama.FedLAMA(1, 2), iterations=6
    )
    assert 0.5 < result.cost < 1
    assert all(layer.interval == 1 for layer in result.layers if not layer.adaptive)


def test_tied_weights_are_one_layer_and_stay_tied():
    result = federate(*ZOO["transformer"][:2])
    names = [layer.name for layer in result.layers]
    assert "embedding.weight" in names
    assert "output.weight" not in names
    assert result.model.output.weight is result.model.embedding.weight
    assert sum(layer.size for layer in result.layers) == sum(
        p.numel() for p in result.model.parameters()
    )


def test_a_regression_has_a_metric_of_the_users():
    build, data, loss = ZOO["regression"]
    result = federate(
        build,
        data,
        loss=loss,
        metric=lambda outputs, targets: (outputs - targets).abs().max(),
    )
    with torch.no_grad():
        worst = (result.model.eval()(data.x_test) - data.y_test).abs().max().item()
    assert result.score == pytest.approx(worst)


def test_a_regression_without_a_loss_is_refused():
    with pytest.raises(fedlama.InputError, match="pass loss="):
        federate(*ZOO["regression"][:2])


def test_frozen_parameters_are_neither_changed_nor_sent():
    build, data, _ = ZOO["frozen"]
    start, result = initial(build, data), federate(build, data)
    assert [layer.name for layer in result.layers] == ["2.weight", "2.bias"]
    assert torch.equal(result.model[0].weight, start[0].weight)
    assert not torch.equal(result.model[2].weight, start[2].weight)
    assert not result.model[0].weight.requires_grad
    # bytes a number, numbers, clients, rounds
    assert result.uplink_bytes == 4 * (8 * CLASSES + CLASSES) * 2 * 2


def test_every_kind_of_buffer():
    result = federate(*ZOO["buffers"][:2])
    model = result.model
    # The client with 7 samples counted furthest, in both rounds
    assert model.seen == 4 * 7
    assert model.late.tolist() == [True, False]
    assert model.order.tolist() == [5, 3, 1, 0, 2, 4]
    assert model.mask.tolist() == [0, 0, float("-inf")]
    assert model.mean.any()
    assert [layer.name for layer in result.layers] == ["linear.weight", "linear.bias"]
    # Of `mean` alone: bytes a number, numbers, clients, rounds
    assert result.statistics_bytes == 4 * 6 * 2 * 2


def test_without_batch_norm_there_are_no_statistics():
    assert federate(*ZOO["group norm"][:2]).statistics_bytes == 0


@pytest.mark.parametrize(
    ("build", "data"),
    [
        (with_dropout, random_data()),
        (lambda: Transformer(0.3), random_data("tokens", TOKENS)),
    ],
)
def test_dropout_repeats_with_the_seed_and_leaves_the_callers_generator_alone(
    build, data
):
    first = federate(build, data, seed=5)
    torch.rand(3)  # the caller's generator is elsewhere now
    state = torch.random.get_rng_state()
    again = federate(build, data, seed=5)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert first.records == again.records
    for name, tensor in first.model.state_dict().items():
        assert torch.equal(tensor, again.model.state_dict()[name]), name
    assert federate(build, data, seed=6).loss != first.loss


class Recorder(nn.Module):
    """Notes which inputs its dropout lets through; the first input is the client's number."""

    def __init__(self):
        super().__init__()
        self.linear, self.dropout = nn.Linear(20, CLASSES), nn.Dropout(0.5)
        self.round, self.masks = 1, {}

    def forward(self, x):
        if self.training:
            mask = (self.dropout(torch.ones_like(x)) > 0).tolist()
            self.masks.setdefault((int(x[0, 0]), self.round), []).append(mask)
        return self.linear(x)


def test_dropout_depends_on_client_and_round_whoever_else_trains():
    clients = torch.arange(4).repeat_interleave(2)
    x, y = clients[:, None].expand(8, 20).float(), torch.zeros(8, dtype=torch.int64)
    data = fedlama.data.arrays(x, y, x, y, clients=clients)

    def masks(participation):
        recorder = Recorder()

        def next_round(record):
            recorder.round = record.round + 1

        federate(
            lambda: recorder,
            data,
            participation=participation,
            iterations=8,
            on_record=next_round,
        )
        return recorder.masks

    everyone, some = masks(1.0), masks(0.5)
    assert len(everyone) == 4 * 4  # clients, rounds
    assert len({str(draws) for draws in everyone.values()}) == 4 * 4
    assert len(some) == 2 * 4
    assert all(everyone[key] == draws for key, draws in some.items())


def test_the_page_about_models_runs(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the page writes a study
    blocks = re.findall(
        r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL
    )
    assert blocks
    exec("\n".join(blocks), {})
    assert "4.weight 320" in capsys.readouterr().out


def tokens_data():
    draws = torch.Generator().manual_seed(0)
    x = torch.randint(0, 3000, (40, 6), generator=draws)
    return fedlama.data.arrays(x, x[:, 0] % 4, x[:8], x[:8, 0] % 4)


def tokens_run(model):
    return fedlama.simulate(
        model,
        tokens_data(),
        policy=fedlama.FedLAMA(2, 2),
        local=fedlama.SGD(0.1, 4),
        partition=fedlama.IID(4),
        iterations=4,
    )


class Bag(nn.Module):
    def __init__(self, sparse):
        super().__init__()
        self.embedding = nn.Embedding(3000, 32, sparse=sparse)
        self.fc = nn.Linear(32, 4)

    def forward(self, x):
        return self.fc(self.embedding(x).mean(dim=1))


def test_a_large_embedding_with_sparse_gradients_trains_as_a_dense_one():
    sparse, dense = tokens_run(lambda: Bag(True)), tokens_run(lambda: Bag(False))
    torch.testing.assert_close(
        sparse.model.embedding.weight, dense.model.embedding.weight
    )


def test_what_no_row_can_hold_is_refused():
    class Complex(Bag):
        def __init__(self):
            super().__init__(False)
            self.register_buffer("phase", torch.ones(2, dtype=torch.complex64))

    with pytest.raises(
        fedlama.InputError, match=r"the buffer phase is torch\.complex64"
    ):
        tokens_run(Complex)


def test_a_frozen_parameter_that_the_forward_pass_writes_is_told():
    class Teacher(Bag):
        def __init__(self):
            super().__init__(False)
            self.mean = nn.Parameter(torch.zeros(32), requires_grad=False)

        def forward(self, x):
            with torch.no_grad():
                self.mean.lerp_(self.embedding(x).mean(dim=(0, 1)), 0.1)
            return super().forward(x)

    with pytest.raises(fedlama.RunError, match="register it as a buffer"):
        tokens_run(Teacher)


def test_a_loss_of_the_users_own_keeps_accuracy_where_targets_are_classes():
    result = fedlama.simulate(
        lambda: Bag(False),
        tokens_data(),
        policy=fedlama.FedAvg(2),
        local=fedlama.SGD(0.1, 4),
        partition=fedlama.IID(4),
        iterations=2,
        loss=nn.CrossEntropyLoss(label_smoothing=0.1),
    )
    assert 0 <= result.accuracy <= 1
