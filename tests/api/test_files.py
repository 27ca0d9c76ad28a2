"""Content-addressed files: stored completely or not at all."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from blake3 import blake3

from loopline_master.files import blobs, file_store
from loopline_master.files.blobs import Blobs
from loopline_master.files.file_store import FolderStore
from loopline_master.settings import MasterSettings
from loopline_shared.checksums import HEADER
from loopline_shared.errors import LooplineError
from tests.api.bench import Answer, Bench, running_master, until

CONTENT = bytes(range(256)) * 5000


def path_of(content: bytes) -> str:
    return f"/files/{hashlib.sha256(content).hexdigest()}"


def parts(folder: Path) -> list[Path]:
    return list((folder / "files" / "incoming").iterdir())


async def test_uploaded_file_can_be_downloaded(master: Bench) -> None:
    assert (await master.ask("HEAD", path_of(CONTENT))).status == 404
    for _ in range(2):
        assert (await master.ask("PUT", path_of(CONTENT), "user", data=CONTENT)).status == 204
    head = await master.ask("HEAD", path_of(CONTENT), "worker")
    assert (head.status, int(head.headers["Content-Length"])) == (200, len(CONTENT))
    got = await master.ask("GET", path_of(CONTENT), "reader")
    assert got.content == CONTENT
    assert "immutable" in got.headers["Cache-Control"]
    assert got.headers["Content-Type"] == "application/octet-stream"


async def test_range_of_a_file_can_be_downloaded(master: Bench) -> None:
    await master.ask("PUT", path_of(CONTENT), data=CONTENT)
    part = await master.ask("GET", path_of(CONTENT), headers={"Range": "bytes=1000-1999"})
    assert (part.status, part.content) == (206, CONTENT[1000:2000])
    beyond = await master.ask("GET", path_of(CONTENT), headers={"Range": f"bytes={len(CONTENT)}-"})
    assert beyond.status == 416


async def test_seal_of_a_file_survives_a_restart(tmp_path: Path) -> None:
    seal = f"blake3:{blake3(CONTENT).hexdigest()}"
    async with running_master(tmp_path) as master:
        await master.ask("PUT", path_of(CONTENT), data=CONTENT)
        assert (await master.ask("GET", path_of(CONTENT))).headers[HEADER] == seal
    async with running_master(tmp_path) as master:
        part = await master.ask("GET", path_of(CONTENT), headers={"Range": "bytes=1000-"})
        assert (part.status, part.headers[HEADER]) == (206, seal)


async def test_file_without_a_seal_is_served(master: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object) -> None:
        raise OSError(errno.ENOTSUP, "this disk keeps none")

    monkeypatch.setattr(os, "setxattr", refuses)
    await master.ask("PUT", path_of(CONTENT), data=CONTENT)
    got = await master.ask("GET", path_of(CONTENT))
    assert (got.content, HEADER in got.headers) == (CONTENT, False)


async def test_empty_file_can_be_stored(master: Bench) -> None:
    assert (await master.ask("PUT", path_of(b""), data=b"")).status == 204
    assert (await master.ask("GET", path_of(b""))).content == b""


async def test_content_must_match_its_hash(master: Bench) -> None:
    answer = await master.ask("PUT", path_of(CONTENT), data=CONTENT + b"x")
    assert (answer.status, answer.body["code"]) == (422, "wrong_hash")
    assert (await master.ask("HEAD", path_of(CONTENT))).status == 404
    assert not parts(master.parts[MasterSettings].data_dir)


async def test_file_size_is_limited(tmp_path: Path) -> None:
    async def in_pieces() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * 100

    async with running_master(tmp_path, limits={"max_file_bytes": 1000}) as master:
        for data in (b"x" * 10_000, in_pieces()):
            answer = await master.ask("PUT", path_of(b"x" * 10_000), data=data)
            assert (answer.status, answer.body["code"]) == (413, "too_large")
        assert (await master.ask("PUT", path_of(b"x" * 1000), data=b"x" * 1000)).status == 204
        assert not parts(tmp_path)


async def test_upload_is_refused_if_the_database_needs_the_space(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_master(tmp_path, limits={"disk_reserve_bytes": 2**60}) as master:
        for _ in range(2):
            answer = await master.ask("PUT", path_of(CONTENT), data=CONTENT)
            assert (answer.status, answer.body["code"]) == (507, "disk_full")
        assert not parts(tmp_path)
    assert caplog.text.count(f"the disk has no room for more files ({tmp_path / 'files'})") == 1


async def test_concurrent_uploads_leave_space_for_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def usage(_: Path) -> SimpleNamespace:
        return SimpleNamespace(free=5000 - sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file()))

    async def in_pieces(byte: bytes) -> AsyncIterator[bytes]:
        for _ in range(20):
            yield byte * 100
            await asyncio.sleep(0)

    monkeypatch.setattr(file_store.shutil, "disk_usage", usage)
    files, contents = Blobs(FolderStore(tmp_path), 2**30, 1000), [bytes([number]) for number in range(6)]
    names = [hashlib.sha256(content * 2000).hexdigest() for content in contents]
    puts = [files.put(name, in_pieces(content)) for name, content in zip(names, contents, strict=True)]
    ends = await asyncio.gather(*puts, return_exceptions=True)
    assert {end.code for end in ends if isinstance(end, LooplineError)} == {"disk_full"}
    assert usage(tmp_path).free >= 1000


async def test_same_file_can_be_uploaded_concurrently(master: Bench) -> None:
    answers = await asyncio.gather(*(master.ask("PUT", path_of(CONTENT), data=CONTENT) for _ in range(8)))
    assert {answer.status for answer in answers} == {204}
    assert (await master.ask("GET", path_of(CONTENT))).content == CONTENT
    assert not parts(master.parts[MasterSettings].data_dir)


async def test_interrupted_upload_can_be_resumed(master: Bench) -> None:
    await break_off(master, CONTENT, 1000)
    head = await master.ask("HEAD", path_of(CONTENT))
    assert (head.status, head.headers["Upload-Offset"]) == (404, "1000")
    assert (await put_rest(master, CONTENT, 1000)).status == 204
    assert (await master.ask("GET", path_of(CONTENT))).content == CONTENT
    assert not parts(master.parts[MasterSettings].data_dir)


async def test_interrupted_upload_can_be_resumed_after_a_restart(tmp_path: Path) -> None:
    async with running_master(tmp_path) as master:
        await break_off(master, CONTENT, 5000)
    async with running_master(tmp_path) as master:
        assert (await master.ask("HEAD", path_of(CONTENT))).headers["Upload-Offset"] == "5000"
        assert (await put_rest(master, CONTENT, 5000)).status == 204
        assert (await master.ask("GET", path_of(CONTENT))).content == CONTENT


async def test_interrupted_upload_can_start_from_an_earlier_byte(master: Bench) -> None:
    await break_off(master, CONTENT, 1000)
    assert (await put_rest(master, CONTENT, 400)).status == 204  # from a byte before the interruption
    other = CONTENT[::-1]
    await break_off(master, other, 1000)
    assert (await master.ask("PUT", path_of(other), data=other)).status == 204
    for content in (CONTENT, other):
        assert (await master.ask("GET", path_of(content))).content == content


async def test_upload_cannot_resume_behind_its_received_bytes(master: Bench) -> None:
    await break_off(master, CONTENT, 1000)
    answer = await put_rest(master, CONTENT, 1001)
    assert (answer.status, answer.body["code"]) == (409, "upload_offset")
    assert "resumes at byte 1000" in answer.body["detail"]


@pytest.mark.parametrize("span", ["bytes 5-1/10", "bytes 0-4/10", "bytes 5-10/10", "items 0-1/2", "bytes 0-*/10"])
async def test_resumed_upload_must_reach_the_end(master: Bench, span: str) -> None:
    answer = await master.ask("PUT", path_of(CONTENT), data=b"x", headers={"Content-Range": span})
    assert answer.status == 422


async def test_upload_with_a_wrong_hash_cannot_be_resumed(master: Bench) -> None:
    wrong = b"x" + CONTENT[1:]
    await break_off(master, CONTENT, 1000, sent=wrong)
    assert (await put_rest(master, CONTENT, 1000)).body["code"] == "wrong_hash"
    assert "Upload-Offset" not in (await master.ask("HEAD", path_of(CONTENT))).headers
    assert (await master.ask("PUT", path_of(CONTENT), data=CONTENT)).status == 204


async def test_start_keeps_only_the_latest_unfinished_uploads(tmp_path: Path) -> None:
    Blobs(FolderStore(tmp_path), 1, 0)
    for name in ("a" * 64, "b" * 64, f"{'c' * 64}.0123", "0123"):
        (tmp_path / "incoming" / name).write_bytes(b"half")
        os.utime(tmp_path / "incoming" / name, (ord(name[0]), ord(name[0])))
    Blobs(FolderStore(tmp_path), 1, 0, max_unfinished=1)
    assert [file.name[0] for file in (tmp_path / "incoming").iterdir()] == ["b"]  # the most recent


async def test_retained_file_is_not_removed(tmp_path: Path) -> None:
    files = Blobs(FolderStore(tmp_path), 1, 0)
    name = files.write(b"content")
    os.utime(files.find(name) or "", (1000, 1000))
    assert files.retain(name) == 7
    assert not files.store.remove(name, before=2000)
    os.utime(files.find(name) or "", (1000, 1000))
    assert files.store.remove(name, before=2000)
    assert files.retain(name) is None


async def test_retaining_a_file_counts_as_a_new_upload(tmp_path: Path) -> None:
    files = Blobs(FolderStore(tmp_path), 1, 0)
    name = files.write(b"content")
    assert files.retain(name) == 7
    path = files.find(name)
    assert path
    assert not files.store.remove(name, before=path.stat().st_mtime + 0.05)


async def test_full_disk_is_reported_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async def content() -> AsyncIterator[bytes]:
        yield CONTENT

    monkeypatch.setattr(blobs, "_append", fails)
    with pytest.raises(LooplineError) as failure:
        await Blobs(FolderStore(tmp_path), 2**30, 0).put("0" * 64, content())
    assert failure.value.status == 507


async def break_off(master: Bench, content: bytes, after: int, sent: bytes = b"") -> None:
    """Send the first bytes of a file, and disconnect."""
    _, writer = await asyncio.open_connection("127.0.0.1", master.port)
    authorization = master.headers("worker")["Authorization"]
    head = f"PUT /api/v1{path_of(content)} HTTP/1.1\r\nHost: x\r\nAuthorization: {authorization}\r\n"
    writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + (sent or content)[:after])
    await writer.drain()
    folder = master.parts[MasterSettings].data_dir
    await until(lambda: _are_written(folder, after))
    writer.transport.abort()
    await until(lambda: _is_at(master, content, after))


async def put_rest(master: Bench, content: bytes, start: int) -> Answer:
    span = f"bytes {start}-{len(content) - 1}/{len(content)}"
    return await master.ask("PUT", path_of(content), data=content[start:], headers={"Content-Range": span})


async def _are_written(folder: Path, count: int) -> bool:
    return any(part.stat().st_size == count for part in parts(folder))


async def _is_at(master: Bench, content: bytes, count: int) -> bool:
    head = await master.ask("HEAD", path_of(content))
    return head.headers.get("Upload-Offset") == str(count)


async def test_upload_beyond_user_file_bytes_is_refused(tmp_path: Path) -> None:
    async with running_master(tmp_path, limits={"user_file_bytes": 1000}) as master:
        first = await put(master, "user", b"a" * 600)
        again = await put(master, "user", b"a" * 600)
        refused = await put(master, "user", b"b" * 600)
        assert [first.status, again.status, refused.status] == [204, 204, 429]
        assert "has 600 of the 1,000 bytes" in refused.body["detail"]
        refused = await put(master, "user", b"d" * 600, is_announced=False)
        assert (refused.status, refused.body["code"]) == (429, "user_file_bytes")
        assert (await put(master, "user", b"e" * 300, is_announced=False)).status == 204
        assert (await put(master, "admin", b"b" * 600)).status == 204, "other users have their own limit"
        await master.submit("user")
        (user,) = (await master.get("/shares"))["users"]
        assert {"what": "file_bytes", "used": 900, "allowed": 1000} in user["limits"]
        os.utime(master.parts[Blobs].find(path_of(b"a" * 600)[-64:]) or "", (1000, 1000))
        await master.ask("POST", "/prune", json={"delete": True})
        assert (await put(master, "user", b"c" * 600)).status == 204


async def put(master: Bench, role: str, content: bytes, *, is_announced: bool = True) -> Answer:
    """Upload a file; ``is_announced``: the request has a Content-Length."""

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(content), 100):
            yield content[start : start + 100]

    return await master.ask("PUT", path_of(content), role, data=content if is_announced else pieces())
