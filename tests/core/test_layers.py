"""A row's layout: where tensors are, what a layer is, and padding that nobody counts."""

from hypothesis import given
from hypothesis import strategies as st

from fedlama.core import Layout, TensorEntry
from fedlama.core.layers import ALIGNMENT

sizes = st.lists(st.integers(1, 100), min_size=1, max_size=8)


def parts(layout):
    return [*layout.tensor_slices, *layout.statistics]


def test_the_alignment_is_64_bytes_of_float32():
    assert ALIGNMENT * 4 == 64


def test_a_layout_by_hand():
    layout = Layout.pack(
        [TensorEntry("w", 20, adaptive=True), TensorEntry("b", 3)],
        [TensorEntry("mean", 16), TensorEntry("var", 17)],
    )
    # 20 → 32, 3 → 16: parameters end at 48; 16 → 16, 17 → 32: the row ends at 96
    assert layout.tensor_slices == (slice(0, 20), slice(32, 35))
    assert layout.statistics == (slice(48, 64), slice(64, 81))
    assert (layout.parameter_width, layout.width) == (48, 96)
    assert layout.sizes == (20, 3)
    assert layout.adaptive == (True, False)
    assert layout.statistics_size == 33
    assert [layer.name for layer in layout.layers] == ["w", "b"]


@given(sizes, st.lists(st.integers(1, 100), max_size=4))
def test_slices_are_aligned_disjoint_and_in_order(parameters, statistics):
    layout = Layout.pack(
        [TensorEntry(f"p{index}", size) for index, size in enumerate(parameters)],
        [TensorEntry(f"s{index}", size) for index, size in enumerate(statistics)],
    )
    end = 0
    for part, size in zip(parts(layout), [*parameters, *statistics], strict=True):
        assert part.start % ALIGNMENT == 0
        # No overlap, and no more of a gap than alignment needs
        assert 0 <= part.start - end < ALIGNMENT
        assert part.stop - part.start == size
        end = part.stop
    assert layout.width % ALIGNMENT == layout.parameter_width % ALIGNMENT == 0
    assert all(part.stop <= layout.parameter_width for part in layout.tensor_slices)
    assert all(
        layout.parameter_width <= part.start and part.stop <= layout.width
        for part in layout.statistics
    )


@given(sizes, st.lists(st.integers(1, 100), max_size=4), st.integers(1, 3))
def test_padding_is_never_counted(parameters, statistics, groups):
    layout = Layout.pack(
        [
            TensorEntry(f"p{index}", size, layer=f"group{index % groups}")
            for index, size in enumerate(parameters)
        ],
        [TensorEntry(f"s{index}", size) for index, size in enumerate(statistics)],
    )
    assert sum(layout.sizes) == sum(parameters)
    assert layout.statistics_size == sum(statistics)
    for layer in layout.layers:
        assert layer.size == sum(part.stop - part.start for part in layer.slices)


def test_tensors_of_one_layer_are_grouped_also_when_they_are_apart():
    layout = Layout.pack(
        [
            TensorEntry("conv.weight", 20, "conv", adaptive=True),
            TensorEntry("head.bias", 4, "head"),
            TensorEntry("conv.bias", 2, "conv"),
        ]
    )
    conv, head = layout.layers  # in the order in which they first appear
    assert (conv.name, conv.size, conv.slices) == (
        "conv",
        22,
        (slice(0, 20), slice(48, 50)),
    )
    assert (head.name, head.size, head.slices) == ("head", 4, (slice(32, 36),))
    # One adaptive tensor makes a layer adaptive
    assert (conv.adaptive, head.adaptive) == (True, False)


def test_a_tensor_without_a_layer_name_is_a_layer():
    assert [
        layer.name
        for layer in Layout.pack([TensorEntry("a", 1), TensorEntry("b", 1)]).layers
    ] == ["a", "b"]


def test_slices_of_due_layers_come_in_the_order_asked():
    layout = Layout.pack(
        [TensorEntry("a", 1, "x"), TensorEntry("b", 1, "y"), TensorEntry("c", 1, "x")]
    )
    assert layout.slices_of([0]) == [slice(0, 1), slice(32, 33)]
    assert layout.slices_of([1]) == [slice(16, 17)]
    assert layout.slices_of([0, 1]) == [slice(0, 1), slice(32, 33), slice(16, 17)]
    assert layout.slices_of([]) == []


def test_the_statistics_come_behind_the_layers():
    layout = Layout.pack(
        [TensorEntry("a", 1), TensorEntry("b", 1)],
        [TensorEntry("mean", 1), TensorEntry("var", 1)],
    )
    # Each tensor begins at a multiple of 16 numbers
    statistics = [slice(32, 33), slice(48, 49)]
    assert layout.slices_with_statistics([1]) == [slice(16, 17), *statistics]
    assert layout.slices_with_statistics([]) == statistics
