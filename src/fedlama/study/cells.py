"""The runs of a study: whether one is done, what it reached, and whether what is there is of this study."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from fedlama.base import InputError
from fedlama.run.changed_keys import changed_keys
from fedlama.run.config import as_written_today, comparable
from fedlama.run.directory import CONFIG, SUMMARY
from fedlama.run.execute import changed_code, network_of
from fedlama.run.recorded import check_same_network
from fedlama.run.resolve import Resolved, resolve
from fedlama.run.toml import read_toml
from fedlama.study.runs import load_run
from fedlama.study.settings import Cell
from fedlama.training import Record

# Beside a run that did: the same configuration would do so again
DIVERGED = "diverged.txt"

# The table with what is evaluated beside the global model
EVALUATE = "evaluate"

# What a watcher sees of a cell: each record, and how it ended
End = Literal["done", "diverged"]
OnNews = Callable[[Cell, Record | End], None]


def is_done(out: Path, cell: Cell) -> bool:
    """Whether this cell needs no run any more: it is finished, or it diverged."""
    folder = out / cell.path
    if (folder / SUMMARY).is_file():
        return True
    return (folder / DIVERGED).is_file()


def score_of(out: Path, cell: Cell) -> float | None:
    """A finished cell's metric, or its loss if it has none, so that more is better; None where there is neither."""
    folder = out / cell.path
    if (folder / DIVERGED).is_file():
        return None
    try:
        run = load_run(folder)
    except InputError as error:
        raise InputError(f"{error}; delete that folder to run it again") from None
    if run.summary is None:
        return None

    score = run.summary.score
    loss = run.summary.loss
    if score is None and loss is not None:
        return -loss
    if score is None:
        return None
    if run.measure.higher_is_better:
        return score
    return -score


def check_same_config(out: Path, cell: Cell, *, built: bool = True) -> list[str]:
    """Refuse a finished run of another configuration: its result is not this study's.

    What changed since and makes no difference to the result is named in the sentences that are returned: code of the
    user's own, and what else was to be evaluated.

    Arguments:
        out: The study's folder.
        cell: One of its runs.
        built: Whether the run may be built, for which its data is needed. Otherwise what the data and the user's own
            code decide is not compared.
    """
    path = out / cell.path / CONFIG
    if not path.is_file():
        # It diverged in its first round.
        return []

    folder = path.parent
    before = as_written_today(read_toml(path))
    run = None
    config = cell.config
    if built:
        run = resolved(cell)
        config = run.config
    now = comparable(config).model_dump(exclude_none=True)
    old = keys_of_both(before, now)
    new = keys_of_both(now, before)
    # Training and result are the same, whatever else is evaluated beside
    evaluated_then = old.pop(EVALUATE, None)
    evaluated_now = new.pop(EVALUATE, None)
    different = changed_keys(old, new)
    if different:
        keys = ", ".join(different)
        raise InputError(
            f"{folder} holds a run of another configuration ({keys}): choose another folder "
            f"(out=, on the command line --out), or delete that one"
        )

    sentences: list[str] = []
    if run is not None:
        # Code of the user's own may build another network under the same name.
        if config.hashes and (folder / SUMMARY).is_file():
            check_same_network(folder, network_of(run))
        sentences += changed_code(path, config, out)
    if evaluated_then != evaluated_now:
        sentences.append(
            f"{folder} was finished with another [{EVALUATE}] table, so its summary has what that asked for"
        )
    return sentences


def resolved(cell: Cell) -> Resolved:
    """What a cell is built of: once in a study, or in the process that trains it where nobody asked before."""
    if cell.planned is not None:
        return cell.planned
    return cell.kept.get(cell.config, resolve)


def keys_of_both(
    tables: Mapping[str, Any], others: Mapping[str, Any]
) -> dict[str, Any]:
    """What two configurations can be compared by: not the versions, nor keys that only one version of fedlama knows."""
    common: dict[str, Any] = {}
    for name, value in tables.items():
        if name not in others or name == "versions":
            continue
        other = others[name]
        are_tables = isinstance(value, Mapping) and isinstance(other, Mapping)
        if are_tables:
            common[name] = keys_of_both(value, other)
        else:
            common[name] = value
    return common
