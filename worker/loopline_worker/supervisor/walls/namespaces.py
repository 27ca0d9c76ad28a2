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

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_FILES, _IPC, _USER, _PROCESSES, _NETWORK = 0x20000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
_READ_ONLY, _NO_SETUID, _NO_DEVICES, _NO_PROGRAMS = 0x1, 0x2, 0x4, 0x8
_REMOUNT, _BIND, _MOVE, _RECURSIVE, _PRIVATE = 0x20, 0x1000, 0x2000, 0x4000, 0x40000
_DETACH = 0x2
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 0x1
_SHARED = "/tmp"  # noqa: S108 - the task's own
_MEMORY = "/dev/shm"  # noqa: S108 - the same
_NETWORK_FILES = ("/etc/hosts", "/etc/resolv.conf")
_POINTS_BYTES = 2**16
"""Room for the folders that others are mounted on."""
_libc = ctypes.CDLL(None, use_errno=True)

Places = tuple[str, str, int, list[str], bool, str]
"""What is a task's own: arguments of ``enter``."""


def become_first(*, with_processes: bool = False) -> None:
    """Give the calling process, which has one thread, all capabilities over its own mounts, and its children none.

    ``with_processes``: its next child is the first of a process namespace. Raises OSError.
    """
    user, group = os.geteuid(), os.getegid()
    _check(_libc.unshare(_USER | _FILES | (_PROCESSES if with_processes else 0)), "user namespace")
    for file, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{file}", "w") as stream:  # noqa: PTH123 - pathlib is not light
            stream.write(text)
    _mount("", "/", flags=_RECURSIVE | _PRIVATE)
    drop_capabilities(of_all=True)


def mount_processes() -> None:
    """Have /proc show the processes of this namespace alone. Raises OSError."""
    _mount("proc", "/proc", b"proc", flags=_NO_SETUID | _NO_DEVICES | _NO_PROGRAMS)


def part(*, has_network: bool = True) -> None:
    """Move into new namespaces for files and shared memory, and to a loopback without a network. Raises OSError."""
    _check(_libc.unshare(_FILES | _IPC | (0 if has_network else _NETWORK)), "namespaces")
    if not has_network:
        _raise_loopback()


def return_to(files: int) -> None:
    """Have the calling process, which has one thread, see the files of that open namespace. Raises OSError."""
    _check(_libc.setns(files, _FILES), "namespace")


def enter(room: str, temporary: str, memory_bytes: int, kept: list[str], has_network: bool, root: str) -> None:
    """Give the calling thread files and shared memory of its own, as ``mount_own`` has them. Raises OSError.

    ``has_network``: that of the computer, or a loopback of its own. ``root``: the folder that it has as /; empty: the
    cell's own.
    """
    part(has_network=has_network)
    around = open_around(room)
    try:
        os.close(mount_own(around, room, temporary, memory_bytes, kept))
    finally:
        os.close(around)
    if root:
        _change_root(root, os.path.dirname(room))  # noqa: PTH120


def open_around(room: str) -> int:
    """Open the folder around a room, for ``mount_own`` and ``exchange``: something else is mounted there by then."""
    return os.open(os.path.dirname(room), os.O_PATH)  # noqa: PTH120


def mount_own(around: int, room: str, temporary: str, memory_bytes: int, kept: list[str]) -> int:
    """Mount what is a task's own. Return the open folder with the points that rooms are mounted on. Raises OSError.

    ``room``: the folder that it may write to, of all in the folder ``around``. ``temporary``: the folder within that
    it has as /tmp; empty: one in memory. ``memory_bytes``: most that such a one takes; 0: half of all memory.
    ``kept``: other paths visible below /tmp.
    """
    folder, name = os.path.split(room)
    held = {path: os.open(path, os.O_PATH) for path in kept}
    try:
        if temporary:
            _bind_within(around, f"{name}{temporary[len(room) :]}", _SHARED)
        else:
            _mount_memory(_SHARED, memory_bytes)
        for path, file in held.items():
            _make_point(path, file)
            _bind(file, path)
        os.makedirs(folder, exist_ok=True)  # noqa: PTH103 - it may be below /tmp
        points = _mount_points(folder)  # after ``kept``, which may contain the folder: no other room is to be seen
        _mount_room(around, points, room, name)
        _mount_memory(_MEMORY, memory_bytes)
    finally:
        for file in held.values():
            os.close(file)
    return points


def exchange(around: int, points: int, old: str, room: str, temporary: str) -> None:
    """Mount a room, and its folder for temporary files, in place of a finished task's.

    The room may be the same folder by another name: moving a mount takes microseconds, because the kernel does not
    wait for any user of it. Or it is another folder by the same name. ``points``: what ``mount_own`` returned. Raises
    OSError.
    """
    name = room[room.rindex("/") + 1 :]
    if not _is_mounted(around, name, old):
        _unmount(old)
        _mount_room(around, points, room, name)
    elif room != old:
        os.mkdir(name, dir_fd=points)
        _mount(old, room, flags=_MOVE)
    if room != old:
        os.rmdir(old[old.rindex("/") + 1 :], dir_fd=points)
    if temporary and not _is_mounted(around, inner := f"{name}{temporary[len(room) :]}", _SHARED):
        _unmount(_SHARED)
        _bind_within(around, inner, _SHARED)


def in_memory(room: str, temporary: str, kept: Sequence[str]) -> list[str]:
    """Return the folders in memory that a task with this room, and these other paths below /tmp, may write to."""
    if temporary:
        return [_MEMORY]
    found = {_MEMORY, _SHARED}
    for path in (os.path.dirname(room), *kept):  # noqa: PTH120
        while (path := os.path.dirname(path)).startswith(f"{_SHARED}/"):  # noqa: PTH120
            if not any(path == other or path.startswith(f"{other}/") for other in kept):
                found.add(path)
    return sorted(found)


def open_queues() -> int:
    """Open the folder with the message queues of the calling process (mq_overview(7)). Raises OSError."""
    _mount("mqueue", _MEMORY, b"mqueue", flags=_NO_SETUID | _NO_DEVICES)
    try:
        return os.open(_MEMORY, os.O_RDONLY | os.O_DIRECTORY)
    finally:
        _unmount(_MEMORY)


def _mount_points(folder: str) -> int:
    """Mount a folder of points for rooms, which is read-only. Return it open in its writable form."""
    _mount_memory(folder, _POINTS_BYTES)
    points = os.open(folder, os.O_PATH)
    _bind(points, folder)
    _mount("", folder, flags=_REMOUNT | _BIND | _NO_SETUID | _NO_DEVICES | _READ_ONLY)
    return points


def _mount_room(around: int, points: int, room: str, name: str) -> None:
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=points)
    _bind_within(around, name, room)


def _bind_within(around: int, path: str, to: str) -> None:
    """Mount a path that is in a room, or is it, of those around."""
    file = os.open(path, os.O_PATH, dir_fd=around)
    try:
        _bind(file, to)
    finally:
        os.close(file)


def _is_mounted(around: int, path: str, on: str) -> bool:
    """True if it is this path in a room, of those around, that is mounted there. What is mounted keeps its number."""
    return os.path.samestat(os.stat(path, dir_fd=around), os.stat(on))  # noqa: PTH116


def _unmount(path: str) -> None:
    _check(_libc.umount2(os.fsencode(path), _DETACH), f"unmount {path}")


def _change_root(root: str, around: str) -> None:
    """Have the thread see the files of ``root`` as all there are, beside what was mounted for it.

    The folder has points to mount that on; the mounts of the cell make it read-only.
    """
    for path in ("/proc", "/dev", _SHARED, around, *_NETWORK_FILES):
        inner = f"{root}{path}"
        if os.path.exists(path) and os.path.exists(inner) and not os.path.samefile(path, inner):  # noqa: PTH110, PTH121
            _mount(path, inner, flags=_BIND | _RECURSIVE)
    os.chroot(root)
    os.chdir("/")


def _mount_memory(folder: str, size_bytes: int) -> None:
    size = f"size={size_bytes}," if size_bytes else ""
    _mount("tmpfs", folder, b"tmpfs", flags=_NO_SETUID | _NO_DEVICES, data=f"{size}mode=0755".encode())


def _bind(file: int, path: str) -> None:
    _mount(f"/proc/thread-self/fd/{file}", path, flags=_BIND | _RECURSIVE)


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


def _mount(source: str, target: str, kind: bytes | None = None, *, flags: int, data: bytes | None = None) -> None:
    result = _libc.mount(os.fsencode(source) or None, os.fsencode(target), kind, ctypes.c_ulong(flags), data)
    if result:
        _check(result, f"mount on {target}")


def _check(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
