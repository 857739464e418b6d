"""`fedlama diagnose` as a user meets it: one page, a picture, JSON, and one sentence for bad input."""

import json
import math

import numpy as np
import pytest
import torch
from extending.policy import HalfWait
from torch import nn

import fedlama
from fedlama.cli import main
from fedlama.diagnose import diagnose
from fedlama.diagnose.diagnosis import _rate_and_momentum
from fedlama.report.pictures.diagnosis import draw_diagnosis
from fedlama.report.words.diagnosis import diagnosis_text

CONFIG = """
[data]
name = "digits"
[partition]
kind = "dirichlet"
clients = 8
alpha = 0.5
[participation]
active = 3
[policy]
base_interval = 2
increase_factor = 2
[local]
batch_size = 16
[train]
iterations = 48
"""


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """`fedlama diagnose config.toml …` in this process: exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments, config=CONFIG):
        (tmp_path / "config.toml").write_text(config)
        monkeypatch.setattr(
            "sys.argv",
            ["fedlama", "diagnose", "config.toml", "--workers", "1", *arguments],
        )
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return ended.value.code, printed.out, printed.err

    return run


def test_data_without_owners_is_dealt_as_a_run_deals_it():
    def look(partition=None):
        return diagnose(
            lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10)),
            fedlama.data.digits(),
            policy=fedlama.FedLAMA(2, 2),
            local=fedlama.SGD(0.1, 16),
            iterations=48,
            partition=partition,
        )

    assert look() == look(fedlama.IID(32))


def test_one_page_and_a_picture(command, tmp_path):
    code, page, errors = command()
    assert not code
    assert errors == ""
    lines = page.splitlines()
    assert len(lines) < 50
    assert max(map(len, lines)) <= 110
    for word in (
        "largest Hessian eigenvalue",
        "worst case",
        "FedLAMA(2, 8)",
        "1/(1+CV²)",
        "picture: config-diag",
    ):
        assert word in page
    assert (tmp_path / "config-diagnosis.png").read_bytes().startswith(b"\x89PNG")


def last_lines_of_policies(page):
    _, rest = page.split("at equal bytes\n")
    table, _ = rest.split("  (discrepancy")
    return [line.split("  ")[1] for line in table.splitlines()]


PLAIN = ["FedAvg(2)", "FedLAMA(2, 2)", "FedLAMA(2, 4)", "FedLAMA(2, 8)"]


def test_a_preset_that_is_planned_is_in_the_list_once_with_its_code(command):
    planned = "policy.base_interval = 2\n" + CONFIG.replace(
        "[policy]\nbase_interval = 2\nincrease_factor = 2\n", ""
    )
    code, page, _ = command(config='preset = "frugal"\n' + planned)
    assert not code
    policies = last_lines_of_policies(page)
    assert policies == [*PLAIN, "Budget(2, 16, 0.4)", "frugal(2)"]
    assert "noise instead of drift: frugal(2))" in page

    code, page, _ = command(config='preset = "frugal"\naveraged = 0.5\n' + planned)
    policies = last_lines_of_policies(page)
    assert policies[-2:] == ["frugal(2), averaged 0.5", "frugal"]


def test_without_a_code_none_is_spoken_of():
    assert "with a code" not in diagnosis_text(digits())


def test_everything_as_json(command, tmp_path):
    code, text, _ = command("--json", "--out", "pictures/one.png")
    assert not code
    found = json.loads(text)
    assert found["picture"] == "pictures/one.png"
    assert (tmp_path / "pictures/one.png").exists()
    assert found["interval"] == 4
    assert len(found["probed"]) == 3
    assert [one["policy"] for one in found["predictions"]][:2] == [
        "FedAvg(2)",
        "FedLAMA(2, 2)",
    ]
    assert found["theory"]["limit"] == pytest.approx(
        fedlama.core.largest_learning_rate(
            smoothness=found["constants"]["smoothness"],
            interval=4,
            dissimilarity=found["constants"]["dissimilarity"],
        )
    )
    assert found["omitted"] == {}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("batch_size = 16", "learning_rate = 0.0"), "local.learning_rate"),
        (('name = "digits"', 'name = "no-such-data"'), "data.name"),
        (("iterations = 48", "iterations = 0"), "train.iterations"),
        (
            ("active = 3", "active = 9"),
            "participation: 9 clients, but there are only 8 clients",
        ),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(command, change, sentence):
    code, page, errors = command(config=CONFIG.replace(*change))
    assert code == 2
    assert page == ""
    assert sentence in errors
    assert "Traceback" not in errors


def digits(**options):
    setting = {
        "policy": fedlama.FedLAMA(2, 2),
        "local": fedlama.SGD(learning_rate=0.1, batch_size=8),
        "iterations": 40,
        "partition": fedlama.Dirichlet(clients=6, alpha=0.5),
    }
    return diagnose(
        lambda: fedlama.models.mlp(classes=10, inputs=64),
        fedlama.data.digits(),
        **{**setting, **options},
    )


def test_the_first_cycles_are_those_of_a_run():
    found = digits()
    run = fedlama.simulate(
        lambda: fedlama.models.mlp(classes=10, inputs=64),
        fedlama.data.digits(),
        policy=fedlama.FedLAMA(2, 2),
        local=fedlama.SGD(learning_rate=0.1, batch_size=8),
        partition=fedlama.Dirichlet(clients=6, alpha=0.5),
        iterations=20,
    )
    at_cycle_ends = {
        record.step: record for record in run.records if record.step % 4 == 0
    }
    assert found.cycles == 4
    assert [layer.discrepancy for layer in found.layers] == at_cycle_ends[4].discrepancy
    assert [layer.interval for layer in found.layers] == at_cycle_ends[8].intervals
    assert [layer.discrepancy for layer in found.later_layers] == at_cycle_ends[
        16
    ].discrepancy
    assert [layer.interval for layer in found.later_layers] == at_cycle_ends[
        20
    ].intervals


def test_progress_goes_one_way_and_ends():
    noted = []
    digits(progress=lambda share, what: noted.append((share, what)))
    shares = [share for share, _ in noted]
    assert shares == sorted(shares)
    assert noted[-1] == (1.0, "done")
    assert {what for _, what in noted} >= {
        "first cycles",
        "gradients at the start",
        "curvature after the cycles",
    }


def test_one_client_is_enough():
    found = digits(partition=fedlama.IID(clients=1))
    assert found.constants.dissimilarity == 1
    assert found.constants.heterogeneity == pytest.approx(0, abs=1e-9)
    assert all(layer.discrepancy == 0 for layer in found.layers)
    assert "gain little here" in found.recommendation


def test_momentum_counts_as_a_larger_rate():
    plain = digits()
    pushed = digits(local=fedlama.SGD(learning_rate=0.01, momentum=0.9, batch_size=8))
    assert pushed.effective_rate == pytest.approx(plain.effective_rate)
    assert "with momentum 0.9 it acts like 0.1" in diagnosis_text(pushed)


def test_fedavg_shows_what_could_be_long(tmp_path):
    found = digits(policy=fedlama.FedAvg(2))
    assert found.interval == 2
    assert any(layer.interval == 4 for layer in found.layers)
    assert draw_diagnosis(found, tmp_path / "new" / "picture.png").exists()


@pytest.mark.parametrize(
    "policy",
    [
        fedlama.FedLAMA(2, 2, "accelerate"),
        fedlama.FedLAMA(2, 3),
        fedlama.Fixed(2, {"*": 4}),
        fedlama.FedPart(2, groups=2),
        HalfWait(2),
    ],
)
def test_what_is_planned_is_predicted_too(policy, tmp_path):
    found = digits(policy=policy)
    assert found.predictions[-1].policy == str(policy)
    plain = digits()
    if isinstance(policy, fedlama.FedLAMA):
        assert found.increase_factor == policy.increase_factor
    if policy.longest_cycle == 4:
        # The same first cycles, and so the same of everything else
        assert found.predictions[:-1] == plain.predictions
        assert found.recommendation == plain.recommendation
    assert str(policy) in diagnosis_text(found)
    assert draw_diagnosis(found, tmp_path / "picture.png").exists()


def test_every_layer_at_4_of_2_steps_sends_half_by_hand():
    found = digits(policy=fedlama.Fixed(2, {"*": 4}))
    fedavg = found.predictions[0]
    fixed = found.predictions[-1]
    assert fixed.uplink_bytes == fedavg.uplink_bytes / 2
    assert fixed.cost == 0.5
    assert fixed.discrepancy == pytest.approx(2)
    assert fixed.at_equal_bytes == pytest.approx(1)


def test_what_is_planned_is_in_the_list_once():
    found = digits(policy=fedlama.FedLAMA(2, 4))
    names = [one.policy for one in found.predictions]
    assert names.count("FedLAMA(2, 4)") == 1


def test_a_policy_that_looks_at_movement_is_left_out_and_named():
    found = digits(policy=fedlama.FedLUAR(2, recycled=1))
    assert "how far layers move" in found.omitted["FedLUAR(2, 1)"]
    assert "Left out: FedLUAR(2, 1)" in diagnosis_text(found)


def test_batch_normalisation_is_left_as_it_was():
    modules = []

    def model():
        modules.append(
            nn.Sequential(
                nn.Conv2d(1, 4, 3),
                nn.BatchNorm2d(4),
                nn.ReLU(),
                nn.AdaptiveAvgPool2d(1),
                nn.Flatten(),
                nn.Linear(4, 10),
            )
        )
        return modules[-1]

    found = diagnose(
        model,
        fedlama.data.digits(),
        policy=fedlama.FedLAMA(1, 2),
        local=fedlama.SGD(learning_rate=0.01, batch_size=8),
        iterations=8,
        partition=fedlama.IID(clients=4),
    )
    assert math.isfinite(found.constants.smoothness)
    assert len(found.layers) == 6
    # Kernel 36 + bias 4, γ and β 8, running statistics 8, linear 40 + 10: 106 numbers of 4 bytes, in each of 8 rounds
    assert found.predictions[0].uplink_bytes == 106 * 4 * 8
    counts = [
        value
        for name, value in modules[-1].state_dict().items()
        if name.endswith("num_batches_tracked")
    ]
    assert counts
    assert not any(counts)  # what is looked at is a copy


def small(width=3):
    draws = np.random.default_rng(1)
    samples = draws.normal(size=(12, width)).astype(np.float32)
    return samples, samples[:, :1].copy()


def run_small(model, loss, clients):
    samples, targets = small()
    return diagnose(
        model,
        fedlama.data.arrays(samples, targets, samples, targets, clients=clients),
        policy=fedlama.FedLAMA(1, 2),
        local=fedlama.SGD(learning_rate=0.05, batch_size=4),
        iterations=8,
        loss=loss,
    )


def test_clients_with_one_sample_have_no_noise():
    found = run_small(lambda: nn.Linear(3, 1), nn.functional.mse_loss, np.arange(12))
    assert found.constants.gradient_variance == 0
    assert found.constants.heterogeneity > 0
    assert found.theory.at_limit.drift == 0


def test_a_loss_that_is_not_twice_differentiable_leaves_the_limit_out(tmp_path):
    found = run_small(lambda: nn.Linear(3, 1), nn.functional.l1_loss, np.arange(12) % 3)
    assert found.constants.smoothness is None
    assert found.theory is None
    assert "not twice differentiable" in found.omitted["smoothness"]
    text = diagnosis_text(found)
    assert "Left out: smoothness" in text
    assert "without L there is no limit" in text
    assert draw_diagnosis(found, tmp_path / "picture.png").exists()
    assert json.loads(json.dumps(found.to_plain()))["theory"] is None


def test_a_product_that_is_not_finite_leaves_the_limit_out():
    class Cusp(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(1, 3))

        def forward(self, inputs):
            return (
                self.weight.abs().pow(1.5).sum().reshape(1, 1).expand(len(inputs), 1)
                + 0 * inputs[:, :1]
            )

    found = run_small(Cusp, lambda outputs, targets: outputs.mean(), np.arange(12) % 3)
    assert "is not finite" in found.omitted["smoothness"]


def test_a_gradient_that_is_not_finite_is_refused():
    with pytest.raises((fedlama.InputError, fedlama.RunError), match="finite"):
        run_small(
            lambda: nn.Linear(3, 1),
            lambda outputs, targets: outputs.sum() / 0,
            np.arange(12) % 3,
        )


def test_noise_that_cannot_be_seen_is_left_out_and_named():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(6, 4, generator=generator)
    y = torch.tensor([0, 1, 2, 0, 1, 2])
    data = fedlama.data.arrays(x, y, x, y, clients=torch.arange(6))
    found = diagnose(
        lambda: nn.Linear(4, 3),
        data,
        policy=fedlama.FedLAMA(2, 2),
        local=fedlama.SGD(0.1, 4),
        iterations=40,
    )
    assert "one sample" in found.omitted["gradient variance"]
    page = diagnosis_text(found)
    assert "σ²  not estimated" in page
    assert "Left out: gradient variance" in page


class Waning:
    """As much of a local rule as is asked for its rate; it is built on no SGD."""

    def rate(self, step):
        return 0.25 / (1 + step)


def test_a_rule_that_is_built_on_no_sgd_is_taken_by_its_first_rate():
    assert _rate_and_momentum(Waning()) == (0.25, 0.0)
    built_on = fedlama.FedProx(fedlama.SGD(0.1, 8, momentum=0.5), mu=0.1)
    assert _rate_and_momentum(built_on) == (0.1, 0.5)
