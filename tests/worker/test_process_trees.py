"""No process of an attempt outlives it, whichever of our processes is killed; all of them yield to the owner."""

import asyncio
import errno
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import psutil
import pytest

from loopline_shared.model import Outcome
from loopline_shared.protocol.worker_link import Run
from loopline_worker.launch.interface import Job
from loopline_worker.launch.portable_family import _signal_without_proc
from loopline_worker.launch.posix import PosixLauncher
from loopline_worker.launch.process_tree import PosixTree, TreeCpuTime
from loopline_worker.launch.windows_launcher import WindowsTree
from loopline_worker.supervisor import priority, processes
from loopline_worker.supervisor.family import signal_all, tree_of
from tests.worker.bench import Bench, is_alive, name_of, processes_of, python, run_of, until

pytestmark = pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="needs Linux")

DAEMON = """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.environ.clear()
        os.execve(sys.executable, [sys.executable, "-I", "-S", "-c",
            "open('begun', 'w').write(str(__import__('os').getpid())); __import__('time').sleep(100)"], ENV)
    os._exit(0)
while not (os.path.exists("begun") and open("begun").read()): time.sleep(0.01)
"""
"""A task whose grandchild has its own session, a dead parent, and the task's environment or an empty one."""


def daemonising(and_then: str, environment: str = "{}") -> Run:
    return python(DAEMON.replace("ENV", environment) + and_then)


async def daemon_of(bench: Bench, run: Run) -> psutil.Process:
    file = bench.scratch / str(run.attempt) / "begun"
    await until(lambda: file.exists() and file.read_text())
    return psutil.Process(int(file.read_text()))


def supervisors(bench: Bench) -> list[int]:
    assert bench.launcher._process
    return processes.children(bench.launcher._process.pid)


async def test_daemon_dies_when_its_attempt_ends(bench: Bench) -> None:
    run = daemonising("print(open('begun').read())")
    result = await bench.result(run)
    assert result.outcome is Outcome.SUCCEEDED
    assert not psutil.pid_exists(int(result.stdout.data))


async def test_daemon_dies_when_its_attempt_is_cancelled(bench: Bench) -> None:
    run = daemonising("time.sleep(100)")
    bench.runner.start(run)
    daemon = await daemon_of(bench, run)
    bench.runner.cancel(run.attempt)
    assert (await bench.end_of(run)).outcome is Outcome.CANCELLED
    assert not daemon.is_running()


async def test_tree_that_ignores_sigterm_and_keeps_forking_dies(bench: Bench) -> None:
    run = run_of("sh", "-c", "trap '' TERM; (while :; do sleep 0.01 & sleep 0.01; done) & echo > begun; wait")
    await bench.begins(run)
    bench.runner.cancel(run.attempt)
    assert (await bench.end_of(run)).outcome is Outcome.CANCELLED
    assert processes_of(bench.folder) == []


async def test_attempt_dies_with_its_killed_supervisor(bench: Bench) -> None:
    run = daemonising("time.sleep(100)")
    bench.runner.start(run)
    daemon = await daemon_of(bench, run)
    os.kill(supervisors(bench)[0], signal.SIGKILL)
    result = await bench.end_of(run)
    assert (result.outcome, result.reason) == (Outcome.GIVEN_BACK, "its supervisor was killed")
    assert result.took_down
    assert bench.troubles == [], "another supervisor runs the next task, so its slots stay offered"
    await until(lambda: not daemon.is_running())
    await until(lambda: not processes_of(bench.folder))
    assert (await bench.result(run_of("true", task=2))).outcome is Outcome.SUCCEEDED


async def test_tasks_are_killed_if_their_supervisor_gets_no_cpu_time(tmp_path: Path) -> None:
    """A supervisor has the lowest priority and may be late on a busy computer; a stopped one simulates that."""
    launcher = PosixLauncher(yields=False)
    with Path(os.devnull).open("wb") as nowhere:
        job = Job(["sh", "-c", "setsid sleep 600 & echo > begun; exec sleep 600"], str(tmp_path), dict(os.environ))
        await launcher.start(job, nowhere.fileno(), nowhere.fileno())
    await until((tmp_path / "begun").exists)
    zygote = launcher._process
    assert zygote
    (supervisor,) = psutil.Process(zygote.pid).children()
    mine = [supervisor, *supervisor.children(recursive=True)]
    supervisor.suspend()
    launcher.close()
    await until(lambda: not any(is_alive(one) for one in mine))
    assert await asyncio.to_thread(zygote.wait, 60) == 0


async def test_attempts_outlive_a_killed_launcher(bench: Bench) -> None:
    run = run_of("sh", "-c", "echo > begun; while [ -e begun ]; do sleep 0.02; done; echo done")
    await bench.begins(run)
    assert bench.launcher._process
    bench.launcher._process.kill()
    bench.launcher._process.wait()
    assert (await bench.result(run_of("true", task=2))).outcome is Outcome.SUCCEEDED
    (bench.scratch / str(run.attempt) / "begun").unlink()
    result = await bench.end_of(run)
    assert (result.outcome, result.stdout.data) == (Outcome.SUCCEEDED, b"done\n")


async def test_tasks_have_the_lowest_priority(low_bench: Bench) -> None:
    code = """
import os, pathlib
print(os.nice(0), os.sched_getscheduler(0) == os.SCHED_IDLE)
for name in ("autogroup", "oom_score_adj"): print(pathlib.Path("/proc/self", name).read_text().split()[-1])
"""
    result = await low_bench.result(python(code))
    assert result.stdout.data.split() == [b"19", b"True", b"19", b"900"]


async def test_session_opened_by_a_task_has_low_priority_too(low_bench: Bench) -> None:
    run = daemonising("time.sleep(100)", "dict(LOOPLINE_SCRATCH=os.getcwd())")
    low_bench.runner.start(run)
    daemon = await daemon_of(low_bench, run)
    group = Path(f"/proc/{daemon.pid}/autogroup")

    def is_low() -> bool:
        low_bench.runner.measure()
        return group.read_text().split()[-1] == "19"

    await until(is_low)  # without root only ten sessions a second can be lowered, on the whole computer


async def test_large_process_cannot_save_itself_when_memory_runs_out(bench: Bench) -> None:
    code = """
import os, time
held = bytearray(2**28)
with open("/proc/self/oom_score_adj", "w") as score: score.write("0")
with open("begun", "w") as file: file.write(str(os.getpid()))
time.sleep(1000)
"""
    run = python(code)
    bench.runner.start(run)
    score = Path(f"/proc/{(await daemon_of(bench, run)).pid}/oom_score_adj")
    assert score.read_text().strip() == "0"

    def is_first() -> bool:
        bench.runner.measure()
        return score.read_text().strip() == "900"

    await until(is_first)


def test_session_of_a_process_that_is_gone_does_not_count_as_lowered() -> None:
    """The leader of a session may end before the other processes, which are still to be lowered."""
    with subprocess.Popen(["true"], start_new_session=True) as process:
        process.wait()
    assert not priority.lower_session(process.pid)


async def test_tasks_have_normal_priority_on_a_dedicated_computer(bench: Bench) -> None:
    result = await bench.result(run_of("sh", "-c", "nice; cat /proc/self/autogroup"))
    assert int(result.stdout.data.split()[0]) == os.nice(0), "the priority of the agent, which may be niced itself"
    assert result.stdout.data.endswith(b" nice 0\n")


def short_of_files(*_: object, **__: object) -> int:
    raise OSError(errno.EMFILE, "too many open files")


async def test_freeze_is_not_confirmed_without_descriptors(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of("sh", "-c", "echo > begun; while :; do sleep 0.01; done")
    await bench.begins(run)
    attempt = bench.runner._attempts[run.attempt]
    await until(lambda: attempt._tree and attempt._tree._root)  # type: ignore[attr-defined]
    tree = attempt._tree
    assert isinstance(tree, PosixTree)

    def stands() -> bool:
        tree_now, stopped = tree_of(tree._root), tree._group.stopped()
        still = "TtZXD"  # D: a shell waits in vfork for a child that was stopped before its exec
        return bool(tree_now) and all(process.state in still or process.pid in stopped for process in tree_now)

    with monkeypatch.context() as short:
        short.setattr(os, "open", short_of_files)
        short.setattr(os, "scandir", short_of_files)
        attempt.freeze()
        assert not attempt.is_still()
        cpu_s = attempt.usage.cpu_s
        bench.runner.measure()
        assert attempt.usage.cpu_s == cpu_s
    await until(lambda: bench.runner.freeze(run.attempt))
    await until(stands)
    with monkeypatch.context() as short:
        short.setattr(os, "open", short_of_files)
        short.setattr(os, "scandir", short_of_files)
        attempt.thaw()
    assert stands()
    bench.runner.measure()
    await until(lambda: not stands())
    with monkeypatch.context() as blind:
        blind.setattr(processes, "descendants", lambda pid: [])
        assert not attempt.is_still()


def process(pid: int, parent: int, cpu_s: int, waited_s: int) -> processes.Process:
    ticks = os.sysconf("SC_CLK_TCK")
    fields = ["S", parent, 0, 7, 0, *[0] * 6, cpu_s * ticks, 0, waited_s * ticks, 0, 0, 0, 1, 0, 0, 0, 0]
    return processes.Process(pid, f"{pid} (x) {' '.join(map(str, fields))}".encode())


def test_cpu_time_of_unreaped_children_is_counted() -> None:
    used = TreeCpuTime()
    assert used.cpu_s(process(1, 0, 0, 0), [process(2, 1, 3, 0), process(3, 2, 5, 0), process(4, 2, 2, 0)]) == 10
    assert used.cpu_s(process(1, 0, 0, 0), [process(2, 1, 4, 0), process(4, 2, 2, 0)]) == 11  # 3 was not waited for
    assert used.cpu_s(process(1, 0, 0, 0), [process(2, 1, 4, 2)]) == 11  # 4 was waited for
    assert used.cpu_s(process(1, 0, 0, 6), []) == 11


@pytest.mark.parametrize("pause", ["suspend", "stop"])
async def test_tree_is_stopped_by_groups_and_processes_without_proc(pause: str) -> None:
    """As on macOS (with signals) and on Windows (where suspensions are counted)."""
    code = "sleep 100 & setsid sleep 100 & wait"
    supervisor = psutil.Popen(["setsid", "sh", "-c", f"setsid sh -c '{code}' & wait"])
    try:
        await until(lambda: len(supervisor.children(recursive=True)) == 3)
        below = supervisor.children(recursive=True)
        await until(lambda: [name_of(child) for child in below].count("sleep") == 2)
        tree = WindowsTree(supervisor, None)  # type: ignore[arg-type]
        freeze, thaw = tree.freeze, tree.thaw
        if pause == "stop":
            freeze, thaw = (
                partial(_signal_without_proc, supervisor.pid, what) for what in (signal.SIGSTOP, signal.SIGCONT)
            )
        freeze()
        await until(lambda: all(child.status() == psutil.STATUS_STOPPED for child in below))
        await until(lambda: (supervisor.status() == psutil.STATUS_STOPPED) == (pause == "suspend"))
        thaw()
        await until(lambda: not any(child.status() == psutil.STATUS_STOPPED for child in [supervisor, *below]))
    finally:
        for child in [*supervisor.children(recursive=True), supervisor]:
            child.kill()
        supervisor.wait()


def test_each_process_is_suspended_and_resumed_once_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(psutil.Process, "suspend", lambda process: asked.append("suspend"))
    monkeypatch.setattr(psutil.Process, "resume", lambda process: asked.append("resume"))
    monkeypatch.setattr(psutil.Process, "children", lambda process, recursive: [])
    tree = WindowsTree(psutil.Process(), None)  # type: ignore[arg-type]
    for act in (tree.freeze, tree.freeze, tree.thaw, tree.thaw):
        act()
    assert asked == ["suspend", "resume"]


async def test_process_being_started_by_a_supervisor_is_not_stopped(tmp_path: Path) -> None:
    """That would stop the supervisor too. Here the child waits for a pipe before it runs its program."""
    os.mkfifo(tmp_path / "gate")
    code = f"""
import os
opens = (os.POSIX_SPAWN_OPEN, 9, {str(tmp_path / "gate")!r}, os.O_RDONLY, 0)
os.waitpid(os.posix_spawn("/bin/sleep", ["sleep", "100"], {{}}, file_actions=[opens]), 0)
"""
    supervisor = await asyncio.create_subprocess_exec(sys.executable, "-I", "-S", "-c", code)
    try:
        await until(lambda: processes.children(supervisor.pid))
        [child] = processes.children(supervisor.pid)
        assert signal_all(supervisor.pid, signal.SIGSTOP) == 0
        (tmp_path / "gate").open("w").close()  # it still starts its program
        await until(lambda: processes.read(f"/proc/{child}/comm") == b"sleep\n")
        assert signal_all(supervisor.pid, signal.SIGSTOP) == 1
        await until(lambda: (now := processes.status(child)) and now.state == "T")
    finally:
        signal_all(supervisor.pid, signal.SIGKILL)
        await supervisor.wait()
