"""Flower's own simulation, as processes."""

import importlib.util
import sys

import pytest

pytest.importorskip("flwr", reason="fedlama[flower] is not installed")

from federation import Federation

from flower.programs import CLIENTS, SECONDS, assert_same_run, make_app, play, simulated

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc"),
]


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    return make_app(tmp_path_factory.mktemp("apps") / "app")


@pytest.fixture(scope="module")
def simulation(tmp_path_factory):
    if importlib.util.find_spec("ray") is None:
        pytest.skip("flwr[simulation] is not installed")
    with Federation(
        tmp_path_factory.mktemp("simulation"), simulated=CLIENTS, seconds=SECONDS
    ) as federation:
        yield federation
    assert not federation.descendants()


@pytest.mark.parametrize("setting", ["fedlama", "coded"])
def test_flowers_simulation_gives_what_simulate_gives(simulation, app, setting):
    folder = play(simulation, app, setting, setting=setting)
    assert_same_run(folder, simulated(setting))
