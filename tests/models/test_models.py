"""The paper's three networks, tensor by tensor, and that they train in a federation."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, relu

import fedlama
from fedlama import models
from fedlama.rows import describe

# For each block its width and the sizes of its kernels: conv1, conv2 and, where there is one, the shortcut's.
RESNET20 = {
    "stage1.block0": (16, 2304, 2304, 256),
    "stage1.block1": (16, 2304, 2304),
    "stage1.block2": (16, 2304, 2304),
    "stage2.block0": (32, 4608, 9216, 512),
    "stage2.block1": (32, 9216, 9216),
    "stage2.block2": (32, 9216, 9216),
    "stage3.block0": (64, 18432, 36864, 2048),
    "stage3.block1": (64, 36864, 36864),
    "stage3.block2": (64, 36864, 36864),
}
WIDE_RESNET28_10 = {
    "stage1.block0": (160, 23040, 230400, 2560),
    "stage1.block1": (160, 230400, 230400),
    "stage1.block2": (160, 230400, 230400),
    "stage1.block3": (160, 230400, 230400),
    "stage2.block0": (320, 460800, 921600, 51200),
    "stage2.block1": (320, 921600, 921600),
    "stage2.block2": (320, 921600, 921600),
    "stage2.block3": (320, 921600, 921600),
    "stage3.block0": (640, 1843200, 3686400, 204800),
    "stage3.block1": (640, 3686400, 3686400),
    "stage3.block2": (640, 3686400, 3686400),
    "stage3.block3": (640, 3686400, 3686400),
}
LEAF_CNN = {
    "conv1.weight": (32, 1, 5, 5),
    "conv1.bias": (32,),
    "conv2.weight": (64, 32, 5, 5),
    "conv2.bias": (64,),
    "fc1.weight": (2048, 3136),
    "fc1.bias": (2048,),
    "fc2.weight": (62, 2048),
    "fc2.bias": (62,),
}


def resnet_tensors(blocks, classes):
    """(name, size, what it starts as) of every trainable tensor."""
    tensors = [*convolution("conv0", "bn0", 432, 16)]
    for block, (width, conv1, conv2, *shortcut) in blocks.items():
        tensors += convolution(f"{block}.conv1", f"{block}.bn1", conv1, width)
        tensors += convolution(f"{block}.conv2", f"{block}.bn2", conv2, width, gamma=0)
        for size in shortcut:
            tensors += convolution(
                f"{block}.shortcut", f"{block}.bn_shortcut", size, width
            )
    return [
        *tensors,
        ("fc.weight", width * classes, "kernel"),
        ("fc.bias", classes, "bias"),
    ]


def convolution(conv, bn, size, width, gamma=1):
    return [
        (f"{conv}.weight", size, "kernel"),
        (f"{bn}.weight", width, gamma),
        (f"{bn}.bias", width, 0),
    ]


def open_blocks(module):
    """γ = 0 hides what is before it, from the output and from the gradient: set it to 1."""
    for block in (part for part in module.modules() if hasattr(part, "bn2")):
        nn.init.ones_(block.bn2.weight)


@pytest.fixture(autouse=True)
def _seeded():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def without_memory(build, *arguments, **settings):
    with torch.device("meta"):
        return build(*arguments, **settings)


def test_resnet20_tensor_by_tensor():
    found = list(models.resnet20().named_parameters())
    expected = resnet_tensors(RESNET20, classes=10)
    assert [(name, tensor.numel()) for name, tensor in found] == [
        (name, size) for name, size, _ in expected
    ]
    for (name, tensor), (_, _, start) in zip(found, expected, strict=True):
        if start in (0, 1):
            assert (tensor == start).all(), name
        else:
            assert (tensor.dim() >= 2) == (start == "kernel"), name
            assert tensor.std() > 0, name


def test_wide_resnet28_10_tensor_by_tensor():
    found = without_memory(models.wide_resnet28_10).named_parameters()
    expected = resnet_tensors(WIDE_RESNET28_10, classes=100)
    assert [(name, tensor.numel()) for name, tensor in found] == [
        (name, size) for name, size, _ in expected
    ]


def test_leaf_cnn_tensor_by_tensor():
    found = without_memory(models.leaf_cnn).named_parameters()
    assert [(name, tuple(tensor.shape)) for name, tensor in found] == list(
        LEAF_CNN.items()
    )


@pytest.mark.parametrize(
    ("build", "parameters", "tensors", "kernels", "statistics"),
    [
        (models.resnet20, 272_762, 68, 23, 1_600),
        (models.wide_resnet28_10, 36_539_124, 86, 29, 20_192),
        (models.leaf_cnn, 6_603_710, 8, 4, 0),
    ],
)
def test_the_papers_counts_and_exactly_the_kernels_adaptive(
    build, parameters, tensors, kernels, statistics
):
    module = without_memory(build)
    layout = describe(module)
    assert sum(layout.sizes) == parameters
    assert len(layout.layers) == tensors
    assert sum(layout.adaptive) == kernels
    assert layout.statistics_size == statistics
    dimensions = {name: tensor.dim() for name, tensor in module.named_parameters()}
    assert [layer.adaptive for layer in layout.layers] == [
        dimensions[layer.name] >= 2 for layer in layout.layers
    ]


def test_one_kernel_is_almost_all_of_the_leaf_cnn():
    sizes = describe(without_memory(models.leaf_cnn)).sizes
    assert 100 * max(sizes) / sum(sizes) == pytest.approx(97.2564, abs=5e-5)


@pytest.mark.parametrize(
    ("build", "shape", "classes"),
    [
        (lambda: models.resnet20(7), (2, 3, 32, 32), 7),
        (lambda: models.resnet20(channels=1), (2, 1, 28, 28), 10),
        (lambda: models.wide_resnet(5, depth=10, width=1), (2, 3, 16, 16), 5),
        (lambda: models.leaf_cnn(9), (2, 1, 28, 28), 9),
        (models.leaf_cnn, (2, 28, 28), 62),
        (lambda: models.small_cnn(side=28), (2, 1, 28, 28), 10),
    ],
)
def test_scores_for_every_class_and_a_gradient_for_every_kernel(build, shape, classes):
    module = build()
    open_blocks(module)
    scores = module(torch.randn(shape))
    assert scores.shape == (2, classes)
    cross_entropy(scores, torch.tensor([0, classes - 1])).backward()
    assert all(tensor.grad.isfinite().all() for tensor in module.parameters())
    assert all(tensor.grad.any() for tensor in module.parameters() if tensor.dim() >= 2)


def test_a_new_block_passes_its_shortcut_on():
    stage = models.resnet20().stage2
    x = torch.rand(2, 16, 8, 8)
    shortcut = relu(stage.block0.bn_shortcut(stage.block0.shortcut(x)))
    torch.testing.assert_close(stage.block0(x), shortcut)
    # Not negative already, so activation keeps it
    torch.testing.assert_close(stage.block1(shortcut), shortcut)
    torch.testing.assert_close(stage(x), shortcut)


def test_gradients_agree_with_differences():
    """The activations are computed in place: autograd must not notice."""
    module = models.wide_resnet(2, depth=10, width=1, dropout=0).double()
    open_blocks(module)
    images, kernel = torch.randn(2, 3, 8, 8).double(), module.stage1.block0.conv1.weight
    direction = torch.randn(kernel.shape).double()
    (slope,) = torch.autograd.grad(module(images).square().sum(), kernel)

    @torch.no_grad()
    def value_at(distance):
        kernel.add_(direction, alpha=distance)
        value = module(images).square().sum()
        kernel.sub_(direction, alpha=distance)
        return value

    measured = (value_at(1e-6) - value_at(-1e-6)) / 2e-6
    torch.testing.assert_close(
        (slope * direction).sum(), measured, rtol=1e-4, atol=1e-6
    )


def test_wide_resnets_differ_in_depth_width_and_dropout():
    small = models.wide_resnet(10, depth=22, width=1, dropout=0)
    assert [tensor.shape for tensor in small.parameters()] == [
        tensor.shape for tensor in models.resnet20().parameters()
    ]
    dropouts = [
        part.p
        for part in without_memory(models.wide_resnet28_10).modules()
        if isinstance(part, nn.Dropout)
    ]
    assert dropouts == [0.3] * 12


def test_dropout_stops_for_evaluation():
    module, images = models.wide_resnet(2, depth=10, width=1), torch.randn(2, 3, 8, 8)
    open_blocks(module)
    assert not torch.equal(module(images), module(images))
    module.eval()
    assert torch.equal(module(images), module(images))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"depth": 20}, "depth must be 10, 16, .* not 20"),
        ({"depth": 4}, "not 4"),
        ({"width": 0}, "width .* not 0"),
    ],
)
def test_a_wrong_size_is_refused(settings, message):
    with pytest.raises(fedlama.InputError, match=message):
        models.wide_resnet(**settings)


def random_images(samples, *shape, classes):
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(
        0, 256, (samples, *shape), dtype=torch.uint8, generator=generator
    )
    labels = torch.randint(0, classes, (samples,), generator=generator)
    return fedlama.data.arrays(images, labels, images[:4], labels[:4])


def test_resnet20_in_a_federation():
    result = fedlama.simulate(
        models.resnet20,
        random_images(12, 3, 32, 32, classes=10),
        policy=fedlama.FedLAMA(1, 2),
        local=fedlama.SGD(0.1, batch_size=2),
        partition=fedlama.IID(3),
        iterations=4,
    )
    assert len(result.records) == 4
    assert len(result.layers) == 68
    # Lengthened after two rounds: κ is 4 or 3
    long = [layer for layer in result.layers if layer.aggregations == 3]
    assert long
    assert all(layer.adaptive for layer in long)
    # bytes a number, numbers, clients, rounds
    assert result.statistics_bytes == 4 * 1600 * 3 * 4
    assert result.model.bn0.num_batches_tracked == 4
    assert result.cost == pytest.approx(
        1 - sum(layer.size for layer in long) / 272_762 / 4
    )


def test_leaf_cnn_in_a_federation():
    result = fedlama.simulate(
        models.leaf_cnn,
        random_images(6, 28, 28, classes=62),
        policy=fedlama.FedAvg(1),
        local=fedlama.SGD(0.05, batch_size=3),
        partition=fedlama.IID(2),
        iterations=2,
    )
    assert result.cost == 1
    # bytes a number, numbers, clients, rounds
    assert result.uplink_bytes == 4 * 6_603_710 * 2 * 2
    # Each client has one batch, which it sees twice
    assert result.records[1].loss < result.records[0].loss
