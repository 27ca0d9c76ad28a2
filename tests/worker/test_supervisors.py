"""Supervisors serve one task after another: tasks do not affect each other, and kills leave no process."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from loopline_shared.model import Outcome
from loopline_shared.protocol.worker_link import Run
from loopline_worker.launch import process_tree
from loopline_worker.supervisor import processes
from loopline_worker.supervisor.orders import TaskOrder, Unpacker, pack
from loopline_worker.supervisor.scratch_folders import ScratchFolders
from loopline_worker.supervisor.walls.inotify import FolderWatcher
from tests.worker.bench import Bench, processes_of, python, run_of, until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no supervisors")

PARENT = "import os; print(os.getppid())"
GATED = "echo > begun; while [ ! -e go ]; do sleep 0.01; done"


def supervisors(bench: Bench) -> list[int]:
    assert bench.launcher._process
    return processes.children(bench.launcher._process.pid)


def number(task: int, *command: str, **options: object) -> Run:
    return run_of(*command, task=task, **options)


async def test_one_supervisor_serves_one_task_after_another(bench: Bench) -> None:
    parents = {(await bench.result(python(PARENT, task=task))).stdout.data for task in range(1, 5)}
    assert parents == {f"{supervisor}\n".encode() for supervisor in supervisors(bench)}
    assert len(parents) == 1


async def test_first_task_uses_the_prepared_supervisor(bench: Bench) -> None:
    bench.launcher.prepare()
    assert bench.launcher._process
    await until(lambda: bool(supervisors(bench)))
    (supervisor,) = supervisors(bench)
    assert (await bench.result(python(PARENT))).stdout.data == f"{supervisor}\n".encode()


async def test_supervisor_survives_a_refused_command(bench: Bench) -> None:
    await bench.result(run_of("no-such-program"))
    (supervisor,) = supervisors(bench)
    assert (await bench.result(python(PARENT, task=2))).stdout.data == f"{supervisor}\n".encode()


async def test_concurrent_tasks_have_separate_supervisors(bench: Bench) -> None:
    runs = [number(task, "sh", "-c", GATED) for task in (1, 2, 3)]
    for run in runs:
        await bench.begins(run)
    assert len(supervisors(bench)) == 3
    for run in runs:
        (bench.scratch / str(run.attempt) / "go").touch()
    assert {(await bench.end_of(run)).outcome for run in runs} == {Outcome.SUCCEEDED}


@pytest.mark.skipif(sys.platform != "linux", reason="where a process may look at its signals")
async def test_task_starts_without_blocked_or_ignored_signals(bench: Bench) -> None:
    result = await bench.result(run_of("grep", "-E", "SigBlk|SigIgn", "/proc/self/status"))
    of_the_c_library = 0b11 << 31
    assert {int(line.split()[1], 16) & ~of_the_c_library for line in result.stdout.data.splitlines()} == {0}


# Output of a task.


async def test_output_belongs_to_its_task_only(bench: Bench) -> None:
    """Short and long output, of the task and of processes that it leaves running."""
    flood = "(setsid sh -c 'while :; do echo stray; done' &); head -c 300000 /dev/zero | tr '\\0' x"
    scripts = {1: "echo one; echo uno >&2", 2: flood, 3: "true", 4: "echo four"}
    results = {task: await bench.result(number(task, "sh", "-c", script)) for task, script in scripts.items()}
    assert (results[1].stdout.data, results[1].stderr.data) == (b"one\n", b"uno\n")
    assert "left running" in results[2].reason
    assert results[2].stdout.size_bytes >= 300_000
    assert (results[3].stdout.size_bytes, results[3].stderr.size_bytes) == (0, 0)
    assert (results[4].stdout.data, results[4].stderr.size_bytes) == (b"four\n", 0)


async def test_changed_pipe_flags_do_not_affect_the_next_task(bench: Bench) -> None:
    await bench.result(python("import os; os.set_blocking(1, False); os.set_blocking(2, False)"))
    result = await bench.result(python("import os; print(os.get_blocking(1), os.get_blocking(2))", task=2))
    assert result.stdout.data == b"True True\n"


async def test_long_output_is_forwarded_while_it_is_written(bench: Bench) -> None:
    """More than a pipe holds, on both streams, ending just before the task."""
    code = "import sys; [print(str(n) * 1000, file=f) for n in range(1000) for f in (sys.stdout, sys.stderr)]"
    async with Bench(bench.folder / "large", output_limit_bytes=2**23) as large:
        result = await large.result(python(code))
        expected = "".join(f"{str(n) * 1000}\n" for n in range(1000)).encode()
        files = large.spool.output_files(result.attempt)
        assert [file.read_bytes() == expected for file in files] == [True, True]
        assert result.stdout.sha256 == result.stderr.sha256 == hashlib.sha256(expected).hexdigest()


async def test_output_can_be_read_while_it_is_written(bench: Bench) -> None:
    run = number(1, "sh", "-c", "echo one; echo > begun; while [ ! -e go ]; do sleep 0.01; done; echo two")
    await bench.begins(run)
    assert await bench.runner.read(run.attempt, "stdout", 0, 100) == b"one\n"
    (bench.scratch / "1.1.1" / "go").touch()
    assert await bench.runner.read(run.attempt, "stdout", 4, 100) == b"two\n"
    assert (await bench.end_of(run)).stdout.data == b"one\ntwo\n"
    assert await bench.runner.read(run.attempt, "stdout", 8, 100) == b""


async def test_output_can_be_requested_before_the_start(bench: Bench) -> None:
    run = number(1, "sh", "-c", "echo one; while [ ! -e go ]; do sleep 0.01; done")
    bench.runner.start(run)
    assert await bench.runner.read(run.attempt, "stdout", 0, 100) == b"one\n"
    (bench.scratch / "1.1.1" / "go").touch()
    assert (await bench.end_of(run)).stdout.data == b"one\n"


async def test_writer_outside_the_task_is_not_awaited(bench: Bench) -> None:
    """A process of another program has received the task's stdout, and keeps it open."""
    place = str(bench.folder / "socket")
    with socket.socket(socket.AF_UNIX) as outside:
        outside.bind(place)
        outside.listen()
        code = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
        code += "print('given', flush=True); socket.send_fds(s, [b'+'], [1])"
        result = await bench.result(python(code, place))
        with outside.accept()[0] as connection:
            _, (pipe,), _, _ = socket.recv_fds(connection, 1, 1)
            with pytest.raises(BrokenPipeError):
                os.write(pipe, b"late")
            os.close(pipe)
    assert result.stdout.data == b"given\n"
    assert (await bench.result(number(2, "true"))).stdout.size_bytes == 0


# Kills.


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
async def test_task_can_be_killed_while_it_starts(bench: Bench, turns: int) -> None:
    """At different moments, after a number of loop iterations."""
    run = number(1, "sh", "-c", "sleep 100 & sleep 100")
    bench.runner.start(run)
    for _ in range(turns):
        await asyncio.sleep(0)
    bench.runner.cancel(run.attempt)
    assert (await bench.end_of(run)).outcome is Outcome.CANCELLED
    assert processes_of(bench.folder) == []
    assert (await bench.result(number(2, "echo", "fine"))).stdout.data == b"fine\n"


async def test_late_kill_does_not_reach_the_next_task(bench: Bench) -> None:
    """The task ends by itself while the kill order is in flight."""
    for task in range(1, 30):
        run = number(task, "true")
        bench.runner.start(run)
        attempt = bench.runner._attempts[run.attempt]
        while attempt._tree is None:
            await asyncio.sleep(0)
        bench.runner.cancel(run.attempt)
        assert (await bench.end_of(run)).outcome in (Outcome.CANCELLED, Outcome.SUCCEEDED)
    assert (await bench.result(number(99, "sh", "-c", "sleep 0.1; echo fine"))).stdout.data == b"fine\n"


async def test_kill_before_the_supervisor_is_known_reaches_no_other_process(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process id is 0 until then, and all processes are descendants of 0."""
    asked = list[int]()
    monkeypatch.setattr(process_tree, "signal_all", lambda supervisor, signum: asked.append(supervisor))
    run = number(1, "sleep", "100")
    bench.runner.start(run)
    attempt = bench.runner._attempts[run.attempt]
    while attempt._tree is None:
        await asyncio.sleep(0)
    assert attempt._tree._root == 0  # type: ignore[attr-defined]
    bench.runner.cancel(run.attempt)
    assert (await bench.end_of(run)).outcome is Outcome.CANCELLED
    assert asked == []


async def test_an_idle_supervisor_that_is_killed_is_replaced(bench: Bench) -> None:
    await bench.result(number(1, "true"))
    (supervisor,) = supervisors(bench)
    os.kill(supervisor, signal.SIGKILL)
    await until(lambda: not bench.launcher._links)
    assert (await bench.result(number(2, "echo", "fine"))).stdout.data == b"fine\n"
    assert supervisors(bench) != [supervisor]


async def test_idle_supervisors_end(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loopline_worker.launch.posix.SUPERVISOR_IDLE_S", 0.05)
    await bench.result(number(1, "true"))
    await until(lambda: not supervisors(bench))
    assert (await bench.result(number(2, "echo", "fine"))).stdout.data == b"fine\n"


async def test_task_of_a_killed_supervisor_is_given_back(bench: Bench) -> None:
    run = number(1, "sh", "-c", "setsid sleep 100 & echo > begun; sleep 100")
    await bench.begins(run)
    (supervisor,) = supervisors(bench)
    places = [Path(place, f"supervisor-{supervisor}") for place in bench.launcher._places.values()]
    os.kill(supervisor, signal.SIGKILL)
    assert (await bench.end_of(run)).outcome is Outcome.GIVEN_BACK
    await until(lambda: not processes_of(bench.folder))
    await until(lambda: not any(place.exists() for place in places))


async def test_out_of_memory_kills_the_task_not_its_supervisor(bench: Bench) -> None:
    """Even if it is small, or one of many small ones."""
    if "memory" not in bench.launcher._places:
        pytest.skip("no control groups are handed over to us here")
    hog = number(1, "sh", "-c", "exec tail < /dev/zero", memory_bytes=3 * 2**20)
    code = "for i in $(seq 60); do sh -c 'x=$(head -c 400000 /dev/zero | tr \"\\0\" x); sleep 100' & done; wait"
    many = number(2, "sh", "-c", code, memory_bytes=17 * 2**20)
    results = [await bench.result(run) for run in (hog, many, number(3, "false"))]
    assert [result.outcome for result in results] == [Outcome.FAILED] * 3
    assert "3 MiB of memory" in results[0].reason
    assert "17 MiB of memory" in results[1].reason
    assert results[2].reason == ""  # the previous task's breach is not this one's


async def test_memory_left_by_a_task_does_not_count_for_the_next(bench: Bench) -> None:
    """A file in /dev/shm counts in the group of its writer until it is removed."""
    left = Path("/dev/shm", f"loopline-{os.getpid()}")
    if not left.parent.is_dir():
        pytest.skip("this system has no /dev/shm")
    try:
        run = number(1, "sh", "-c", f"head -c 40000000 /dev/zero > {left}", memory_bytes=64 * 2**20)
        assert (await bench.result(run)).outcome is Outcome.SUCCEEDED
        following = [
            await bench.result(python("print(len(bytearray(40_000_000)))", task=2, memory_bytes=64 * 2**20)),
            await bench.result(python("print(1)", task=3, memory_bytes=24 * 2**20)),
        ]
        assert [(result.outcome, result.reason) for result in following] == [(Outcome.SUCCEEDED, "")] * 2
    finally:
        left.unlink(missing_ok=True)


async def test_supervisor_has_no_child_except_its_task(bench: Bench) -> None:
    """The agent's signals to the supervisor's descendants must reach only the task."""
    run = number(1, "sh", "-c", GATED)
    await bench.begins(run)
    (supervisor,) = supervisors(bench)
    assert [child.name() for child in psutil.Process(supervisor).children()] == ["sh"]
    (bench.scratch / "1.1.1" / "go").touch()
    await bench.end_of(run)


# Scratch folders.


async def test_folder_with_leftovers_is_removed(bench: Bench) -> None:
    for task, script in enumerate(("echo x > left", "mkdir -p a/b", "echo x > $TMPDIR/left", "chmod 0 ."), 1):
        result = await bench.result(number(task, "sh", "-c", script))
        assert result.outcome is Outcome.SUCCEEDED
        following = await bench.result(number(100 + task, "sh", "-c", 'ls -A . "$TMPDIR"; stat -c %a . "$TMPDIR"'))
        assert following.stdout.data.split() == [b".:", b".tmp", *following.stdout.data.split()[2:3], b"755", b"755"]
    await until(lambda: not any(bench.scratch.iterdir()))


async def test_empty_folder_is_removed_when_no_task_needs_it(bench: Bench) -> None:
    await bench.result(number(1, "true"))
    await until(lambda: not any(bench.scratch.iterdir()))


def test_untouched_folder_is_reused(tmp_path: Path) -> None:
    folders, first, second = ScratchFolders(), tmp_path / "1", tmp_path / "2"
    folders.make(str(first))
    inode = first.stat().st_ino
    assert folders.recycle(str(first))
    folders.make(str(second))
    assert (first.exists(), second.stat().st_ino) == (False, inode)
    (second / ".tmp" / "left").touch()
    assert not folders.recycle(str(second))
    folders.make(str(first))
    assert first.stat().st_ino != inode
    (first / ".tmp").chmod(0o700)
    assert not folders.recycle(str(first))
    assert not folders.has_spare


CHANGES: dict[str, Callable[[Path], object]] = {
    "a file": lambda folder: (folder / "left").touch(),
    "a folder": lambda folder: (folder / "left").mkdir(),
    "a temporary file": lambda folder: (folder / ".tmp" / "left").touch(),
    "permissions": lambda folder: folder.chmod(0o777),
    "permissions of the folder for temporary files": lambda folder: (folder / ".tmp").chmod(0o777),
    "no folder for temporary files": lambda folder: (folder / ".tmp").rmdir(),
    "another folder": lambda folder: (
        folder.rename(folder.with_name("moved")),
        (folder / ".tmp").mkdir(parents=True),
    ),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("before", [0, 1, 3])
def test_any_change_in_a_folder_is_noticed(tmp_path: Path, change: str, before: int) -> None:
    """``before``: number of tasks that have used the folder without changing it."""
    folders, names = ScratchFolders(), [str(tmp_path / str(number)) for number in range(before + 2)]
    for name in names[:before]:
        folders.make(name)
        assert folders.recycle(name)
    folders.make(names[before])
    CHANGES[change](Path(names[before]))
    assert not folders.recycle(names[before])
    folders.make(names[-1])
    assert list(Path(names[-1]).iterdir()) == [Path(names[-1], ".tmp")]
    assert folders.recycle(names[-1])


@pytest.mark.parametrize("has_inotify", [True, False])
def test_folder_that_is_empty_again_is_reused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_inotify: bool
) -> None:
    if not has_inotify:
        monkeypatch.setattr(FolderWatcher, "watch", lambda *_: False)
    folders, inodes = ScratchFolders(), set()
    for name in map(str, range(9)):
        folders.make(str(tmp_path / name))
        inodes.add((tmp_path / name).stat().st_ino)
        (tmp_path / name / "for a while").touch()
        (tmp_path / name / "for a while").unlink()
        assert folders.recycle(str(tmp_path / name))
    assert len(inodes) == 1


def test_folder_replaced_by_a_link_is_not_reused(tmp_path: Path) -> None:
    folders, folder, other = ScratchFolders(), tmp_path / "1", tmp_path / "other"
    (other / ".tmp").mkdir(parents=True)
    folders.make(str(folder))
    (folder / ".tmp").rmdir()
    folder.rmdir()
    folder.symlink_to(other)
    assert not folders.recycle(str(folder))
    assert other.exists()


# Messages.


def test_messages_are_decoded_from_any_parts() -> None:
    messages = [{"stdout": bytes(5), "exit_code": -9}, {}, "kill", {"environment": {"NAME": "\udcff"}}]
    stream, unpacker, heard = b"".join(map(pack, messages)), Unpacker(), []
    for at in range(len(stream)):
        unpacker.feed(stream[at : at + 1])
        while (message := unpacker.next()) is not None:
            heard.append(message)
    assert heard == messages


def test_order_is_decoded_with_every_field() -> None:
    """Each field has a different value, so that swapped fields are detected."""
    values = {name: name for name in TaskOrder.__slots__}
    order = TaskOrder(**values)  # type: ignore[arg-type]
    unpacker = Unpacker()
    unpacker.feed(pack(order.to_tuple()))
    arrived = TaskOrder.from_tuple(unpacker.next())
    assert {name: getattr(arrived, name) for name in values} == values
