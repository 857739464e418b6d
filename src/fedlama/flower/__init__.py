"""The Flower runtime: layer-wise aggregation and codes for real clients. Needs `pip install fedlama[flower]`.

Each name is imported when first used: a client starts a new process for every message, and what the server needs to
write a run directory would cost it a second each time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedlama.flower.client import client_app, layerwise
    from fedlama.flower.modules import initial_arrays
    from fedlama.flower.strategy import LayerwiseStrategy

_HOME = {
    "LayerwiseStrategy": "fedlama.flower.strategy",
    "client_app": "fedlama.flower.client",
    "initial_arrays": "fedlama.flower.modules",
    "layerwise": "fedlama.flower.client",
}

__all__ = ["LayerwiseStrategy", "client_app", "initial_arrays", "layerwise"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        try:
            return getattr(import_module(_HOME[name]), name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "flwr":
                raise
            raise ImportError(
                f"fedlama.flower.{name} needs Flower: pip install 'fedlama[flower]'"
            ) from error
    raise AttributeError(f"module 'fedlama.flower' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
