"""Delegated control groups: folders in which the agent may make groups for its supervisors.

A service manager delegates a group (``Delegate=yes``); version 1 belongs to root. The agent makes a folder of its
own in each hierarchy below the group that it is in, so that limits set on the agent hold for tasks as well. The
uses of the groups are in ``supervisor/control_groups.py``.
"""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import suppress
from itertools import count
from pathlib import Path

from loopline_worker.supervisor import processes, requests
from loopline_worker.supervisor.control_groups import Places, remove_places
from loopline_worker.supervisor.intervals import RETRY_S

_ROOT = Path("/")
_numbers = count(1)
_OURS = re.compile(r"loopline-(?P<agent>\d+)-\d+")
_PATIENCE_S = 5.0
_ONE_CORE = b"100000 100000"
"""Microseconds of processor time in each period of so many."""


def claim(yields: bool, root: Path = _ROOT) -> Places:
    """Make folders of the agent's own and return them by their use; empty without delegation."""
    hierarchies = _hierarchies(root)
    name = f"loopline-{os.getpid()}-{next(_numbers)}"
    places: Places = {}
    if unified := hierarchies.pop("", None):
        places = _claim_unified(unified, name, yields)
    for kind, own in hierarchies.items():
        if kind not in places and (kind != "cpu" or yields) and _make(own, name):
            places[kind] = str(own / name)
    if "cpu" in places:
        _lower(Path(places["cpu"]))
    return places


def kill_leftovers(root: Path = _ROOT) -> None:
    """Kill what runs in the groups of agents that were killed.

    It may have cleared its environment, and have left its session: a group is not left.
    """
    for own in _hierarchies(root).values():
        for left in _left(own):
            give_up = time.monotonic() + _PATIENCE_S
            while _kill_all(left) and time.monotonic() < give_up:
                time.sleep(RETRY_S)


def _hierarchies(root: Path) -> dict[str, Path]:
    """Return the agent's group in each hierarchy that is of use; version 2 has the name ``""``."""
    mount = root / "sys/fs/cgroup"
    found: dict[str, Path] = {}
    for line in processes.read(str(root / "proc/self/cgroup")).decode().splitlines():
        _, names, path = line.split(":", 2)
        for name in names.split(","):
            if name in ("", "memory", "pids", "cpu"):
                top = _unified(mount) if name == "" else mount / name
                own = top / path.strip("/")
                found[name] = own if own.is_dir() else top
    return {name: own for name, own in found.items() if (own / "cgroup.procs").exists()}


def _unified(mount: Path) -> Path:
    return mount if (mount / "cgroup.controllers").exists() else mount / "unified"


def _claim_unified(own: Path, name: str, yields: bool) -> Places:
    if not _make(own, name):
        return {}
    folder = own / name
    with suppress(OSError):  # else the controllers that are delegated already have to do
        _delegate(own, yields)
    controllers = _words(folder / "cgroup.controllers")
    with suppress(OSError):
        _enable(folder, {"memory", "pids"} & controllers)
    if yields and "cpu" in controllers:
        _lower(folder)
    return dict.fromkeys(("core", *sorted(_words(folder / "cgroup.subtree_control"))), str(folder))


def _delegate(own: Path, yields: bool) -> None:
    """Enable the controllers of our group for groups below it, which requires that it contains no process
    (cgroups(7)).

    The agent's own group is below it too: it has everybody's weight, and one core at most if it yields to an owner.
    """
    wanted = {"memory", "pids", "cpu"} & _words(own / "cgroup.controllers")
    if wanted <= _words(own / "cgroup.subtree_control") or not (own / "cgroup.events").exists():
        return  # it is done, or this is the system's root group
    ours = {str(os.getpid()), *([str(os.getppid())] if requests.inherited() else [])}
    there = _words(own / "cgroup.procs")
    if not there <= ours:
        return  # other processes are in it
    leaf = own / "agent"
    leaf.mkdir(exist_ok=True)
    for pid in there:
        processes.write(str(leaf / "cgroup.procs"), pid.encode())
    _enable(own, wanted)
    if yields and "cpu" in wanted:
        with suppress(OSError):
            processes.write(str(leaf / "cpu.max"), _ONE_CORE)


def _enable(folder: Path, controllers: set[str]) -> None:
    for controller in sorted(controllers):
        processes.write(str(folder / "cgroup.subtree_control"), b"+" + controller.encode())


def _lower(folder: Path) -> None:
    """Give a group the idle weight; before Linux 5.15, the lowest weight."""
    try:
        processes.write(str(folder / "cpu.idle"), b"1")
    except OSError:
        for file, least in (("cpu.weight", b"1"), ("cpu.shares", b"2")):
            with suppress(OSError):
                processes.write(str(folder / file), least)


def _make(own: Path, name: str) -> bool:
    """Make a folder, and remove those of agents that were killed. False if that is not allowed."""
    try:
        remove_places(map(str, _left(own)))
        (own / name).mkdir()
    except OSError:
        return False
    return os.access(own / name / "cgroup.procs", os.W_OK)


def _kill_all(folder: Path) -> bool:
    """Kill all processes in a folder's groups that may be killed. True if there may be more."""
    killed = False
    try:
        for file in folder.rglob("cgroup.procs"):
            for pid in filter(None, map(int, processes.read(str(file)).split())):  # 0: of another process namespace
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
                    killed = True
    except FileNotFoundError:  # another agent that starts has just removed a group
        return True
    return killed


def _left(own: Path) -> list[Path]:
    """Return the folders of agents that have ended. Groups of other names are not ours."""
    found = [(left, _OURS.fullmatch(left.name)) for left in own.glob("loopline-*-*")]
    return [left for left, ours in found if ours and not Path(f"/proc/{ours['agent']}").exists()]


def _words(file: Path) -> set[str]:
    return set(processes.read(str(file)).decode().split())
