"""Files of a result are uploaded before the result: completely, once, and again after a crash."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from loopline_shared.model import AttemptId, Outcome, Output, OutputFile, Result
from loopline_shared.rest.direct import DirectUpload
from loopline_worker.files import uploads as files_uploads
from loopline_worker.files.allowance import NetworkAllowance
from loopline_worker.files.uploads import Uploads
from loopline_worker.link.http_client import HttpClient
from loopline_worker.settings import WorkerSettings
from loopline_worker.state.journal import Spool
from tests.worker.bench import until
from tests.worker.small_master import SmallMaster

CONTENT = bytes(range(256)) * 1000
NAME = hashlib.sha256(CONTENT).hexdigest()
RESULT = Result(AttemptId(1, 2, 3), Outcome.SUCCEEDED, 0, outputs=(OutputFile("out/x.csv", NAME, len(CONTENT)),))


@pytest.fixture
async def uploads(master: SmallMaster) -> AsyncIterator[Uploads]:
    async with HttpClient(WorkerSettings(master=master.url, token="t", retry_min_s=0.01, retry_max_s=0.02)) as gate:  # type: ignore[arg-type]
        yield Uploads(gate)


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    """A spool with a result and its output file."""
    spool = Spool(tmp_path / "spool")
    folder = spool.files_folder(RESULT.attempt)
    folder.mkdir()
    (folder / NAME).write_bytes(CONTENT)
    return spool


async def deliver(uploads: Uploads, spool: Spool, result: Result = RESULT) -> Result:
    files = spool.output_files(result.attempt)
    return await uploads.deliver(result, files, spool.value_file(result.attempt), spool.files_folder(result.attempt))


async def test_file_is_uploaded_once(uploads: Uploads, spool: Spool, master: SmallMaster) -> None:
    assert await deliver(uploads, spool) == RESULT
    assert await deliver(uploads, spool) == RESULT
    assert master.blobs[NAME] == CONTENT
    assert [method for method, _, _ in master.asked] == ["HEAD", "PUT", "HEAD"]


async def test_upload_waits_for_an_unmetered_connection(
    uploads: Uploads, spool: Spool, master: SmallMaster, tmp_path: Path
) -> None:
    uploads._allowance = allowance = NetworkAllowance(tmp_path / "traffic.json")
    allowance.is_metered = True
    assert allowance.look("2026-03-04") == "the network connection is metered"
    delivering = asyncio.create_task(deliver(uploads, spool))
    await asyncio.sleep(0)
    assert not delivering.done()
    assert not master.asked
    allowance.is_metered = False
    allowance.look("2026-03-04")
    assert await delivering == RESULT
    assert allowance.moved_mb == len(CONTENT) / 1e6


async def test_interrupted_upload_is_resumed(uploads: Uploads, spool: Spool, master: SmallMaster) -> None:
    master.unfinished[NAME] = CONTENT[:5000]
    assert await deliver(uploads, spool) == RESULT
    assert master.blobs[NAME] == CONTENT
    assert master.asked[-1] == ("PUT", NAME, f"bytes 5000-{len(CONTENT) - 1}/{len(CONTENT)}")


async def test_upload_to_a_dead_master_restarts_at_the_next_address(spool: Spool, master: SmallMaster) -> None:
    """A computer without power neither answers nor closes its connections."""
    is_asked = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_asked.set()
        await reader.read()
        writer.close()

    gone = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    addresses = f"http://127.0.0.1:{gone.sockets[0].getsockname()[1]},{master.url}"
    settings = WorkerSettings.load(master=addresses, token="t", retry_min_s=0.01, retry_max_s=0.02)
    async with gone, HttpClient(settings) as http:
        delivering = asyncio.create_task(deliver(Uploads(http), spool))
        await is_asked.wait()
        await http.turn_to_next()
        assert await asyncio.wait_for(delivering, 60) == RESULT
    assert master.blobs[NAME] == CONTENT


async def test_stalled_upload_restarts_when_the_link_is_lost(spool: Spool, master: SmallMaster) -> None:
    """The master's computer was switched off, and is back at the same address."""
    is_asked, port = asyncio.Event(), master.port

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_asked.set()
        await reader.read()
        writer.close()

    await master.stop()
    gone = await asyncio.start_server(say_nothing, "127.0.0.1", port, reuse_port=True)
    settings = WorkerSettings.load(master=master.url, token="t", retry_min_s=0.01, retry_max_s=0.02)
    async with HttpClient(settings) as http:
        delivering = asyncio.create_task(deliver(Uploads(http), spool))
        await is_asked.wait()
        gone.close()
        await master.start()
        await http.turn_to_next(3600.0)  # the upload made progress within that time
        assert http._under_way
        await http.turn_to_next(0.0)
        assert not http._under_way
        assert await asyncio.wait_for(delivering, 60) == RESULT
    assert master.blobs[NAME] == CONTENT


async def test_stalled_upload_past_the_master_restarts_once_the_link_is_open_again(
    uploads: Uploads, spool: Spool, master: SmallMaster
) -> None:
    is_asked = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_asked.set()
        await reader.read()
        writer.close()

    storage = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    master.places.append(DirectUpload(f"http://127.0.0.1:{storage.sockets[0].getsockname()[1]}/x", {}))
    async with storage:
        delivering = asyncio.create_task(deliver(uploads, spool))
        await is_asked.wait()
        uploads._http.link_opened(0.0)
        assert await asyncio.wait_for(delivering, 60) == RESULT
    assert master.blobs[NAME] == CONTENT


async def test_invalid_partial_upload_is_overwritten(uploads: Uploads, spool: Spool, master: SmallMaster) -> None:
    master.unfinished[NAME] = b"x" * 5000
    assert await deliver(uploads, spool) == RESULT
    assert master.blobs[NAME] == CONTENT


async def test_result_with_a_changed_file_is_given_back(uploads: Uploads, spool: Spool, master: SmallMaster) -> None:
    master.unfinished[NAME] = CONTENT[:5000]
    (spool.files_folder(RESULT.attempt) / NAME).write_bytes(CONTENT[::-1])
    result = await deliver(uploads, spool)
    assert (result.outcome, [method for method, _, _ in master.asked]) == (Outcome.GIVEN_BACK, ["HEAD", "PUT", "PUT"])
    assert "its content has changed" in result.reason


@pytest.mark.parametrize("left", [b"", CONTENT[:-7]], ids=["gone", "torn"])
async def test_success_without_its_long_output_is_given_back(uploads: Uploads, spool: Spool, left: bytes) -> None:
    """A power cut may keep the journal's line, and lose a part of the spool."""
    stdout, _ = spool.output_files(RESULT.attempt)
    if left:
        stdout.write_bytes(left)
    result = replace(RESULT, stdout=Output(len(CONTENT), sha256=NAME))
    delivered = await deliver(uploads, spool, result)
    assert (delivered.outcome, delivered.stdout) == (Outcome.GIVEN_BACK, Output())
    assert "its output cannot be stored" in delivered.reason


async def test_result_fails_if_the_master_refuses_its_file(
    uploads: Uploads, spool: Spool, master: SmallMaster
) -> None:
    master.blob_status = 413
    result = await deliver(uploads, spool)
    assert (result.outcome, result.outputs, result.is_final) == (Outcome.FAILED, (), True)
    assert "its output out/x.csv cannot be stored" in result.reason
    assert "max_file_bytes" in result.reason


async def test_failed_task_stays_failed_without_files_that_the_master_refuses(
    uploads: Uploads, spool: Spool, master: SmallMaster
) -> None:
    master.blob_status = 413
    failed = replace(RESULT, outcome=Outcome.FAILED, exit_code=3, reason="no licence")
    result = await deliver(uploads, spool, failed)
    assert result == replace(failed, outputs=())


async def test_full_disk_of_the_master_is_logged_once_and_awaited(
    uploads: Uploads, spool: Spool, master: SmallMaster, caplog: pytest.LogCaptureFixture
) -> None:
    master.blob_status = 507
    delivering = asyncio.create_task(deliver(uploads, spool))
    await until(lambda: len(master.asked) > 4)
    assert caplog.text.count("the master's disk has no room for it") == 1
    master.blob_status = 201
    assert await delivering == RESULT


async def test_result_with_a_lost_file_is_given_back(uploads: Uploads, spool: Spool) -> None:
    (spool.files_folder(RESULT.attempt) / NAME).unlink()
    result = await deliver(uploads, spool)
    assert result.outcome is Outcome.GIVEN_BACK
    assert "gone from the worker's disk" in result.reason


async def test_result_with_a_lost_value_is_given_back(uploads: Uploads, spool: Spool, master: SmallMaster) -> None:
    result = Result(RESULT.attempt, Outcome.SUCCEEDED, 0, value=Output(len(CONTENT), sha256=NAME))
    delivered = await deliver(uploads, spool, result)
    assert (delivered.outcome, delivered.value) == (Outcome.GIVEN_BACK, None)
    assert "its result cannot be stored: it is gone from the worker's disk" in delivered.reason
    spool.value_file(result.attempt).write_bytes(CONTENT)
    assert await deliver(uploads, spool, result) == result
    assert master.blobs[NAME] == CONTENT


async def test_long_stdout_is_uploaded_like_a_file(uploads: Uploads, spool: Spool, master: SmallMaster) -> None:
    stdout, _ = spool.output_files(RESULT.attempt)
    stdout.write_bytes(CONTENT)
    result = Result(RESULT.attempt, Outcome.FAILED, 1, stdout=Output(len(CONTENT), sha256=NAME))
    assert await deliver(uploads, spool, result) == result
    assert master.blobs[NAME] == CONTENT


def test_files_stay_in_the_spool_with_their_result(spool: Spool, tmp_path: Path) -> None:
    stray = tmp_path / "spool" / "9.9.9.files"
    stray.mkdir()
    (stray / NAME).write_bytes(b"left over from a crash")
    again = Spool(tmp_path / "spool")
    again.clear([RESULT])
    assert again.size_bytes == len(CONTENT)
    assert not stray.exists()
    again.forget([RESULT.attempt])
    assert list((tmp_path / "spool").iterdir()) == []


async def test_urgent_checkpoint_asks_before_others_that_wait_for_their_turn(
    uploads: Uploads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The master has turned down all others for now."""
    monkeypatch.setattr(files_uploads, "_ASK_AGAIN_S", 0.01)
    (file := tmp_path / "piece").write_bytes(CONTENT)
    asked, gate = list[float](), asyncio.Event()

    async def answer(sha256: str, size_bytes: int, stake: str) -> None:
        at_stake = float(stake.split()[1])
        asked.append(at_stake)
        await gate.wait()
        if at_stake < 9.0:
            raise files_uploads._NotYetError

    monkeypatch.setattr(uploads, "_offset", answer)
    others = [asyncio.create_task(uploads.upload(NAME, file, stake)) for stake in (1.0, 2.0, 3.0, 4.0)]
    await until(lambda: len(asked) == 2)
    urgent = asyncio.create_task(uploads.upload(NAME, file, 9.0))
    await asyncio.sleep(0)
    gate.set()
    assert await asyncio.wait_for(urgent, 60) is False
    assert asked.index(9.0) == 2
    await until(lambda: 4.0 in asked)
    for each in others:
        each.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    assert uploads._asking._free == 2
