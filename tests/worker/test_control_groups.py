"""Control groups as files: the values written in both versions, and when a group counts as ours."""

import os
import resource
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from loopline_worker.launch import abilities, delegation
from loopline_worker.launch.bubblewrap import Bubblewrap
from loopline_worker.launch.sandbox import Sandbox
from loopline_worker.launch.visible_paths import visible
from loopline_worker.settings import NetworkAccess
from loopline_worker.supervisor import processes
from loopline_worker.supervisor.control_groups import ControlGroup, breach, remove_places

CONTROLLERS = "cpu memory pids\n"


def folder_with(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, bytes]]:
    """Folder's name, file, text."""
    log: list[tuple[str, str, bytes]] = []

    def write(path: str, content: bytes) -> None:
        file = Path(path)
        if not file.exists():
            raise FileNotFoundError(path)
        log.append((file.parent.name, file.name, content))

    monkeypatch.setattr(processes, "write", write)
    return log


@pytest.fixture
def handed_over(tmp_path: Path) -> Path:
    """A version 2 group as a service manager hands it over, our process alone in it."""
    folder_with(tmp_path / "proc/self", cgroup="0::/service\n")
    mount = folder_with(tmp_path / "sys/fs/cgroup", cgroup__controllers=CONTROLLERS, cgroup__procs="")
    own = folder_with(
        mount / "service", cgroup__controllers=CONTROLLERS, cgroup__subtree_control="", cgroup__events="",
        cgroup__procs=f"{os.getpid()}\n",
    )  # fmt: skip
    folder_with(own / "agent", cgroup__procs="", cpu__max="")
    return own


def made(own: Path, name: str) -> bool:
    """As the kernel fills a new folder."""
    folder_with(
        own / name,
        cgroup__procs="",
        cgroup__controllers=CONTROLLERS,
        cgroup__subtree_control="memory pids\n",
        cpu__idle="",
    )
    return True


def test_controllers_are_enabled_in_our_own_group(
    handed_over: Path, written: list[tuple[str, str, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delegation, "_make", made)
    places = delegation.claim(yields=True, root=tmp_path)
    assert set(places) == {"core", "memory", "pids"}
    name = Path(places["core"]).name
    assert written == [
        ("agent", "cgroup.procs", str(os.getpid()).encode()),
        *(("service", "cgroup.subtree_control", text) for text in (b"+cpu", b"+memory", b"+pids")),
        ("agent", "cpu.max", b"100000 100000"),
        *((name, "cgroup.subtree_control", text) for text in (b"+memory", b"+pids")),
        (name, "cpu.idle", b"1"),
    ]


def test_group_with_other_processes_is_not_changed(
    handed_over: Path, written: list[tuple[str, str, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (handed_over / "cgroup.procs").write_text(f"{os.getpid()}\n1\n")
    monkeypatch.setattr(delegation, "_make", made)
    delegation.claim(yields=False, root=tmp_path)
    assert "service" not in {folder for folder, _, _ in written}


def test_limits_in_version_2(tmp_path: Path) -> None:
    """Limits of consecutive tasks, with a margin for the supervisor; unchanged values are not written again."""
    folder = folder_with(tmp_path / "supervisor-7", memory__max="", memory__swap__max="", pids__max="")
    group = ControlGroup(dict.fromkeys(("core", "memory", "pids"), str(tmp_path)), "supervisor-7")

    def written(memory_bytes: int | None, processes: int | None) -> dict[str, str]:
        for file in folder.iterdir():
            file.write_text("")
        group.limit(memory_bytes, processes)
        return {file.name: text for file in folder.iterdir() if (text := file.read_text())}

    own = 2**19
    assert written(2**30, 50) == {"memory.max": str(2**30 + own), "memory.swap.max": "0", "pids.max": "51"}
    assert written(2**30, 50) == {}
    assert written(1000, 50) == {"memory.max": str(2**24 + own), "memory.swap.max": "0"}  # other limits are watched
    assert written(None, None) == {"memory.max": "max", "memory.swap.max": "max", "pids.max": "max"}


def test_use_and_breach_in_version_2(tmp_path: Path) -> None:
    folder_with(
        tmp_path / "supervisor-7", memory__stat="anon 1000000\nfile 5\nshmem 7\n", pids__current="4\n",
        memory__events="max 9\noom_kill 0\n", pids__events="max 0\n",
    )  # fmt: skip
    group = ControlGroup(dict.fromkeys(("core", "memory", "pids"), str(tmp_path)), "supervisor-7")
    assert (group.memory_bytes(), group.processes(), group.hits()) == (1_000_007 - 2**19, 3, (0, 0))
    (tmp_path / "supervisor-7/pids.events").write_text("max 3\n")
    assert group.hits() == (0, 3)
    (tmp_path / "supervisor-7/memory.events").write_text("max 9\noom_kill 1\n")
    assert group.hits() == (1, 3)
    group.close()


def test_breach_is_attributed_to_one_task() -> None:
    """The counters of a group are cumulative over its tasks."""
    assert [breach((2, 5), after) for after in ((2, 5), (2, 6), (3, 6))] == [None, "processes", "memory"]


def test_control_group_without_places_does_nothing() -> None:
    group = ControlGroup({}, "supervisor-7")
    group.make()
    group.enter()
    group.limit(1000, 50)
    assert not group.freeze(True)
    with pytest.raises(OSError, match="no group"):
        group.add_to_frozen(1)
    assert (group.memory_bytes(), group.processes(), group.hits(), group.stopped()) == (None, None, (0, 0), set())
    assert group.remove()


def test_missing_ability_is_reported_with_its_substitute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delegation, "claim", lambda yields: {})
    missing = {ability.name: ability.detail for ability in abilities.abilities() if not ability.has}
    assert missing["memory limit enforced by the kernel"].startswith("checked twice a second")
    assert "frozen without signals" in missing


def test_doctor_reports_whether_orphaned_tasks_are_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sees, places = visible(), {"core": "/sys/fs/cgroup/loopline-1-1"}
    enclosed = Sandbox(sees, NetworkAccess.ALL, None, encloses=True)
    open_ = Sandbox(sees, NetworkAccess.ALL, None, encloses=False)
    told = [abilities._of_orphans(*case) for case in ((enclosed, {}), (open_, places), (open_, {}), (None, {}))]
    assert [one.has for one in told] == [True, False, False, False]
    assert "the next one kills by its control group" in told[1].detail
    assert {"is not found again" in one.detail for one in told[2:]} == {True}


def test_doctor_reports_whether_tasks_start_on_the_fast_path() -> None:
    sees, (soft, hard) = visible(), resource.getrlimit(resource.RLIMIT_NOFILE)
    walled = Sandbox(sees, NetworkAccess.ALL, Bubblewrap("/usr/bin/bwrap", sees))
    told = [abilities._of_views(found) for found in (None, Sandbox(sees, NetworkAccess.ALL, None), walled)]
    assert [[one.has for one in views] for views in told] == [[], [False], [True]]
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))  # so that no file can be opened to watch with
    try:
        [without_watches] = abilities._of_views(walled)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not without_watches.has
    assert "fs.inotify" in without_watches.detail


@pytest.mark.skipif(os.geteuid() != 0 or not delegation._hierarchies(Path("/")), reason="needs groups of root's")
def test_processes_in_the_group_of_a_killed_agent_are_killed() -> None:
    """With another session, an empty environment and another folder, only the group identifies the process."""
    [own, *_] = delegation._hierarchies(Path("/")).values()
    ended = subprocess.Popen(["sleep", "600"])
    group, others = own / f"loopline-{ended.pid}-1" / "slot", own / f"loopline-of-{ended.pid}"
    group.mkdir(parents=True)
    others.mkdir()
    stray, other = (subprocess.Popen(["sleep", "600"], env={}, cwd="/", start_new_session=True) for _ in "ab")
    processes.write(str(group / "cgroup.procs"), b"%d" % stray.pid)
    processes.write(str(others / "cgroup.procs"), b"%d" % other.pid)
    ended.kill()  # only now, as agents of other tests remove empty groups of agents that have ended
    ended.wait()
    delegation.kill_leftovers()
    assert stray.wait(60) == -signal.SIGKILL
    places = delegation.claim(yields=True)
    remove_places(set(places.values()))
    assert not group.parent.exists()
    assert other.poll() is None, "a group with another name is not ours"
    other.kill()
    other.wait()
    remove_places({str(others)})


def test_group_removed_by_another_agent_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, read = tmp_path / "sys/fs/cgroup/pids", processes.read
    left = own / "loopline-0-1"
    (left / "slot").mkdir(parents=True)
    for group in (own, left, left / "slot"):
        (group / "cgroup.procs").touch()
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("1:pids:/\n")

    def read_and_lose(path: str) -> bytes:
        if path == str(left / "cgroup.procs"):
            shutil.rmtree(left)
        return read(path)

    monkeypatch.setattr(processes, "read", read_and_lose)
    delegation.kill_leftovers(tmp_path)
    assert not left.exists()
