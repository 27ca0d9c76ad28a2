"""Files by content: whole or not at all, once and for all."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from master import blobs
from master.blobs import Blobs
from shared.errors import LooplineError
from tests.api.bench import Bench, running_master, until

CONTENT = bytes(range(256)) * 5000


def path_of(content: bytes) -> str:
    return f"/files/{hashlib.sha256(content).hexdigest()}"


def parts(folder: Path) -> list[Path]:
    return list((folder / "files" / "incoming").iterdir())


async def test_what_goes_in_comes_out(master: Bench) -> None:
    assert (await master.ask("HEAD", path_of(CONTENT))).status == 404
    for _ in range(2):
        assert (await master.ask("PUT", path_of(CONTENT), "user", data=CONTENT)).status == 204
    head = await master.ask("HEAD", path_of(CONTENT), "worker")
    assert (head.status, int(head.headers["Content-Length"])) == (200, len(CONTENT))
    got = await master.ask("GET", path_of(CONTENT), "reader")
    assert got.content == CONTENT
    assert "immutable" in got.headers["Cache-Control"]
    assert got.headers["Content-Type"] == "application/octet-stream"


async def test_a_part_can_be_had(master: Bench) -> None:
    await master.ask("PUT", path_of(CONTENT), data=CONTENT)
    part = await master.ask("GET", path_of(CONTENT), headers={"Range": "bytes=1000-1999"})
    assert (part.status, part.content) == (206, CONTENT[1000:2000])
    beyond = await master.ask("GET", path_of(CONTENT), headers={"Range": f"bytes={len(CONTENT)}-"})
    assert beyond.status == 416


async def test_the_empty_file_is_one_too(master: Bench) -> None:
    assert (await master.ask("PUT", path_of(b""), data=b"")).status == 204
    assert (await master.ask("GET", path_of(b""))).content == b""


async def test_content_must_be_what_its_name_says(master: Bench) -> None:
    answer = await master.ask("PUT", path_of(CONTENT), data=CONTENT + b"x")
    assert (answer.status, answer.body["code"]) == (422, "wrong_hash")
    assert (await master.ask("HEAD", path_of(CONTENT))).status == 404
    assert not parts(master.services.settings.data_dir)


async def test_files_have_a_limit(tmp_path: Path) -> None:
    async def in_pieces() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * 100

    async with running_master(tmp_path, limits={"max_file_bytes": 1000}) as master:
        for data in (b"x" * 10_000, in_pieces()):
            answer = await master.ask("PUT", path_of(b"x" * 10_000), data=data)
            assert (answer.status, answer.body["code"]) == (413, "too_large")
        assert (await master.ask("PUT", path_of(b"x" * 1000), data=b"x" * 1000)).status == 204
        assert not parts(tmp_path)


async def test_the_database_keeps_its_room(tmp_path: Path) -> None:
    async with running_master(tmp_path, limits={"disk_reserve_bytes": 2**60}) as master:
        answer = await master.ask("PUT", path_of(CONTENT), data=CONTENT)
        assert (answer.status, answer.body["code"]) == (507, "disk_full")
        assert not parts(tmp_path)


async def test_many_may_bring_the_same_at_once(master: Bench) -> None:
    answers = await asyncio.gather(*(master.ask("PUT", path_of(CONTENT), data=CONTENT) for _ in range(8)))
    assert {answer.status for answer in answers} == {204}
    assert (await master.ask("GET", path_of(CONTENT))).content == CONTENT
    assert not parts(master.services.settings.data_dir)


async def test_an_upload_that_breaks_off_leaves_nothing(master: Bench) -> None:
    folder = master.services.settings.data_dir
    _, writer = await asyncio.open_connection("127.0.0.1", master.port)
    authorization = master.headers("worker")["Authorization"]
    head = f"PUT /api/v1{path_of(CONTENT)} HTTP/1.1\r\nHost: x\r\nAuthorization: {authorization}\r\n"
    writer.write(f"{head}Content-Length: {len(CONTENT)}\r\n\r\n".encode() + CONTENT[:1000])
    await until(lambda: _are(parts, folder, 1))
    writer.transport.abort()
    await until(lambda: _are(parts, folder, 0))
    assert (await master.ask("HEAD", path_of(CONTENT))).status == 404


async def test_what_a_crash_left_on_its_way_in_is_swept(tmp_path: Path) -> None:
    Blobs(tmp_path, 1, 0)
    (tmp_path / "incoming" / "part").write_bytes(b"half")
    Blobs(tmp_path, 1, 0)
    assert not list((tmp_path / "incoming").iterdir())


async def test_a_failing_disk_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async def content() -> AsyncIterator[bytes]:
        yield CONTENT

    monkeypatch.setattr(blobs, "_take", fails)
    with pytest.raises(LooplineError) as failure:
        await Blobs(tmp_path, 2**30, 0).put("0" * 64, content())
    assert failure.value.status == 507


async def _are(what: object, folder: Path, count: int) -> bool:
    return len(parts(folder)) == count
