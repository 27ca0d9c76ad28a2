"""Commands keep their promises through a power cut right after their end."""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from loopline_master.store import open_store
from tests.power.disk import Disk, Record, compiled, difference, read_records, recording
from tests.store.workload import log_of, relive

_COPY = """
import sys
from pathlib import Path
from loopline_master.store.copies import copy_database
copy_database(Path(sys.argv[1]), Path(sys.argv[2]))
"""


class Recorded:
    """A folder below which all writes are recorded, and a master's data in it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "disk"
        self.data = self.root / "master"
        self._folder, self._library = folder, compiled(folder)
        self.data.mkdir(parents=True)

    def run(self, *command: str) -> tuple[Disk, list[Record]]:
        """Run a command. Return the disk before it, and the records of its writes."""
        disk, log = Disk(self.root), self._folder / "log"
        environment = os.environ | recording(self._library, self.root, log)
        subprocess.run([sys.executable, *command], env=environment, check=True, timeout=300)
        return disk, read_records(log)

    def after_cut(self, *command: str) -> Path:
        """Run a command, cut the power as soon as it has ended, and return the disk's folder."""
        disk, records = self.run(*command)
        for record in records:
            disk.apply(record)
        seen, lost = self._folder / "seen", self._folder / "after-cut"
        disk.rebuild(seen)
        assert not difference(self.root, seen), "the recorder missed a write"
        disk.lose_all_pending(lost)
        return lost


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    found = Recorded(tmp_path)

    async def live() -> None:
        async with open_store(f"sqlite:///{found.data / 'loopline.db'}") as store:
            await relive(store, log_of(7, turns=20))

    asyncio.run(live())
    return found


def test_backup_is_there_after_a_power_cut(recorded: Recorded) -> None:
    command = ("-m", "loopline_master.maintenance.backup", str(recorded.root / "backups" / "monday"))
    lost = recorded.after_cut(*command, "--data-dir", str(recorded.data))
    assert not difference(recorded.root / "backups" / "monday", lost / "backups" / "monday")


def test_restored_folder_is_there_after_a_power_cut(recorded: Recorded) -> None:
    kept = recorded.root / "monday"
    command = ("-m", "loopline_master.maintenance.backup", str(kept), "--data-dir", str(recorded.data))
    subprocess.run([sys.executable, *command], check=True, timeout=300)
    again = recorded.root / "again"
    again.mkdir()
    lost = recorded.after_cut("-m", "loopline_master.maintenance.restore", str(kept), "--data-dir", str(again))
    assert not difference(again, lost / "again")


def test_copy_before_a_migration_is_there_after_a_power_cut(recorded: Recorded) -> None:
    source, copy = recorded.data / "loopline.db", recorded.data / "loopline.db.before-0002"
    lost = recorded.after_cut("-c", _COPY, str(source), str(copy))
    with closing(sqlite3.connect(lost / "master" / copy.name)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("SELECT count(*) FROM jobs").fetchone()[0] > 0


_SMALL_FILES = {
    "membership": "from loopline_shared.joining import Membership as M; M('http://m', 'ann', 'x').write(file)",
    "records of allocations": "from loopline.elastic.records import Records as R; R(file.parent)._write([])",
    "certificate": "from loopline_worker.link.identity import WorkerIdentity as W; W(file.parent).keep('signed')",
}


@pytest.mark.parametrize("code", _SMALL_FILES.values(), ids=_SMALL_FILES)
def test_small_file_is_there_after_a_power_cut(recorded: Recorded, code: str) -> None:
    folder = recorded.root / "own"
    folder.mkdir()
    lost = recorded.after_cut("-c", f"from pathlib import Path; file = Path({str(folder / 'file.json')!r}); {code}")
    assert not difference(folder, lost / "own")
    assert list((lost / "own").glob("*.*"))


def test_request_for_a_certificate_never_outlives_its_key(recorded: Recorded, tmp_path: Path) -> None:
    key, request = recorded.root / "key.pem", recorded.root / "request.pem"
    disk, records = recorded.run("-m", "loopline_worker.link.new_key", str(key), str(request))
    for place, record in enumerate(records):
        disk.apply(record)
        for seed in range(5):
            lost = tmp_path / f"cut-{place}-{seed}"
            disk.rebuild(lost, random.Random(seed))
            if (lost / "request.pem").exists():
                assert (lost / "request.pem").read_bytes() == request.read_bytes()
                assert (lost / "key.pem").read_bytes() == key.read_bytes()
