from pathlib import Path

from shared.model import TaskState
from tests.cli.conftest import Run
from tests.cli.fake_master import FakeMaster, hang_up, ok, page, refuse
from tests.cli.views import job, task


def serve(fake: FakeMaster, *numbers: int) -> None:
    fake.on("GET /jobs/7", ok(job(7)))
    fake.on("GET /jobs/7/tasks", page(*(task(number) for number in numbers)))
    for number in numbers:
        fake.on(f"GET /jobs/7/tasks/{number}/stdout", ok(f"out {number}".encode()))
        fake.on(f"GET /jobs/7/tasks/{number}/stderr", ok(b""))


def test_what_all_tasks_wrote_becomes_files(fake: FakeMaster, run: Run, tmp_path: Path) -> None:
    serve(fake, *range(1, 31))
    ran = run("fetch", "7", str(tmp_path / "new" / "folder"), "--json")
    assert ran.document | {"folder": ""} == {
        "job": 7, "folder": "", "fetched": 60, "present": 0, "bytes": 21 * 6 + 9 * 5, "unfinished": 0
    }  # fmt: skip
    for number in range(1, 31):
        file = tmp_path / "new" / "folder" / f"{number}.out"
        assert file.read_text() == f"out {number}"
        assert file.stat().st_mtime == 1000 + number
        assert file.with_suffix(".err").read_text() == ""


def test_a_second_time_brings_only_what_is_new(fake: FakeMaster, run: Run, tmp_path: Path) -> None:
    serve(fake, 1, 2)
    run("fetch", "7", str(tmp_path))
    again = task(2, finished_at=5000.0)  # it was run again
    fake.on("GET /jobs/7/tasks", page(task(1), again, task(3, TaskState.RUNNING)))
    fake.on("GET /jobs/7/tasks/2/stdout", ok(b"better"))
    ran = run("fetch", "7", str(tmp_path))
    assert ran.out == (
        f"2 files (6 B) brought into {tmp_path}, 2 were there already\n1 task not finished: run this again later\n"
    )
    assert (tmp_path / "2.out").read_text() == "better"
    assert not (tmp_path / "3.out").exists()


def test_an_interrupted_file_is_not_taken_for_a_whole_one(fake: FakeMaster, run: Run, tmp_path: Path) -> None:
    serve(fake, 1)
    fake.on("GET /jobs/7/tasks/1/stdout", refuse(500, "bug"))
    assert run("fetch", "7", str(tmp_path)).code == 1
    assert not (tmp_path / "1.out").exists()
    fake.on("GET /jobs/7/tasks/1/stdout", hang_up(b"ou"), ok(b"out 1"))
    assert run("fetch", "7", str(tmp_path)).code == 0
    assert (tmp_path / "1.out").read_text() == "out 1"
    assert not list(tmp_path.glob("*.part"))


def test_a_task_that_never_ran_wrote_nothing(fake: FakeMaster, run: Run, tmp_path: Path) -> None:
    serve(fake, 1)
    fake.on("GET /jobs/7/tasks", page(task(1, TaskState.CANCELLED)))
    fake.on("GET /jobs/7/tasks/1/stdout", refuse(404, "no_output"))
    assert run("fetch", "7", str(tmp_path)).code == 0
    assert (tmp_path / "1.out").read_text() == ""


def test_a_folder_that_cannot_be_written(fake: FakeMaster, run: Run, tmp_path: Path) -> None:
    serve(fake, 1)
    (tmp_path / "file").write_text("")
    ran = run("fetch", "7", str(tmp_path / "file" / "folder"))
    assert ran.code == 1
    assert "cannot write into" in ran.err
    assert "hint: " in ran.err
