"""Data: sets as users have them, how they fall on clients, and the batches a client sees."""

from fedlama.data.batches import Batches
from fedlama.data.catalog import Entry, catalog, load, locate
from fedlama.data.dataset import Dataset
from fedlama.data.digits import digits
from fedlama.data.fetch import fetch
from fedlama.data.fingerprint import data_files, fingerprint
from fedlama.data.folders import data_folder
from fedlama.data.from_arrays import arrays
from fedlama.data.partition import IID, Dirichlet, Natural, Partition, default_partition
from fedlama.data.preparation import Preparation, Transform
from fedlama.data.shards import Shards

__all__ = [
    "IID",
    "Batches",
    "Dataset",
    "Dirichlet",
    "Entry",
    "Natural",
    "Partition",
    "Preparation",
    "Shards",
    "Transform",
    "arrays",
    "catalog",
    "data_files",
    "data_folder",
    "default_partition",
    "digits",
    "fetch",
    "fingerprint",
    "load",
    "locate",
]
