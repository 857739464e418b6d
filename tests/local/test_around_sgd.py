"""Rules that go around an SGD go around nothing else."""

import pytest

import fedlama

SGD = fedlama.SGD(0.1, 8)


@pytest.mark.parametrize(
    "build",
    [
        lambda: fedlama.FedProx(fedlama.Scaffold(SGD), mu=0.1),
        lambda: fedlama.FedNova(fedlama.FedDyn(SGD, alpha=0.1)),
        lambda: fedlama.FedDyn(fedlama.FedNova(SGD), alpha=0.1),
        lambda: fedlama.Scaffold(None),
    ],
)
def test_other_bases_are_refused(build):
    with pytest.raises(fedlama.InputError, match="goes around an SGD, not around"):
        build()
