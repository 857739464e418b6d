"""What a configuration can choose by name: a line for each.

The class is a dataclass whose fields say what is allowed (`base.options`); its arguments are the keys of the section.
"""

from __future__ import annotations

from collections.abc import Mapping

from fedlama.compress import Cast, Codec, Fit, LowRank, Quantize, Rotate, TopK
from fedlama.core import Budget, FedAvg, FedLAMA, FedLUAR, FedPart, Fixed, Policy
from fedlama.data import IID, Dirichlet, Natural, Partition
from fedlama.local import SGD, FedDyn, FedNova, FedProx, LocalRule, Scaffold
from fedlama.server import Adam, Mean, Momentum, ServerRule, Yogi

# τ' where nobody says, of a policy as of a preset
DEFAULT_BASE_INTERVAL = 6

POLICIES: Mapping[str, type[Policy]] = {  # [policy] kind = …
    "fedlama": FedLAMA,
    "fedavg": FedAvg,
    "budget": Budget,
    "fedluar": FedLUAR,
    "fedpart": FedPart,
    "fixed": Fixed,
}

PARTITIONS: Mapping[str, type[Partition]] = {  # [partition] kind = …
    "iid": IID,
    "dirichlet": Dirichlet,
    "natural": Natural,
}

LOCAL_RULES: Mapping[str, type[LocalRule]] = {  # [local] rule = …
    "sgd": SGD,
    "fedprox": FedProx,
    "scaffold": Scaffold,
    "fednova": FedNova,
    "feddyn": FedDyn,
}

CODECS: Mapping[str, type[Codec]] = {  # [uplink] and [downlink] codec = …
    "cast": Cast,
    "quantize": Quantize,
    "rotate": Rotate,
    "fit": Fit,
    "topk": TopK,
    "lowrank": LowRank,
}

SERVER_RULES: Mapping[str, type[ServerRule]] = {  # [server] rule = …
    "mean": Mean,
    "momentum": Momentum,
    "adam": Adam,
    "yogi": Yogi,
}
