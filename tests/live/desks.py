"""Layouts of control groups as on desktops, and an owner's programs in them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loopline_worker.supervisor import processes

CORES = os.cpu_count() or 1
_CGROUPS = Path("/sys/fs/cgroup")
_HOG = f"{sys.executable} -I -S -c 'while True: pass'"
_UNIT = "user-1.slice/user@1.service/loopline.slice"
LAYOUTS = {
    "app.slice": (_UNIT, "user-1.slice/user@1.service/app.slice"),
    "session scope": (_UNIT, "user-1.slice/session-1.scope"),
    "another user's slice": (_UNIT, "user-2.slice/session-2.scope"),
    "beside the system's unit": ("loopline.slice", "user-1.slice/session-1.scope"),
    "two terminals' scopes": ("user-1.slice/session-1.scope", "user-1.slice/session-2.scope"),
    "two terminals without groups": ("", ""),
}
"""The groups of the worker and the owner, as systemd creates them; empty: none of their own."""
_FROZEN = b"TtZX"


def missing() -> str:
    """Return the reason why this computer cannot have such layouts; empty if it can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "only root of Linux makes control groups"
    return "" if _hierarchy() else "no control groups with the processor"


def _hierarchy() -> Path | None:
    if (_CGROUPS / "cpu/cpu.shares").exists():
        return _CGROUPS / "cpu"
    is_unified = "cpu" in processes.read(str(_CGROUPS / "cgroup.subtree_control")).decode().split()
    return _CGROUPS if is_unified else None


@contextmanager
def layout(name: str) -> Iterator[tuple[Path | None, Path | None]]:
    """Create the groups of a worker and of its owner's programs, with the default weight; remove them at the end."""
    hierarchy, made = _hierarchy(), list[Path]()
    assert hierarchy
    top = hierarchy / f"loopline-desks-{os.getpid()}"
    groups = [top / path if path else None for path in LAYOUTS[name]]
    try:
        for group in filter(None, groups):
            for folder in (*reversed(group.relative_to(hierarchy).parents), group.relative_to(hierarchy)):
                if not (hierarchy / folder).is_dir():
                    (hierarchy / folder).mkdir()
                    made.append(hierarchy / folder)
                    if hierarchy == _CGROUPS:
                        processes.write(str(hierarchy / folder.parent / "cgroup.subtree_control"), b"+cpu")
        yield groups[0], groups[1]
    finally:
        for group in reversed(made):
            _remove(group)


def _remove(group: Path) -> None:
    give_up = time.monotonic() + 60
    while True:
        try:
            for inner in [place for place, *_ in os.walk(group, topdown=False)]:
                Path(inner).rmdir()
            return
        except OSError:  # killed processes may not have exited yet
            assert time.monotonic() < give_up, f"{group} is still in use"
            time.sleep(0.05)  # polls


def enter(group: Path | None, *pids: int) -> None:
    for pid in pids:
        if group:
            processes.write(str(group / "cgroup.procs"), b"%d" % pid)


@contextmanager
def owners_programs(group: Path | None) -> Iterator[list[int]]:
    """Run programs that never sleep, one per core, in a session like that of a desktop or terminal."""
    script = f"read go; for i in $(seq {CORES}); do {_HOG} & done; wait"
    shell = subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, start_new_session=True)
    assert shell.stdin
    hogs = list[int]()
    try:
        enter(group, shell.pid)
        shell.stdin.write(b"\n")
        shell.stdin.close()
        while len(hogs := processes.children(shell.pid)) < CORES or not cpu_s(hogs):
            time.sleep(0.01)  # polls
        yield hogs
    finally:
        for pid in (*hogs, shell.pid):
            os.kill(pid, 9)
        shell.wait()


def cpu_s(pids: list[int]) -> float:
    """Return the CPU time that these processes have used."""
    return sum(found.cpu_s for pid in pids if (found := processes.status(pid)))


def is_frozen(pid: int) -> bool:
    """Return whether a process is frozen or has ended."""
    state = processes.read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[:1]
    if not state or state[0] in _FROZEN:
        return True
    for line in processes.read(f"/proc/{pid}/cgroup").decode().splitlines():
        number, _, group = line.split(":", 2)
        unified = _CGROUPS if (_CGROUPS / "cgroup.controllers").exists() else _CGROUPS / "unified"
        if number == "0" and processes.read(f"{unified}{group}/cgroup.freeze").strip() == b"1":
            return True
    return False
