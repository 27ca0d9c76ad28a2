"""Landlock: a thread gives up all files but those that are named, and what it starts inherits that (landlock(7)).

It needs no privilege and no namespace, and is a fallback where bubblewrap does not work. A process under it can
neither trace nor read the memory of one that is not. From Linux 6.12 on it cannot signal those either, nor reach
their sockets without a file (abstract ones, such as a desktop's).
"""

from __future__ import annotations

import ctypes
import os
import stat
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

    All files stay in reach, so that a sandbox can still be mounted.
    """
    if version() < _SCOPES_SINCE:
        return False
    with suppress(OSError):
        _enter(_Ruleset(0, 0, _ALL_SCOPES), {})
        return True
    return False


def confine(paths: dict[str, bool]) -> None:
    """Leave the calling thread these files and folders; True: to write to as well. What is missing is left out.

    A thread of root loses its capabilities besides. Raises OSError.
    """
    found = version()
    rights = (1 << _RIGHTS.get(found, 16)) - 1
    drop_capabilities()
    _enter(_Ruleset(rights, 0, _ALL_SCOPES if found >= _SCOPES_SINCE else 0), paths)


def _enter(ruleset: _Ruleset, paths: dict[str, bool]) -> None:
    assert libc
    found = version()
    size = 24 if found >= _SCOPES_SINCE else 16 if found >= _NETWORK_SINCE else 8
    fd = libc.syscall(_CREATE, ctypes.byref(ruleset), size, 0)
    if fd < 0:
        raise OSError("this kernel has no Landlock, or forbids it")
    try:
        for path, may_write in paths.items():
            _allow(fd, path, ruleset.files if may_write else _READ & ruleset.files)
        if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.syscall(_RESTRICT, fd, 0):
            raise OSError("Landlock refuses to confine a task")
    finally:
        os.close(fd)


def _allow(ruleset: int, path: str, allowed: int) -> None:
    assert libc
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            allowed &= _OF_FILES
        if libc.syscall(_ADD, ruleset, 1, ctypes.byref(_PathRule(allowed, place)), 0):
            raise OSError(f"Landlock takes no rule for {path}")
    finally:
        os.close(place)


def drop_capabilities() -> None:
    """Take all capabilities from what this thread starts: a program of root has those of the bounding set."""
    if not libc or os.geteuid() != 0:
        return
    for capability in range(_LAST_CAPABILITY + 1):
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
