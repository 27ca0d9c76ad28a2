"""Ways to isolate tasks that this computer has, found by trying. ``loopline doctor`` lists them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from loopline_worker.launch import delegation, sandbox
from loopline_worker.launch.sandbox import Sandbox
from loopline_worker.settings import SandboxChoice
from loopline_worker.supervisor import priority, subreaper
from loopline_worker.supervisor.control_groups import Places, remove_places
from loopline_worker.supervisor.walls import connect_filter
from loopline_worker.supervisor.walls.inotify import FolderWatcher

_SERVICE = "`loopline service install` enables it where systemd runs"


@dataclass(frozen=True, slots=True)
class Ability:
    """A way to isolate tasks; ``has`` is True if it is available here."""

    name: str
    has: bool
    detail: str = ""


def abilities() -> list[Ability]:
    """Return what the calling process is allowed: a service may be allowed more than a terminal."""
    if sys.platform == "linux":
        return _on_linux()
    return _on_windows() if sys.platform == "win32" else _on_macos()


def _on_linux() -> list[Ability]:
    places = delegation.claim(yields=True)
    try:
        found, reason = sandbox.found_here()
        of_sandbox = [_of_sandbox(found, reason), *_of_views(found), _of_orphans(found, places)]
        return [*_of_processes(), *_of_groups(places), *of_sandbox, _of_loopback()]
    finally:
        remove_places(set(places.values()))


def _of_processes() -> list[Ability]:
    has_sessions = Path("/proc/self/autogroup").exists()
    has_number = priority.knows_disk_call()
    return [
        Ability("lowest processor priority", True, "nice 19 and SCHED_IDLE"),
        Ability(
            "sessions yield too",
            has_sessions,
            "every session of a task gets the lowest priority" if has_sessions else "this kernel has no autogroups",
        ),
        Ability(
            "lowest disk priority",
            has_number,
            "idle I/O class" if has_number else "by SCHED_IDLE: the system call is not known for this machine",
        ),
        Ability("all child processes are tracked", subreaper.libc is not None, "daemons included"),
    ]


def _of_groups(places: Places) -> list[Ability]:
    core, weight = places.get("core", ""), places.get("cpu", places.get("core", ""))
    is_idle = (
        _contains(weight, "cpu.idle", "1")
        or _contains(weight, "cpu.shares", "2")
        or _contains(weight, "cpu.weight", "1")
    )
    return [
        _group("frozen without signals", _exists(core, "cgroup.freeze"), "by SIGSTOP, one process after the other"),
        _group("memory limit enforced by the kernel", "memory" in places, "checked twice a second"),
        _group("process limit enforced by the kernel", "pids" in places, "RLIMIT_NPROC, and checked twice a second"),
        _group("idle weight against other control groups", is_idle, "priority within its own group only"),
    ]


def _group(name: str, has: bool, instead: str) -> Ability:
    return Ability(name, has, "a control group for each slot" if has else f"{instead}; {_SERVICE}")


def _of_sandbox(found: Sandbox | None, reason: str) -> Ability:
    kind = found.kind if found else sandbox.NO_SANDBOX
    because = f", because {reason}" if reason else ""
    return Ability("sandbox", found is not None, f"{sandbox.WORDS[kind]}{because}")


def _of_views(found: Sandbox | None) -> list[Ability]:
    """Return whether tasks start on the fast path: in bubblewrap, a slot keeps its mounts from task to task."""
    if found is None:
        return []
    if found.kind != SandboxChoice.BUBBLEWRAP:
        words = "slow path: Landlock confines each task from scratch, which takes longer than bubblewrap"
        return [Ability("fast start of tasks", False, words)]
    watcher = FolderWatcher()
    has_watches = watcher.watch("/")
    watcher.close()
    words = (
        "a slot's tasks share mounts and loopback until one leaves a trace; those in images have their own"
        if has_watches
        else "slow path, about 1 ms more a task: no inotify watch is left, so each has new mounts; "
        "raise fs.inotify.max_user_instances and fs.inotify.max_user_watches (sysctl)"
    )
    return [Ability("fast start of tasks", has_watches, words)]


def _of_orphans(found: Sandbox | None, places: Places) -> Ability:
    """Return what becomes of tasks where agent, zygote and supervisors are all killed at once."""
    name = "tasks end with the worker, however that ends"
    if found and found.is_cell:
        return Ability(name, True, "all in a process namespace ends with its first process")
    if places:
        return Ability(
            name, False, "what one leaves that is killed as a whole, the next one kills by its control group"
        )
    lost = "what one leaves that is killed as a whole, and that has cleared its environment, is not found again"
    return Ability(name, False, f"{lost}; {_SERVICE}")


def _of_loopback() -> Ability:
    has = connect_filter.is_possible()
    words = (
        "a task in a sandbox reaches there what it serves itself" if has else "a task in a sandbox reaches all of it"
    )
    return Ability("loopback closed to tasks", has, words)


def _on_macos() -> list[Ability]:
    return [
        Ability("background quality of service", True, "as set by taskpolicy -b; untested"),
        Ability("all child processes are tracked", False, "a daemon that leaves its process group is lost"),
        Ability("memory and process limits enforced by the kernel", False, "checked twice a second"),
        Ability("sandbox", False, "not available on macOS"),
    ]


def _on_windows() -> list[Ability]:
    return [
        Ability("job object", True, "kill on close, memory and process limits, idle priority class; untested"),
        Ability("sandbox", False, "not available on Windows"),
    ]


def _exists(folder: str, file: str) -> bool:
    return bool(folder) and Path(folder, file).exists()


def _contains(folder: str, file: str, text: str) -> bool:
    try:
        return Path(folder, file).read_text().strip() == text
    except OSError:
        return False
