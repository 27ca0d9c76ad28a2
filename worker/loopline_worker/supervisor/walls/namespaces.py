"""Namespaces and mounts (namespaces(7), mount(2)), by system calls of our own.

A cell's first process has all powers in a user namespace of its own, and none outside. Each task is started by a
thread of it that has left the others' view of the files, and has a fresh one.
"""

from __future__ import annotations

import ctypes
import os
import socket
import stat
import struct
from contextlib import suppress
from fcntl import ioctl

from loopline_worker.supervisor.walls.landlock import drop_capabilities

_FILES, _IPC, _USER, _NETWORK = 0x20000, 0x8000000, 0x10000000, 0x40000000
_READ_ONLY, _NO_SETUID, _NO_DEVICES, _REMOUNT, _BIND, _RECURSIVE, _PRIVATE = (
    0x1,
    0x2,
    0x4,
    0x20,
    0x1000,
    0x4000,
    0x40000,
)
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 0x1
_SHARED = "/tmp"  # noqa: S108 - the task's own
_MEMORY = "/dev/shm"  # noqa: S108 - the same
_NETWORK_FILES = ("/etc/hosts", "/etc/resolv.conf")
_POINTS_BYTES = 2**16
"""Room for the folders that others are mounted on."""
_libc = ctypes.CDLL(None, use_errno=True)

Places = tuple[str, str, int, list[str], bool, str]
"""What is a task's own: arguments of ``enter``."""


def become_first() -> None:
    """Give the calling process, which has one thread, all powers over mounts of its own, and what it starts none.

    Raises OSError.
    """
    user, group = os.geteuid(), os.getegid()
    _check(_libc.unshare(_USER | _FILES), "user namespace")
    for file, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{file}", "w") as stream:  # noqa: PTH123 - pathlib is not light
            stream.write(text)
    _mount("", "/", "", _RECURSIVE | _PRIVATE)
    drop_capabilities()


def enter(room: str, temporary: str, memory_bytes: int, kept: list[str], has_network: bool, root: str) -> None:
    """Give the calling thread fresh files and shared memory. Raises OSError.

    ``room``: the folder that it may write to, of all in the folder around. ``temporary``: the folder that it has as
    /tmp; empty: one in memory. ``memory_bytes``: most that such a one takes; 0: half of all memory. ``kept``: what
    else is seen below /tmp. ``has_network``: that of the computer, or a loopback of its own. ``root``: the folder
    that it has as /; empty: the cell's own.
    """
    _check(_libc.unshare(_FILES | _IPC | (0 if has_network else _NETWORK)), "namespaces")
    around = os.path.dirname(room)  # noqa: PTH120
    is_in_shared = room.startswith(f"{_SHARED}/")
    held = {
        path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in (room, *kept, *([temporary] if temporary else []))
    }
    try:
        if temporary:
            _bind(held[temporary], _SHARED)
        else:
            _mount_memory(_SHARED, memory_bytes)
        if not is_in_shared:
            _mount_memory(around, _POINTS_BYTES)
        for path in (room, *kept):
            _make_point(path, held[path])
            _bind(held[path], path)
        if not is_in_shared:
            _mount("", around, "", _REMOUNT | _BIND | _READ_ONLY | _NO_SETUID | _NO_DEVICES)
        _mount_memory(_MEMORY, memory_bytes)
    finally:
        for file in held.values():
            os.close(file)
    if not has_network:
        _raise_loopback()
    if root:
        _change_root(root, around)


def _change_root(root: str, around: str) -> None:
    """Have the thread see the files of ``root`` as all there are, beside what was mounted for it.

    The folder has points to mount that on; the mounts of the cell make it read-only.
    """
    for path in ("/proc", "/dev", _SHARED, around, *_NETWORK_FILES):
        inner = f"{root}{path}"
        if os.path.exists(path) and os.path.exists(inner) and not os.path.samefile(path, inner):  # noqa: PTH110, PTH121
            _mount(path, inner, "", _BIND | _RECURSIVE)
    os.chroot(root)
    os.chdir("/")


def _mount_memory(folder: str, size_bytes: int) -> None:
    size = f"size={size_bytes}," if size_bytes else ""
    _mount("tmpfs", folder, "tmpfs", _NO_SETUID | _NO_DEVICES, f"{size}mode=0755")


def _bind(file: int, path: str) -> None:
    _mount(f"/proc/thread-self/fd/{file}", path, "", _BIND | _RECURSIVE)


def _make_point(path: str, file: int) -> None:
    """Make what the open file can be mounted on."""
    if stat.S_ISDIR(os.fstat(file).st_mode):
        os.makedirs(path, exist_ok=True)  # noqa: PTH103
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC))


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = bytearray(struct.pack("16sH22x", b"lo", 0))
        ioctl(any_socket, _GET_FLAGS, request)
        struct.pack_into("H", request, 16, struct.unpack_from("H", request, 16)[0] | _UP)
        ioctl(any_socket, _SET_FLAGS, request)


def _mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    words = [os.fsencode(word) or None for word in (source, target, kind, data)]
    _check(_libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3]), f"mount on {target}")


def _check(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
