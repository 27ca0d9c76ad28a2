import hashlib
from pathlib import Path

from aiohttp import web

from loopline_shared.model import TaskState
from loopline_shared.spec import JobSpec
from tests.cli.conftest import Run
from tests.cli.fake_master import FakeMaster, hang_up, ok, page, refuse
from tests.cli.views import job, task


def serve(fake: FakeMaster, *numbers: int) -> None:
    fake.on("GET /jobs/7", ok(job(7)))
    fake.on("GET /jobs/7/tasks", page(*(task(number) for number in numbers)))
    for number in numbers:
        fake.on(f"GET /jobs/7/tasks/{number}/stdout", ok(f"out {number}".encode()))
        fake.on(f"GET /jobs/7/tasks/{number}/stderr", ok(b""))


def test_output_of_all_tasks_is_written_to_files(fake: FakeMaster, run: Run, tmp_path: Path) -> None:
    serve(fake, *range(1, 31))
    ran = run("fetch", "7", str(tmp_path / "new" / "folder"), "--json")
    assert ran.document | {"folder": ""} == {
        "job": 7, "folder": "", "fetched": 60, "outputs": 0, "logs": 60,
        "present": 0, "bytes": 21 * 6 + 9 * 5, "unfinished": 0, "failed": 0,
        "gone": 0, "why_gone": ""
    }  # fmt: skip
    for number in range(1, 31):
        file = tmp_path / "new" / "folder" / f"{number}.out"
        assert file.read_text() == f"out {number}"
        assert file.stat().st_mtime == 1000 + number
        assert file.with_suffix(".err").read_text() == ""


def test_second_fetch_gets_only_new_files(fake: FakeMaster, run: Run, tmp_path: Path) -> None:
    serve(fake, 1, 2)
    run("fetch", "7", str(tmp_path))
    again = task(2, finished_at=5000.0)  # this task ran again
    fake.on("GET /jobs/7/tasks", page(task(1), again, task(3, TaskState.RUNNING)))
    fake.on("GET /jobs/7/tasks/2/stdout", ok(b"better"))
    ran = run("fetch", "7", str(tmp_path))
    assert ran.out == (
        f"2 files downloaded to {tmp_path}/ (0 outputs, 2 logs, 6 B), 2 were there already\n"
        "1 task not finished: run this again later\n"
    )
    assert (tmp_path / "2.out").read_text() == "better"
    assert not (tmp_path / "3.out").exists()


def test_interrupted_file_does_not_count_as_complete(fake: FakeMaster, run: Run, tmp_path: Path) -> None:
    serve(fake, 1)
    fake.on("GET /jobs/7/tasks/1/stdout", refuse(500, "bug"))
    assert run("fetch", "7", str(tmp_path)).code == 1
    assert not (tmp_path / "1.out").exists()
    fake.on("GET /jobs/7/tasks/1/stdout", hang_up(b"ou"), ok(b"out 1"))
    assert run("fetch", "7", str(tmp_path)).code == 0
    assert (tmp_path / "1.out").read_text() == "out 1"
    assert not list(tmp_path.glob("*.part"))


def test_task_that_never_ran_has_no_file(fake: FakeMaster, run: Run, tmp_path: Path) -> None:
    serve(fake, 1)
    fake.on("GET /jobs/7/tasks", page(task(1, TaskState.CANCELLED)))
    fake.on("GET /jobs/7/tasks/1/stdout", refuse(404, "no_output"))
    assert run("fetch", "7", str(tmp_path)).code == 0
    assert (tmp_path / "1.out").read_text() == ""


def test_unwritable_folder_is_an_error(fake: FakeMaster, run: Run, tmp_path: Path) -> None:
    serve(fake, 1)
    (tmp_path / "file").write_text("")
    ran = run("fetch", "7", str(tmp_path / "file" / "folder"))
    assert ran.code == 1
    assert "cannot write into" in ran.err
    assert "hint: " in ran.err


# Files that tasks left

CONTENT = {"x.csv": b"hello", "out/y.csv": b"x" * 5000}


def name_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def each(value: object, number: int) -> object:
    return value[number - 1] if isinstance(value, list) else value


def leave(fake: FakeMaster, *numbers: int, files: dict[str, bytes] = CONTENT, **parameters: object) -> None:
    """Serve a job whose tasks have left these files, and printed nothing."""
    serve(fake, *numbers)
    spec = JobSpec(command=["x"], outputs=["**"])
    fake.on("GET /jobs/7", ok(job(7, spec=spec)))
    items = [{"path": path, "sha256": name_of(data), "size_bytes": len(data)} for path, data in files.items()]
    for number in numbers:
        fake.on(f"GET /jobs/7/tasks/{number}/outputs", ok({"items": items}))
    if parameters:
        known = [{name: each(value, number) for name, value in parameters.items()} for number in numbers]
        listed = [task(number, parameters=its) for number, its in zip(numbers, known, strict=True)]
        fake.on("GET /jobs/7/tasks", page(*listed))
    for data in files.values():
        fake.on(f"GET /files/{name_of(data)}", ok(data))


def test_outputs_are_stored_by_task(fake: FakeMaster, run: Run, tmp_path: Path) -> None:
    leave(fake, 1, 2)
    ran = run("fetch", "7", str(tmp_path / "home"), "--json")
    assert (ran.document["fetched"], ran.document["present"]) == (8, 0)
    for number in (1, 2):
        for path, data in CONTENT.items():
            assert (tmp_path / "home" / str(number) / path).read_bytes() == data
    assert sorted(file.name for file in (tmp_path / "home").iterdir()) == [
        "1",
        "1.err",
        "1.out",
        "2",
        "2.err",
        "2.out",
    ]


def test_outputs_of_failed_tasks_are_fetched_on_request(fake: FakeMaster, run: Run, tmp_path: Path) -> None:
    leave(fake, 1, 2)
    fake.on("GET /jobs/7/tasks", page(task(1), task(2, TaskState.FAILED)))
    ran = run("fetch", "7", str(tmp_path))
    assert "1 task failed: --failed also downloads what failed tasks have left" in ran.out
    assert not (tmp_path / "2").exists()
    assert run("fetch", "7", str(tmp_path), "--failed", "--json").document["fetched"] == len(CONTENT)
    assert (tmp_path / "2" / "x.csv").read_bytes() == CONTENT["x.csv"]


def test_removed_outputs_of_a_failed_task_do_not_stop_the_others(fake: FakeMaster, run: Run, tmp_path: Path) -> None:
    leave(fake, 1, 2)
    fake.on("GET /jobs/7/tasks", page(task(1, TaskState.FAILED), task(2, TaskState.FAILED)))
    gone = {"path": "gone", "sha256": "0" * 64, "size_bytes": 5}
    fake.on("GET /jobs/7/tasks/1/outputs", ok({"items": [gone]}))
    fake.on("GET /files/" + "0" * 64, refuse(404, "not_found", "no such file"))
    fake.on(
        "GET /jobs/7/tasks/1/outputs/gone", refuse(410, "removed", "outputs of failed tasks are kept for 30 days")
    )
    ran = run("fetch", "7", str(tmp_path), "--failed")
    assert ran.code == 0, ran.err
    assert "nothing of 1 failed task: outputs of failed tasks are kept for 30 days" in ran.out
    assert (tmp_path / "2" / "x.csv").read_bytes() == CONTENT["x.csv"]


def test_executable_output_stays_executable(fake: FakeMaster, run: Run, tmp_path: Path) -> None:
    leave(fake, 1)
    file = {"path": "tool", "sha256": name_of(b"hello"), "size_bytes": 5}
    fake.on("GET /jobs/7/tasks/1/outputs", ok({"items": [file | {"executable": True}, file | {"path": "text"}]}))
    assert run("fetch", "7", str(tmp_path)).code == 0
    modes = [(tmp_path / "1" / name).stat().st_mode & 0o111 for name in ("tool", "text")]
    assert modes == [0o111, 0]


def test_files_with_the_right_content_are_not_fetched_again(fake: FakeMaster, run: Run, tmp_path: Path) -> None:
    leave(fake, 1)
    run("fetch", "7", str(tmp_path))
    (tmp_path / "1" / "x.csv").write_text("jello")  # of the same length
    ran = run("fetch", "7", str(tmp_path), "--json")
    assert (ran.document["fetched"], ran.document["present"], ran.document["bytes"]) == (1, 3, 5)
    assert (tmp_path / "1" / "x.csv").read_bytes() == b"hello"
    assert len(fake.asked(f"GET /files/{name_of(CONTENT['out/y.csv'])}")) == 1


def test_interrupted_file_is_resumed(fake: FakeMaster, run: Run, tmp_path: Path) -> None:
    leave(fake, 1)
    data, offered = CONTENT["out/y.csv"], []

    async def rest(request: web.Request) -> web.Response:
        offered.append(request.headers.get("Range"))
        start = request.http_range.start or 0
        return web.Response(body=data[start:], status=206 if start else 200)

    part = tmp_path / ".loopline-fetch" / f"7.1-{name_of(data)}"
    part.parent.mkdir()
    part.write_bytes(data[:2000])
    fake.on(f"GET /files/{name_of(data)}", rest)
    assert run("fetch", "7", str(tmp_path)).code == 0
    assert offered == ["bytes=2000-"]
    assert (tmp_path / "1" / "out" / "y.csv").read_bytes() == data
    assert not part.parent.exists()


def test_fetched_file_is_checked_against_its_hash(fake: FakeMaster, run: Run, tmp_path: Path) -> None:
    leave(fake, 1)
    fake.on(f"GET /files/{name_of(b'hello')}", ok(b"jello"))
    ran = run("fetch", "7", str(tmp_path))
    assert ran.code == 1
    assert "is something else" in ran.err
    assert not (tmp_path / "1" / "x.csv").exists()


def test_layout_of_parameters_names_folders(fake: FakeMaster, run: Run, tmp_path: Path) -> None:
    leave(fake, 1, 2, lr=0.1, name=["a", "../../b"])
    assert run("fetch", "7", str(tmp_path / "home"), "--layout", "{lr}/{name}/").code == 0
    assert (tmp_path / "home" / "0.1" / "a" / "x.csv").read_bytes() == b"hello"
    assert (tmp_path / "home" / "0.1" / ".._.._b" / "x.csv").read_bytes() == b"hello"
    assert (tmp_path / "home" / "0.1" / "a.out").exists()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["home"]
    ran = run("fetch", "7", str(tmp_path / "other"), "--layout", "{lr}/")
    assert ran.code == 2
    assert "would both go to 0.1/" in ran.err
    assert not any((tmp_path / "other").iterdir()), "nothing is downloaded before it is known where all of it goes"
    assert run("fetch", "7", str(tmp_path / "other"), "--layout", "../{lr}").code == 2


def test_no_answer_makes_files_outside_the_folder(fake: FakeMaster, run: Run, tmp_path: Path) -> None:
    for path in ("../escaped", "/tmp/escaped", "a/../../../escaped", "C:/escaped"):
        leave(fake, 1, files={path: b"evil"})
        assert run("fetch", "7", str(tmp_path / "home")).code == 1
    assert not (tmp_path / "escaped").exists()
    leave(fake, 1)
    (tmp_path / "home" / "1").symlink_to(tmp_path)  # of before
    ran = run("fetch", "7", str(tmp_path / "home"))
    assert "leads out of" in ran.err
    assert not (tmp_path / "x.csv").exists()
    leave(fake, 1, files={"sub/folder/x.csv": b"evil"})
    assert run("fetch", "7", str(tmp_path / "home")).code == 1
    assert not (tmp_path / "sub").exists(), "no folders are made outside either"


def test_removed_files_are_reported(fake: FakeMaster, run: Run, tmp_path: Path) -> None:
    leave(fake, 1)
    fake.on(f"GET /files/{name_of(b'hello')}", refuse(404, "not_found"))
    fake.on("GET /jobs/7/tasks/1/outputs/x.csv", refuse(410, "removed", "the files of job 7 were removed"))
    assert "the files of job 7 were removed" in run("fetch", "7", str(tmp_path)).err
