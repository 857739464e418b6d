"""Where the runs of a study wait between its sittings."""

import errno
from pathlib import Path

import pytest

from fedlama.study.sitting import Sitting, deliver, take_along


def write(folder, **files):
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_json", ".json").replace(
            "_toml", ".toml"
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def names(folder):
    return sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file()
    )


def test_a_sitting_without_a_limit_never_ends():
    assert not Sitting(began=0.0).is_over()


@pytest.mark.parametrize(
    ("now", "over"), [(1000.0 + 89.9, False), (1000.0 + 90.0, True)]
)
def test_a_sitting_ends_after_its_minutes(monkeypatch, now, over):
    monkeypatch.setattr("fedlama.study.sitting.time.monotonic", lambda: now)
    assert Sitting(minutes=1.5, began=1000.0).is_over() is over


def test_the_minutes_of_a_plan_are_not_counted(monkeypatch, tmp_path):
    monkeypatch.setattr("fedlama.study.sitting.time.monotonic", lambda: 50.0)
    assert Sitting(5, tmp_path, began=7.0).from_now() == Sitting(
        5, tmp_path, began=50.0
    )


def test_studies_that_share_a_sitting_share_its_clock(tmp_path):
    sitting = Sitting(5, tmp_path, began=7.0)
    assert sitting.below("cifar10-iid") == Sitting(
        5, tmp_path / "cifar10-iid", began=7.0
    )
    assert Sitting(5, began=7.0).below("cifar10-iid") == Sitting(5, began=7.0)


def test_a_run_is_delivered_without_the_checkpoints_that_it_no_longer_needs(tmp_path):
    work, home = tmp_path / "work", tmp_path / "home"
    write(
        work,
        config_toml="a",
        summary_json="b",
        **{
            "checkpoint__step-24_json": "c",
            "checkpoint__step-24.safetensors": "e",
            "checkpoint__model.safetensors": "d",
        },
    )
    (work / ".lock").touch()
    deliver(work, home)
    assert names(home) == [
        "checkpoint/model.safetensors",
        "config.toml",
        "summary.json",
    ]
    assert not work.exists()


def test_a_run_at_home_stays_as_it_is(tmp_path):
    write(tmp_path, summary_json="b", **{"checkpoint__step-24_json": "c"})
    deliver(tmp_path, tmp_path)
    take_along(tmp_path, tmp_path)
    assert names(tmp_path) == ["checkpoint/step-24.json", "summary.json"]


def test_a_run_that_began_at_home_is_taken_along_once(tmp_path):
    work, home = tmp_path / "deep" / "work", tmp_path / "home"
    write(home, config_toml="begun", **{"checkpoint__step-24_json": "c"})
    take_along(home, work)
    assert names(work) == ["checkpoint/step-24.json", "config.toml"]
    assert not home.exists()
    write(home, config_toml="another")
    take_along(home, work)  # what waits there already is further
    assert (work / "config.toml").read_text() == "begun"


def test_what_is_further_at_home_takes_the_place_of_what_waits(tmp_path):
    work, home = tmp_path / "work", tmp_path / "home"
    write(work, config_toml="first", **{"checkpoint__step-24_json": "c"})
    write(home, config_toml="further", **{"checkpoint__step-48_json": "c"})
    take_along(home, work)
    assert names(work) == ["checkpoint/step-48.json", "config.toml"]
    assert (work / "config.toml").read_text() == "further"
    assert not home.exists()


def test_a_run_is_taken_along_to_another_disk_whole(tmp_path, monkeypatch):
    def another_disk(self, target):
        if self.name == "home":
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return rename(self, target)

    rename = Path.rename
    monkeypatch.setattr(Path, "rename", another_disk)
    work, home = tmp_path / "work", tmp_path / "home"
    # What an interrupted copy has left
    write(tmp_path / "work.partial", config_toml="half")
    write(home, config_toml="begun", **{"checkpoint__step-24_json": "c"})
    take_along(home, work)
    assert names(tmp_path) == ["work/checkpoint/step-24.json", "work/config.toml"]
    assert (work / "config.toml").read_text() == "begun"


def test_what_went_less_far_at_home_is_gone_with_the_delivery(tmp_path):
    work, home = tmp_path / "work", tmp_path / "home"
    write(work, summary_json="b", **{"checkpoint__step-48_json": "c"})
    write(
        home,
        begun_json="where",
        **{
            "checkpoint__step-24_json": "c",
            "checkpoint__step-24.safetensors": "e",
            "checkpoint__model.safetensors": "d",
        },
    )
    deliver(work, home)
    assert names(home) == ["checkpoint/model.safetensors", "summary.json"]


def test_a_note_is_no_part_of_what_is_delivered(tmp_path):
    work, home = tmp_path / "work", tmp_path / "home"
    write(work, summary_json="b", begun_json="taken along with the run")
    deliver(work, home)
    assert names(home) == ["summary.json"]


def test_a_study_whose_folder_has_two_names_is_not_delivered_to_itself(
    tmp_path, monkeypatch
):
    (tmp_path / "out").mkdir()
    (tmp_path / "link").symlink_to("out")
    monkeypatch.chdir(tmp_path)
    for name in ("link", tmp_path / "out", "out/../out"):
        sitting = Sitting(checkpoints=Path(name))
        assert sitting.workplace(Path("out"), Path("a/seed0")) == Path("out/a/seed0")


def test_no_empty_folders_stay_but_the_one_that_was_named(tmp_path):
    out, kept = tmp_path / "out", tmp_path / "deep" / "kept"
    sitting = Sitting(checkpoints=kept).below("cpu").below("cifar10-iid")
    paths = [Path("a/seed0"), Path("a/seed1"), Path("b/seed0"), Path("c/seed0")]
    write(sitting.workplace(out, paths[1]), config_toml="begun")
    sitting.workplace(out, paths[2]).parent.mkdir()
    sitting.drop_empty(out, paths)
    assert names(kept) == ["cpu/cifar10-iid/a/seed1/config.toml"]
    assert not (kept / "cpu/cifar10-iid/b").exists()
    (kept / "cpu/cifar10-iid/a/seed1/config.toml").unlink()
    (kept / "cpu/cifar10-iid/a/seed1").rmdir()
    sitting.drop_empty(out, paths)
    assert not list(kept.iterdir())
    Sitting().drop_empty(out, paths)
    Sitting(checkpoints=out).drop_empty(out, paths)
