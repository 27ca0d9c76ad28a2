"""The credentials of a thread: its user, its groups and its capabilities (credentials(7), capabilities(7)).

The kernel keeps these by thread, and children of a thread inherit them. The C library would change them in all
threads at once; so the calls here are the kernel's own.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from typing import NamedTuple

_libc = ctypes.CDLL(None, use_errno=True)
CAN_KILL, CAN_SET_GROUP, CAN_SET_USER = 5, 6, 7
"""Capabilities by their numbers: to signal any process, to take on any group, and any user."""
NEEDED = frozenset({CAN_KILL, CAN_SET_GROUP, CAN_SET_USER})
_CALLS = {"x86_64": (116, 119, 117), "aarch64": (159, 149, 147)}
"""By machine: setgroups, setresgid, setresuid."""
_GPU_GROUPS = ("video", "render")
_VERSION = 0x20080522
_KEEP_CAPABILITIES, _DROP_FROM_BOUNDS, _NO_NEW_PRIVILEGES, _AMBIENT, _END_WITH_PARENT = 8, 24, 38, 47, 1
_BE_READABLE = 4
_CLEAR_ALL = 4
_LAST = 63


class TaskUser(NamedTuple):
    """A user that tasks of one slot run as, and the group of that user alone."""

    uid: int
    gid: int


def is_possible() -> bool:
    """True if the kernel's calls are known for this machine."""
    return sys.platform == "linux" and os.uname().machine in _CALLS


def become(user: TaskUser, *, has_gpus: bool = False) -> None:
    """Switch the calling thread and its children to this user, without capabilities. Raises OSError.

    ``has_gpus``: it is in the groups that may open GPUs, too.
    """
    if not user.uid or not user.gid:
        raise OSError("no task runs as root")
    _, set_group, set_user = _CALLS[os.uname().machine]
    join(_gpu_groups() if has_gpus else [])
    _call(set_group, *[user.gid] * 3)
    _call(set_user, *[user.uid] * 3)
    keep_only(frozenset())


def become_root_without_powers() -> None:
    """Switch the calling process to root without capabilities: it may open what root owns. Raises OSError."""
    _call(_CALLS[os.uname().machine][2], 0, 0, 0)
    keep_only(frozenset())


def join(gids: list[int]) -> None:
    """Give the calling thread these groups besides its own: it may hand files over to them. Raises OSError."""
    _call(_CALLS[os.uname().machine][0], len(gids), (ctypes.c_uint32 * len(gids))(*gids))


def _gpu_groups() -> list[int]:
    """Return the groups of this computer that may open its GPUs. No order can name another group."""
    import grp  # few tasks have GPUs

    return [entry.gr_gid for entry in grp.getgrall() if entry.gr_name in _GPU_GROUPS]


def settle(user: TaskUser) -> None:
    """Switch a process of root to this user, keeping the capabilities in NEEDED, which can start others. Raises
    OSError.
    """
    for capability in set(range(_LAST + 1)) - NEEDED:
        _libc.prctl(_DROP_FROM_BOUNDS, capability, 0, 0, 0)
    _libc.prctl(_KEEP_CAPABILITIES, 1, 0, 0, 0)
    os.setgroups([])
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)
    _libc.prctl(_BE_READABLE, 1, 0, 0, 0)  # its own /proc, to itself


def keep_only(capabilities: frozenset[int]) -> None:
    """Give up all capabilities of the calling thread but these; programs that it starts have none. Raises OSError."""
    low = sum(1 << capability for capability in capabilities)
    _libc.prctl(_AMBIENT, _CLEAR_ALL, 0, 0, 0)
    header = ctypes.create_string_buffer(struct.pack("=Ii", _VERSION, 0))
    wanted = ctypes.create_string_buffer(struct.pack("=6I", low, low, 0, 0, 0, 0))
    _check(_libc.capset(header, wanted))


def has_needed() -> bool:
    """True if the calling thread has the capabilities in NEEDED."""
    return all(_permitted() >> capability & 1 for capability in NEEDED)


def has_any() -> bool:
    """True if the calling thread has any capability."""
    return bool(_permitted())


def _permitted() -> int:
    header = ctypes.create_string_buffer(struct.pack("=Ii", _VERSION, 0))
    found = ctypes.create_string_buffer(24)
    _check(_libc.capget(header, found))
    fields = struct.unpack("=6I", found.raw[:24])
    return int(fields[1] | fields[4] << 32)


def give_up_more() -> None:
    """Forbid that any program started from here has more powers than this thread (setuid programs)."""
    _libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)


def end_with_parent(signum: int) -> None:
    """Have this process signalled when its parent ends."""
    _libc.prctl(_END_WITH_PARENT, signum, 0, 0, 0)


def _call(number: int, *arguments: object) -> None:
    _check(_libc.syscall(number, *arguments))


def _check(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
