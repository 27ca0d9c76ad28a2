"""Landlock: a thread gives up access to all files except the named ones, and its children inherit that (landlock(7)).

It needs no privilege and no namespace, and is a fallback where bubblewrap does not work. A process under it can
neither trace nor read the memory of a process outside. From Linux 6.12 on it cannot signal those either, nor reach
their sockets without a file (abstract ones, such as a desktop's).
"""

from __future__ import annotations

import ctypes
import os
import stat
import time
from contextlib import suppress

from loopline_worker.supervisor.subreaper import libc

_CREATE, _ADD, _RESTRICT = 444, 445, 446
"""System calls, of the same numbers on every architecture."""
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = (1 << bit for bit in range(4))
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""How many rights to files each version knows."""
_ALL_SCOPES = 0b11
"""Abstract sockets and signals."""
_SCOPES_SINCE, _NETWORK_SINCE = 6, 4
_ASK_VERSION = 1
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAPBSET_DROP = 24
_LAST_CAPABILITY = 63
_GOOD_FOR_S = 1.0
_are_dropped = False  # of this process, for good

Identity = tuple[int, int, int]
"""Device, number and kind of a file or folder."""


class _Ruleset(ctypes.Structure):
    _fields_ = [("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32)]


def version() -> int:
    """Return the version of Landlock that this kernel has; 0 without it."""
    return max(0, libc.syscall(_CREATE, None, 0, _ASK_VERSION)) if libc else 0


def isolate() -> bool:
    """Cut the calling thread off from the abstract sockets and the processes of others. False on older kernels.

    All files stay in reach, so that a sandbox can still be mounted. But under rules that say nothing about files the
    kernel denies every rename from one folder to another.
    """
    if version() < _SCOPES_SINCE:
        return False
    with suppress(OSError):
        ruleset = _create(_Ruleset(0, 0, _ALL_SCOPES), _SCOPES_SINCE)
        try:
            _restrict(ruleset)
        finally:
            os.close(ruleset)
        return True
    return False


def confine(paths: dict[str, bool]) -> None:
    """Leave the calling thread these files and folders; True: to write to as well. What is missing is left out.

    A thread of root loses its capabilities besides. Raises OSError.
    """
    drop_capabilities()
    _restrict(_rules.file_for(paths))


class Rules:
    """The rules of the last task, which serve for the next one too while they say the same.

    To make them takes as long as a short task. What an update of the system puts in the place of a file is seen a
    second later.
    """

    def __init__(self) -> None:
        self._file = -1
        self._made_at = 0.0
        self._paths: dict[str, bool] = {}
        self._found: dict[str, Identity | None] = {}  # which file or folder each path is; None: there is none

    def file_for(self, paths: dict[str, bool]) -> int:
        """Return the open ruleset that allows just these paths. Raises OSError."""
        if self._file < 0 or time.monotonic() > self._made_at + _GOOD_FOR_S or not self._say(paths):
            self._make(paths)
        return self._file

    def _say(self, paths: dict[str, bool]) -> bool:
        """True if they allow just these paths: a task's folder is mostly that of the last one by another name."""
        new, old = paths.items() - self._paths.items(), self._paths.items() - paths.items()
        named = {path: _look(path) for path, _ in new}
        if {(named[path], writes) for path, writes in new} != {(self._found[path], writes) for path, writes in old}:
            return False
        for path, _ in old:
            del self._found[path]
        self._found.update(named)
        self._paths = paths
        return True

    def _make(self, paths: dict[str, bool]) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        version_here = version()
        rights = (1 << _RIGHTS.get(version_here, 16)) - 1
        file = _create(_Ruleset(rights, 0, _ALL_SCOPES if version_here >= _SCOPES_SINCE else 0), version_here)
        try:
            self._found = {path: _allow(file, path, rights if may else _READ & rights) for path, may in paths.items()}
        except OSError:
            os.close(file)
            raise
        self._file, self._paths, self._made_at = file, paths, time.monotonic()


_rules = Rules()


def _create(ruleset: _Ruleset, version_here: int) -> int:
    assert libc
    size = 24 if version_here >= _SCOPES_SINCE else 16 if version_here >= _NETWORK_SINCE else 8
    file: int = libc.syscall(_CREATE, ctypes.byref(ruleset), size, 0)
    if file < 0:
        raise OSError("this kernel has no Landlock, or forbids it")
    return file


def _restrict(ruleset: int) -> None:
    assert libc
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.syscall(_RESTRICT, ruleset, 0):
        raise OSError("Landlock refuses to confine a task")


def _allow(ruleset: int, path: str, allowed: int) -> Identity | None:
    """Add a rule, and return which file or folder it is for; None: there is none."""
    assert libc
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(place)
        if not stat.S_ISDIR(status.st_mode):
            allowed &= _OF_FILES
        if libc.syscall(_ADD, ruleset, 1, ctypes.byref(_PathRule(allowed, place)), 0):
            raise OSError(f"Landlock takes no rule for {path}")
        return _identity(status)
    finally:
        os.close(place)


def _look(path: str) -> Identity | None:
    try:
        return _identity(os.stat(path))  # noqa: PTH116 - pathlib is not light
    except OSError:
        return None


def _identity(status: os.stat_result) -> Identity:
    """Return what a file keeps under another name. A ruleset holds the file, so that no other comes to have it."""
    return status.st_dev, status.st_ino, stat.S_IFMT(status.st_mode)


def drop_capabilities(*, of_all: bool = False) -> None:
    """Take all capabilities from this thread's children: a program of root has those of the bounding set.

    ``of_all``: no other thread has been started yet, and those to come are without them as well.
    """
    global _are_dropped  # noqa: PLW0603
    if _are_dropped or not libc or os.geteuid() != 0:
        return
    for capability in range(_LAST_CAPABILITY + 1):
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    _are_dropped = of_all
