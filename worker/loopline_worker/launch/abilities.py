"""What this computer lets us do to keep tasks in their place: tried, not guessed, and told by ``loopline doctor``."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from loopline_worker.launch import delegation, sandbox
from loopline_worker.supervisor import priority, subreaper
from loopline_worker.supervisor.control_groups import Places, remove_places

_SERVICE = "`loopline service install` has it where systemd is"


@dataclass(frozen=True, slots=True)
class Ability:
    """One way of containing tasks, and whether it can be had here."""

    name: str
    has: bool
    detail: str = ""


def abilities() -> list[Ability]:
    """From where it is called: a service may be allowed more than a terminal."""
    if sys.platform == "linux":
        return _on_linux()
    return _on_windows() if sys.platform == "win32" else _on_macos()


def _on_linux() -> list[Ability]:
    places = delegation.claim(yields=True)
    try:
        return [*_of_processes(), *_of_groups(places), _of_sandbox()]
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
            "every session of a task is lowered" if has_sessions else "this kernel has no group for each session",
        ),
        Ability(
            "lowest disk priority",
            has_number,
            "idle I/O class" if has_number else "by way of SCHED_IDLE: the system call is not known here",
        ),
        Ability("whatever a task starts is found", subreaper.libc is not None, "daemons that it leaves included"),
    ]


def _of_groups(places: Places) -> list[Ability]:
    core, weight = places.get("core", ""), places.get("cpu", places.get("core", ""))
    is_idle = _says(weight, "cpu.idle", "1") or _says(weight, "cpu.shares", "2") or _says(weight, "cpu.weight", "1")
    return [
        _group("frozen without a signal", _there(core, "cgroup.freeze"), "by SIGSTOP, process by process"),
        _group("memory limit kept by the kernel", "memory" in places, "watched: twice a second"),
        _group("process limit kept by the kernel", "pids" in places, "RLIMIT_NPROC and watched: twice a second"),
        _group("idle weight against other groups", is_idle, "by priority within its own group only"),
    ]


def _group(name: str, has: bool, instead: str) -> Ability:
    return Ability(name, has, "a control group for each slot" if has else f"{instead}; {_SERVICE}")


def _of_sandbox() -> Ability:
    reason = sandbox.why_not()
    return Ability("sandbox", not reason, reason or "bubblewrap; for tasks of a worker with --sandbox")


def _on_macos() -> list[Ability]:
    return [
        Ability("background quality of service", True, "what taskpolicy -b sets; untested"),
        Ability("whatever a task starts is found", False, "a daemon that leaves its process group is not"),
        Ability("memory and process limits kept by the kernel", False, "watched: twice a second"),
        Ability("sandbox", False, "there is none for macOS"),
    ]


def _on_windows() -> list[Ability]:
    return [
        Ability("job object", True, "killed on close, memory and process limits, idle class; untested"),
        Ability("sandbox", False, "there is none for Windows"),
    ]


def _there(folder: str, file: str) -> bool:
    return bool(folder) and Path(folder, file).exists()


def _says(folder: str, file: str, text: str) -> bool:
    try:
        return Path(folder, file).read_text().strip() == text
    except OSError:
        return False
