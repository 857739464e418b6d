"""Whose study.json it is: ours says which runs belong to a study, another program's is none of our business."""

import pytest
from hand_made import write_run

from fedlama.base import InputError
from fedlama.cli.shared import show_report
from fedlama.report.numbers.comparison import compare
from fedlama.report.page.draw import draw_report
from fedlama.report.tables.study import study_grid
from fedlama.study.execute import run_study
from fedlama.study.index import StudyIndex
from fedlama.study.runs import find_runs, load_run
from fedlama.study.study_file import parse_study

FOREIGN = '{"study": "of another program", "runs": 3}'


@pytest.mark.parametrize("content", [FOREIGN, "no JSON", ""])
def test_a_foreign_study_above_breaks_no_report_below(tmp_path, content):
    (tmp_path / "study.json").write_text(content)
    path = write_run(tmp_path / "project" / "runs" / "one").path
    assert [run.label for run in find_runs([path])] == ["FedLAMA(6, 4)"]
    assert [run.path for run in find_runs([tmp_path / "project"])] == [path]


def test_a_foreign_study_between_the_named_folder_and_a_run_is_passed_over(tmp_path):
    path = write_run(tmp_path / "runs" / "project" / "one").path
    (path.parent / "study.json").write_text(FOREIGN)
    index = StudyIndex(
        baseline=None, labels={"project/one": "ours"}, choices={}, diverged={}
    )
    (tmp_path / "runs" / "study.json").write_text(index.model_dump_json())
    assert [run.label for run in find_runs([tmp_path / "runs"])] == ["ours"]


def test_a_report_warns_of_a_foreign_study_in_the_folder_named_and_ignores_it(
    tmp_path, capsys
):
    path = write_run(tmp_path / "one").path
    (tmp_path / "study.json").write_text(FOREIGN)
    assert [run.path for run in find_runs([tmp_path])] == [path]
    show_report([tmp_path], tmp_path / "page")
    assert (tmp_path / "page" / "report.html").is_file()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"fedlama: {tmp_path / 'study.json'} is not the index of a")
    assert line.endswith("; the report ignores it")


def test_a_study_never_writes_over_a_foreign_study_json(tmp_path):
    (tmp_path / "study.json").write_text(FOREIGN)
    study = parse_study(
        {
            "data": {"name": "digits"},
            "train": {"iterations": 6},
            "study": {"setting": [{"policy": {"kind": "fedavg"}}]},
        }
    )
    with pytest.raises(
        InputError, match=r"study.json is not the index of a study .* another folder"
    ):
        run_study(study, tmp_path, 1, lambda cell, record: None)
    assert (tmp_path / "study.json").read_text() == FOREIGN


def test_a_published_run_has_a_summary_and_no_rounds_and_can_be_shown(tmp_path):
    path = write_run(tmp_path / "one").path
    (path / "rounds.jsonl").unlink()
    (run,) = find_runs([tmp_path])
    assert run.summary is not None
    draw_report([run], tmp_path / "page")
    assert (tmp_path / "page" / "report.html").is_file()
    (path / "summary.json").unlink()
    with pytest.raises(InputError, match=r"no config.toml with rounds.jsonl or"):
        find_runs([tmp_path])


def test_a_setting_that_was_not_run_has_not_diverged(tmp_path):
    path = write_run(tmp_path / "one").path
    index = StudyIndex(
        baseline=None,
        labels={"one": "ours", "later": "to come", "lost": "too fast"},
        choices={},
        diverged={"lost": "step 3: the loss is not finite"},
    )
    grid = study_grid(compare([load_run(path)]), index)
    rows = {row[0]: row[1] for row in grid.rows}
    assert rows["to come"] == "not finished"
    assert rows["too fast"] == "diverged"
