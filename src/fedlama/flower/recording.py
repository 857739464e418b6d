"""A Flower run on disk: the same directory as a simulated one, which `fedlama report` draws and a new run resumes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from logging import WARNING
from pathlib import Path
from typing import Any

from flwr.common import log
from safetensors import SafetensorError
from safetensors.torch import load
from torch import nn

from fedlama.base import InputError, printable, read_regular
from fedlama.core import PolicyState
from fedlama.run.checkpoint_search import find_checkpoint
from fedlama.run.config import Config
from fedlama.run.directory import (
    CHECKPOINTS,
    CONFIG,
    ROUNDS,
    WEIGHTS,
    RunDirectory,
)
from fedlama.run.files import write_atomically
from fedlama.run.reading import read_records
from fedlama.run.tables import LocalSection
from fedlama.run.toml import read_toml
from fedlama.training.records import (
    Record,
    TrainingResult,
)

RUN_NAME = "flower.json"  # beside the checkpoints
MAX_RUN_NAME = 64  # characters
MAX_WEIGHTS = 64 << 30  # bytes


class Recording:
    """Writes a run directory, or nothing at all where no folder is named.

    Arguments:
        folder: The run directory.
        config: What it says of the run.
        run_name: Marks what clients keep of the run; one that is resumed has its own already.
        resume: Whether it goes on with the run that is there.
    """

    def __init__(
        self, folder: Path | None, config: Config | None, *, run_name: str, resume: bool
    ) -> None:
        self.directory: RunDirectory | None = None
        self.earlier: list[Record] = []
        self.checkpoint: bytes = b""  # empty where the run begins at its first step
        self.is_finished = False
        self.run_name = run_name
        if folder is None or config is None:
            return
        if not resume:
            _check_free(folder, config)
        self.directory = RunDirectory(folder, config, resume=resume)
        if resume:
            self._resume(self.directory, config)

    def _resume(self, directory: RunDirectory, config: Config) -> None:
        directory.check_same_config()
        if directory.is_finished():
            self.is_finished = True
            self.earlier = list(read_records(directory.path / ROUNDS))
            return

        tables = config.model_dump(exclude_none=True)
        folder = directory.path / CHECKPOINTS
        recorded = directory.recorded()
        found = find_checkpoint(folder, tables, recorded)
        # It was ended in its first window, and begins anew; its first record replaces those that are there.
        if found is None:
            log(
                WARNING,
                "resume_from: %s has no checkpoint, so the run begins at its first step",
                printable(directory.path),
            )
            return

        self.checkpoint = read_regular(found.path, MAX_WEIGHTS, "a checkpoint")
        self.earlier = directory.continue_after(found.round)
        self.run_name = _read_run_name(directory.path, self.run_name)

    @property
    def where(self) -> str:
        """Where the run is written, for a log."""
        if self.directory is None:
            return "no run directory was asked for"
        return f"run directory: {printable(self.directory.path)}"

    @property
    def can_be_resumed(self) -> bool:
        """Whether a run that stops here may be resumed later."""
        return self.directory is not None

    @property
    def how_to_go_on(self) -> str:
        """The end of a sentence about a run that stops; empty where nothing is saved."""
        if not self.can_be_resumed:
            return ""
        return "; start with resume_from to go on from there"

    def record(self, record: Record) -> None:
        """Append one round.

        Arguments:
            record: It.
        """
        if self.directory is not None:
            self.directory.record(record)

    def save(self, content: bytes, state: PolicyState) -> None:
        """Keep a checkpoint.

        Arguments:
            content: It.
            state: Where the policy stands.
        """
        if self.directory is None:
            return
        writer = self.directory.begin_checkpoint(state)
        writer.save(content)

        # A run that goes on from it must find what clients keep under the run's name.
        about = json.dumps({"run": self.run_name})
        path = self.directory.path / CHECKPOINTS / RUN_NAME
        write_atomically(path, about + "\n")

    def finish(self, result: TrainingResult) -> None:
        """Write the model and the summary.

        Arguments:
            result: What came of the run.
        """
        if self.directory is not None:
            self.directory.finish(result)

    def load_model(self, module: nn.Module) -> None:
        """Give a module the weights of the run, which is finished.

        Arguments:
            module: The model.
        """
        assert self.directory is not None, "a run without a directory is never resumed"
        path = self.directory.path / WEIGHTS
        try:
            content = read_regular(path, MAX_WEIGHTS, "a model")
            module.load_state_dict(load(content))
        except (OSError, SafetensorError, RuntimeError):
            raise InputError(
                f"{printable(path)} does not hold the weights of this model, although the run has ended"
            ) from None


def recorded_local(folder: Path) -> Mapping[str, Any] | None:
    """How clients trained in the run of a folder, as its configuration says; None where there is none.

    Arguments:
        folder: A run directory, or what is to become one.
    """
    path = folder / CONFIG
    if not path.exists():
        return None
    local: Any = read_toml(path).get(LocalSection.table, {})
    if not isinstance(local, dict):
        return {}
    return local


def _check_free(folder: Path, config: Config) -> None:
    """Refuse a folder that cannot take a new run, by the names that Flower's users know."""
    try:
        RunDirectory(folder, config)
    except InputError:
        name = printable(folder)
        if not folder.is_dir():
            raise InputError(
                f"{name} is a file; a run needs a folder: choose another save_to"
            ) from None
        raise InputError(
            f"{name} already holds a run, or a part of one: go on with it by resume_from in place of save_to, "
            f"choose another save_to, or delete that folder first"
        ) from None


def _read_run_name(folder: Path, otherwise: str) -> str:
    """The name under which clients kept what outlives a window; without it they begin anew."""
    path = folder / CHECKPOINTS / RUN_NAME
    try:
        about = json.loads(path.read_text())
        name = str(about["run"])
    except (OSError, ValueError, LookupError, TypeError):
        return otherwise
    # It becomes a part of file names on the clients.
    if not name.isalnum() or len(name) > MAX_RUN_NAME:
        return otherwise
    return name
