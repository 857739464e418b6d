"""fedlama: federated learning that averages each layer only as often as it needs.

The names below are the public ones; each is imported when first used, so that `import fedlama` is instant.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedlama.version import __version__

if TYPE_CHECKING:
    from fedlama import compress, core, data, flower, local, models, server
    from fedlama.api.compare import compare
    from fedlama.api.simulate import simulate
    from fedlama.averager import LayerwiseModelAverager
    from fedlama.base import InputError, RunError
    from fedlama.core import (
        Budget,
        FedAvg,
        FedLAMA,
        FedLUAR,
        FedPart,
        Fixed,
        adjust_intervals,
    )
    from fedlama.data import IID, Dirichlet, Natural
    from fedlama.local import SGD, FedDyn, FedNova, FedProx, Scaffold
    from fedlama.paper import presets
    from fedlama.run.result import Result
    from fedlama.study.comparison import Comparison
    from fedlama.training import Faults, Metric, Participation, Record

_ROOMS = {
    "fedlama.api.compare": ("compare",),
    "fedlama.api.simulate": ("simulate",),
    "fedlama.averager": ("LayerwiseModelAverager",),
    "fedlama.base": ("InputError", "RunError"),
    "fedlama.core": (
        "Budget",
        "FedAvg",
        "FedLAMA",
        "FedLUAR",
        "FedPart",
        "Fixed",
        "adjust_intervals",
    ),
    "fedlama.data": ("IID", "Dirichlet", "Natural"),
    "fedlama.local": ("SGD", "FedDyn", "FedNova", "FedProx", "Scaffold"),
    "fedlama.run.result": ("Result",),
    "fedlama.study.comparison": ("Comparison",),
    "fedlama.training": ("Faults", "Metric", "Participation", "Record"),
}
_HOME = {name: room for room, names in _ROOMS.items() for name in names}

__all__ = [
    "IID",
    "SGD",
    "Budget",
    "Comparison",
    "Dirichlet",
    "Faults",
    "FedAvg",
    "FedDyn",
    "FedLAMA",
    "FedLUAR",
    "FedNova",
    "FedPart",
    "FedProx",
    "Fixed",
    "InputError",
    "LayerwiseModelAverager",
    "Metric",
    "Natural",
    "Participation",
    "Record",
    "Result",
    "RunError",
    "Scaffold",
    "__version__",
    "adjust_intervals",
    "compare",
    "compress",
    "core",
    "data",
    "flower",
    "local",
    "models",
    "presets",
    "server",
    "simulate",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name == "presets":
        return import_module("fedlama.paper.presets")
    if name in __all__:
        return import_module(f"fedlama.{name}")
    raise AttributeError(f"module 'fedlama' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
