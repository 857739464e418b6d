"""What the paper's released code was seen to do, on real CIFAR-10 with ResNet20."""

import pytest

import fedlama


@pytest.fixture(scope="module")
def cifar10():
    try:
        return fedlama.data.load("cifar10")
    except fedlama.InputError as missing:
        pytest.skip(f"real CIFAR-10 is needed: {missing}")


@pytest.mark.slow
def test_the_first_adjustment_lengthens_nearly_all_of_resnet20_but_not_its_ends(
    cifar10,
):
    result = fedlama.simulate(
        lambda: fedlama.models.resnet20(10),
        cifar10,
        policy=fedlama.FedLAMA(3, 2, rule="released"),
        local=fedlama.SGD(0.1, 16, momentum=0.9, weight_decay=2e-4, decayed="kernels"),
        partition=fedlama.IID(128),
        participation=4,
        iterations=6,
        evaluate_every=6,
        workers=2,
    )
    intervals = {layer.name: layer.interval for layer in result.layers}
    sizes = {layer.name: layer.size for layer in result.layers}
    long = {name for name, interval in intervals.items() if interval == 6}
    assert 0.97 < sum(sizes[name] for name in long) / sum(sizes.values()) < 1
    assert not long & {"conv0.weight", "fc.weight", "fc.bias"}
    large = {
        name
        for name in sizes
        if name.startswith(("stage2", "stage3")) and "conv" in name
    }
    assert large <= long
