"""What the report asks of a run beside its records and its summary."""

from __future__ import annotations

from fedlama.data.partition import DEFAULT_CLIENTS
from fedlama.run.codecs import NO_CODEC
from fedlama.run.config import Config
from fedlama.run.recorded import RecordedRun
from fedlama.run.tables import LocalSection
from fedlama.training import Participation

DEPLOYED = "flwr"  # in the versions of a run over Flower


def tells_local(run: RecordedRun) -> bool:
    """Whether its configuration says how clients train: Flower's may do so with code that nobody else knows."""
    if LocalSection.table in run.tables:
        return True
    # Runs of the simulator leave out what is the default
    versions = run.tables.get("versions", {})
    return DEPLOYED not in versions


def sends_plainly(config: Config) -> bool:
    """Whether models are sent as they are and averaged as they are: without codes and with the usual server rule."""
    if config.server.rule != "mean":
        return False
    if config.uplink.codec != NO_CODEC:
        return False
    return config.downlink.codec == NO_CODEC


def everyone_trains(config: Config) -> bool:
    """Whether all clients train at a time: then a window, which says how long a cohort stays, draws nobody else."""
    active = config.participation.active
    if isinstance(active, float) and active == 1.0:
        return True
    population = config.partition.clients
    if population is None:
        return False
    return active_clients(config) == population


def active_clients(config: Config) -> int | None:
    """How many clients train at a time; None where the configuration does not say."""
    active = config.participation.active
    if not isinstance(active, float):
        return int(active)

    partition = config.partition
    if partition.clients is None and partition.kind == "natural":
        return None
    population = partition.clients or DEFAULT_CLIENTS
    return Participation(fraction=active).count(population)
