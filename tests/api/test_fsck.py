"""fsck: files that rotted or went are found, with the job or the task that names them, while the master runs."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

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


async def test_damage_and_loss_are_told_with_whose_they_are(
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

            async def is_over() -> bool:
                return bool((await master.get(f"/jobs/{job}"))["state"] == "succeeded")

            await until(is_over)
        assert await checked() == (0, {})

        place(tmp_path, INPUT).write_bytes(b"rotten")
        place(tmp_path, ROTTEN).write_bytes(b"rotten")
        place(tmp_path, OUTPUT).unlink()
        code, told = await checked("--set-aside")
        assert code == 1
        assert [told[name_of(INPUT)][key] for key in ("what", "job", "task")] == ["damaged", job, 0]
        assert [told[name_of(OUTPUT)][key] for key in ("what", "job", "task")] == ["missing", job, 1]
        assert told[name_of(ROTTEN)]["remedy"] == "nothing needs it"
        assert (tmp_path / "damaged" / name_of(INPUT)).read_bytes() == b"rotten"

        await upload(master, INPUT)
        assert place(tmp_path, INPUT).read_bytes() == INPUT, "the same content can come again"


def test_a_folder_without_a_database_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fsck.main(["--data-dir", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("error: ")
