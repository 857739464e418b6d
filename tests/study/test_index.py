"""Whose study.json it is: ours says which runs belong to a study, another program's is none of our business."""

import pytest
from hand_made import write_run

from fedlama.base import InputError
from fedlama.study.index import StudyIndex
from fedlama.study.runs import find_runs

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
