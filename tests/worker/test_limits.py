"""Tasks beyond their limits are stopped with a reason that names the limit; their neighbours continue."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from loopline_shared.model import Outcome, Result
from loopline_shared.protocol.worker_link import Run
from loopline_worker.attempts import limits as limits_module
from loopline_worker.attempts.attempt import Attempt
from loopline_worker.attempts.limits import Quota, fills
from loopline_worker.launch import delegation
from loopline_worker.launch.interface import Limits, Usage
from loopline_worker.launch.process_tree import MemoryShares
from loopline_worker.launch.sandbox import open_sandbox
from loopline_worker.settings import SandboxChoice
from loopline_worker.supervisor import processes
from loopline_worker.supervisor.control_groups import remove_places
from loopline_worker.supervisor.orders import Breach
from tests.sandboxes import without_bubblewrap
from tests.worker.bench import Bench, processes_of, python, run_of, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")

MIB = 2**20
QUOTA = Quota(task_memory_bytes=100 * MIB, processes=40, scratch_bytes=20 * MIB, output_bytes=4 * MIB)

FORK_BOMB = """
import os, time
for _ in range(200):  # bounded, whatever becomes of the limit
    try:
        if os.fork() == 0: time.sleep(100); os._exit(0)
    except OSError: pass
time.sleep(100)
"""
MEMORY_HOG = """
import time
held = []
for _ in range(100):  # 1 GB at most
    held.append(bytearray(10_000_000)); time.sleep(0.01)
time.sleep(100)
"""
MANY_FILES = """
import time
for number in range(100):
    open(str(number), 'wb').write(bytes(1_000_000))
time.sleep(100)
"""


@pytest.fixture(params=["control groups", "watching"])
async def tight(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Bench]:
    """A bench with small limits, enforced by the kernel or by the watch."""
    if request.param == "watching":
        monkeypatch.setattr(delegation, "claim", lambda yields: {})
        # RLIMIT_NPROC counts the processes of other tests, too, unless they run as root.
        monkeypatch.setattr(processes, "threads_of_user", lambda: 100_000)
    else:
        places = delegation.claim(yields=False)
        remove_places(set(places.values()))
        if not {"core", "memory", "pids"} <= places.keys():
            pytest.skip("no control groups are handed over to us here")
    async with Bench(tmp_path, quota=QUOTA) as bench:
        yield bench


async def stopped(bench: Bench, run: Run) -> Result:
    """Return the result of a runaway, after checking that a neighbour continues and no process is left."""
    neighbour = run_of("sh", "-c", "echo > begun; while [ ! -e go ]; do sleep 0.02; done; echo fine", task=99)
    await bench.begins(neighbour)
    result = await bench.result(run)
    (bench.scratch / str(neighbour.attempt) / "go").touch()
    assert (await bench.end_of(neighbour)).stdout.data == b"fine\n"
    assert processes_of(bench.folder) == []
    assert bench.troubles == []
    assert result.outcome is Outcome.FAILED
    return result


async def test_fork_bomb_is_stopped(tight: Bench) -> None:
    result = await stopped(tight, python(FORK_BOMB))
    assert result.reason == "stopped: 40 processes and threads, and asking for more (max_processes of this worker)"


async def test_memory_hog_is_stopped(tight: Bench) -> None:
    result = await stopped(tight, python(MEMORY_HOG))
    assert result.reason.startswith("stopped: more than 100 MiB of memory (this worker's limit for a task whose job")


async def test_memory_hog_is_stopped_with_its_waiting_parent(tight: Bench) -> None:
    """The kernel may kill only one process: the rest of the attempt must not continue without it."""
    hog = (
        f"import subprocess, sys, time; subprocess.run([sys.executable, '-S', '-c', {MEMORY_HOG!r}]); time.sleep(100)"
    )
    result = await stopped(tight, python(hog))
    assert "100 MiB of memory" in result.reason


async def test_required_memory_of_the_job_is_its_limit(tight: Bench) -> None:
    result = await stopped(tight, python(MEMORY_HOG, memory_bytes=60 * MIB))
    assert result.reason == "stopped: more than 60 MiB of memory (requires.memory_bytes of its job)"


async def test_task_with_too_many_files_is_stopped(tight: Bench) -> None:
    result = await stopped(tight, python(MANY_FILES))
    assert result.reason == "stopped: more than 20 MiB on disk (scratch_limit_bytes of this worker)"


@pytest.mark.parametrize("prefix", ["exec ", ""], ids=["itself", "in a child"])
async def test_task_with_a_too_long_file_is_stopped(tight: Bench, prefix: str) -> None:
    result = await stopped(tight, run_of("sh", "-c", f"{prefix}dd if=/dev/zero of=long bs=1M count=100"))
    assert result.reason == "stopped: more than 20 MiB on disk (scratch_limit_bytes of this worker)"


async def test_flood_of_output_is_stopped(tight: Bench) -> None:
    result = await stopped(tight, run_of("yes"))
    assert result.reason == "stopped: more than 4 MiB of output (output_flood_bytes of this worker)"
    assert result.stdout.cut


async def test_flood_that_ends_before_the_next_check_fails_the_task(tight: Bench) -> None:
    """The task succeeded by itself, but its output is over the limit."""
    result = await tight.result(run_of("head", "-c", str(5 * MIB), "/dev/zero"))
    assert result.outcome is Outcome.FAILED
    assert result.reason == "stopped: more than 4 MiB of output (output_flood_bytes of this worker)"


async def test_flood_detected_as_its_task_ends_fails_the_task(tight: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch kills it, but it has just succeeded by itself."""
    stop = Attempt._stop_watching

    def see_at_last(attempt: Attempt) -> None:
        attempt._on_breach(Breach.OUTPUT)
        stop(attempt)

    monkeypatch.setattr(Attempt, "_stop_watching", see_at_last)
    result = await tight.result(run_of("head", "-c", str(5 * MIB), "/dev/zero"))
    assert result.reason == "stopped: more than 4 MiB of output (output_flood_bytes of this worker)"


async def test_blocked_read_of_memory_figures_does_not_block_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures of a starved process; a pipe stands in for its lock, which a test cannot hold."""
    waits, opens = os.pipe()
    monkeypatch.setattr(processes, "memory_shares", lambda pid: (len(os.read(waits, 1)) * pid, 0))
    shares = MemoryShares()
    assert shares.read([7], 20, 10) == 10
    assert shares.read([7], 20, 10) == 10, "a second read while the first is blocked"
    os.write(opens, b".")
    await until(lambda: shares.read([7], 20, 10) == 7)
    os.write(opens, b".")  # lets the last reading end


@pytest.mark.parametrize("where", ["memfd", "/dev/shm"])
async def test_memory_in_files_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Written but not mapped: no process has it in its own memory."""
    monkeypatch.setattr(delegation, "claim", lambda yields: {})
    code = f"""
import os, time
files = [os.memfd_create("held") if {where == "memfd"} else os.open(f"/dev/shm/{{n}}", os.O_CREAT | os.O_WRONLY)
    for n in range(5)]
for file in files: os.write(file, bytes(19_000_000))
held = bytearray(b"x" * 40_000_000)
time.sleep(100)
"""
    choice = SandboxChoice.OFF if where == "memfd" else SandboxChoice.BUBBLEWRAP
    if choice is not SandboxChoice.OFF and without_bubblewrap():
        pytest.skip("no bubblewrap here")
    async with Bench(tmp_path, quota=QUOTA, sandbox=open_sandbox(choice)) as bench:
        assert "more than 100 MiB of memory" in (await stopped(bench, python(code))).reason


async def test_deleted_open_files_count_as_disk_use(tight: Bench) -> None:
    code = """
import os, time
files = [open(str(number), "wb") for number in range(30)]
for file in files: os.unlink(file.name); file.write(bytes(1_000_000)); file.flush()
time.sleep(100)
"""
    assert "more than 20 MiB on disk" in (await stopped(tight, python(code))).reason


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")
async def test_full_disk_is_not_a_failure_of_the_task(tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "small", tmp_path], check=True)
    try:
        async with Bench(tmp_path, quota=QUOTA) as bench:
            (tmp_path / "owners").write_bytes(bytes(3 * MIB))
            write = "import os; open('mine', 'wb').write(bytes(3_000_000))"
            result = await bench.result(python(write))
            assert (result.outcome, result.reason) == (Outcome.GIVEN_BACK, "the disk was full as the task failed")
            (tmp_path / "owners").unlink()
            assert (await bench.result(python("exit(3)", task=2))).outcome is Outcome.FAILED
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)


async def test_task_that_ignores_sigterm_is_killed_at_its_time_limit(tight: Bench) -> None:
    result = await stopped(tight, run_of("sh", "-c", "trap '' TERM INT HUP; sleep 100; sleep 100", timeout_s=0.3))
    assert result.reason == "timed out after 0.3 s"


async def test_daemons_left_behind_are_killed_and_reported(tight: Bench) -> None:
    result = await tight.result(run_of("sh", "-c", "setsid sleep 100 & setsid sleep 100 & exit 0"))
    assert result.outcome is Outcome.SUCCEEDED
    assert result.reason == "2 processes that it left running were stopped: nothing outlives its task"
    assert processes_of(tight.folder) == []


async def test_task_within_its_limits_is_not_stopped(tight: Bench) -> None:
    code = (
        "import os; held = bytearray(30_000_000); open('file', 'wb').write(bytes(10_000_000)); print('x' * 1_000_000)"
    )
    result = await tight.result(python(code))
    assert (result.outcome, result.reason) == (Outcome.SUCCEEDED, "")


async def test_no_core_is_dumped(tight: Bench) -> None:
    result = await tight.result(run_of("sh", "-c", "ulimit -c; ulimit -H -c"))
    assert result.stdout.data.split() == [b"0", b"0"]


async def test_control_groups_are_removed_at_the_end(tmp_path: Path) -> None:
    async with Bench(tmp_path, quota=QUOTA) as bench:
        places = [Path(place) for place in bench.launcher._places.values()]
        await bench.result(run_of("true"))
        await until(lambda: not any(list(place.glob("1.1.1")) for place in places))
    await until(lambda: not any(place.exists() for place in places))


def test_folders_and_empty_files_count_as_disk_use(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"folder-{number}").mkdir()
    assert fills(tmp_path, MIB)
    for number in range(300):
        (tmp_path / f"folder-{number}").rmdir()
        (tmp_path / f"file-{number}").touch()
    assert fills(tmp_path, MIB)
    assert not fills(tmp_path, 3 * MIB)


async def test_disk_use_is_checked_twice_a_minute_if_a_check_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter((100.0, 160.0))
    monkeypatch.setattr(limits_module, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    watch = limits_module.Watch(Limits(scratch_bytes=MIB), tmp_path, Usage, int, list[Breach]().append)
    assert await watch._find_disk_breach() is None
    assert watch._next_disk_check == 190.0
