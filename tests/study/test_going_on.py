"""Begun runs of a study that are of another configuration, broken, forgotten or gone: said before any is trained."""

import io
import json
import shutil
from pathlib import Path

import pytest

from fedlama.base import InputError, RunError
from fedlama.study import plan as plans
from fedlama.study.begun import read_note, steps_at, write_note
from fedlama.study.execute import run_study
from fedlama.study.going_on import (
    check_begun,
    check_workplace,
    unfinished,
    warnings_of_lost_runs,
)
from fedlama.study.plan import announce
from fedlama.study.sitting import Sitting
from fedlama.study.study_file import parse_study

LONG = 24_000  # steps: more than are taken before a test stops it


def study_of(alpha=0.5, iterations=LONG, **options):
    return parse_study(
        {
            "data": {"name": "digits"},
            "model": {"name": "mlp"},
            "partition": {"kind": "dirichlet", "clients": 2, "alpha": alpha},
            "local": {"batch_size": 4},
            "train": {"iterations": iterations, "evaluate_every": iterations},
            "output": {"tensorboard": False},
            "study": {
                "seeds": [0],
                "baseline": "FedAvg(2)",
                "setting": [
                    {"policy": {"kind": "fedavg", "base_interval": 2}},
                    {"policy": {"kind": "fedavg", "base_interval": 4}},
                ],
                **options,
            },
        }
    )


def begin(out, checkpoints=None, study=None):
    """Train the first run until it has a record, and stop as at the end of a sitting; what is said then."""
    seen = []

    class UntilTheFirstRecord(Sitting):
        def is_over(self):
            return bool(seen)

    sitting = UntilTheFirstRecord(0.5, checkpoints)

    def watch(cell, news):
        seen.append(news)

    with pytest.raises(RunError) as stopped:
        run_study(study or study_of(), out, 1, watch, sitting=sitting)
    return str(stopped.value)


@pytest.fixture(scope="module")
def begun_once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("begun")
    begin(folder / "out", folder / "kept")
    return folder


@pytest.fixture
def begun(begun_once, tmp_path):
    """A study's folder, and the one in which the first of its two runs waits."""
    shutil.copytree(begun_once, tmp_path, dirs_exist_ok=True)
    home = tmp_path / "out" / "fedavg-2" / "seed0"
    kept = tmp_path / "kept"
    write_note(home, kept / "fedavg-2" / "seed0", kept)
    return tmp_path / "out", kept


@pytest.fixture(autouse=True)
def unmeasured(monkeypatch):
    """Nothing is measured; a test that refuses something says that it comes first."""
    monkeypatch.setattr(plans, "measured", lambda runs: [None for _ in runs])


def announced(study, out, checkpoints=None, **options):
    printed = io.StringIO()
    sittings = {out: Sitting(checkpoints=checkpoints)}
    announce([(study, out)], 1, printed, sittings=sittings, **options)
    return printed.getvalue()


def refused(*arguments, monkeypatch, **options):
    monkeypatch.setattr(plans, "measured", lambda runs: pytest.fail("too late"))
    with pytest.raises(InputError) as error:
        announced(*arguments, **options)
    return str(error.value)


# Of another configuration


def test_a_begun_run_of_another_configuration_is_refused_before_anything(
    begun, monkeypatch
):
    out, kept = begun
    said = refused(study_of(alpha=0.1), out, kept, monkeypatch=monkeypatch)
    assert said.startswith(f"{kept / 'fedavg-2' / 'seed0'} holds a begun run of")
    assert "partition.alpha (was 0.5, is 0.1)" in said
    assert said.endswith("choose another --checkpoints, or delete that folder")


def test_where_the_data_is_not_needed_the_keys_are_compared_all_the_same(
    begun, monkeypatch
):
    out, kept = begun
    said = refused(
        study_of(alpha=0.1),
        out,
        kept,
        monkeypatch=monkeypatch,
        stand_in=lambda cell: pytest.fail("nothing is counted"),
    )
    assert "partition.alpha (was 0.5, is 0.1)" in said


def test_what_began_at_home_is_compared_as_well(begun, tmp_path, monkeypatch):
    out, kept = begun
    shutil.rmtree(out)
    said = refused(study_of(alpha=0.1), kept, monkeypatch=monkeypatch)
    assert "partition.alpha (was 0.5, is 0.1)" in said
    assert said.endswith("on the command line --out), or delete that folder")
    elsewhere = tmp_path / "elsewhere"
    again = refused(study_of(alpha=0.1), kept, elsewhere, monkeypatch=monkeypatch)
    assert again == said


def test_a_study_that_nobody_planned_refuses_it_before_it_trains(begun):
    out, kept = begun
    before = (out / "study.json").read_bytes()
    with pytest.raises(InputError, match=r"partition\.alpha \(was 0\.5, is 0\.1\)"):
        run_study(
            study_of(alpha=0.1),
            out,
            1,
            lambda *_: pytest.fail("it was trained"),
            sitting=Sitting(checkpoints=kept),
        )
    assert (out / "study.json").read_bytes() == before


def test_a_begun_run_that_was_not_asked_for_is_not_in_the_way(begun):
    out, kept = begun
    other = study_of(alpha=0.1)
    one = frozenset({("FedAvg(4)", 0)})
    part = type(other)(other.settings, other.options, selected=one)
    assert "1 run to train" in announced(part, out, kept)


def test_a_run_at_one_of_the_rates_to_choose_from_is_the_studys(begun, monkeypatch):
    out, kept = begun
    rate = study_of().settings[0].config.local.learning_rate
    fits = study_of(learning_rates=[rate, 0.3])
    assert "2 runs and 4 pilots to train" in announced(fits, out, kept)
    other = study_of(learning_rates=[0.3, 0.4], alpha=0.1)
    said = refused(other, out, kept, monkeypatch=monkeypatch)
    assert "partition.alpha" in said


def test_what_fits_goes_on_and_counts(begun):
    out, kept = begun
    steps = steps_at(kept / "fedavg-2" / "seed0")
    assert steps > 0
    left = 2 * (2 * LONG - steps)
    assert f"2 runs to train, {left:,} client steps" in announced(study_of(), out, kept)


# Broken


@pytest.mark.parametrize("ending", ["json", "safetensors"])
def test_broken_checkpoints_are_refused_with_what_to_do(begun, ending, monkeypatch):
    out, kept = begun
    run = kept / "fedavg-2" / "seed0"
    for path in (run / "checkpoint").glob(f"step-*.{ending}"):
        path.write_bytes(path.read_bytes()[:-7])
    said = refused(study_of(), out, kept, monkeypatch=monkeypatch)
    assert "is broken" in said
    assert said.endswith(f"or delete {run}, to start that run anew")


def test_a_configuration_that_cannot_be_read_says_what_to_do(begun, monkeypatch):
    out, kept = begun
    run = kept / "fedavg-2" / "seed0"
    (run / "config.toml").write_text("no = = toml")
    said = refused(study_of(), out, kept, monkeypatch=monkeypatch)
    assert "config.toml: is not TOML" in said
    assert said.endswith(f"delete {run} to train that run anew")


def test_a_run_that_is_going_on_can_be_planned(begun, monkeypatch):
    """Its checkpoints may not be whole just then."""
    out, kept = begun
    for path in kept.rglob("step-*.safetensors"):
        path.write_bytes(b"half of it")
    monkeypatch.setattr("fedlama.study.going_on.is_locked", lambda folder: True)
    assert "2 runs to train" in announced(study_of(), out, kept)


# Forgotten, gone


def test_where_a_begun_run_is_kept_is_noted_at_its_home(begun_once):
    home = begun_once / "out" / "fedavg-2" / "seed0"
    note = read_note(home)
    assert note is not None
    assert Path(note.checkpoints) == begun_once / "kept"
    assert Path(note.folder) == begun_once / "kept" / "fedavg-2" / "seed0"
    assert not (begun_once / "out" / "fedavg-4").exists()


def test_a_forgotten_option_is_said_in_one_line(begun):
    out, kept = begun
    warning, *plan = announced(study_of(), out).splitlines()
    assert warning == (
        f"fedlama: 1 begun run is further in {kept}, which this command does not name: what was trained there is not "
        f"used; to go on with it, stop this and add --checkpoints {kept}"
    )
    assert plan[0].startswith("plan: 2 runs to train")


@pytest.mark.parametrize("named", [True, False])
def test_a_folder_that_is_gone_is_said_in_one_line(begun, named):
    out, kept = begun
    kept.rename(kept.with_name("moved"))
    checkpoints = None
    if named:
        checkpoints = kept
    warning, *plan = announced(study_of(), out, checkpoints).splitlines()
    assert warning.startswith(
        f"fedlama: 1 begun run is not in {kept} (--checkpoints) any more: training starts anew; "
    )
    assert plan[0].startswith("plan: 2 runs to train")
    # Whoever moved it and says so has lost nothing.
    moved = announced(study_of(), out, kept.with_name("moved"))
    assert moved.startswith("plan: ")


def test_a_run_where_it_was_is_not_worth_a_word(begun):
    out, kept = begun
    assert announced(study_of(), out, kept).startswith("plan: ")


@pytest.mark.parametrize("content", ["", "no JSON", "[]", '{"folder": 3}', "\0" * 99])
def test_a_note_that_says_nothing_is_none(tmp_path, content):
    (tmp_path / "begun.json").write_text(content)
    assert read_note(tmp_path) is None
    cell = study_of().cells({})[0]
    (tmp_path / cell.path).mkdir(parents=True)
    (tmp_path / cell.path / "begun.json").write_text(content)
    assert not warnings_of_lost_runs([unfinished(cell, tmp_path)])


def test_a_note_of_somebody_else_steers_no_terminal(tmp_path):
    cell = study_of().cells({})[0]
    write_note(tmp_path / cell.path, tmp_path / "gone", Path("/kept\x1b[2J\nfedlama:"))
    (warning,) = warnings_of_lost_runs([unfinished(cell, tmp_path)])
    assert warning.isprintable()


def test_a_finished_run_has_no_note(tmp_path):
    out, kept = tmp_path / "out", tmp_path / "kept"
    short = study_of(iterations=8)
    run_study(short, out, 1, lambda *_: None, sitting=Sitting(checkpoints=kept))
    assert len(list(out.rglob("summary.json"))) == 2
    assert not list(out.rglob("begun.json"))
    # What the user named stays, and nothing of what was in it.
    assert not list(kept.iterdir())


# What cannot be written


def test_a_file_in_place_of_the_checkpoints_is_refused_by_its_option(
    tmp_path, monkeypatch
):
    (tmp_path / "file").touch()
    out = tmp_path / "out"
    said = refused(study_of(), out, tmp_path / "file", monkeypatch=monkeypatch)
    assert said.startswith(f"{tmp_path / 'file'}/")
    assert said.endswith("is not a folder); choose another --checkpoints")
    assert not out.exists()


def test_a_folder_without_permission_is_refused_by_its_option(tmp_path, monkeypatch):
    cell = study_of().cells({})[0]
    run = unfinished(cell, tmp_path / "out", Sitting(checkpoints=tmp_path / "kept"))
    check_workplace(run)
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(InputError, match=r"no permission .*another --checkpoints$"):
        check_workplace(run)
    assert not (tmp_path / "kept").exists()


def test_a_run_that_another_program_holds_names_the_option(begun):
    from fedlama.run.files import locked

    out, kept = begun
    sitting = Sitting(checkpoints=kept)
    with (
        locked(kept / "fedavg-2" / "seed0"),
        pytest.raises(
            InputError, match=r"another run: .* choose another --checkpoints"
        ),
    ):
        run_study(study_of(), out, 1, lambda *_: None, sitting=sitting)


# How it ended


def test_what_is_left_is_told_by_what_was_begun(tmp_path):
    out, kept = tmp_path / "out", tmp_path / "kept"
    said = begin(out, kept)
    assert said == (
        f"stopped after 0.5 minutes, as asked, with 2 of 2 runs left: 1 begun, with checkpoints in {kept}, "
        f"and 1 not begun; the same command goes on from here"
    )
    at_home = begin(tmp_path / "home")
    assert f"1 begun, with checkpoints in {tmp_path / 'home'}, and" in at_home


def test_nothing_that_was_begun_has_no_checkpoints(tmp_path, monkeypatch):
    monkeypatch.setattr("fedlama.study.side_by_side._SideBySide._start", print)
    with pytest.raises(RunError, match=r"with 2 of 2 runs left, none of them begun;"):
        run_study(
            study_of(), tmp_path / "out", 1, lambda *_: None, sitting=Sitting(0.0)
        )


def test_a_begun_run_that_does_not_fit_is_named_once(begun):
    """Where it was begun both at home and elsewhere, the first is told."""
    out, kept = begun
    home = out / "fedavg-2" / "seed0"
    shutil.copytree(kept / "fedavg-2" / "seed0", home, dirs_exist_ok=True)
    cell = study_of(alpha=0.1).cells({})[0]
    run = unfinished(cell, out, Sitting(checkpoints=kept))
    with pytest.raises(InputError, match=str(home)):
        check_begun(run)
    assert json.loads((home / "begun.json").read_bytes())["folder"]
