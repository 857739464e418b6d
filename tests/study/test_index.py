"""Whose study.json it is: ours says which runs belong to a study, another program's is none of our business."""

import pytest
from hand_made import write_run

from fedlama.base import InputError
from fedlama.report.numbers.comparison import compare
from fedlama.report.page.draw import draw_report
from fedlama.report.tables.study import study_grid
from fedlama.study.index import StudyIndex
from fedlama.study.runs import find_runs, load_run

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


def test_a_folder_that_the_user_names_must_have_an_index_of_ours_or_none(tmp_path):
    write_run(tmp_path / "one")
    (tmp_path / "study.json").write_text(FOREIGN)
    with pytest.raises(InputError, match=r"study.json is not the index of a study"):
        find_runs([tmp_path])


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
