"""Input and output files of tasks at the master: checked before use, kept while a row names them."""

from __future__ import annotations

import hashlib
import io
import os
import sqlite3
import time
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loopline_master.files import retention
from loopline_master.files.blobs import Blobs
from loopline_master.files.file_store import FolderStore
from loopline_master.files.removal_clock import RemovalClock
from loopline_master.files.retention import Retention
from loopline_master.http.routes import outputs as outputs_module
from loopline_master.links.worker_links import with_files
from loopline_master.settings import MasterSettings
from loopline_master.store import Store
from loopline_shared import manifest
from loopline_shared.model import AttemptId, InputFile, Load, Outcome, Output, OutputFile, Result
from loopline_shared.protocol.worker_link import Report, Run
from tests.api.bench import Bench, done, running_master, until

DAY_S = 86400.0


async def put(master: Bench, content: bytes) -> str:
    sha256 = hashlib.sha256(content).hexdigest()
    assert (await master.ask("PUT", f"/files/{sha256}", data=content)).status == 204
    return sha256


def age(master: Bench, *names: str, days: float = 100) -> None:
    """Make these files (default: all) appear unused for this many days."""
    folder = master.parts[Blobs].store.folder
    files = [folder / name[:2] / name[2:] for name in names] or [f for f in folder.rglob("*") if f.is_file()]
    for file in files:
        os.utime(file, (time.time() - days * DAY_S,) * 2)


def leaving(files: dict[str, str], stdout: str = "") -> Any:
    """Return a worker's behaviour: its tasks leave these files (content by path), already stored at the master."""

    def does(run: Run) -> Result:
        left = tuple(
            OutputFile(path, hashlib.sha256(text.encode()).hexdigest(), len(text)) for path, text in files.items()
        )
        return done(run, stdout.encode(), outputs=left)

    return does


async def finished(master: Bench, files: dict[str, str], tasks: int = 1, **spec: Any) -> int:
    """Return a finished job whose tasks have left these files."""
    for text in files.values():
        await put(master, text.encode())
    job = await master.submit(parameters={"i": {"range": [1, tasks]}}, outputs=["*"], **spec)
    async with master.worker(does=leaving(files)):
        await until(lambda: _is_over(master, job))
    return job


async def _is_over(master: Bench, job: int) -> bool:
    return (await master.get(f"/jobs/{job}"))["finished_at"] is not None


# In


async def test_missing_input_is_named(master: Bench) -> None:
    missing = "0" * 64
    for more in (
        {"inputs": {"data/x": f"sha256:{missing}"}},
        {"tasks": [{"inputs": {"data/x": f"sha256:{missing}"}}]},
    ):
        answer = await master.ask("POST", "/jobs", json={"command": ["work"], **more})
        assert (answer.status, answer.body["code"]) == (422, "missing_input")
        assert "data/x" in answer.body["detail"]
        assert missing in answer.body["detail"]
        assert "loopline submit --input" in answer.body["hint"]


async def test_worker_gets_a_list_of_inputs_with_sizes(master: Bench) -> None:
    common, own = await put(master, b"common"), await put(master, b"own")
    runs: list[Run] = []
    job = await master.submit(
        inputs={"a": f"sha256:{common}", "run": {"file": f"sha256:{common}", "executable": True}},
        tasks=[{"inputs": {"b": f"sha256:{own}"}}, {}],
        outputs=["*.csv"],
    )
    async with master.worker(does=lambda run: runs.append(run) or done(run)):
        await until(lambda: _is_over(master, job))
    first, second = sorted(runs, key=lambda run: run.attempt)
    listed = manifest.decode((await master.ask("GET", f"/files/{first.inputs}", "worker")).content)
    assert listed == {"a": InputFile(common, 6), "run": InputFile(common, 6, True)}
    assert (first.own_inputs, second.own_inputs) == ({"b": InputFile(own)}, {})
    assert (first.outputs, first.inputs) == (("*.csv",), second.inputs)


async def test_inputs_that_differ_only_in_case_give_a_warning(master: Bench) -> None:
    file = f"sha256:{await put(master, b'x')}"
    body = {"command": ["work"], "inputs": {"Data": file, "data": file}}
    answer = await master.ask("POST", "/jobs", json=body)
    assert any("Data and data are one file on Windows" in warning for warning in answer.body["warnings"])
    preview = await master.ask("POST", "/jobs/preview", json=body)
    assert any("Data and data are one file on Windows" in warning for warning in preview.body["warnings"])


async def test_missing_function_is_named(master: Bench) -> None:
    function = {"file": f"sha256:{'0' * 64}", "python": "3.11", "session": "s"}
    body = {"function": function, "parameters": {"call": ["AA=="]}, "requires": {"python": "3.11"}}
    answer = await master.ask("POST", "/jobs", json=body)
    assert (answer.status, answer.body["code"]) == (422, "missing_input")
    assert f"the function (sha256:{'0' * 64}) is not on this master" in answer.body["detail"]


# Out


async def test_outputs_are_listed_and_downloaded_one_by_one(master: Bench) -> None:
    job = await finished(master, {"out/a b.csv": "hello", "ü.txt": "x"})
    listed = await master.get(f"/jobs/{job}/tasks/1/outputs", "reader")
    assert [file["path"] for file in listed["items"]] == ["out/a b.csv", "ü.txt"]
    assert (await master.get(f"/jobs/{job}/tasks/1"))["outputs"] == listed["items"]
    got = await master.ask("GET", f"/jobs/{job}/tasks/1/outputs/out/a%20b.csv", "reader")
    assert (got.status, got.content) == (200, b"hello")
    assert got.headers["Content-Disposition"] == "attachment; filename*=UTF-8''a%20b.csv"
    assert (got.headers["X-Content-Type-Options"], got.headers["Content-Type"]) == (
        "nosniff",
        "application/octet-stream",
    )
    part = await master.ask("GET", f"/jobs/{job}/tasks/1/outputs/out/a%20b.csv", headers={"Range": "bytes=1-2"})
    assert part.content == b"el"


async def test_only_outputs_of_the_task_can_be_downloaded(master: Bench) -> None:
    job = await finished(master, {"out/x": "y"})
    for path in ("none.csv", "../../x", "..%2f..%2fx", "out", "out/"):
        answer = await master.ask("GET", f"/jobs/{job}/tasks/1/outputs/{path}")
        assert answer.status in (404, 422), path


async def test_outputs_of_a_job_are_downloaded_as_one_archive(master: Bench) -> None:
    job = await finished(master, {"out/a.csv": "hello" * 1000, "b": ""}, tasks=12)
    got = await master.ask("GET", f"/jobs/{job}/outputs.zip", "reader")
    assert "Content-Length" not in got.headers  # the archive is created while it is sent
    assert got.headers["Content-Disposition"].endswith(f"job-{job}.zip")
    archive = zipfile.ZipFile(io.BytesIO(got.content))
    assert archive.testzip() is None
    assert set(archive.namelist()) == {f"{task}/{path}" for task in range(1, 13) for path in ("out/a.csv", "b")}
    assert archive.read("12/out/a.csv") == b"hello" * 1000


async def test_outputs_of_a_failed_task_are_kept_outside_the_archive(master: Bench) -> None:
    content = "half a result"
    await put(master, content.encode())
    job = await master.submit(outputs=["*", {"path": "*.log", "optional": True}], max_attempts=5)
    runs: list[Run] = []

    def fails(run: Run) -> Result:
        runs.append(run)
        reason = "its outputs *.csv matched no file"
        return replace(leaving({"a": content})(run), outcome=Outcome.FAILED, reason=reason, is_final=True)

    async with master.worker(does=fails):
        await until(lambda: _is_over(master, job))
    assert [(run.outputs, run.optional_outputs) for run in runs] == [(("*",), ("*.log",))]  # one attempt
    task = await master.get(f"/jobs/{job}/tasks/1")
    assert (task["state"], task["reason"]) == ("failed", "its outputs *.csv matched no file")
    assert (await master.get(f"/jobs/{job}/tasks/1/outputs"))["items"] == task["outputs"]
    assert [file["path"] for file in task["outputs"]] == ["a"]
    age(master)
    assert (await prune(master, delete=True))["files"] == 0
    assert (await master.ask("GET", f"/jobs/{job}/tasks/1/outputs/a")).content == content.encode()
    assert (await master.ask("GET", f"/jobs/{job}/outputs.zip")).body["code"] == "no_output"


async def test_missing_outputs_of_a_failed_attempt_are_dropped(master: Bench) -> None:
    name = await put(master, b"there")
    files = (OutputFile("gone", "0" * 64, 1), OutputFile("there", name, 5))
    failed = Result(AttemptId(1, 1, 1), Outcome.FAILED, exit_code=3, outputs=files)
    report = Report(1, 0, (), (failed,), Load(1))
    (checked,) = (await with_files(master.parts[Blobs], report)).results
    assert (checked.outcome, checked.outputs) == (Outcome.FAILED, files[1:])


async def test_empty_or_oversized_archive_is_refused(master: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    job = await master.submit()
    assert (await master.ask("GET", f"/jobs/{job}/outputs.zip")).body["code"] == "no_output"
    assert (await master.get(f"/jobs/{job}/tasks/1/outputs"))["items"] == []
    assert (await master.ask("GET", f"/jobs/{job}/tasks/2/outputs")).status == 404
    await master.ask("POST", f"/jobs/{job}/cancel")
    job = await finished(master, {"a": "1", "b": "2"})
    monkeypatch.setattr(outputs_module, "MAX_ARCHIVED", 1)
    with pytest.raises(Exception, match=r"not complete|disconnected|payload"):  # cut off: incomplete
        await master.ask("GET", f"/jobs/{job}/outputs.zip")


# Kept and removed


async def prune(master: Bench, role: str = "admin", **wish: Any) -> Any:
    return (await master.ask("POST", "/prune", role, json=wish)).body


async def test_prune_removes_only_unreferenced_files(master: Bench) -> None:
    used, fresh, forgotten = [await put(master, content) for content in (b"used", b"fresh", b"forgotten")]
    job = await finished(master, {"x": "left", "y": "0" * 64}, inputs={"in": f"sha256:{used}"})
    age(master)
    age(master, fresh, days=0)
    names = {file.parent.name + file.name for file in master.parts[Blobs].store.folder.rglob("*") if file.is_file()}
    seen = await prune(master)
    assert (seen["files"], seen["bytes"], seen["deleted"]) == (1, len(b"forgotten"), False)
    assert (await master.ask("HEAD", f"/files/{forgotten}")).status == 200  # the request retains it for a while
    assert (await prune(master, delete=True))["files"] == 0
    age(master, forgotten)
    assert (await prune(master, delete=True))["files"] == 1
    left = {file.parent.name + file.name for file in master.parts[Blobs].store.folder.rglob("*") if file.is_file()}
    assert names - left == {forgotten}
    assert (await master.ask("GET", f"/jobs/{job}/tasks/1/outputs/x")).content == b"left"


async def test_files_named_in_a_row_file_are_kept(master: Bench) -> None:
    named = await put(master, b"an argument")
    rows = await put(master, b'{"call": "sha256:%s"}\n' % named.encode())
    await master.submit(parameters={"file": f"sha256:{rows}"})
    age(master)
    assert (await prune(master, delete=True))["files"] == 0


async def test_files_of_old_jobs_are_removed_and_reported(master: Bench) -> None:
    shared = await put(master, b"shared")
    old = await finished(master, {"x": "old"}, inputs={"in": f"sha256:{shared}"})
    age(master)
    assert (await prune(master, older_than_s=3600.0))["job_count"] == 0
    running = await master.submit(inputs={"in": f"sha256:{shared}"})
    age(master)
    seen = await prune(master, older_than_s=0.0)
    assert (seen["jobs"], seen["files"]) == ([old], 1)  # only its output: another job shares its input and their list
    assert (await master.ask("GET", f"/jobs/{old}/tasks/1/outputs/x")).content == b"old"
    assert (await prune(master, older_than_s=0.0, delete=True))["files"] == 1
    for path in (f"/jobs/{old}/tasks/1/outputs/x", f"/jobs/{old}/outputs.zip"):
        answer = await master.ask("GET", path)
        assert (answer.status, answer.body["code"]) == (410, "removed")
        assert f"the files of job {old} were removed" in answer.body["detail"]
    assert (await master.get(f"/jobs/{old}/tasks/1/outputs"))["items"][0]["path"] == "x"  # the row still names it
    assert (await master.ask("HEAD", f"/files/{shared}")).status == 200
    assert running > old


async def test_retention_follows_its_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "FIRST_PRUNE_AFTER_S", 0.05)
    monkeypatch.setattr(retention, "PRUNE_EVERY_S", 0.05)
    async with running_master(tmp_path, retention_days=0.0, file_grace_s=3600.0) as master:
        job = await finished(master, {"x": "old"})
        age(master)
        await until(lambda: _is_gone(master, job))
        answer = await master.ask("GET", f"/jobs/{job}/tasks/1/outputs/x")
        assert "retention_days = 0" in answer.body["detail"]


async def test_outputs_of_failed_tasks_have_their_own_retention(tmp_path: Path) -> None:
    async with running_master(tmp_path, failed_outputs_days=1.0) as master:
        name, kept = await put(master, b"half a result"), await finished(master, {"x": "whole"})
        job = await master.submit(outputs=["*"], max_attempts=1)

        def fails(run: Run) -> Result:
            return replace(leaving({"x": "half a result"})(run), outcome=Outcome.FAILED, exit_code=3)

        async with master.worker(does=fails):
            await until(lambda: _is_over(master, job))
        age(master)
        assert (await prune(master, delete=True))["files"] == 0
        with sqlite3.connect(tmp_path / "loopline.db") as database:
            database.execute("UPDATE attempts SET ended_at = ended_at - 100000")
        assert (await prune(master, delete=True))["files"] == 1
        answer = await master.ask("GET", f"/jobs/{job}/tasks/1/outputs/x")
        assert (answer.status, answer.body["code"]) == (410, "removed")
        assert "kept for 1 days (failed_outputs_days)" in answer.body["detail"]
        assert (await master.ask("GET", f"/jobs/{kept}/tasks/1/outputs/x")).content == b"whole"
        assert (await master.ask("HEAD", f"/files/{name}")).status == 404


async def _is_gone(master: Bench, job: int) -> bool:
    return (await master.ask("GET", f"/jobs/{job}/tasks/1/outputs/x")).status == 410


async def test_job_with_removed_inputs_cannot_be_retried(master: Bench) -> None:
    name = await put(master, b"input")
    job = await master.submit(inputs={"in": f"sha256:{name}"})
    await master.ask("POST", f"/jobs/{job}/cancel")
    age(master)
    await prune(master, older_than_s=0.0, delete=True)
    answer = await master.ask("POST", f"/jobs/{job}/retry")
    assert (answer.status, answer.body["code"]) == (410, "removed")


async def test_job_with_removed_outputs_cannot_be_retried(master: Bench) -> None:
    """It would succeed without the files of its earlier tasks."""
    left = await put(master, b"left")
    job = await master.submit(tasks=[{}, {"command": ["fail"]}], outputs=["*"], max_attempts=1)

    def does(run: Run) -> Result:
        if run.command == ("fail",):
            return Result(run.attempt, Outcome.FAILED, exit_code=1)
        return done(run, outputs=(OutputFile("x", left, 4),))

    async with master.worker(does=does):
        await until(lambda: _is_over(master, job))
    age(master)
    assert (await prune(master, older_than_s=0.0, delete=True))["files"] == 1
    answer = await master.ask("POST", f"/jobs/{job}/retry")
    assert (answer.status, answer.body["code"]) == (410, "removed")
    assert (await master.get(f"/jobs/{job}"))["state"] == "failed"


async def test_job_without_files_can_be_retried_and_keeps_its_new_outputs(master: Bench) -> None:
    job = await master.submit(outputs=["*"])
    await master.ask("POST", f"/jobs/{job}/cancel")
    assert (await prune(master, older_than_s=0.0, delete=True))["job_count"] == 1
    await put(master, b"left")
    assert (await master.ask("POST", f"/jobs/{job}/retry")).status == 200
    async with master.worker(does=leaving({"x": "left"})):
        await until(lambda: _is_over(master, job))
    age(master)
    assert (await prune(master, delete=True))["files"] == 0
    assert (await master.ask("GET", f"/jobs/{job}/tasks/1/outputs/x")).content == b"left"


async def test_job_retried_during_a_prune_keeps_its_files(master: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    name = await put(master, b"input")
    job = await master.submit(inputs={"in": f"sha256:{name}"})
    await master.ask("POST", f"/jobs/{job}/cancel")
    release = type(master.parts[Store].files).release

    async def after_a_retry(files: Any, *arguments: Any) -> None:
        master.parts[Retention].releasing.release()  # let the retry come first
        assert (await master.ask("POST", f"/jobs/{job}/retry")).status == 200
        await master.parts[Retention].releasing.acquire()
        age(master)
        await release(files, *arguments)

    monkeypatch.setattr(type(master.parts[Store].files), "release", after_a_retry)
    assert (await prune(master, older_than_s=0.0, delete=True))["files"] == 0
    assert master.parts[Blobs].find(name)


# Files named by results


async def test_result_with_missing_files_is_given_back_and_rerun(master: Bench) -> None:
    """A link was down for longer than unreferenced files are kept."""
    job = await master.submit(outputs=["*"], max_attempts=1)
    runs: list[Run] = []

    def does(run: Run) -> Result:
        runs.append(run)
        if len(runs) > 1:
            return done(run)
        return done(run, outputs=(OutputFile("x", "0" * 64, 1),))

    async with master.worker(does=does):
        await until(lambda: _is_over(master, job))
    assert len(runs) == 2
    task = await master.get(f"/jobs/{job}/tasks/1")
    assert (task["state"], task["outputs"], task["failures"]) == ("succeeded", [], 0)
    first = next(attempt for attempt in task["attempts"] if attempt["id"].endswith(".1"))
    assert "the master does not have its output x any more" in first["reason"]


async def test_result_names_only_stored_files_and_stored_output(tmp_path: Path) -> None:
    blobs, gone = Blobs(FolderStore(tmp_path), 2**20, 0), Output(9000, sha256="0" * 64)
    here = blobs.write(b"here")
    os.utime(blobs.find(here) or "", (1000, 1000))
    result = Result(AttemptId(1, 1, 1), Outcome.SUCCEEDED, 0, stderr=gone, outputs=(OutputFile("x", here, 4),))
    report = Report(1, 0, (), (result,), Load(1))
    (checked,) = (await with_files(blobs, report)).results
    assert checked == replace(result, stderr=Output(9000, cut=True))
    assert not blobs.store.remove(here, before=2000), "a row is about to name it"
    (checked,) = (await with_files(blobs, replace(report, results=(replace(result, value=gone),)))).results
    assert (checked.outcome, checked.value, checked.outputs) == (Outcome.GIVEN_BACK, None, ())
    plain = replace(report, results=(Result(AttemptId(1, 1, 1), Outcome.SUCCEEDED, 0),))
    assert await with_files(blobs, plain) is plain


async def test_stored_files_named_in_rows_are_found_at_any_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = Blobs(FolderStore(tmp_path), 2**20, 0)
    names = [blobs.write(bytes([number])) for number in range(20)]
    rows = blobs.write(b"".join(b'{"call": "sha256:%s"}\n' % name.encode() for name in [*names, "f" * 64]))
    monkeypatch.setattr(retention, "_BLOCK_BYTES", 100)
    marks = retention._Marks()
    one = retention.Retention(None, blobs, MasterSettings(), None, RemovalClock())  # type: ignore[arg-type]
    one._mark_within(marks, rows, retention._NAME_IN_ROWS)
    assert [name for name in names if name not in marks] == []
    assert len(marks.keys) == len(names)


async def test_old_unfinished_uploads_are_removed(master: Bench) -> None:
    part = master.parts[Blobs].store.folder / "incoming" / ("a" * 64)
    part.write_bytes(b"half")
    assert (await prune(master, delete=True))["uploads"] == 0
    os.utime(part, (1000, 1000))
    seen = await prune(master)
    assert (seen["uploads"], seen["upload_bytes"], part.exists()) == (1, 4, True)
    await prune(master, delete=True)
    assert not part.exists()


async def test_only_admins_can_prune(master: Bench) -> None:
    for role in ("user", "reader", "worker"):
        assert (await master.ask("POST", "/prune", role, json={})).status == 403
