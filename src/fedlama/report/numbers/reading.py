"""What the report asks of a run beside its records and its summary."""

from __future__ import annotations

from fedlama.run.config import Config, parse_config
from fedlama.run.directory import Run


def config_of(run: Run) -> Config:
    """The configuration of a run, checked."""
    return parse_config(run.config, str(run.path / "config.toml"))
