"""The rules of the connect filter: which addresses a task may connect to.

Refused are this computer's own addresses, unless the task's own service listens there; link-local addresses and those
of cloud metadata; abstract sockets of other programs; and under Landlock sockets outside the task's folders. *Open
hosts* are exempt: the computers of a gang, and the addresses of the worker's setting ``sandbox_opens``. In a network
of its own a task reaches everything. A member of a gang may be limited to its gang's computers.
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
_GET_ROUTE, _NEW_ROUTE, _REQUEST, _DESTINATION = 26, 24, 1, 1
"""Of rtnetlink(7)."""
_LOCAL, _ANYCAST = 2, 4
_METADATA = {
    socket.inet_pton(socket.AF_INET6 if ":" in ip else socket.AF_INET, ip)
    for ip in ("fd00:ec2::254", "100.100.100.200", "168.63.129.16")
}
"""Addresses of clouds beside 169.254.169.254, which is link-local."""
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


def allowed(wish: Wish, open_hosts: list[str] | None, folders: list[str] | None, opened: list[int]) -> bytes:
    """Return the address to connect to in place of the task, with files that it needs added to ``opened``.

    ``open_hosts``: hosts that are reachable although they are this computer or link-local. ``folders``: folders with
    reachable sockets; None: all paths that the task sees. Raises RefusedError, OSError.
    """
    address = wish.address
    family = struct.unpack_from("=H", address)[0] if len(address) >= 2 else socket.AF_UNSPEC
    if family == socket.AF_UNIX:
        return _allowed_here(wish, folders, opened)
    if family == getattr(socket, "AF_VSOCK", 40):
        raise RefusedError(errno.EACCES)
    if family in (socket.AF_INET, socket.AF_INET6) and wish.type != socket.SOCK_DGRAM:
        _check_host(wish, open_hosts)
    return address


def _check_host(wish: Wish, open_hosts: list[str] | None) -> None:
    """Raise RefusedError for others' services on this computer, and for link-local and metadata addresses."""
    ip = _plain(_ip(wish.address))
    is_near, is_loopback = _is_near(ip), _is_loopback(wish.address)
    if not is_near and not is_loopback and not _is_local(ip):
        return
    opens = {each for host in open_hosts or () for each in _addresses(host)}
    if ip in opens or (is_loopback and any(map(_is_loopback_ip, opens))) or _has_own_network(wish.process):
        return
    if is_near:
        raise RefusedError(errno.EACCES)
    _check_listener(wish)


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


def _is_near(ip: bytes) -> bool:
    """True for a link-local address and one of a cloud's metadata."""
    if len(ip) == 4:
        return ip[:2] == b"\xa9\xfe" or ip in _METADATA
    return (ip[0] == 0xFE and ip[1] & 0xC0 == 0x80) or ip in _METADATA


def _is_local(ip: bytes) -> bool:
    """True if the kernel delivers to this address without the network. Raises OSError."""
    family = socket.AF_INET if len(ip) == 4 else socket.AF_INET6
    route = struct.pack("=BBBBBBBBI", family, 8 * len(ip), 0, 0, 0, 0, 0, 0, 0)
    route += struct.pack("=HH", 4 + len(ip), _DESTINATION) + ip
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE) as kernel:
        kernel.send(struct.pack("=IHHII", 16 + len(route), _GET_ROUTE, _REQUEST, 0, 0) + route)
        answer = kernel.recv(4096)
    (kind,) = struct.unpack_from("=H", answer, 4)
    return kind == _NEW_ROUTE and answer[16 + 7] in (_LOCAL, _ANYCAST)  # any other answer: there is no route


def _is_loopback(address: bytes) -> bool:
    """True for an address of this computer's loopback; the unspecified address leads there as well."""
    return _is_loopback_ip(_plain(_ip(address)))


def _is_loopback_ip(ip: bytes) -> bool:
    return (ip[:1] == b"\x7f" or not any(ip)) if len(ip) == 4 else ip in (bytes(15) + b"\x01", bytes(16))


def _ip(address: bytes) -> bytes:
    is_short = struct.unpack_from("=H", address)[0] == socket.AF_INET
    return address[4:8] if is_short else address[8:24]


def _check_listener(wish: Wish) -> None:
    """Raise RefusedError unless every possible listener belongs to the task."""
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
