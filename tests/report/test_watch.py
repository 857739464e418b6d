"""Following runs: drawn at every change, for the last time without a refresh, and ended by Ctrl-C."""

import shutil
from contextlib import ExitStack

import pytest
from hand_made import write_run

from fedlama.base import InputError
from fedlama.report.page.watch import REFRESH, watch
from fedlama.run.files import locked


@pytest.fixture
def finished(tmp_path):
    """The files of a finished run, to be put in place bit by bit."""
    return write_run(tmp_path / "elsewhere" / "run").path


class Drawings(list):
    """What `watch` drew: rounds and refresh."""

    def __call__(self, runs, refresh):
        self.append((sum(len(run.records) for run in runs), refresh))


def script(*events):
    """A pause that does the next thing each time, and fails the test when asked for one more."""
    waiting = list(events)

    def pause(_):
        assert waiting, "watching does not end"
        event = waiting.pop(0)
        if event:
            event()

    return pause


def test_draws_at_every_change_until_all_is_finished(tmp_path, finished):
    run = tmp_path / "runs" / "one"
    lines = (finished / "rounds.jsonl").read_text().splitlines(keepends=True)

    held = ExitStack()

    def begin():
        held.enter_context(locked(run))  # as the process that writes a run does
        shutil.copy(finished / "config.toml", run)
        (run / "rounds.jsonl").write_text(lines[0])

    def grow():
        (run / "rounds.jsonl").write_text("".join(lines[:3]) + '{"half a li')

    def end():
        (run / "rounds.jsonl").write_text("".join(lines))
        shutil.copy(finished / "summary.json", run)
        held.close()

    run.parent.mkdir()
    drawings = Drawings()
    watch([run.parent], drawings, script(begin, None, grow, end, None))
    assert drawings == [(1, REFRESH), (3, REFRESH), (8, REFRESH), (8, None)]


def test_the_moment_between_two_runs_of_a_study_is_not_its_end(tmp_path, finished):
    study = tmp_path / "study"
    shutil.copytree(finished, study / "seed0")
    drawings = Drawings()
    watch(
        [study],
        drawings,
        script(lambda: shutil.copytree(finished, study / "seed1"), None),
    )
    assert drawings == [(8, REFRESH), (16, REFRESH), (16, None)]


def test_a_lock_says_that_more_will_come(tmp_path, finished):
    study = tmp_path / "study"
    shutil.copytree(finished, study / "seed0")
    (study / ".lock").touch()
    drawings = Drawings()
    watch([study], drawings, script(None, None, None, (study / ".lock").unlink, None))
    assert drawings == [(8, REFRESH), (8, None)]


def interrupt():
    raise KeyboardInterrupt


def test_ctrl_c_draws_once_more_without_a_refresh(tmp_path):
    write_run(tmp_path / "run", finished=False)
    drawings = Drawings()
    watch([tmp_path], drawings, script(None, interrupt))
    assert drawings == [(4, REFRESH), (4, None)]


def test_ctrl_c_before_the_first_round_draws_nothing(tmp_path):
    drawings = Drawings()
    watch([tmp_path], drawings, script(interrupt))
    assert drawings == []


def test_a_folder_that_is_not_there_yet_is_waited_for(tmp_path, finished):
    drawings = Drawings()
    watch(
        [tmp_path / "later"],
        drawings,
        script(None, lambda: shutil.copytree(finished, tmp_path / "later"), None),
    )
    assert drawings == [(8, REFRESH), (8, None)]


def test_a_file_and_a_broken_run_are_refused(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(InputError, match="is a file"):
        watch([tmp_path / "taken"], Drawings(), script())
    run = write_run(tmp_path / "run", finished=False)
    (run.path / "rounds.jsonl").write_text("no JSON\n")
    with pytest.raises(InputError, match="line 1 is not JSON"):
        watch([tmp_path], Drawings(), script())


def test_a_file_that_changes_while_it_is_read_is_read_again(tmp_path, finished):
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    whole = (run / "rounds.jsonl").read_text()
    drawings = Drawings()

    def mended(runs, refresh):
        drawings(runs, refresh)
        # Replaced in the middle of a drawing, which fails for it
        if len(drawings) == 1:
            (run / "rounds.jsonl").write_text(
                whole + whole.splitlines(keepends=True)[-1]
            )
            raise InputError("half of it")

    watch([run], mended, script(None))
    assert drawings == [(8, REFRESH), (9, REFRESH), (9, None)]


def test_a_run_that_was_killed_is_not_waited_for(tmp_path, finished):
    run = tmp_path / "runs" / "one"
    run.mkdir(parents=True)
    shutil.copy(finished / "config.toml", run)
    shutil.copy(finished / "rounds.jsonl", run)
    (run / ".lock").touch()  # left behind by a process that is gone
    drawings = Drawings()
    watch([run.parent], drawings, script(None))
    assert drawings == [(8, REFRESH), (8, None)]
