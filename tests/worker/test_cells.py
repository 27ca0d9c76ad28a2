"""Cells: the namespaces of a slot, created once, in which tasks leave no data for later ones."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import psutil
import pytest

from loopline_shared.model import Outcome
from loopline_worker.attempts.limits import Quota
from loopline_worker.launch.interface import Job
from loopline_worker.launch.sandbox import open_sandbox
from loopline_worker.settings import NetworkAccess, SandboxChoice
from loopline_worker.supervisor import processes
from tests.sandboxes import needs_bubblewrap
from tests.worker.bench import Bench, is_alive, python, run_of, until

pytestmark = needs_bubblewrap

TRACES = """
import ctypes, json, os, resource, subprocess, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def seen():
    found = [place for place in ("/tmp", "/dev/shm", ".", os.environ["TMPDIR"]) if set(os.listdir(place)) - {".tmp"}
        and not (place == "/tmp" and os.listdir("/tmp") == [os.getcwd().split("/")[2]])]
    found += ["another folder" for name in os.listdir("..") if name != os.path.basename(os.getcwd())]
    found += ["a segment"] if libc.shmget(4711, 4096, 0) >= 0 else []
    found += ["a queue"] if libc.mq_open(b"/loopline", os.O_RDONLY, 0, None) >= 0 else []
    found += ["a process"] if len([name for name in os.listdir("/proc") if name.isdigit()]) > 2 else []
    found += ["a limit"] if resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 64 else []
    return found + (["fewer processors"] if len(os.sched_getaffinity(0)) < os.cpu_count() else [])
before = seen()
for place in ("/tmp", "/dev/shm", ".", os.environ["TMPDIR"]):
    open(place + "/left", "w").write("secret")
assert libc.shmget(4711, 4096, 0o1666) >= 0
assert libc.mq_open(b"/loopline", os.O_RDWR | os.O_CREAT, 0o666, None) >= 0
if sys.argv[1:]:
    fewer = resource.RLIMIT_NOFILE, (64, 64)
    for change in (lambda: resource.prlimit(1, *fewer), lambda: os.sched_setaffinity(1, {0})):
        try: change()
        except PermissionError: continue
subprocess.Popen(["sleep", "100"], start_new_session=True)
print(json.dumps(before))
"""


@pytest.fixture(params=["supervisor", "deputy"])
async def cells(tmp_path: Path, outside_tmp: Path, request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    """A worker whose next task is served by its supervisor, like the first of a cell, or by the cell's deputy."""
    walls = open_sandbox(SandboxChoice.BUBBLEWRAP, NetworkAccess.ALL, shares=[str(outside_tmp)])
    async with Bench(tmp_path, quota=Quota(task_memory_bytes=2**28), sandbox=walls) as bench:
        if request.param == "deputy":
            assert (await bench.result(run_of("true", task=100))).outcome is Outcome.SUCCEEDED
        yield bench


def supervisor_of(bench: Bench) -> int:
    """The only supervisor."""
    assert bench.launcher._process
    (supervisor,) = processes.children(bench.launcher._process.pid)
    return supervisor


def first_of(bench: Bench) -> int:
    """The first process of the only cell."""
    (wrapper,) = processes.children(supervisor_of(bench))
    (first,) = processes.children(wrapper)
    return first


async def test_a_cell_serves_one_task_after_the_other(cells: Bench) -> None:
    firsts = set()
    for task in (1, 2, 3):
        assert (await cells.result(run_of("true", task=task))).outcome is Outcome.SUCCEEDED
        firsts.add(first_of(cells))
    assert len(firsts) == 1


async def test_the_supervisor_sleeps_while_its_cell_serves(cells: Bench, outside_tmp: Path) -> None:
    """Except for tasks with other limits, and for a new cell."""

    async def wakings(*commands: str, **options: Any) -> int:
        before = psutil.Process(supervisor).num_ctx_switches()
        for command in commands:
            result = await cells.result(run_of("sh", "-c", command, task=next(tasks), **options))
            assert result.outcome is Outcome.SUCCEEDED, result.reason
        await until(lambda: psutil.Process(supervisor).status() == psutil.STATUS_SLEEPING)
        return sum(psutil.Process(supervisor).num_ctx_switches()) - sum(before)

    async def until_asleep(*commands: str, **options: Any) -> None:
        """Return once these commands no longer wake the supervisor, which may still be busy with earlier work."""
        async with asyncio.timeout(60):
            while await wakings(*commands, **options):
                pass

    tasks, shared = count(1), str(outside_tmp)
    await cells.result(run_of("true", task=next(tasks)))
    supervisor = supervisor_of(cells)
    await until_asleep("true", "touch left", "echo said >&2", f"echo {'much' * 2000}", "sleep 100 &")
    await until(lambda: not [*cells.scratch.iterdir()])  # the spare folder is gone
    assert await wakings("true", memory_bytes=2**27) > 0
    await until_asleep("true", memory_bytes=2**27)
    first = first_of(cells)
    assert await wakings("true", folder=shared) > 0
    assert first_of(cells) != first
    await until_asleep("true", folder=shared)


async def test_cell_sees_a_recreated_folder_of_the_same_name(cells: Bench) -> None:
    """As when an environment is built in two steps that each see the current content of its folder."""
    for number in (1, 2, 2):
        folder = cells.scratch / "1.1.1"
        if number == 1 or not folder.exists() or (folder / "step").read_text() == "1":
            shutil.rmtree(folder, ignore_errors=True)
            (folder / ".tmp").mkdir(parents=True)  # a build's home
            (folder / "step").write_text(str(number))
        with Path(os.devnull).open("wb") as nowhere:
            job = Job(["grep", "-q", str(number), "step"], str(folder), {"PATH": os.defpath})
            tree = await cells.launcher.start(job, nowhere.fileno(), nowhere.fileno())
            assert (await tree.wait()).exit_code == 0
    assert first_of(cells)


_VIEW = "stat -c %.Z /dev/shm"
"""Prints when the view was made: numbers of namespaces are used again."""


@pytest.mark.parametrize("below_tmp", [True, False])
async def test_tasks_that_leave_no_trace_have_the_same_view(
    tmp_path: Path, outside_tmp: Path, below_tmp: bool
) -> None:
    """The same files and shared memory; each sees its own folder, reused or new."""
    walls = open_sandbox(SandboxChoice.BUBBLEWRAP, NetworkAccess.ALL)
    views = []
    async with Bench(tmp_path if below_tmp else outside_tmp, sandbox=walls) as bench:
        for task, leaves in enumerate(("true", "true", "touch made", "true", "touch /dev/shm/made", "true"), 1):
            look = f"{_VIEW}; ls ..; ! ls /dev/shm/made"
            look += " && test -w . && test -w /tmp && ! test -w .."
            result = await bench.result(run_of("sh", "-c", f"{look} && {leaves}", task=task))
            assert result.outcome is Outcome.SUCCEEDED
            view, *seen = result.stdout.data.decode().split()
            assert seen == [f"1.{task}.1"]
            views.append(view)
    assert len({*views[:5]}) == 1
    assert len({*views}) == 2


@pytest.fixture
def below_tmp() -> Iterator[Path]:
    """A folder whose path begins with /tmp, wherever pytest has its own."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


_SENDS = """
import socket
with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
    server.accept()[0].close()
"""
_LISTENS = "import socket; socket.create_server(('127.0.0.1', 4711))"


_FAILS_TO_SEND = """
import contextlib, socket
with contextlib.suppress(OSError):
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('10.1.2.3', 53))
"""
_MAKES_FLOW_LABEL = """
import ipaddress, socket, struct
request = struct.pack('16sIBBHHHI', ipaddress.ip_address('::1').packed, socket.htonl(4711), 0, 255, 1, 6, 0, 0)
socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).setsockopt(socket.IPPROTO_IPV6, 32, request)
"""


@pytest.mark.parametrize("leaves", [_FAILS_TO_SEND, _MAKES_FLOW_LABEL])
async def test_view_without_a_network_ends_after_a_trace_in_it(outside_tmp: Path, leaves: str) -> None:
    """Counters and IPv6 flow labels of a namespace, which the next task could read."""
    walls = open_sandbox(SandboxChoice.BUBBLEWRAP, NetworkAccess.NONE)
    traces = []
    look = "import zlib; print([zlib.crc32(open(f'/proc/self/net/{name}', 'rb').read()) for name in "
    look += "('snmp', 'snmp6', 'netstat', 'ip6_flowlabel')])\n"
    async with Bench(outside_tmp, sandbox=walls) as bench:
        for task, code in enumerate(("", leaves, ""), 1):
            result = await bench.result(python(look + code, task=task))
            assert result.outcome is Outcome.SUCCEEDED, result.stderr.data
            traces.append(result.stdout.data)
    assert traces[0] == traces[1] == traces[2]


async def test_view_without_a_network_lasts_until_something_is_sent(outside_tmp: Path) -> None:
    """A closed connection stays visible for a minute."""
    walls = open_sandbox(SandboxChoice.BUBBLEWRAP, NetworkAccess.NONE)
    views = []
    async with Bench(outside_tmp, sandbox=walls) as bench:
        for task, code in enumerate(("", _LISTENS, _LISTENS, _SENDS, "", _SENDS, _LISTENS), 1):
            look = "import os; print(os.stat('/dev/shm').st_ctime_ns, os.readlink('/proc/self/ns/net')); "
            look += "assert len(open('/proc/net/tcp').readlines()) == 1\n"
            result = await bench.result(python(look + code, task=task))
            assert result.outcome is Outcome.SUCCEEDED, result.stderr.data
            view, network = result.stdout.data.decode().split()
            assert network != str(Path("/proc/self/ns/net").readlink())
            views.append(view)
    assert len({*views[:4]}) == len({*views[4:6]}) == 1
    assert len({*views}) == 3


async def test_view_with_paths_shown_below_tmp_lasts(below_tmp: Path, outside_tmp: Path) -> None:
    """Until a task leaves a file in memory, be it beside one of these paths."""
    (shown := below_tmp / "a" / "shown").mkdir(parents=True)
    (shown / "data").write_text("seen")
    walls = open_sandbox(SandboxChoice.BUBBLEWRAP, NetworkAccess.ALL, shows=[shown])
    views = []
    async with Bench(outside_tmp, sandbox=walls) as bench:
        for task, leaves in enumerate(("true", "true", f"touch {shown.parent}/left", "true", "true"), 1):
            look = f"{_VIEW}; cat {shown}/data; ls {shown.parent}"
            result = await bench.result(run_of("sh", "-c", f"{look}; {leaves}", task=task))
            assert result.outcome is Outcome.SUCCEEDED, result.stderr.data
            view, *seen = result.stdout.data.decode().split()
            assert seen == ["seen" + "shown"]
            views.append(view)
    assert len({*views[:3]}) == len({*views[3:]}) == 1
    assert len({*views}) == 2


async def test_shown_path_that_contains_the_scratch_folder_hides_other_rooms(below_tmp: Path) -> None:
    """Both are below /tmp. Tasks share the view."""
    (shown := below_tmp / "shown").mkdir()
    (shown / "data").write_text("seen")
    walls = open_sandbox(SandboxChoice.BUBBLEWRAP, NetworkAccess.ALL, shows=[shown])
    views = set()
    async with Bench(shown / "deep", sandbox=walls) as bench:
        for task in (1, 2, 3):
            (bench.scratch / "another").mkdir(parents=True, exist_ok=True)
            look = f"{_VIEW}; cat {shown}/data; echo; ls {bench.scratch}; touch mine"
            result = await bench.result(run_of("sh", "-c", look, task=task))
            assert result.outcome is Outcome.SUCCEEDED, (result.reason, result.stderr.data)
            view, seen, *rooms = result.stdout.data.decode().split()
            assert seen == "seen"
            assert len(rooms) == 1
            views.add(view)
    assert len(views) == 1


@pytest.mark.parametrize("changes", [False, True])
async def test_task_leaves_nothing_for_the_next(cells: Bench, changes: bool) -> None:
    """No files, shared memory or processes; a task that changes shared parts of the cell has it replaced."""
    firsts = set()
    for task in (1, 2, 3):
        result = await cells.result(python(TRACES, *["change"] * changes, task=task))
        assert result.outcome is Outcome.SUCCEEDED, result.stderr.data
        assert json.loads(result.stdout.data) == []
        assert "left running" in result.reason, "its leftovers are counted"
        firsts.add(changes or first_of(cells))
    assert len(firsts) == 1


@pytest.mark.parametrize("what", ["libc.mq_open(b'/left', {}, 0o666, None)", "libc.shmget(4711, 4096, {})"])
async def test_shared_memory_of_a_task_is_removed(cells: Bench, what: str) -> None:
    """A queue or a segment, without a file in any folder."""
    load = "import ctypes, os; libc = ctypes.CDLL(None); "
    makes, finds = (
        what.format(flags) for flags in (f"{os.O_RDWR | os.O_CREAT | 0o1000 * ('shm' in what) | 0o666}", "0")
    )
    for task in (1, 3):
        assert (await cells.result(run_of("true", task=task))).outcome is Outcome.SUCCEEDED
        made = await cells.result(python(f"{load}assert {makes} >= 0; assert {finds} >= 0", task=task + 1))
        assert made.outcome is Outcome.SUCCEEDED, made.stderr.data
        found = await cells.result(python(f"{load}assert {finds} < 0", task=task + 4))
        assert found.outcome is Outcome.SUCCEEDED, "shared memory was left for the next task"


async def test_a_task_cannot_look_behind_its_cell(cells: Bench) -> None:
    """Neither in its own user namespace, nor through the first process, nor by killing it."""
    other = run_of("sh", "-c", "echo mine > secret; echo > begun; exec sleep 100", task=9)
    await cells.begins(other)
    around = cells.scratch
    code = f"""
import ctypes, os, signal, subprocess, sys
print("sees what was left open" * (len(os.listdir("/proc/self/fd")) > 4))
for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGSEGV):
    os.kill(1, number)
for name in ("root", "cwd", "fd/0", "ns/mnt", "mem", "environ", "map_files"):
    for look in (os.listdir, os.readlink, os.open):
        try: look(f"/proc/1/{{name}}", *[os.O_RDONLY] * (look is os.open))
        except OSError: continue
        print("sees", name) if name != "map_files" else None
libc = ctypes.CDLL(None)
first = libc.syscall(434, 1, 0)
for file in range(50):
    if libc.syscall(438, first, file, 0) >= 0: print("sees file", file)
subprocess.run("umount {around}; umount -l /tmp; mount -o remount,rw /; mount -t tmpfs x /mnt", shell=True, stderr=-3)
inner = "umount {around}; umount -l {around}; umount -l /tmp; cat {around}/1.9.1/secret; ls {around}"
print(subprocess.run(["unshare", "-Urm", "sh", "-c", inner], stdout=-1, stderr=-3).stdout.decode())
print(os.listdir({str(around)!r}))
"""
    result = await cells.result(python(code, task=1))
    said = result.stdout.data.decode()
    assert result.outcome is Outcome.SUCCEEDED, result.stderr.data
    assert "sees" not in said
    assert "mine" not in said
    assert said.split()[-1] == "['1.1.1']"


async def test_exit_codes_and_signals_are_those_of_the_task(cells: Bench) -> None:
    assert (await cells.result(run_of("no-such-program"))).exit_code == 127
    killed = await cells.result(run_of("sh", "-c", "kill -SEGV $$", task=2))
    assert killed.exit_code == -signal.SIGSEGV


async def test_task_ends_with_its_killed_cell_and_the_next_has_another(cells: Bench) -> None:
    run = run_of("sh", "-c", "echo > begun; exec sleep 100")
    await cells.begins(run)
    first = first_of(cells)
    os.kill(first, signal.SIGKILL)
    result = await cells.end_of(run)
    assert (result.outcome, result.took_down) == (Outcome.GIVEN_BACK, True)
    assert result.reason in ("its sandbox was killed", "its supervisor was killed")
    assert cells.troubles == []
    assert (await cells.result(run_of("true", task=2))).outcome is Outcome.SUCCEEDED
    assert first_of(cells) != first


async def test_a_cell_ends_with_its_supervisor(cells: Bench) -> None:
    """Whether the supervisor or the deputy serves the agent."""
    run = run_of("sh", "-c", "echo > begun; exec sleep 100")
    await cells.begins(run)
    first = psutil.Process(first_of(cells))
    within = [first, *first.children(recursive=True)]
    assert len(within) == 2
    os.kill(supervisor_of(cells), signal.SIGKILL)
    result = await cells.end_of(run)
    assert (result.outcome, result.reason) == (Outcome.GIVEN_BACK, "its supervisor was killed")
    await until(lambda: not any(is_alive(process) for process in within))


async def test_a_deputy_ends_when_the_agent_hangs_up(cells: Bench) -> None:
    await cells.result(run_of("true"))
    await cells.result(run_of("true", task=2))
    supervisor, first = (psutil.Process(pid) for pid in (supervisor_of(cells), first_of(cells)))
    for link in [*cells.launcher._links]:
        cells.launcher.drop(link)
    await until(lambda: not is_alive(supervisor) and not is_alive(first))


async def test_a_cell_that_dies_between_tasks_is_replaced(cells: Bench) -> None:
    """With a new supervisor: this one does not know which frames the agent has received."""
    await cells.result(run_of("true"))
    first = first_of(cells)
    os.kill(first, signal.SIGKILL)
    await until(lambda: not cells.launcher._links)  # its supervisor has ended with it
    assert (await cells.result(run_of("true", task=2))).outcome is Outcome.SUCCEEDED


async def test_task_in_a_cell_can_be_frozen_and_thawed(cells: Bench) -> None:
    run = run_of("sh", "-c", "echo > begun; while [ ! -e go ]; do sleep 0.01; done; echo $$")
    await cells.begins(run)
    cells.runner.freeze(run.attempt)
    await until(lambda: cells.runner.freeze(run.attempt))
    (cells.scratch / str(run.attempt) / "go").touch()
    cells.runner.thaw(run.attempt)
    assert (await cells.end_of(run)).outcome is Outcome.SUCCEEDED


OWN = """
import os, resource, subprocess, sys
child = subprocess.Popen(["sleep", "100"])
for pid in (0, os.getpid(), child.pid):
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (64, 64))
    os.sched_setaffinity(pid, os.sched_getaffinity(pid))
    os.setpriority(os.PRIO_PROCESS, pid, 19)
    os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))
refused = 0
for change in (
    lambda: resource.prlimit(1, resource.RLIMIT_CPU, (1, 1)), lambda: resource.prlimit(1, resource.RLIMIT_NOFILE),
    lambda: os.sched_setaffinity(1, {0}), lambda: os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0)),
    lambda: os.sched_setparam(1, os.sched_param(0)), lambda: os.setpriority(os.PRIO_PROCESS, 1, 19),
    lambda: os.setpriority(os.PRIO_PGRP, 1, 19), lambda: os.setpriority(os.PRIO_USER, 0, 19),
):
    try: change()
    except PermissionError: refused += 1
child.kill()
print(refused)
"""
BY_PSUTIL = f"""
import subprocess, sys
sys.path.append({str(Path(psutil.__file__).parents[1])!r})
import psutil
with subprocess.Popen(["sleep", "100"]) as child:
    for one in (psutil.Process(), psutil.Process(child.pid)):
        one.nice(19)
        one.ionice(psutil.IOPRIO_CLASS_IDLE)
        one.cpu_affinity(one.cpu_affinity())
        one.rlimit(psutil.RLIMIT_NOFILE, (64, 64))
    child.kill()
print("done")
"""


async def test_a_task_changes_its_own_processes_and_not_the_first_of_its_cell(cells: Bench) -> None:
    first = 0
    for task, (script, printed) in enumerate([(OWN, "8"), (BY_PSUTIL, "done")], 1):
        result = await cells.result(python(script, task=task))
        assert (result.outcome, result.stdout.data.decode().strip()) == (Outcome.SUCCEEDED, printed), result.stderr
        first = first or first_of(cells)
        assert first_of(cells) == first, "its cell is unchanged"


async def test_a_task_cannot_kill_its_cell_by_a_limit(cells: Bench) -> None:
    """Otherwise each such task would end like one with a killed sandbox, and make its worker look broken."""
    script = "import resource; resource.prlimit(1, resource.RLIMIT_CPU, (1, 1))"
    result = await cells.result(python(script))
    assert (result.outcome, result.took_down) == (Outcome.FAILED, False)
