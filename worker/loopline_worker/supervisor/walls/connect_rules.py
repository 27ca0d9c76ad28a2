"""The rules of the connect filter: which addresses a task may connect to.

All but the computer's loopback and the sockets of others: those without a file, and under Landlock those outside its
folders. On the loopback a task reaches what it serves itself, and in a network of its own all. A member of a gang may
have the network of its members alone.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct

from loopline_worker.supervisor import processes

_OPENAT2 = 437
_IN_ROOT, _BENEATH = 0x10, 0x08
_LISTENS = "0A"
_libc = ctypes.CDLL(None, use_errno=True)


class Wish:
    """A connection that a process asks for: the type of its socket and the address as the kernel has it."""

    __slots__ = ("address", "process", "type")

    def __init__(self, process: int, type_: int, address: bytes) -> None:
        self.process = process
        self.type = type_
        self.address = address


class RefusedError(Exception):
    """The connection may not be; with the number of the error that the task gets."""

    def __init__(self, number: int) -> None:
        self.number = number


def allowed(wish: Wish, folders: list[str] | None, opened: list[int]) -> bytes:
    """Return the address to connect to in place of the task, with files that it needs added to ``opened``.

    ``folders``: folders with reachable sockets; None: all paths that the task sees. Raises RefusedError,
    OSError.
    """
    address = wish.address
    family = struct.unpack_from("=H", address)[0] if len(address) >= 2 else socket.AF_UNSPEC
    if family == socket.AF_UNIX:
        return _allowed_here(wish, folders, opened)
    if family == getattr(socket, "AF_VSOCK", 40):
        raise RefusedError(errno.EACCES)
    if family in (socket.AF_INET, socket.AF_INET6) and wish.type != socket.SOCK_DGRAM and _is_loopback(address):
        _check_listener(wish, family)
    return address


def check_reach(wish: Wish, hosts: list[str]) -> None:
    """Raise RefusedError unless the address is one of these computers', or this one's loopback."""
    family = struct.unpack_from("=H", wish.address)[0] if len(wish.address) >= 2 else socket.AF_UNSPEC
    if family not in (socket.AF_INET, socket.AF_INET6) or _is_loopback(wish.address):
        return
    if not any(_plain(_ip(wish.address)) in _addresses(host) for host in hosts):
        raise RefusedError(errno.EACCES)


def _addresses(host: str) -> set[bytes]:
    """Return the addresses of a computer, given by one or by its name. Raises OSError."""
    found = socket.getaddrinfo(host.encode(), None, type=socket.SOCK_STREAM)  # text would load the codec of names
    return {_plain(socket.inet_pton(family, str(at[0]).partition("%")[0])) for family, *_, at in found}


def _plain(ip: bytes) -> bytes:
    """Return the IPv4 address that an IPv6 address stands for, if it does."""
    return ip[12:] if len(ip) == 16 and ip[:12] == bytes(10) + b"\xff\xff" else ip


def _is_loopback(address: bytes) -> bool:
    """True for an address of this computer's loopback; the unspecified address leads there as well."""
    ip = _plain(_ip(address))
    return (ip[:1] == b"\x7f" or not any(ip)) if len(ip) == 4 else ip in (bytes(15) + b"\x01", bytes(16))


def _ip(address: bytes) -> bytes:
    is_short = struct.unpack_from("=H", address)[0] == socket.AF_INET
    return address[4:8] if is_short else address[8:24]


def _check_listener(wish: Wish, family: int) -> None:
    """Raise RefusedError unless every possible listener belongs to the task."""
    if _has_own_network(wish.process):
        return
    ip, port = _ip(wish.address), struct.unpack_from("!H", wish.address, 2)[0]
    found = _listeners(wish.process, ip, port)
    if not found:
        raise RefusedError(errno.ECONNREFUSED)
    if not found <= _own_sockets():
        raise RefusedError(errno.EACCES)


def _has_own_network(process: int) -> bool:
    return os.stat(f"/proc/{process}/ns/net").st_ino != os.stat("/proc/self/ns/net").st_ino  # noqa: PTH116


def _listeners(process: int, ip: bytes, port: int) -> set[int]:
    """Return the inodes of the sockets that listen at an address, or at all."""
    short = ip[12:] if len(ip) == 16 else ip
    wanted = {_hex(ip), _hex(short), _hex(bytes(10) + b"\xff\xff" + short), _hex(bytes(4)), _hex(bytes(16))}
    if not any(short):  # the unspecified address: the first of the loopback answers
        wanted |= {_hex(b"\x7f\x00\x00\x01"), _hex(bytes(15) + b"\x01")}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in processes.read(f"/proc/{process}/net/{table}").decode().splitlines()[1:]:
            words = line.split()
            at, _, number = words[1].partition(":")
            if words[3] == _LISTENS and int(number, 16) == port and at in wanted:
                found.add(int(words[9]))
    return found


def _hex(ip: bytes) -> str:
    """Return an address as /proc/net has it: words of four bytes in the order of this machine."""
    return "".join(f"{word:08X}" for word in struct.unpack(f"={len(ip) // 4}I", ip))


def _own_sockets() -> set[int]:
    """Return the inodes of all sockets of the processes below this one."""
    found = set()
    for pid in processes.descendants(os.getpid()):
        try:
            files = os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208
        except OSError:
            continue
        for file in files:
            try:
                target = os.readlink(f"/proc/{pid}/fd/{file}")  # noqa: PTH115
            except OSError:
                continue
            if target.startswith("socket:["):
                found.add(int(target[8:-1]))
    return found


def _allowed_here(wish: Wish, folders: list[str] | None, opened: list[int]) -> bytes:
    """Return the address of a socket of this computer: a file that the task sees, or its own without a file."""
    name = wish.address[2:]
    if name[:1] in (b"", b"\0"):
        if not _has_own_network(wish.process) and not _abstract(wish.process, name) <= _own_sockets():
            raise RefusedError(errno.EACCES)
        return wish.address
    file = _open_as_seen(wish.process, name.split(b"\0", 1)[0])
    opened.append(file)
    real = os.readlink(f"/proc/self/fd/{file}")  # noqa: PTH115
    if folders is not None and not any(real.startswith(f"{folder}/") for folder in folders):
        raise RefusedError(errno.EACCES)
    return struct.pack("=H", socket.AF_UNIX) + f"/proc/self/fd/{file}".encode() + b"\0"


def _abstract(process: int, name: bytes) -> set[int]:
    """Return the inodes of the abstract sockets of this name; 0 stands for none."""
    shown = b"@" + name[1:].replace(b"\0", b"@")
    lines = (line.split(None, 7) for line in processes.read(f"/proc/{process}/net/unix").splitlines()[1:])
    return {int(words[6]) for words in lines if len(words) == 8 and words[7] == shown} or {0}


def _open_as_seen(process: int, path: bytes) -> int:
    """Open a path as the process sees it, to be named and no more. Raises OSError."""
    is_whole = path.startswith(b"/")
    start = os.open(f"/proc/{process}/{'root' if is_whole else 'cwd'}", os.O_PATH | os.O_CLOEXEC)
    try:
        how = struct.pack("=QQQ", os.O_PATH | os.O_CLOEXEC, 0, _IN_ROOT if is_whole else _BENEATH)
        file: int = _libc.syscall(_OPENAT2, start, path, how, len(how))
        if file < 0:
            raise OSError(ctypes.get_errno(), "not found")
        return file
    finally:
        os.close(start)
