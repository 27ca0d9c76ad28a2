"""The drill: a backup during operation, a total loss, a restore, and operation after it."""

import asyncio
import hashlib
import json
import time
from datetime import UTC, datetime

import pytest
from sqlalchemy import update

from loopline_master.core.events import (
    Batch,
    JobSubmitted,
    MasterStarted,
    SchedulerSettings,
    WorkerJoined,
    WorkerReported,
)
from loopline_master.core.scheduler import Scheduler
from loopline_master.maintenance import backup, fsck, restore
from loopline_master.store import open_store, replay, tables
from loopline_master.store.database import parse_url, writing
from loopline_master.store.past.lives import JOB_GAP
from loopline_master.store.replay import check
from loopline_shared.model import Load
from loopline_shared.protocol.worker_link import Report
from loopline_shared.spec import JobSpec
from tests.api.bench import FACTS
from tests.store.next_release import install_next_release
from tests.store.workload import log_of, relive

CONTENT = b"what a task has written"
NAME = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def lost(tmp_path, capsys):
    """Return a backup and the path of its data folder, which is deleted."""
    folder, kept = tmp_path / "master", tmp_path / "backups" / "monday"
    blob = folder / "files" / NAME[:2] / NAME[2:]
    for private in (folder / "tokens" / "admin", folder / "certificates" / "ca.key", folder / "files/incoming/half"):
        private.parent.mkdir(parents=True, exist_ok=True)
        private.write_text("secret")
    blob.parent.mkdir()
    blob.write_bytes(CONTENT)

    async def live():
        async with open_store(f"sqlite:///{folder / 'loopline.db'}") as store:
            await relive(store, log_of(7, turns=20))
            arguments = [str(kept), "--data-dir", str(folder), "--json"]
            assert await asyncio.to_thread(backup.main, arguments) == 0

    asyncio.run(live())
    assert json.loads(capsys.readouterr().out)["damaged"] == []
    folder.rename(tmp_path / "lost")
    return kept, folder


def test_restored_master_continues_after_a_total_loss(lost, monkeypatch, capsys):
    kept, folder = lost
    assert restore.main([str(kept), "--data-dir", str(folder)]) == 0
    assert (folder / "tokens" / "admin").read_text() == (folder / "certificates" / "ca.key").read_text() == "secret"
    assert (folder / "files" / NAME[:2] / NAME[2:]).read_bytes() == CONTENT
    assert not (folder / "files/incoming/half").exists()
    url = f"sqlite:///{folder / 'loopline.db'}"

    async def go_on():
        async with open_store(url) as store:
            snapshot = await store.snapshot()
            batch_at, events = snapshot.grid.now + 1, [MasterStarted(SchedulerSettings())]
            events.append(JobSubmitted("ann", JobSpec(command=["echo"])))
            effects = (scheduler := Scheduler(snapshot)).step(events, batch_at)
            await store.commit(Batch(batch_at, events), effects)
            assert scheduler.state.grid.next_job > JOB_GAP
            assert scheduler.state.grid.units_withheld_until > batch_at + SchedulerSettings().lease_s
            return effects.replies[1].job

    assert asyncio.run(go_on()) > JOB_GAP
    assert asyncio.run(check(url)) == []
    monkeypatch.setattr("sys.argv", ["replay", str(folder)])
    assert replay.main() == 0
    assert "of the time before a restore" in capsys.readouterr().out


def test_restore_neither_overwrites_files_nor_accepts_a_changed_backup(lost, capsys):
    kept, folder = lost
    (kept / "tokens" / "admin").write_text("another")
    assert restore.main([str(kept), "--data-dir", str(folder)]) == 2
    assert "has changed since the backup" in capsys.readouterr().err
    assert not folder.exists()
    folder.mkdir()
    (folder / "mine").touch()
    assert restore.main([str(kept), "--data-dir", str(folder)]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert backup.main([str(kept), "--data-dir", str(folder)]) == 2
    assert "there is no database" in capsys.readouterr().err
    assert fsck.main(["--data-dir", str(folder)]) == 2
    assert "there is no database" in capsys.readouterr().err


def test_damaged_file_of_a_backup_is_named(lost, tmp_path, capsys):
    kept, folder = lost
    assert restore.main([str(kept), "--data-dir", str(folder)]) == 0
    (folder / "files" / NAME[:2] / NAME[2:]).write_bytes(b"rotten")
    assert backup.main([str(tmp_path / "tuesday"), "--data-dir", str(folder)]) == 1
    assert f"files/{NAME[:2]}/{NAME[2:]} was damaged" in capsys.readouterr().err


async def test_restore_marks_a_database_restored_by_other_tools(url):
    """PostgreSQL databases are restored by their own tools."""
    async with open_store(url) as store:
        before = store.life
        await relive(store, log_of(7, turns=2))
        jobs = (await store.snapshot()).grid.next_job
    assert await asyncio.to_thread(restore.main, ["--database-url", url]) == 0
    async with open_store(url) as store:
        assert store.life != before
        grid = (await store.snapshot()).grid
        assert (grid.next_job, grid.units_withheld_until) == (jobs + JOB_GAP, None)


async def test_attempts_after_a_restore_have_new_numbers(url):
    """An attempt of the lost time may have had the next number, and a file of its user is named by it."""
    joined = WorkerJoined("ant", 1, "boot", FACTS), WorkerReported("ant", 1, Report(1, 0, (), (), Load(4)))

    async def take(*events):
        """Step these events as a master that has just started; return the job's attempts."""
        async with open_store(url) as store:
            snapshot = await store.snapshot()
            batch = Batch(snapshot.grid.now + 1, [MasterStarted(SchedulerSettings()), *events])
            scheduler = Scheduler(snapshot)
            await store.commit(batch, scheduler.step(batch.events, batch.now))
            return [attempt.id for attempt in scheduler.state.attempts.values()]

    assert await take(JobSubmitted("ann", JobSpec(command=["echo"]))) == []
    for _ in range(2):
        await asyncio.to_thread(restore.begin_again, url)
    (first,) = await take(*joined)
    assert (first.job, first.task) == (1, 1)
    assert first.number > time.time() - datetime(2026, 2, 1, tzinfo=UTC).timestamp()
    assert await check(url) == []


async def test_database_is_copied_before_it_is_migrated(sqlite_url, tmp_path, monkeypatch):
    async with open_store(sqlite_url):
        pass
    install_next_release(tmp_path, monkeypatch)
    async with open_store(sqlite_url):
        pass
    copy = tmp_path / "loopline.db.before-0002"
    assert copy.stat().st_mode & 0o077 == 0
    url = f"sqlite:///{copy}"
    async with writing(parse_url(url)) as write:
        assert await write(lambda connection: connection.execute(update(tables.grid).values(now=1.0)).rowcount) == 0
        found = await write(lambda c: c.exec_driver_sql("SELECT version_num FROM alembic_version").scalar())
    assert found == "0001"


def test_fsck_refuses_to_check_another_computers_master(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("LOOPLINE_MASTER", "https://lab-pc.example:7461")
    monkeypatch.setenv("LOOPLINE_DATA_DIR", str(tmp_path))
    assert fsck.main([]) == 2
    assert "fsck reads the files of a master on this computer" in capsys.readouterr().err
    monkeypatch.setenv("LOOPLINE_MASTER", "https://lab-pc.example:7461,http://127.0.0.1:7461")
    assert fsck.main([]) == 2
    assert "there is no database" in capsys.readouterr().err
