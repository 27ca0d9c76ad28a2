"""Checkpoints by the whole agent, in this process, with real tasks and a small master."""

import asyncio
import json
import logging
import sqlite3
import struct
import sys
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loopline_shared.model import AttemptId, Outcome, Result
from loopline_shared.protocol.checkpoints import CheckpointOrder, RefusedCheckpoint, Resumption, TakenCheckpoint
from loopline_shared.protocol.saved_state import SavedState, decode
from loopline_shared.protocol.worker_link import Run
from loopline_worker.checkpoints import save_events, snapshots
from loopline_worker.checkpoints.attempt_checkpoints import SAVED
from loopline_worker.checkpoints.restoring import Restoring
from loopline_worker.core.sleep_rule import ComputerSleeps
from loopline_worker.settings import SandboxChoice
from loopline_worker.supervisor.walls import landlock
from tests.campaign import tried
from tests.sandboxes import without_bubblewrap
from tests.worker.bench import processes_of, until
from tests.worker.small_master import SmallMaster
from tests.worker.test_agent import Start, Started, start

__all__ = ["patient", "start"]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only the last checkpoint is taken")

COUNTS = """
import os, sys, time
folder, scratch = os.environ["LOOPLINE_CHECKPOINT"], os.environ["LOOPLINE_SCRATCH"]
steps, pause_s, code, quits_at = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
place = folder + "/count"
count = int(open(place).read()) if os.path.exists(place) else 0
if steps < 0:
    steps = count - steps
print("from", count, "after", os.environ["LOOPLINE_RESUMED"], file=open(scratch + "/begun", "w"))
while count < steps and not os.path.exists(scratch + "/enough"):
    time.sleep(pause_s)
    count += 1
    print("step", count, flush=True)
    print("x" * 5000, file=sys.stderr, flush=True)
    with open(scratch + "/count", "w") as file:
        file.write(str(count))
    os.rename(scratch + "/count", place)
    if count == quits_at:
        sys.exit(code)
"""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a busy computer stop tasks for longer than an owner's patience: otherwise it would take few checkpoints."""
    monkeypatch.setattr(snapshots, "STOPPED_S", 10.0)


def run_of(code: str, *arguments: object, number: int = 1, **order: Any) -> Run:
    """A Run that takes checkpoints, as often as possible unless the order says otherwise."""
    command = (sys.executable, "-I", "-S", "-c", code, *map(str, arguments))
    return Run(AttemptId(1, 1, number), command, {}, {}, checkpoint=CheckpointOrder(**{"every_s": 0.02, **order}))


FOR_EVER = 10**9
MORE = 20


def counts(steps: int, pause_s: float = 0.02, code: int = 0, quits_at: int = 0, **order: Any) -> Run:
    """A Run that counts. ``steps``: until then; if negative, this many more than in its checkpoint."""
    return run_of(COUNTS, steps, pause_s, code, quits_at, **order)


def output_of(steps: int) -> bytes:
    return b"".join(b"step %d\n" % step for step in range(1, steps + 1))


def taken(master: SmallMaster) -> list[TakenCheckpoint]:
    return list(
        dict.fromkeys(
            one for report in master.reports for one in (report.checkpoints.taken if report.checkpoints else ())
        )
    )


def restored(master: SmallMaster, one: TakenCheckpoint, folder: Path) -> Restoring:
    """Write a checkpoint that the master has into a folder."""
    folder.mkdir()
    restoring = Restoring(state_of(master, one), folder)
    restoring.make()
    for piece in restoring.parts:
        restoring.write(piece, master.blobs[piece])
    return restoring


def state_of(master: SmallMaster, one: TakenCheckpoint) -> SavedState:
    return decode(master.blobs[one.manifest])


def resumption(one: TakenCheckpoint) -> Resumption:
    return Resumption(one.manifest, one.times + 1, one.cpu_s, one.wall_s, one.line, one.progress)


def stored(agent: Started) -> list[str]:
    folder = agent.folder / "checkpoints"
    return sorted(place.name for place in folder.iterdir()) if folder.exists() else []


async def end_of(master: SmallMaster, run: Run) -> Result:
    (result,) = await master.results_of(run)
    return result


async def has_taken(master: SmallMaster, count: int = 1) -> TakenCheckpoint:
    await until(lambda: len(taken(master)) >= count)
    return taken(master)[-1]


def text_of(master: SmallMaster, result: Result) -> str:
    """Return the text in the only output of a task."""
    (file,) = result.outputs
    return master.blobs[file.sha256].decode()


def output_from(master: SmallMaster, one: TakenCheckpoint, folder: Path) -> bytes:
    """Return the whole output of a task that has counted on from this checkpoint."""
    restored(master, one, folder)
    return output_of(int((folder / "count").read_text()) + MORE)


async def test_output_of_every_checkpoint_is_that_of_its_state(
    master: SmallMaster, start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    worker = start()
    run = counts(FOR_EVER, 0.003)
    await master.say(run)
    await has_taken(master, tried(10))
    await master.say(cancel=(run.attempt,))
    await end_of(master, run)
    for number, one in enumerate(taken(master)):
        restoring = restored(master, one, tmp_path / str(number))
        count = int((tmp_path / str(number) / "count").read_text())
        assert restoring.text("stdout") == output_of(count)
        assert len(restoring.text("stderr")) == 5001 * count
        assert (one.attempt, one.line, one.times) == (run.attempt, ("w1",), 0)
        assert one.wall_s > 0
    await until(lambda: stored(worker) == [])
    assert "gone from the worker's disk" not in caplog.text, "pieces stay until they are sent"


async def test_checkpoint_is_reported_until_it_is_acknowledged(master: SmallMaster, start: Start) -> None:
    master.report_every_s, master.acknowledges = 0.05, False
    start()
    run = run_of("open(__import__('os').environ['LOOPLINE_CHECKPOINT'] + '/x', 'w'); __import__('time').sleep(1000)")
    await master.say(run)
    await until(lambda: sum(bool(report.checkpoints) for report in master.reports) > 2)
    master.acknowledges = True
    await until(lambda: master.reports[-1].checkpoints is None)


SANDBOXES = [
    SandboxChoice.OFF,
    *([SandboxChoice.LANDLOCK] if landlock.version() else []),
    *([] if without_bubblewrap() else [SandboxChoice.BUBBLEWRAP]),
]


@pytest.mark.parametrize("sandbox", SANDBOXES)
async def test_killed_agents_task_continues_from_the_local_disk(
    master: SmallMaster, start: Start, sandbox: SandboxChoice
) -> None:
    worker = start(sandbox=sandbox)
    run = counts(FOR_EVER)
    await master.say(run)
    await has_taken(master, 2)
    await worker.crash()
    worker = start(sandbox=sandbox)
    assert (await end_of(master, run)).outcome is Outcome.GIVEN_BACK
    again = counts(-MORE, number=2)
    again.outputs = ("begun",)
    await master.say(again)
    result = await end_of(master, again)
    words = text_of(master, result).split()
    assert int(words[1]) > 0
    assert words[3] == "1"
    assert (result.outcome, result.stdout.data) == (Outcome.SUCCEEDED, output_of(int(words[1]) + MORE))
    assert result.stderr.size_bytes == 5001 * (int(words[1]) + MORE)
    await until(lambda: stored(worker) == [])


async def test_progress_is_that_of_the_checkpoint_at_first(master: SmallMaster, start: Start) -> None:
    saves = """
import os, time
progress = os.environ["LOOPLINE_PROGRESS"]
print("at", open(progress).read() if os.path.exists(progress) else "the start", flush=True)
open(progress, "w").write("0.63")
while os.environ["LOOPLINE_RESUMED"] == "0":
    open(os.environ["LOOPLINE_CHECKPOINT"] + "/x", "w").close()
    time.sleep(0.05)
"""
    worker = start()
    run = run_of(saves)
    await master.say(run)
    await until(lambda: any(one.progress for one in taken(master)))
    one = taken(master)[-1]
    assert one.progress == 0.63
    await worker.crash()
    start("other")
    again = run_of(saves, number=2, resume=resumption(one))
    await master.say(again)
    assert (await end_of(master, again)).stdout.data == b"at the start\nat 0.63\n"


async def test_task_continues_on_another_computer(master: SmallMaster, start: Start, tmp_path: Path) -> None:
    worker = start()
    run = counts(FOR_EVER)
    await master.say(run)
    one = await has_taken(master, 2)
    await worker.crash()
    other = start("other", name="w2")
    again = counts(FOR_EVER, number=2, resume=resumption(one))
    again.outputs = ("begun",)
    await master.say(again)
    await until(lambda: taken(master)[-1].attempt == again.attempt)
    (other.folder / "scratch" / "1.1.2" / "enough").touch()
    result = await end_of(master, again)
    restored(master, one, tmp_path / "one")
    assert text_of(master, result) == f"from {(tmp_path / 'one' / 'count').read_text()} after 1\n"
    assert result.outcome is Outcome.SUCCEEDED
    assert result.stdout.data == output_of(result.stdout.data.count(b"\n"))
    later = taken(master)[-1]
    assert (later.attempt, later.line, later.times) == (again.attempt, ("w1", "w2"), 1)
    assert later.wall_s > one.wall_s
    assert result.phases
    assert later.wall_s <= one.wall_s + result.phases.ended_s  # the run time itself is measured more exactly
    await until(lambda: stored(other) == [])


@pytest.mark.parametrize("folder", ["data", "other"])
async def test_time_limit_counts_the_time_before_the_checkpoint(
    master: SmallMaster, start: Start, folder: str
) -> None:
    """As the master has it, even if the same checkpoint is on the local disk."""
    worker = start()
    saves = "import os, time; open(os.environ['LOOPLINE_CHECKPOINT'] + '/x', 'w').close(); time.sleep(1000)"
    run = run_of(saves)
    await master.say(run)
    one = await has_taken(master)
    await worker.crash()
    start(folder)
    again = run_of(saves, number=2, resume=Resumption(one.manifest, 1, 100.0, 100.0, ("w1",)))
    again.timeout_s = 100.0
    await master.say(again)
    result = await end_of(master, again)
    assert (result.outcome, result.reason) == (Outcome.FAILED, "timed out after 100 s")


@pytest.mark.parametrize("missing", ["manifest", "piece"])
async def test_incomplete_checkpoint_gives_the_task_back(
    master: SmallMaster, start: Start, tmp_path: Path, missing: str
) -> None:
    worker = start()
    run = counts(FOR_EVER)
    await master.say(run)
    one = await has_taken(master)
    await worker.crash()
    gone = one.manifest if missing == "manifest" else min(state_of(master, one).pieces())
    del master.blobs[gone]
    start("other")
    again = counts(FOR_EVER, number=2, resume=resumption(one))
    await master.say(again)
    result = await end_of(master, again)
    assert result.outcome is Outcome.GIVEN_BACK
    assert result.reason == f"its checkpoint cannot be used here: the master has no file {gone}"
    assert any(report.checkpoints and again.attempt in report.checkpoints.spoilt for report in master.reports)


async def test_damaged_local_checkpoint_is_replaced_by_the_masters(
    master: SmallMaster, start: Start, tmp_path: Path
) -> None:
    worker = start()
    run = counts(FOR_EVER)
    await master.say(run)
    one = await has_taken(master)
    await until(lambda: len(taken(master)) >= 3)
    await worker.crash()
    tools = worker.agent.parts.wings[-1]._tools  # type: ignore[attr-defined]
    for threads in (tools.takers, tools.readers):  # of the agent, which is in this process
        await asyncio.to_thread(threads.shutdown)
    record = json.loads((worker.folder / "checkpoints" / "1.1" / "record.json").read_bytes())
    for piece in (worker.folder / "checkpoints" / "1.1" / "pieces").iterdir():
        if piece.name != record["manifest"]:
            piece.write_bytes(piece.read_bytes().replace(b"step 1\n", b"step 7\n"))
    worker = start()
    again = counts(-MORE, number=2, resume=resumption(one))
    await master.say(again)
    result = await end_of(master, again)
    assert (result.outcome, result.stdout.data) == (
        Outcome.SUCCEEDED,
        output_from(master, one, tmp_path / "one"),
    )


async def test_unwanted_local_checkpoint_is_not_used(master: SmallMaster, start: Start) -> None:
    worker = start()
    run = counts(FOR_EVER)
    await master.say(run)
    await has_taken(master, 2)
    await worker.crash()
    worker = start()
    again = counts(60, number=2, own=False)
    again.outputs = ("begun",)
    await master.say(again)
    result = await end_of(master, again)
    assert text_of(master, result) == "from 0 after 0\n"
    assert result.stdout.data == output_of(60)


async def test_task_that_ends_to_be_continued_is_given_back_with_its_state(master: SmallMaster, start: Start) -> None:
    start()
    run = counts(20, 0.0, 85, 10, exit_code=85, every_s=1000.0)
    await master.say(run)
    result = await end_of(master, run)
    assert (result.outcome, result.exit_code, result.reason) == (Outcome.GIVEN_BACK, 85, SAVED)
    first = next(number for number, report in enumerate(master.reports) if report.results)
    known = [report.checkpoints for report in master.reports[: first + 1] if report.checkpoints]
    assert known, "the master knows it when it queues the task"
    again = counts(20, 0.0, 85, 10, number=2, exit_code=85, every_s=1000.0, resume=resumption(known[-1].taken[-1]))
    await master.say(again)
    result = await end_of(master, again)
    assert (result.outcome, result.stdout.data) == (Outcome.SUCCEEDED, output_of(20))


async def test_task_that_ends_to_be_continued_without_news_fails(master: SmallMaster, start: Start) -> None:
    start()
    run = run_of("raise SystemExit(85)", exit_code=85)
    await master.say(run)
    result = await end_of(master, run)
    assert (result.outcome, result.exit_code) == (Outcome.FAILED, 85)
    assert result.reason == "it ended with exit code 85 to be continued, and saved nothing new"


@pytest.mark.parametrize("system", ["linux", "other"])
async def test_last_checkpoint_is_taken_after_sigterm(
    master: SmallMaster, start: Start, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    if system == "other":
        monkeypatch.setattr(save_events, "libc", None)
    saves = """
import os, signal, time
def save(*_):
    print("saved", flush=True)
    open(os.environ["LOOPLINE_CHECKPOINT"] + "/x.new", "w").close()
    os.rename(os.environ["LOOPLINE_CHECKPOINT"] + "/x.new", os.environ["LOOPLINE_CHECKPOINT"] + "/x")
    raise SystemExit
signal.signal(signal.SIGTERM, save)
open("begun", "w").close()
time.sleep(1000)
"""
    worker = start()
    run = run_of(saves, every_s=1000.0)
    await master.say(run)
    await until((worker.folder / "scratch" / "1.1.1" / "begun").exists)
    await worker.stop()
    worker.data_directory.close()
    assert (await end_of(master, run)).outcome is Outcome.GIVEN_BACK
    worker = start()
    again = run_of("import os; print(os.listdir(os.environ['LOOPLINE_CHECKPOINT']))", number=2)
    await master.say(again)
    assert (await end_of(master, again)).stdout.data == b"saved\n['x']\n"


async def test_killed_task_has_no_last_checkpoint_where_its_output_may_be_ahead(
    master: SmallMaster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(save_events, "libc", None)
    worker = start()
    run = counts(1000)
    await master.say(run)
    await until((worker.folder / "scratch" / "1.1.1" / ".checkpoint" / "count").exists)
    worker.agent.parts.runner.cancel(run.attempt, Outcome.GIVEN_BACK, "the owner came back")
    assert (await end_of(master, run)).outcome is Outcome.GIVEN_BACK
    assert stored(worker) == []


async def test_output_after_the_last_save_is_not_in_the_checkpoint(master: SmallMaster, start: Start) -> None:
    """Killed after it has written more, the task continues from the checkpoint before that."""
    worker = start()
    ahead = "while count == quits_at:\n        print('ahead', flush=True)\n        time.sleep(0.01)"
    run = run_of(COUNTS.replace("if count == quits_at:\n        sys.exit(code)", ahead), 10, 0.05, 0, 5)
    await master.say(run)
    await until(lambda: b"ahead" in _stdout(worker))
    await worker.stop()
    worker.data_directory.close()
    worker = start()
    again = counts(10, 0.05, number=2)
    await master.say(again)
    assert (await end_of(master, again)).stdout.data == output_of(10)


def _stdout(worker: Started) -> bytes:
    attempt = worker.agent.parts.runner._attempts.get(AttemptId(1, 1, 1))
    return attempt.streams[0].content() if attempt else b""


async def test_file_that_is_written_in_place_is_explained(
    master: SmallMaster, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    worker = start()
    writes = """
import os
file = open("model.h5", "wb", 0)
file.write(os.urandom(17 * 2**20))
os.rename("model.h5", os.environ["LOOPLINE_CHECKPOINT"] + "/model.h5")
while True:
    file.seek(0)
    file.write(os.urandom(17 * 2**20))
"""
    run = run_of(writes)
    await master.say(run)
    reason = "model.h5 is written in place: write a new file and rename it"
    await until(lambda: reason in caplog.text)
    told = RefusedCheckpoint(run.attempt, reason)
    await until(lambda: any(told in report.checkpoints.refused for report in master.reports if report.checkpoints))
    await master.say(cancel=(run.attempt,))
    await end_of(master, run)
    assert taken(master) == []
    assert not worker.agent.parts.wings[-1]._tools.taken  # type: ignore[attr-defined]


SQLITE = """
import os, sqlite3
base = sqlite3.connect(os.environ["LOOPLINE_CHECKPOINT"] + "/base", isolation_level=None)
base.execute("PRAGMA journal_mode = WAL")
base.execute("CREATE TABLE IF NOT EXISTS rows (value INTEGER)")
base.execute("CREATE TABLE IF NOT EXISTS total (value INTEGER)")
base.execute("INSERT INTO total VALUES (0)")
while True:
    base.execute("BEGIN")
    base.executemany("INSERT INTO rows VALUES (?)", [(value,) for value in range(50)])
    base.execute("UPDATE total SET value = value + 1225")
    base.execute("COMMIT")
    if base.execute("SELECT count(*) FROM rows").fetchone()[0] > 20000:
        base.execute("BEGIN")
        base.execute("DELETE FROM rows")
        base.execute("UPDATE total SET value = 0")
        base.execute("COMMIT")
"""
IN_PLACE = """
import os, struct, zlib
file = open(os.environ["LOOPLINE_CHECKPOINT"] + "/log.h5", "w+b", 0)
number = 0
while True:
    number += 1
    block = struct.pack("Q", number) * 8000
    slot = number % 2
    file.seek(100 + slot * 100_000)
    file.write(block)
    file.seek(slot * 50)
    file.write(struct.pack("QQ", number, zlib.crc32(block)))
"""
MAPPED = """
import mmap, os, struct
file = open(os.environ["LOOPLINE_CHECKPOINT"] + "/array", "w+b")
file.truncate(2**20)
array = mmap.mmap(file.fileno(), 2**20)
file.close()
number = 0
while True:
    number += 1
    for at in range(0, 2**20, 4096):
        array[at : at + 8] = struct.pack("Q", number)
"""


def sqlite_is_whole(folder: Path) -> bool:
    base = sqlite3.connect(folder / "base")
    try:
        if base.execute("SELECT count(*) FROM sqlite_master").fetchone() != (2,):
            return True  # it was taken as the program began
        sums = base.execute("SELECT (SELECT coalesce(sum(value), 0) FROM rows), coalesce(sum(value), 0) FROM total")
        found, total = sums.fetchone()
        return (base.execute("PRAGMA integrity_check").fetchone(), found) == (("ok",), total)
    finally:
        base.close()


def one_block_is_whole(folder: Path) -> bool:
    content = (folder / "log.h5").read_bytes()
    for slot in (0, 1):
        header = content[slot * 50 : slot * 50 + 16]
        block = content[100 + slot * 100_000 : 100 + slot * 100_000 + 64_000]
        if len(header) == 16 and struct.unpack("QQ", header)[1] == zlib.crc32(block):
            return True
    return len(content) < 100_000


def order_is_kept(folder: Path) -> bool:
    content = (folder / "array").read_bytes()
    numbers = [struct.unpack("Q", content[at : at + 8])[0] for at in range(0, len(content), 4096)]
    return not numbers or (numbers == sorted(numbers, reverse=True) and numbers[0] - numbers[-1] <= 1)


@pytest.mark.parametrize(
    ("program", "is_whole"), [(SQLITE, sqlite_is_whole), (IN_PLACE, one_block_is_whole), (MAPPED, order_is_kept)]
)
async def test_checkpoints_of_programs_that_write_in_place_are_of_one_moment(
    master: SmallMaster, start: Start, tmp_path: Path, program: str, is_whole: Callable[[Path], bool]
) -> None:
    start()
    run = run_of(program)
    run.command = (sys.executable, *run.command[2:])
    await master.say(run)
    await has_taken(master, tried(10))
    await master.say(cancel=(run.attempt,))
    await end_of(master, run)
    for number, one in enumerate(taken(master)):
        restored(master, one, tmp_path / str(number))
        assert is_whole(tmp_path / str(number)), number


async def test_only_changed_pieces_are_sent(master: SmallMaster, start: Start) -> None:
    changes = """
import os, time
os.chdir(os.environ["LOOPLINE_CHECKPOINT"])
content, count = bytearray(os.urandom(10 * 2**20)), 0
while True:
    content[5 * 2**20] = count = count + 1 & 255
    open("x.new", "wb").write(content)
    os.rename("x.new", "x")
    time.sleep(0.2)
"""
    start()
    run = run_of(changes)
    await master.say(run)
    await has_taken(master, 3)
    await master.say(cancel=(run.attempt,))
    await end_of(master, run)
    first, *later = taken(master)
    assert (first.size_bytes, first.sent_bytes) == (10 * 2**20, 10 * 2**20)
    assert {(one.size_bytes, one.sent_bytes) for one in later} == {(10 * 2**20, 2**20)}
    costs = later[-1].costs
    assert (costs.sent, costs.sent_bytes) == (len(later) + 1, (len(later) + 10) * 2**20)
    assert costs.held_s > 0
    puts = [name for method, name, _ in master.asked if method == "PUT"]
    assert len(puts) == len(set(puts))
    asked = Counter(name for method, name, _ in master.asked if method == "HEAD")
    assert max(asked.values()) <= 2, "the master is not asked for what it has"


async def test_leftover_of_an_interrupted_save_is_not_saved(
    master: SmallMaster, start: Start, tmp_path: Path
) -> None:
    saves = """
import os, time
os.chdir(os.environ["LOOPLINE_CHECKPOINT"])
os.makedirs("step-2.new/deep")
os.makedirs("step-1.new/empty")
open("step-1.new/a", "w").write("a" * 100)
open("step-1.new/b.new", "w").close()
os.chmod("step-1.new/a", 0o750)
os.rename("step-1.new", "step-1")
time.sleep(1000)
"""
    start()
    run = run_of(saves)
    await master.say(run)
    one = await has_taken(master)
    state = state_of(master, one)
    assert (list(state.files), state.folders) == (["step-1/a"], ("step-1/empty",))
    restored(master, one, tmp_path / "x")
    assert (tmp_path / "x/step-1/a").stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "x/step-1/empty").is_dir()


async def test_checkpoint_folder_is_not_searched_for_outputs(master: SmallMaster, start: Start) -> None:
    start()
    run = counts(3)
    run.outputs, run.optional_outputs = ("begun",), (".*/*", "**")
    await master.say(run)
    result = await end_of(master, run)
    assert [file.path for file in result.outputs] == ["begun"]


async def test_frozen_task_is_saved_and_sent_before_it_is_due(
    master: SmallMaster, start: Start, tmp_path: Path
) -> None:
    worker = start()
    run = run_of("print = lambda *_, **__: None" + COUNTS, 10_000, 0.01, 0, 0, every_s=1000.0)
    await master.say(run)
    await until((worker.folder / "scratch" / "1.1.1" / ".checkpoint" / "count").exists)
    assert stored(worker) == []
    worker.agent.parts.runner.freeze(run.attempt)
    one = await has_taken(master)
    assert worker.agent.parts.runner.freeze(run.attempt), "it is not thawed for that"
    count = (worker.folder / "scratch" / "1.1.1" / ".checkpoint" / "count").read_text()
    assert restored(master, one, tmp_path / "x").text("stdout") == b""
    assert (tmp_path / "x" / "count").read_text() == count


async def test_last_checkpoint_before_a_sleep_stays_on_the_local_disk(master: SmallMaster, start: Start) -> None:
    worker = start()
    run = run_of("print = lambda *_, **__: None" + COUNTS, FOR_EVER, 0.01, 0, 0, every_s=1000.0)
    await master.say(run)
    await until((worker.folder / "scratch" / "1.1.1" / ".checkpoint" / "count").exists)
    worker.agent.post(ComputerSleeps(is_off=True))
    assert (await end_of(master, run)).outcome is Outcome.GIVEN_BACK
    assert stored(worker)
    assert not master.blobs, "there is no time to send it"


async def test_attempts_leave_nothing_behind(master: SmallMaster, start: Start) -> None:
    worker = start()
    run = counts(10)
    await master.say(run)
    await end_of(master, run)
    await until(lambda: not processes_of(worker.folder))
    await until(lambda: list((worker.folder / "scratch").iterdir()) == [])
    wing = worker.agent.parts.wings[-1]
    await until(lambda: not wing._in_hand)  # type: ignore[attr-defined]
    assert not wing._tools.taken  # type: ignore[attr-defined]
