"""fsck finds damaged and missing files, with the job or task that names them, while the master runs."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from loopline_master.files import whole_files
from loopline_master.maintenance import fsck
from loopline_shared.model import OutputFile, Result
from loopline_shared.protocol.worker_link import Run
from tests.api.bench import Bench, done, running_master, until

INPUT, OUTPUT, ROTTEN = b"input", b"output", b"of nobody"


def name_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def place(folder: Path, content: bytes) -> Path:
    name = name_of(content)
    return folder / "files" / name[:2] / name[2:]


async def upload(master: Bench, content: bytes) -> None:
    answer = await master.ask("PUT", f"/files/{name_of(content)}", data=content)
    assert answer.status == 204, answer.content


def with_output(run: Run) -> Result:
    return done(run, outputs=(OutputFile("out.csv", name_of(OUTPUT), len(OUTPUT)),))


async def test_fsck_reports_damaged_and_missing_files_with_their_jobs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def checked(*words: str) -> tuple[int, dict[str, Any]]:
        code = await asyncio.to_thread(fsck.main, ["--data-dir", str(tmp_path), "--json", *words])
        return code, {loss["file"]: loss for loss in json.loads(capsys.readouterr().out)["losses"]}

    async with running_master(tmp_path) as master:
        for content in (INPUT, OUTPUT, ROTTEN):
            await upload(master, content)
        async with master.worker(does=with_output):
            job = await master.submit(inputs={"in.txt": f"sha256:{name_of(INPUT)}"})
            await until(lambda: has_succeeded(master, job))
        assert await checked() == (0, {})

        place(tmp_path, INPUT).write_bytes(b"rotten")
        place(tmp_path, ROTTEN).write_bytes(b"rotten")
        place(tmp_path, OUTPUT).unlink()
        code, losses = await checked("--set-aside")
        assert code == 1
        assert [losses[name_of(INPUT)][key] for key in ("what", "job", "task")] == ["damaged", job, 0]
        assert [losses[name_of(OUTPUT)][key] for key in ("what", "job", "task")] == ["missing", job, 1]
        assert losses[name_of(ROTTEN)]["remedy"] == "nothing needs it"
        assert (tmp_path / "damaged" / name_of(INPUT)).read_bytes() == b"rotten"

        await upload(master, INPUT)
        assert place(tmp_path, INPUT).read_bytes() == INPUT, "the same content can be uploaded again"


async def test_damaged_file_is_found_when_it_is_requested(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first reader finds it unless it was checked recently; it can be uploaded again, and fsck names its job."""
    async with running_master(tmp_path) as master:
        path = f"/files/{name_of(INPUT)}"
        await upload(master, INPUT)
        async with master.worker(does=with_output):
            await upload(master, OUTPUT)
            job = await master.submit(inputs={"in.txt": f"sha256:{name_of(INPUT)}"})
            await until(lambda: has_succeeded(master, job))
        monkeypatch.setattr(whole_files, "CHECKED_FOR_S", 0.0)
        assert (await master.ask("GET", path)).content == INPUT

        place(tmp_path, INPUT).write_bytes(b"rotte")
        answer = await master.ask("GET", path)
        assert (answer.status, answer.body["code"]) == (404, "damaged")
        assert (tmp_path / "damaged" / name_of(INPUT)).read_bytes() == b"rotte"
        place(tmp_path, OUTPUT).write_bytes(b"rotten")
        assert await asyncio.to_thread(fsck.main, ["--data-dir", str(tmp_path), "--json"]) == 1
        losses = json.loads(capsys.readouterr().out)["losses"]
        assert {(loss["file"], loss["what"], loss["task"]) for loss in losses} == {
            (name_of(INPUT), "damaged", 0),
            (name_of(OUTPUT), "damaged", 1),
        }
        answer = await master.ask("GET", f"/jobs/{job}/tasks/1/outputs/out.csv")
        assert (answer.status, answer.body["code"]) == (404, "damaged")

        await upload(master, INPUT)
        place(tmp_path, INPUT).write_bytes(b"rotte")
        assert (await master.ask("HEAD", path)).status == 404, "a client that has the file uploads it again"
        await upload(master, INPUT)
        assert (await master.ask("HEAD", path)).status == 200
        seal = "user.loopline.seal"
        os.setxattr(place(tmp_path, INPUT), seal, f"blake3:{'0' * 64}".encode())
        assert (await master.ask("GET", path)).content == INPUT, "only its seal is damaged"
        assert seal not in os.listxattr(place(tmp_path, INPUT))


async def test_large_file_is_checked_while_it_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The response is cut off if the check fails before it is complete."""
    monkeypatch.setattr(whole_files, "CHECKED_BEFORE_BYTES", 0)
    monkeypatch.setattr(whole_files, "CHECKED_FOR_S", 0.0)
    content = bytes(32 * 2**20)  # more than fits in the buffers of a socket that is not read
    async with running_master(tmp_path) as master:
        await upload(master, content)
        place(tmp_path, content).write_bytes(b"x" + content[1:])
        headers = master.headers("admin")
        async with master.http.get(master.address(f"/files/{name_of(content)}"), headers=headers) as answer:
            assert answer.status == 200
            await until(lambda: is_set_aside(tmp_path, content))
            with pytest.raises(aiohttp.ClientError):
                await answer.read()


async def is_set_aside(folder: Path, content: bytes) -> bool:
    return (folder / "damaged" / name_of(content)).exists()


async def has_succeeded(master: Bench, job: int) -> bool:
    return bool((await master.get(f"/jobs/{job}"))["state"] == "succeeded")


def test_fsck_refuses_a_folder_without_a_database(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fsck.main(["--data-dir", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("error: ")
