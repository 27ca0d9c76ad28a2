"""Folders taken at one moment, packed into pieces, and written again; and how often that is worth it."""

import fcntl
import hashlib
import math
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from loopline_shared.model import AttemptId
from loopline_shared.protocol.checkpoints import CheckpointOrder
from loopline_shared.protocol.saved_state import PIECE_BYTES, SavedFile, SavedState
from loopline_worker.checkpoints import folder_snapshot, interval
from loopline_worker.checkpoints.folder_snapshot import NotTakenError, SnapshotTerms, TakenFolder, fill, stamps
from loopline_worker.checkpoints.local_store import LocalStore, Record, StoredTask
from loopline_worker.checkpoints.packing import OutputTaken, Packed, pack
from loopline_worker.checkpoints.restoring import Restoring
from loopline_worker.supervisor.users import credentials, leases
from loopline_worker.supervisor.users.credentials import TaskUser

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is taken while a task runs")
LARGE = 200_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "state"
    place.mkdir()
    return place


@pytest.fixture
def stored(tmp_path: Path) -> StoredTask:
    return LocalStore(tmp_path / "checkpoints").task(AttemptId(1, 1, 1))


def terms(before: Packed | None = None, **more: Any) -> SnapshotTerms:
    known = before.known if before else {}
    return SnapshotTerms(**{"max_bytes": 10**9, "known": known, "deadline": time.monotonic() + 60, **more})


def snapshot(folder: Path, terms: SnapshotTerms) -> TakenFolder:
    taken = TakenFolder(folder, time.time_ns())
    try:
        fill(taken, terms)
    except BaseException:
        taken.close()
        raise
    return taken


def packed(folder: Path, stored: StoredTask, before: Packed | None = None) -> Packed:
    return pack(snapshot(folder, terms(before)), OutputTaken(), stored, before)


def written(stored: StoredTask, one: Packed, place: Path) -> dict[str, bytes]:
    """Write a checkpoint to a new folder; return its files."""
    place.mkdir()
    record = Record("", AttemptId(1, 1, 1), one.manifest, 0.0, 0.0, ("w1",), 0)
    restoring = Restoring(stored.state(record), place)
    restoring.make()
    for piece in restoring.parts:
        restoring.write(piece, stored.read(piece))
    return {str(file.relative_to(place)): file.read_bytes() for file in place.rglob("*") if file.is_file()}


def test_only_the_newest_step_of_a_gangs_member_is_taken(folder: Path) -> None:
    """It is taken as soon as it has its name, and the program has yet to remove the step before it."""
    for name in ("step-9", "step-10", "shared"):
        (folder / name).mkdir()
        (folder / name / "state").write_bytes(b"x" * 100)
    taken = snapshot(folder, terms(max_bytes=250, newest_step_only=True))
    assert [file.path for file in taken.files] == ["shared/state", "step-10/state"]
    assert taken.step == 10
    taken.close()


def test_large_file_is_read_after_it_was_replaced(folder: Path, stored: StoredTask, tmp_path: Path) -> None:
    (folder / "x").write_bytes(b"old" * LARGE)
    taken = snapshot(folder, terms())
    (folder / "y").write_bytes(b"new" * LARGE)
    (folder / "y").replace(folder / "x")
    assert written(stored, pack(taken, OutputTaken(), stored, None), tmp_path / "w") == {"x": b"old" * LARGE}


def test_file_that_is_opened_for_writing_before_it_was_read_is_dropped(folder: Path, stored: StoredTask) -> None:
    (folder / "x").write_bytes(b"old" * LARGE)
    taken = snapshot(folder, terms(on_break=signal.SIGURG))
    with subprocess.Popen([sys.executable, "-c", "open('x', 'r+b').write(b'new')"], cwd=folder) as writer:
        file = taken.files[0]
        while taken.is_sound(file):
            assert writer.poll() is None, "it waits for the lease"
        taken.check_leases()
        assert writer.wait() == 0
    with pytest.raises(NotTakenError, match="x was written to before it was read"):
        pack(taken, OutputTaken(), stored, None)
    assert file.handle < 0


def test_broken_lease_signals_the_process_though_a_thread_took_it(folder: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    (folder / "x").write_bytes(b"old" * LARGE)
    has_come = threading.Event()
    before = signal.signal(signal.SIGURG, lambda *_: has_come.set())
    try:
        with ThreadPoolExecutor(1) as threads:
            taken = threads.submit(snapshot, folder, terms(on_break=signal.SIGURG)).result()
        with subprocess.Popen([sys.executable, "-c", "open('x', 'r+b')"], cwd=folder):
            found = has_come.wait(60)
            taken.close()
        assert found
    finally:
        signal.signal(signal.SIGURG, before)


def test_file_with_a_writer_is_copied_unless_it_is_large(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (folder / "x").open("wb") as file:
        file.write(b"x" * LARGE)
        file.flush()
        taken = snapshot(folder, terms())
        assert taken.files[0].content == b"x" * LARGE
        assert taken.has_writer
        monkeypatch.setattr(folder_snapshot, "MOST_COPIED_BYTES", LARGE - 1)
        with pytest.raises(NotTakenError, match="x is written in place: write a new file and rename it"):
            snapshot(folder, terms())


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_folder_with_something_else_than_files_is_refused(folder: Path, kind: str) -> None:
    if kind == "link":
        (folder / "x").symlink_to("/etc/passwd")
    else:
        os.mkfifo(folder / "x")
    with pytest.raises(NotTakenError, match="x is a link or a device, which is not saved"):
        snapshot(folder, terms())


def open_files() -> list[str]:
    """Return the paths of this process's open files."""
    found = []
    for handle in os.listdir("/proc/self/fd"):  # noqa: PTH208 - numbers, some of closed files
        with suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{handle}"))  # noqa: PTH115
    return found


def test_limits_of_bytes_files_and_time_are_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        (folder / name).write_bytes(b"x" * 100)
    (folder / "aa").write_bytes(b"x" * LARGE)
    with pytest.raises(NotTakenError, match="more than 200,299 bytes"):
        snapshot(folder, terms(max_bytes=LARGE + 299))
    with pytest.raises(NotTakenError, match="cannot be taken in the time"):
        snapshot(folder, terms(deadline=time.monotonic() - 1))
    monkeypatch.setattr(folder_snapshot, "MAX_FILES", 2)
    with pytest.raises(NotTakenError, match="more than 2 files"):
        snapshot(folder, terms())
    assert [path for path in open_files() if path.startswith(str(folder))] == []


def test_unchanged_pieces_are_shared_with_the_checkpoint_before(
    folder: Path, stored: StoredTask, tmp_path: Path
) -> None:
    content = bytearray(os.urandom(20 * PIECE_BYTES))
    (folder / "x").write_bytes(content)
    first = packed(folder, stored)
    content[5 * PIECE_BYTES + 7] ^= 1
    (folder / "y").write_bytes(content)
    (folder / "y").replace(folder / "x")
    second = packed(folder, stored, first)
    assert len(second.sizes.keys() - first.sizes.keys()) == 1
    assert written(stored, second, tmp_path / "w") == {"x": bytes(content)}


def test_small_files_share_pieces_and_unchanged_ones_keep_theirs(
    folder: Path, stored: StoredTask, tmp_path: Path
) -> None:
    for number in range(100):
        (folder / f"{number:02}").write_bytes(b"%02d" % number * 500)
    (folder / "empty").write_bytes(b"")
    first = packed(folder, stored)
    assert len(first.sizes) == 1
    (folder / "07").write_bytes(b"new")
    second = packed(folder, stored, first)
    assert sorted(second.sizes.values()) == [3, 100_000]
    files = written(stored, second, tmp_path / "w")
    assert (files["07"], files["99"], files["empty"], len(files)) == (b"new", b"99" * 500, b"", 101)


def test_small_files_are_bundled_again_when_half_of_the_bundles_is_useless(folder: Path, stored: StoredTask) -> None:
    """One file in each bundle stays, and keeps the whole bundle."""
    for number in range(7):
        (folder / f"{number}a").write_bytes(b"%d" % number)
        (folder / f"{number}b").write_bytes(b"%d" % number * (PIECE_BYTES - 10))
    before = packed(folder, stored)
    assert not before.is_wasteful
    for number in range(7):
        (folder / f"{number}b").write_bytes(b"")
    wasteful = packed(folder, stored, before)
    assert wasteful.is_wasteful
    assert wasteful.size_bytes > 5 * PIECE_BYTES
    assert packed(folder, stored).size_bytes == 7


def test_unchanged_large_file_is_not_read_again(
    folder: Path, stored: StoredTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "x").write_bytes(b"x" * LARGE)
    monkeypatch.setattr("loopline_worker.checkpoints.packing.SETTLED_NS", -(10**18))
    first = packed(folder, stored)
    taken = snapshot(folder, terms(first))
    assert taken.files[0].known
    assert pack(taken, OutputTaken(), stored, first).sizes == first.sizes


def test_large_file_that_has_just_changed_is_read_again(
    folder: Path, stored: StoredTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clocks of file systems have coarse steps: another change may not show."""
    monkeypatch.setattr("loopline_worker.checkpoints.packing.SETTLED_NS", 3600 * 10**9)
    (folder / "x").write_bytes(b"x" * LARGE)
    first = packed(folder, stored)
    assert snapshot(folder, terms(first)).files[0].known is None


def test_file_of_many_pieces_is_restored_at_its_size(folder: Path, stored: StoredTask, tmp_path: Path) -> None:
    content = os.urandom(3 * PIECE_BYTES + 5)
    (folder / "deep").mkdir()
    (folder / "deep/x").write_bytes(content)
    (folder / "deep/y").write_bytes(b"y")
    one = packed(folder, stored)
    assert written(stored, one, tmp_path / "w") == {"deep/x": content, "deep/y": b"y"}


def test_piece_that_is_too_short_is_noticed(tmp_path: Path) -> None:
    sha256 = hashlib.sha256(b"").hexdigest()
    restoring = Restoring(SavedState({"x": SavedFile(5, 0o644, (sha256,))}), tmp_path)
    restoring.make()
    with pytest.raises(ValueError, match="too short"):
        restoring.write(sha256, b"")


def test_change_of_a_file_changes_the_stamps(folder: Path) -> None:
    (folder / "deep").mkdir()
    (folder / "deep/x").write_bytes(b"x")
    before = stamps(folder)
    (folder / "deep/y.new").write_bytes(b"y")
    assert stamps(folder) == before
    (folder / "deep/y.new").replace(folder / "deep/y")
    assert stamps(folder).keys() - before.keys() == {"deep/y"}


def record(one: Packed) -> Record:
    return Record("", AttemptId(1, 1, 1), one.manifest, 0.0, 0.0, ("w1",), 0)


def test_only_the_newest_checkpoint_is_kept(folder: Path, stored: StoredTask) -> None:
    (folder / "x").write_bytes(b"one")
    first = packed(folder, stored)
    stored.commit(record(first), first.sizes, syncs=True)
    (folder / "x").write_bytes(b"two")
    second = packed(folder, stored, first)
    stored.commit(record(second), second.sizes, syncs=False)
    assert {file.name for file in (stored.folder / "pieces").iterdir()} == {second.manifest, *second.sizes}
    assert stored.record() == record(second)
    (piece,) = second.sizes
    stored.path(piece).write_bytes(b"owt")
    with pytest.raises(ValueError, match="damaged"):
        stored.read(piece)


def test_old_checkpoints_are_removed_but_not_those_in_use(folder: Path, tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "checkpoints")
    store.sweep()
    (folder / "x").write_bytes(b"x" * 1000)
    for task in (1, 2, 3):
        stored = store.task(AttemptId(1, task, 1))
        one = packed(folder, stored)
        stored.commit(record(one), one.sizes, syncs=False)
        os.utime(stored.folder, (1000 * task, 1000 * task))
    store.make_room(1, {AttemptId(1, 1, 2)})
    assert sorted(place.name for place in (tmp_path / "checkpoints").iterdir()) == ["1.1", "1.3"]
    os.utime(tmp_path / "checkpoints" / "1.1")
    store.sweep()
    assert [place.name for place in (tmp_path / "checkpoints").iterdir()] == ["1.1"]


def _intervals(**order: float | None) -> interval.CheckpointIntervals:
    return interval.CheckpointIntervals(CheckpointOrder(**order), now=0.0)


def test_interval_follows_the_cost_and_the_interruptions() -> None:
    one = _intervals(stopped_every_s=3600.0, lost_every_s=14400.0)
    assert one.due_at == interval.SHORTEST_S
    one.taken(10.0, 0.5)
    assert one.interval_s == pytest.approx(math.sqrt(3600))
    one.taken(10.0, 1e6)
    assert one.due_at == 10.0 + interval.LONGEST_S
    rarely = _intervals(stopped_every_s=3600.0 * 4, lost_every_s=1e9)
    rarely.taken(10.0, 0.5)
    assert rarely.interval_s == pytest.approx(2 * math.sqrt(3600))


def test_upload_costs_less_than_its_time_and_comes_with_a_fresh_checkpoint() -> None:
    one = _intervals(stopped_every_s=3600.0, lost_every_s=14400.0)
    one.taken(100.0, 0.5)  # every 60 s
    one.uploaded(100.0, 6.0)  # every 240 s
    assert one.interval_s == pytest.approx(60)
    assert one.upload_at(160.0) == 370.0, "half an interval late, unless a newer one comes before"
    assert one.upload_at(309.0) == 370.0
    assert one.upload_at(311.0) == 311.0, "rather now than without the work of an interval"
    assert one.upload_at(400.0) == 400.0


def test_checkpoint_is_taken_for_each_upload_where_only_the_disk_is_lost() -> None:
    one = _intervals(stopped_every_s=1e9, lost_every_s=1000.0)
    one.taken(0.0, 2.0)
    one.uploaded(0.0, 4 * 30.0)
    assert one.interval_s == pytest.approx(math.sqrt(2 * 32 * 1000))


def test_gangs_member_saves_no_faster_than_it_uploads() -> None:
    intervals = interval.CheckpointIntervals(CheckpointOrder(every_s=60.0), 0.0)
    assert intervals.gang_interval_s == 60.0
    intervals.uploaded(0.0, 200.0)
    assert intervals.gang_interval_s == 200.0


def test_interval_of_the_job_is_kept() -> None:
    one = _intervals(every_s=5.0)
    one.taken(1.0, 100.0)
    assert one.due_at == one.upload_at(6.0) == 6.0


def test_interval_doubles_after_every_second_failure() -> None:
    one = _intervals(every_s=2.0)
    intervals = []
    for number in range(5):
        one.not_taken(float(number))
        intervals.append(one.interval_s)
    assert intervals == [2.0, 4.0, 4.0, 8.0, 8.0]
    one.taken(5.0, 0.1)
    assert one.interval_s == 2.0
    for _ in range(2):
        one.not_uploaded(10.0)
    assert one.upload_at(11.0) == 10.0 + 4.0 + 1.0


def test_only_small_files_are_read_while_the_task_is_still(folder: Path) -> None:
    with (folder / "large").open("wb") as file:
        file.truncate(10**9)
    for number in range(1000):
        (folder / str(number)).write_bytes(b"x")
    taken = snapshot(folder, terms(max_bytes=2 * 10**9))
    assert sum(len(file.content or b"") for file in taken.files) == 1000
    (leased,) = [file.handle for file in taken.files if file.handle >= 0]
    assert fcntl.fcntl(leased, fcntl.F_GETLEASE) == fcntl.F_RDLCK
    taken.close()


def test_lessor_may_open_as_many_files_as_the_system_allows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets an open file for each file of a task's checkpoint."""
    monkeypatch.setattr(credentials, "become", lambda user: None)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            resource.setrlimit(resource.RLIMIT_NOFILE, (before[1] - 1, before[1]))
            try:
                lessor = leases.start(TaskUser(0, 0), theirs.fileno())
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, before)
        with (tmp_path / "file").open("w") as file:
            socket.send_fds(ours, [b"l"], [file.fileno()])
        assert ours.recv(1) == b"l"
        assert resource.prlimit(lessor, resource.RLIMIT_NOFILE) == (before[1], before[1])
    os.waitpid(lessor, 0)
