"""Tasks with separate users, one per slot: ownership of files, and the permissions of a service's agent."""

import asyncio
import errno
import fcntl
import grp
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from loopline_shared.model import AttemptId, Outcome
from loopline_shared.protocol.checkpoints import CheckpointOrder
from loopline_shared.protocol.worker_link import Run
from loopline_worker.checkpoints import folder_snapshot, snapshots
from loopline_worker.checkpoints.attempt_checkpoints import AttemptCheckpoints
from loopline_worker.checkpoints.local_store import LocalStore
from loopline_worker.gpus.gpu_locks import GpuLocks
from loopline_worker.gpus.gpu_wing import Gpus
from loopline_worker.gpus.known_gpus import KnownGpus
from loopline_worker.gpus.local_gpus import find_gpus
from loopline_worker.launch.process_tree import PosixTree
from loopline_worker.launch.sandbox import Sandbox, open_sandbox
from loopline_worker.settings import SandboxChoice
from loopline_worker.supervisor.family import tree_of
from loopline_worker.supervisor.requests import ZygoteLine
from loopline_worker.supervisor.users import folders, service
from loopline_worker.supervisor.users.credentials import TaskUser
from loopline_worker.supervisor.users.slot_users import SlotUsers
from loopline_worker.supervisor.walls import landlock
from tests.sandboxes import without_bubblewrap
from tests.worker.bench import Bench, run_of, until
from tests.worker.gpu_trees import UUIDS, add_nvidia
from tests.worker.saving import local_checkpoints

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root gives tasks users of their own"
)
ZYGOTE = """
import socket, sys
sys.path.append({worker!r})
from loopline_worker.supervisor.users.slot_users import SlotUsers, find
from loopline_worker.supervisor.zygote import Zygote
Zygote(socket.socket(fileno=int(sys.argv[1])), SlotUsers(find("{first}-{last}"))).run()
"""


def one_user() -> int:
    """Return the first of two users reserved for this process: any process of them may be killed."""
    return 20_000 + 4 * (os.getpid() % 10_000)


def two_users() -> set[int]:
    return {one_user(), one_user() + 1}


def may_be_entered(folder: Path) -> bool:
    """True if every user may reach a folder."""
    return all(part.stat().st_mode & stat.S_IXOTH for part in (folder, *folder.parents))


SANDBOXES = [SandboxChoice.OFF, *([SandboxChoice.LANDLOCK] if landlock.version() else [])]
IN_CELLS = not without_bubblewrap() and may_be_entered(Path(sys.base_prefix))
"""The slot's user starts this Python in its cell, and needs access to it."""
also_in_cells = pytest.mark.parametrize(
    "bench", [*SANDBOXES, *([SandboxChoice.BUBBLEWRAP] if IN_CELLS else [])], indirect=True
)


@pytest.fixture(params=SANDBOXES)
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    folder = Path(tempfile.mkdtemp())  # not pytest's folder, which only root may enter
    folder.chmod(0o711)
    sandbox: Sandbox | None = open_sandbox(request.param)
    ours, theirs = socket.socketpair()
    names = {"worker": str(Path(service.__file__).parents[3]), "first": min(two_users()), "last": max(two_users())}
    with theirs:
        zygote = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", ZYGOTE.format(**names), str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
        )
    try:
        async with Bench(folder, sandbox=sandbox, given=ZygoteLine(ours)) as bench:
            yield bench
        assert zygote.wait(60) == 0
        assert not any(map(_is_a_task, psutil.process_iter()))
    finally:
        zygote.kill()
        zygote.wait()
        shutil.rmtree(folder)


async def test_files_of_a_slot_are_inaccessible_to_other_slots(bench: Bench) -> None:
    leaves = "echo secret > mine; mkdir -m 700 closed; head -c 100000 /dev/zero > closed/one; echo > begun"
    leaves += "; touch /dev/shm/$(id -u); mkdir -p /tmp/$(id -u)/inner" if bench.launcher._sandbox is None else ""
    waits = f"{leaves}; while [ ! -e go ]; do sleep 0.01; done; id -u"
    runs = [run_of("sh", "-c", waits, task=task) for task in (1, 2)]
    for run in runs:
        bench.runner.start(run)
        await until((bench.scratch / str(run.attempt) / "begun").exists)
    first = bench.scratch / str(runs[0].attempt)
    assert first.stat().st_uid == os.geteuid()
    assert first.stat().st_mode & 0o7777 == 0o2770

    given = bench.launcher._given
    assert given
    measured = await asyncio.to_thread(given.used_bytes, str(first))
    assert measured >= 100_000, "folders that only their user may enter are measured"

    refused = await bench.result(run_of("true", task=3))
    assert (refused.outcome, "more slots than users" in refused.reason) == (Outcome.GIVEN_BACK, True)

    (bench.scratch / str(runs[1].attempt) / "go").touch()
    second = await bench.end_of(runs[1])
    spies = (
        f"cat {first}/mine; ls {first}; kill -0 {os.getpid()}; echo x > /dev/stderr; grep CapEff /proc/self/status"
    )
    spied = await bench.result(run_of("sh", "-c", spies, task=4))
    assert spied.stdout.data.split() == [b"CapEff:", b"0000000000000000"]
    assert spied.stderr.data.endswith(b"x\n")

    (first / "go").touch()
    results = [await bench.end_of(runs[0]), second]
    assert {int(result.stdout.data) for result in results} == two_users()
    await until(lambda: not any(bench.scratch.iterdir()))  # including folders that only the task's user may enter
    assert not [
        path
        for user in two_users()
        for path in (Path("/dev/shm", str(user)), Path("/tmp", str(user)))
        if path.exists()
    ]


async def test_task_with_a_gpu_is_in_the_groups_that_may_open_it(bench: Bench, tmp_path: Path) -> None:
    add_nvidia(tmp_path)
    device = bench.folder / "device"
    device.write_text("opened\n")
    os.chown(device, 0, grp.getgrnam("video").gr_gid)
    device.chmod(0o040)
    found = [replace(each, files=(str(device),), own_file=str(device)) for each in find_gpus(tmp_path)]
    bench.runner._wings = (Gpus(found, GpuLocks(tmp_path), KnownGpus(tmp_path / "gpus.json"), root=tmp_path),)
    for task, (gpus, opened) in enumerate((((), b""), (UUIDS[:1], b"opened\n"), ((), b"")), start=1):
        result = await bench.result(run_of("cat", str(device), task=task, gpus=gpus))
        assert result.stdout.data == opened, result


async def test_killed_task_dies_with_all_its_processes(bench: Bench) -> None:
    """The zygote kills for the agent; if a supervisor was killed, all processes of its slot's user are killed."""
    stubborn = "trap '' TERM; setsid sleep 600 & echo > begun; while :; do sleep 0.1; done"
    for task, end in ((1, bench.runner.cancel), (2, None)):
        run = run_of("sh", "-c", stubborn, task=task)
        bench.runner.start(run)
        await until((bench.scratch / str(run.attempt) / "begun").exists)
        if end:
            end(run.attempt)
            assert (await bench.end_of(run)).outcome is Outcome.CANCELLED
        else:
            tree = bench.runner._attempts[run.attempt]._tree
            assert tree
            supervisor = tree.link.root  # type: ignore[attr-defined]
            os.kill(supervisor, signal.SIGKILL)
            assert (await bench.end_of(run)).outcome is Outcome.GIVEN_BACK
        await until(lambda: not any(map(_is_a_task, psutil.process_iter())))


@pytest.fixture
async def store(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LocalStore]:
    monkeypatch.setattr(snapshots, "STOPPED_S", 10.0)  # by a busy computer
    async with local_checkpoints(bench) as store:
        yield store


@pytest.fixture
def may_not_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse leases to this process, as to an agent without powers: others own the files of its tasks.

    A file that is not leased, and not small, is not taken.
    """

    def fcntl_of_others(handle: int, command: int, *more: int) -> int:
        if command == fcntl.F_SETLEASE:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return fcntl.fcntl(handle, command, *more)

    monkeypatch.setattr(folder_snapshot, "fcntl", SimpleNamespace(**{**vars(fcntl), "fcntl": fcntl_of_others}))
    monkeypatch.setattr(folder_snapshot, "MOST_COPIED_BYTES", 100_000)


def saving(code: str, number: int = 1, every_s: float = 0.02) -> Run:
    return Run(AttemptId(1, 1, number), ("sh", "-c", code), {}, {}, checkpoint=CheckpointOrder(every_s=every_s))


@also_in_cells
async def test_task_with_its_own_user_continues_from_its_last_checkpoint(bench: Bench, store: LocalStore) -> None:
    """It is taken when the attempt has ended: only then may the agent read files that are closed to their group."""
    code = (
        'cd "$LOOPLINE_CHECKPOINT"; cat state 2>/dev/null; id -u; umask 077; echo saved > state.new; '
        'mv state.new state; touch "$LOOPLINE_SCRATCH/begun"; [ "$LOOPLINE_RESUMED" = 1 ] || sleep 1000'
    )
    for number in (1, 2):
        run = saving(code, number)
        bench.runner.start(run)
        if number == 1:
            await until((bench.scratch / str(run.attempt) / "begun").exists)
            bench.runner.cancel(run.attempt, Outcome.GIVEN_BACK, "the owner came back")
        result = await bench.end_of(run)
    user, saved, other = result.stdout.data.split()
    assert (result.outcome, saved) == (Outcome.SUCCEEDED, b"saved")
    assert {int(user), int(other)} <= two_users()


@also_in_cells
@pytest.mark.usefixtures("may_not_lease")
async def test_task_with_its_own_user_is_saved_while_it_runs(bench: Bench, store: LocalStore) -> None:
    """Its processes are stopped by the zygote; its user leases the large file; neither disturbs the task."""
    code = (
        'cd "$LOOPLINE_CHECKPOINT"; count=0; sleep 1000 & kill -STOP $!; while :; do count=$((count + 1)); '
        "head -c 200000 /dev/urandom > large.new; mv large.new large; echo $count > small.new; mv small.new small; "
        "sleep 0.05; done"
    )
    run = saving(code)
    bench.runner.start(run)
    stored, seen = store.task(run.attempt), set[str]()

    def saves() -> bool:
        if record := stored.record():
            seen.add(record.manifest)
        return len(seen) > 5

    await until(saves)
    tree = bench.runner._attempts[run.attempt]._tree
    assert isinstance(tree, PosixTree)
    stopped = [0]

    def is_let_go() -> bool:
        stopped[0] = [one.state for one in tree_of(tree.link.root)].count("T")
        return stopped[0] <= 1

    await until(is_let_go)  # it may be saved again just now
    assert stopped == [1], "what the task has stopped stays stopped"
    part = bench.runner._attempts[run.attempt]._parts[0]
    assert isinstance(part, AttemptCheckpoints)
    assert part._snapshots.newest
    assert {"large", "small"} <= {*part._snapshots.newest.packed.known}
    bench.runner.cancel(run.attempt, Outcome.CANCELLED, "enough")
    await bench.end_of(run)


@also_in_cells
async def test_user_of_a_task_leases_its_files(bench: Bench) -> None:
    """A program that opens one of them to write is not kept waiting, and the agent sees that the lease is gone."""
    code = "head -c 100000 /dev/zero > mine; touch begun; until [ -e go ]; do sleep 0.01; done; echo x >> mine"
    run = run_of("sh", "-c", code)
    bench.runner.start(run)
    folder = bench.scratch / str(run.attempt)
    await until((folder / "begun").exists)
    tree = bench.runner._attempts[run.attempt]._tree
    assert isinstance(tree, PosixTree)
    lessor = tree.lessor(str(folder))
    assert lessor
    with lessor, (folder / "mine").open("rb") as file:
        socket.send_fds(lessor, [b"l"], [file.fileno()])
        assert await asyncio.to_thread(lessor.recv, 1) == b"l"
        assert fcntl.fcntl(file, fcntl.F_GETLEASE) == fcntl.F_RDLCK
        (folder / "go").touch()
        assert (await bench.end_of(run)).outcome is Outcome.SUCCEEDED
        assert fcntl.fcntl(file, fcntl.F_GETLEASE) == fcntl.F_UNLCK


def test_folder_is_lent_only_to_a_group(tmp_path: Path) -> None:
    """A linked file of the cache is readable, and still belongs to the agent."""
    folder, cached = tmp_path / "scratch" / "1.1.1", tmp_path / "cached"
    (folder / "inner").mkdir(parents=True, mode=0o700)
    cached.write_text("large")
    cached.chmod(0o600)
    os.link(cached, folder / "large")
    (folder / "inner" / "program").touch(mode=0o700)
    folders.lend(str(folder), one_user())
    found = {path.name: path.stat() for path in (folder, *folder.rglob("*"))}
    modes = {name: (status.st_gid, oct(status.st_mode & 0o7777)) for name, status in found.items()}
    assert modes == {
        "1.1.1": (one_user(), "0o2770"),
        "inner": (one_user(), "0o2770"),
        "large": (0, "0o644"),
        "program": (one_user(), "0o770"),
    }
    assert {status.st_uid for status in found.values()} == {0}


def test_leftovers_of_an_earlier_service_are_handed_over_by_its_group(tmp_path: Path) -> None:
    """A folder closed by its user, below one that cannot be listed; processes of that user are killed."""
    user = TaskUser(one_user(), one_user())
    room = tmp_path / "scratch" / "session-1" / "1.1.1"
    room.mkdir(parents=True)
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_uid == os.geteuid() and path != Path("/"):
            path.chmod(path.stat().st_mode | 0o011)
    folders.lend(str(room), user.gid)
    leaves = ["setpriv", f"--reuid={user.uid}", f"--regid={user.gid}", "--clear-groups", "sh", "-c"]
    subprocess.run([*leaves, f"cd {room}; mkdir -m 700 closed; touch closed/one; chmod 0 closed"], check=True)
    left = subprocess.Popen([*leaves, "exec sleep 600"])
    users = SlotUsers([user, TaskUser(one_user() + 1, one_user() + 1)])
    users.kill_leftovers()
    assert left.wait(60) == -signal.SIGKILL
    users.hand_over(str(tmp_path / "scratch"))
    assert (room / "closed").stat().st_mode & 0o070 == 0o070


def test_folder_without_leftovers_is_not_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[list[str]] = []

    def start(command: list[str], _: object) -> int:
        searches.append(command)
        return os.posix_spawn("/bin/true", ["true"], {})

    monkeypatch.setattr(folders, "_SHARED", (str(tmp_path), str(tmp_path / "missing")))
    monkeypatch.setattr(folders, "_start", start)
    shared = folders.SharedFolders(TaskUser(one_user(), one_user()))
    for number, searched in ((1, 1), (2, 1), (3, 2), (4, 2)):
        if number == 3:
            (tmp_path / "left").touch()
        shared.clear()
        assert len(searches) == searched


@pytest.mark.parametrize(
    ("what", "is_open"), [("file", True), ("closed file", False), ("closed folder", False), ("sticky folder", False)]
)
def test_folder_is_handed_over_only_if_its_group_has_no_access(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, is_open: bool
) -> None:
    handed: list[object] = []
    monkeypatch.setattr(folders, "_start", lambda command, _: handed.append(command))
    monkeypatch.setattr(os, "waitpid", lambda *_: None)
    tmp_path.chmod(0o2770)
    path = tmp_path / "made"
    path.mkdir() if what.endswith("folder") else path.touch()
    path.chmod({"file": 0o660, "closed file": 0o600, "closed folder": 0o700, "sticky folder": 0o1770}[what])
    folders.hand_over(str(tmp_path), TaskUser(one_user(), tmp_path.stat().st_gid))
    assert bool(handed) is not is_open


def _is_a_task(process: psutil.Process) -> bool:
    try:
        return process.uids().real in two_users() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def test_agent_of_a_service_has_no_capabilities_but_its_tasks_groups(tmp_path: Path) -> None:
    says = "id -u; id -G; umask; grep -h -E 'CapPrm|CapEff|CapAmb|NoNewPrivs' /proc/self/status; exit 7"
    done = _serve(
        "--user", "nobody", "--tasks-as", f"{min(two_users())}-{max(two_users())}", "--", "/bin/sh", "-c", says
    )
    nobody = int(subprocess.check_output(["id", "-u", "nobody"]))
    uid, groups, umask, *powers = done.stdout.splitlines()
    assert (int(uid), umask) == (nobody, "0077")
    assert set(map(int, groups.split())) >= two_users()
    assert {line.split()[0]: int(line.split()[1], 16) for line in powers} == {
        "CapPrm:": 0,
        "CapEff:": 0,
        "CapAmb:": 0,
        "NoNewPrivs:": 1,
    }
    assert done.returncode == 7


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--tasks-as", "61601-61602", "--", "/bin/true"], "--user NAME is missing"),
        (["--user", "nobody", "--tasks-as", "no-such-user-", "--", "/bin/true"], "there is no user no-such-user-1"),
        (["--user", "nobody", "--tasks-as", "0-3", "--", "/bin/true"], "is root or the agent itself"),
        (["--user", "nobody", "--tasks-as", "61601-61602"], "there is no command"),
    ],
)
def test_service_without_protection_is_refused(words: list[str], why: str) -> None:
    done = _serve(*words)
    assert (done.returncode, why in done.stderr) == (2, True), done.stderr


def _serve(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-S", service.__file__, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
