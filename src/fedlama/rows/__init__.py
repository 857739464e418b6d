"""nn.Module ↔ Layout ↔ row: the only room that knows how a model's tensors and a row of numbers relate."""

from fedlama.rows.arithmetic import exact_means, exact_sums, magnitudes
from fedlama.rows.binding import Binding
from fedlama.rows.distances import squared_distances
from fedlama.rows.modules import (
    Grouping,
    check_dtypes,
    counter_width,
    describe,
    statistics,
    trainable,
)
from fedlama.rows.read_only import ReadOnly
from fedlama.rows.slices import pack, unpack, views, with_unpacked
from fedlama.rows.slots import Lifetime, Slot, check_slots, distinct
from fedlama.rows.store import ClientStore

__all__ = [
    "Binding",
    "ClientStore",
    "Grouping",
    "Lifetime",
    "ReadOnly",
    "Slot",
    "check_dtypes",
    "check_slots",
    "counter_width",
    "describe",
    "distinct",
    "exact_means",
    "exact_sums",
    "magnitudes",
    "pack",
    "squared_distances",
    "statistics",
    "trainable",
    "unpack",
    "views",
    "with_unpacked",
]
