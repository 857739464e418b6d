"""A module whose tensors are views of a row."""

import pytest
import torch
from torch import nn

from fedlama import InputError
from fedlama.rows import Binding, describe
from fedlama.rows.modules import buffers


def network():
    """Odd sizes, so that slices need padding: 21 + 7 + 7 + 7 + 14 parameters, 7 + 7 statistics, 1 counter."""
    return nn.Sequential(
        nn.Linear(3, 7), nn.BatchNorm1d(7), nn.Tanh(), nn.Linear(7, 2, bias=False)
    )


def bind(module=None, **options):
    module = network() if module is None else module
    return Binding(module, describe(module, **options))


def tensors(module):
    return [
        *module.parameters(),
        *(buffer for buffer in module.buffers() if buffer.is_floating_point()),
    ]


def test_a_layer_is_a_trainable_tensor_and_kernels_are_adaptive():
    layout = describe(network())
    assert [(layer.name, layer.size, layer.adaptive) for layer in layout.layers] == [
        ("0.weight", 21, True),
        ("0.bias", 7, False),
        ("1.weight", 7, False),
        ("1.bias", 7, False),
        ("3.weight", 14, True),
    ]
    assert layout.statistics_size == 14


def test_a_layer_can_be_all_tensors_of_a_module():
    layout = describe(network(), layers="module")
    assert [(layer.name, layer.size, layer.adaptive) for layer in layout.layers] == [
        ("0", 28, True),
        ("1", 14, False),
        ("3", 14, True),
    ]


def test_patterns_say_which_layers_are_adaptive():
    assert describe(network(), adaptive=["3.*", "1.bias"]).adaptive == (
        False,
        False,
        False,
        True,
        True,
    )
    assert describe(network(), adaptive="*.bias").adaptive == (
        False,
        True,
        False,
        True,
        False,
    )
    assert describe(network(), adaptive=[]).adaptive == (False,) * 5
    assert describe(network(), layers="module", adaptive=["1"]).adaptive == (
        False,
        True,
        False,
    )


def test_a_parameter_of_the_module_itself_is_a_layer_of_its_own():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(3))
            self.inner = nn.Linear(3, 2)

    assert [layer.name for layer in describe(Scaled(), layers="module").layers] == [
        "scale",
        "inner",
    ]


def test_tied_weights_appear_once_and_frozen_parameters_not_at_all():
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2))
    module[1].weight = module[0].weight
    module[2].weight.requires_grad_(False)
    assert [layer.name for layer in describe(module).layers] == [
        "0.weight",
        "0.bias",
        "1.bias",
        "2.bias",
    ]


def test_buffers_that_are_not_part_of_the_state_are_not_in_the_row():
    module = nn.Linear(3, 2)
    module.register_buffer("cache", torch.ones(5), persistent=False)
    module.register_buffer("mean", torch.ones(4))
    assert describe(module).statistics_size == 4


@pytest.mark.parametrize(
    ("build", "options", "sentence"),
    [
        (nn.ReLU, {}, "the model has no trainable parameter"),
        (
            lambda: nn.Linear(3, 2).double(),
            {},
            r"weight is torch.float64; rows are torch.float32",
        ),
        (
            lambda: nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2).double()),
            {},
            "1.weight is torch.float64",
        ),
        (
            lambda: nn.Linear(3, 2),
            {"layers": "block"},
            "layers must be one of tensor, module, not 'block'",
        ),
        (
            lambda: nn.Linear(3, 2),
            {"adaptive": ["fc*"]},
            "'fc\\*' matches no layer; layers are weight, bias",
        ),
    ],
)
def test_what_cannot_be_a_row_is_refused(build, options, sentence):
    with pytest.raises(InputError, match=sentence):
        bind(build(), **options)


def test_an_empty_parameter_is_refused():
    module = nn.Linear(3, 2)
    module.nothing = nn.Parameter(torch.empty(0, 4))
    with pytest.raises(InputError, match=r"nothing has no elements \(shape \(0, 4\)\)"):
        bind(module)


def test_reading_gives_a_copy_of_what_the_module_holds():
    module = network()
    binding = bind(module)
    row = binding.read()
    for tensor, part in zip(
        tensors(module),
        [*binding.layout.tensor_slices, *binding.layout.statistics],
        strict=True,
    ):
        assert torch.equal(row[part], tensor.detach().reshape(-1))
    row.fill_(3.0)
    assert not any((tensor == 3.0).any() for tensor in tensors(module))


def test_padding_of_a_read_row_is_zero():
    binding = bind()
    row = binding.read()
    for part in [*binding.layout.tensor_slices, *binding.layout.statistics]:
        row[part] = 0
    assert not row.any()


def test_tensors_are_views_of_the_row_pointed_at():
    module = network()
    binding = bind(module)
    rows = binding.new_rows(2)
    rows[0], rows[1] = binding.read(), 5.0
    for row in rows:
        binding.point_at(row)
        slices = [*binding.layout.tensor_slices, *binding.layout.statistics]
        for tensor, part in zip(tensors(module), slices, strict=True):
            assert tensor.data_ptr() == row[part].data_ptr()
            assert torch.equal(tensor.detach().reshape(-1), row[part])


def test_statistics_that_a_forward_pass_moves_are_in_the_row():
    module = network()
    binding = bind(module)
    row = binding.read()
    binding.point_at(row)
    mean = row[binding.layout.statistics[0]].clone()
    module(torch.randn(5, 3, generator=torch.Generator().manual_seed(0)))
    assert not torch.equal(row[binding.layout.statistics[0]], mean)
    assert torch.equal(row[binding.layout.statistics[0]], module[1].running_mean)


def test_rows_slices_and_gradients_start_at_64_bytes():
    module = network()
    binding = bind(module)
    rows = binding.new_rows(3)
    for row in rows:
        assert row.data_ptr() % 64 == 0
        binding.point_at(row)
        assert all(tensor.data_ptr() % 64 == 0 for tensor in tensors(module))
    assert all(parameter.grad.data_ptr() % 64 == 0 for parameter in module.parameters())


def test_small_gradients_are_views_of_one_row():
    module = network()
    binding = bind(module)
    binding.point_at(binding.read())
    inputs = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    module(inputs).square().sum().backward()
    once = binding.gradient.clone()
    assert once.any()
    for parameter, part in zip(
        module.parameters(), binding.layout.tensor_slices, strict=True
    ):
        assert parameter.grad.data_ptr() == binding.gradient[part].data_ptr()
    # A second pass adds to it, from any row: nothing has replaced the views.
    binding.point_at(binding.read())
    module(inputs).square().sum().backward()
    torch.testing.assert_close(binding.gradient, 2 * once)


def test_gradients_are_those_of_a_module_of_its_own():
    module, plain = network(), network()
    plain.load_state_dict(module.state_dict())
    binding = bind(module)
    binding.point_at(binding.read())
    inputs = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    for net in (module, plain):
        net(inputs).square().sum().backward()
    for ours, theirs in zip(module.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)


@pytest.mark.parametrize("large", [1, 10, 20, 1000])
def test_the_stretches_of_a_gradient_cover_every_parameter(monkeypatch, large):
    # From here on, autograd allocates a gradient of its own
    monkeypatch.setattr("fedlama.rows.binding.LARGE", large)
    module, plain = network(), network()
    plain.load_state_dict(module.state_dict())
    binding = bind(module)
    binding.point_at(binding.read())
    inputs = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    plain(inputs).square().sum().backward()
    for _ in range(2):  # the second pass finds nothing left of the first
        binding.clear_gradients()
        module(inputs).square().sum().backward()
        row = torch.zeros(binding.layout.parameter_width)
        for part, gradient in zip(binding.stretches, binding.gradients(), strict=True):
            row[part] = gradient
        for parameter, part in zip(
            plain.parameters(), binding.layout.tensor_slices, strict=True
        ):
            torch.testing.assert_close(row[part], parameter.grad.reshape(-1))


@pytest.mark.parametrize("large", [1, 1000])
def test_a_parameter_that_the_loss_does_not_use_has_no_gradient(monkeypatch, large):
    monkeypatch.setattr("fedlama.rows.binding.LARGE", large)
    module = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    binding = bind(module)
    binding.point_at(binding.read())
    binding.clear_gradients()
    module[1](torch.ones(1, 2)).sum().backward()
    row = torch.full((binding.layout.parameter_width,), 9.0)
    for part, gradient in zip(binding.stretches, binding.gradients(), strict=True):
        row[part] = gradient
    # weight, bias | weight, bias at 0, 16, 32 and 48: nothing for the first module, ones for the second
    assert [row[at].item() for at in (0, 16, 32, 48)] == [0.0, 0.0, 1.0, 1.0]


def test_a_buffer_that_is_registered_twice_is_one_with_two_sites():
    first, second = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    second.running_mean = first.running_mean
    found = {one.name: one for one in buffers(nn.Sequential(first, second))}
    assert list(found) == [
        "0.running_mean",
        "0.running_var",
        "0.num_batches_tracked",
        "1.running_var",
        "1.num_batches_tracked",
    ]
    # A tuple: a frozen value does not change.
    assert found["0.running_mean"].sites == (
        (first, "running_mean"),
        (second, "running_mean"),
    )


def test_tied_weights_gather_the_gradients_of_all_their_uses():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = (
                nn.Linear(3, 3, bias=False),
                nn.Linear(3, 3, bias=False),
            )
            self.second.weight = self.first.weight

        def forward(self, x):
            return self.first(x) + 2 * self.second(x)

    module = Tied()
    binding = bind(module)
    binding.point_at(binding.read())
    module(torch.ones(1, 3)).sum().backward()
    # 1 from the first use, 2 from the second
    assert torch.equal(binding.gradient[:9], torch.full((9,), 3.0))


def test_a_channels_last_module_is_read_in_logical_order():
    module = nn.Conv2d(3, 4, 2, bias=False)
    weight = module.weight.detach().clone()
    module = module.to(memory_format=torch.channels_last)
    binding = bind(module)
    row = binding.read()
    assert torch.equal(row[: weight.numel()], weight.reshape(-1))
    binding.point_at(row)
    assert torch.equal(module.weight, weight)


def test_a_buffer_that_the_module_replaces_is_collected_into_the_row():
    class Replacing(nn.Linear):
        def __init__(self):
            super().__init__(2, 2)
            self.register_buffer("mean", torch.zeros(2))

        def forward(self, x):
            self.mean = self.mean + 1  # another tensor, not the view
            return super().forward(x)

    module = Replacing()
    binding = bind(module)
    row = binding.read()
    binding.point_at(row)
    module(torch.ones(1, 2))
    module(torch.ones(1, 2))
    binding.collect()
    assert row[binding.layout.statistics[0]].tolist() == [2.0, 2.0]
    assert module.mean.data_ptr() == row[binding.layout.statistics[0]].data_ptr()


def test_released_tensors_are_the_modules_own():
    module = network()
    binding = bind(module)
    row = binding.read()
    binding.point_at(row)
    kept = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    binding.release()
    row.fill_(9.0)
    assert all(
        torch.equal(module.state_dict()[name], tensor) for name, tensor in kept.items()
    )
    assert all(parameter.grad is None for parameter in module.parameters())


def test_whole_number_buffers_are_copied_to_and_from_counters():
    module = nn.Sequential(nn.BatchNorm1d(2), nn.BatchNorm1d(3))
    module.register_buffer("table", torch.tensor([[7, 8], [9, 10]], dtype=torch.int32))
    module.register_buffer("flag", torch.tensor(True))
    binding = bind(module)
    assert binding.counter_width == 1 + 1 + 4 + 1
    module[1].num_batches_tracked.fill_(5)
    counters = torch.zeros(binding.counter_width, dtype=torch.int64)
    binding.save_counters(counters)
    held = {name: buffer.clone() for name, buffer in module.named_buffers()}
    for buffer in module.buffers():
        buffer.zero_()
    binding.load_counters(counters)
    for name, buffer in module.named_buffers():
        if not buffer.is_floating_point():
            assert torch.equal(buffer, held[name])
            assert buffer.dtype == held[name].dtype
