"""Checkpoints at the master: whole or not kept, retained piece by piece, shown, and offered again after a restart."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from loopline_master.files.blobs import Blobs
from loopline_master.maintenance.fsck import check
from loopline_master.settings import MasterSettings
from loopline_shared.model import Held, Outcome, Result
from loopline_shared.protocol import saved_state
from loopline_shared.protocol.checkpoints import CheckpointCosts, CheckpointReport, TakenCheckpoint
from loopline_shared.protocol.saved_state import SavedFile, SavedState
from loopline_shared.protocol.worker_link import Run
from tests.api.bench import Bench, FakeWorker, running_master, until


def manifest_of(pieces: Sequence[bytes]) -> bytes:
    files = {
        f"part-{number}": SavedFile(len(piece), pieces=(sha256(piece).hexdigest(),))
        for number, piece in enumerate(pieces)
    }
    return saved_state.encode(SavedState(files))


async def upload(master: Bench, *contents: bytes) -> None:
    for content in contents:
        assert (
            await master.ask("PUT", f"/files/{sha256(content).hexdigest()}", "worker", data=content)
        ).status == 204


async def report(worker: FakeWorker, *results: Result, taken: Sequence[TakenCheckpoint] = ()) -> None:
    held = [Held(attempt) for attempt in worker.holding]
    _, frame = worker.session.report(held, results, worker.load, checkpoints=CheckpointReport(tuple(taken)))
    await worker.socket.send_bytes(frame)


def of(run: Run, manifest: bytes, cpu_s: float = 0.001) -> TakenCheckpoint:
    return TakenCheckpoint(run.attempt, sha256(manifest).hexdigest(), 100, 10, cpu_s, cpu_s, ("w1",), 0)


async def started(worker: FakeWorker) -> Run:
    async def first() -> Run | None:
        return next(iter(worker.holding.values()), None)

    run = await until(first)
    assert isinstance(run, Run)
    return run


async def checkpoints(master: Bench, job: int) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = (await master.get(f"/jobs/{job}/tasks/1/checkpoints", "reader"))["items"]
    return items


async def test_checkpoint_is_listed_and_continued_from_after_a_restart(tmp_path: Path) -> None:
    manifest = manifest_of([b"state"])
    async with running_master(tmp_path) as master:
        async with master.worker(does=lambda run: None) as worker:
            job = await master.submit(checkpoint={})
            run = await started(worker)
            assert run.checkpoint
            assert run.checkpoint.resume is None
            await upload(master, b"state", manifest)
            await report(worker, taken=[replace(of(run, manifest), progress=0.63)])
            (kept,) = await until(lambda: checkpoints(master, job))
            assert kept["manifest"] == sha256(manifest).hexdigest()
            assert (kept["attempt"], kept["worker"], kept["size_bytes"]) == ("1.1.1", "w1", 100)
        known = master.tokens
    async with running_master(tmp_path, known) as master, master.worker(does=lambda run: None) as worker:
        del worker.holding
        worker.holding = {}
        await worker.report()
        again = await started(worker)
        assert again.checkpoint
        assert again.checkpoint.resume
        assert again.checkpoint.resume.manifest == sha256(manifest).hexdigest()
        detail = await master.get(f"/jobs/{job}/tasks/1", "reader")
        assert detail["attempts"][-1]["resumed"] == {
            "times": 1, "worker": "w1", "cpu_s": kept["cpu_s"], "wall_s": kept["wall_s"], "progress": 0.63,
        }  # fmt: skip
        (task,) = (await master.get(f"/jobs/{job}/tasks", "reader"))["items"]
        assert task["resumed"]["times"] == 1


async def test_costs_and_savings_of_checkpoints_are_counted(master: Bench) -> None:
    manifest = manifest_of([b"state"])
    async with master.worker(does=lambda run: None) as worker:
        job = await master.submit(checkpoint={})
        run = await started(worker)
        await upload(master, b"state", manifest)
        taken = replace(of(run, manifest), costs=CheckpointCosts(sent=2, sent_bytes=300, held_s=0.25))
        await report(worker, taken=[taken])
        (kept,) = await until(lambda: checkpoints(master, job))
        ended = Result(run.attempt, Outcome.GIVEN_BACK, None, "the owner is back", cpu_s=1.0, wall_s=1.0)
        await report(worker, ended, taken=[taken])

        async def accounted() -> dict[str, Any] | None:
            ledger: dict[str, Any] = (await master.get(f"/jobs/{job}", "reader"))["ledger"]
            return ledger if ledger["lost_cpu_s"] else None

        ledger = await until(accounted)
        assert isinstance(ledger, dict)
        assert (ledger["checkpoints"], ledger["checkpoint_bytes"], ledger["checkpoint_held_s"]) == (2, 300, 0.25)
        assert 0 < ledger["kept_cpu_s"] <= kept["cpu_s"] + 0.001
        text = (await master.ask("GET", "//metrics", "reader")).content.decode()
        assert "loopline_checkpoint_bytes_total 300.0" in text
        assert "loopline_checkpoint_held_seconds_total 0.25" in text


async def test_checkpoint_without_all_of_its_files_is_not_kept(master: Bench) -> None:
    whole, lacking = manifest_of([b"one"]), manifest_of([b"one", b"two"])
    async with master.worker(does=lambda run: None) as worker:
        job = await master.submit(checkpoint={})
        run = await started(worker)
        await upload(master, b"one", whole, lacking, b"no manifest")
        bad = [of(run, lacking, 0.003), of(run, b"no manifest", 0.004), of(run, b"not here", 0.005)]
        await report(worker, taken=[*bad, of(run, whole)])
        (kept,) = await until(lambda: checkpoints(master, job))
        assert kept["manifest"] == sha256(whole).hexdigest()


async def test_pieces_are_retained_as_long_as_a_row_names_their_manifest(master: Bench) -> None:
    pieces = [bytes([number]) * 100 for number in range(3)]
    old, new = manifest_of(pieces[:2]), manifest_of(pieces[1:])
    async with master.worker(does=lambda run: None) as worker:
        job = await master.submit(checkpoint={})
        run = await started(worker)
        await upload(master, *pieces, old, new)
        await report(worker, taken=[of(run, new)])
        await until(lambda: checkpoints(master, job))
        await _age_all(master, *pieces, old, new)
        await master.ask("POST", "/prune", json={"delete": True})
        assert _kept(master, *pieces, old, new) == [False, True, True, False, True]
        await report(worker, Result(run.attempt, Outcome.SUCCEEDED, 0))
        worker.holding.clear()

        async def has_gone() -> bool:
            return not await checkpoints(master, job)

        await until(has_gone)
        await master.ask("POST", "/prune", json={"delete": True})
        assert not any(_kept(master, *pieces, old, new)), "a task that succeeded keeps none"


async def _age_all(master: Bench, *contents: bytes) -> None:
    for content in contents:
        os.utime(master.parts[Blobs].find(sha256(content).hexdigest()) or "", (1000, 1000))


def _kept(master: Bench, *contents: bytes) -> list[bool]:
    return [master.parts[Blobs].find(sha256(content).hexdigest()) is not None for content in contents]


async def test_fsck_misses_a_piece(tmp_path: Path) -> None:
    manifest = manifest_of([b"one", b"two"])
    async with running_master(tmp_path) as master, master.worker(does=lambda run: None) as worker:
        job = await master.submit(checkpoint={})
        run = await started(worker)
        await upload(master, b"one", b"two", manifest)
        await report(worker, taken=[of(run, manifest)])
        await until(lambda: checkpoints(master, job))
        settings = master.parts[MasterSettings]
        assert (await check(settings)).losses == []
        gone = sha256(b"two").hexdigest()
        (master.parts[Blobs].find(gone) or Path()).unlink()
        (loss,) = (await check(settings)).losses
        assert (loss.file, loss.what, loss.job, loss.task) == (gone, "missing", job, 1)
        assert "an attempt continues from the one before it" in loss.remedy


async def test_retry_continues_unless_it_is_from_the_start(master: Bench) -> None:
    manifest = manifest_of([b"state"])
    for query, continues in (("", True), ("?from_start=true", False)):
        async with master.worker(does=lambda run: None) as worker:
            job = await master.submit(checkpoint={})
            run = await started(worker)
            await upload(master, b"state", manifest)
            await report(worker, taken=[of(run, manifest)])
            await until(lambda job=job: checkpoints(master, job))
            await master.ask("POST", f"/jobs/{job}/cancel")

            async def is_gone(worker: FakeWorker = worker) -> bool:
                return not worker.holding

            await until(is_gone)
            assert (await master.ask("POST", f"/jobs/{job}/retry{query}")).status == 200
            again = await started(worker)
            assert again.checkpoint
            assert (again.checkpoint.resume is not None) == continues
            assert len(await checkpoints(master, job)) == continues
            await master.ask("POST", f"/jobs/{job}/cancel")


CALLS = {"file": f"sha256:{0:064x}", "python": "3.11", "session": "s"}
FUNCTION = {"command": None, "function": CALLS, "requires": {"python": "3.11"}, "checkpoint": {"every_s": 1}}


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"nodes": 2, "checkpoint": {"exit_code": 85}}, "a task on several nodes cannot end to be continued"),
        (FUNCTION | {"function": CALLS | {"chunk": 2, "calls": 2}}, "a checkpoint is of one call"),
        (FUNCTION | {"checkpoint": {"exit_code": 85}}, "a function cannot end to be continued"),
        ({"outputs": [".checkpoint/state"]}, "the folder that checkpoints are taken of"),
        ({"inputs": {".checkpoint/state": {"file": f"sha256:{0:064x}"}}}, "the folder that checkpoints are taken of"),
    ],
)
async def test_job_whose_tasks_cannot_take_checkpoints_is_refused(
    master: Bench, more: dict[str, Any], why: str
) -> None:
    job = {"command": ["work"], "checkpoint": {}, **more}
    answer = await master.ask("POST", "/jobs", json=job)
    assert answer.status == 422
    assert why in str(answer.body)
