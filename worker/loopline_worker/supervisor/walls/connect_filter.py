"""The filter that closes the computer's own addresses to tasks, except for their own services (seccomp(2)).

The supervisor's first thread installs it and its tasks inherit it: each connect(2) of theirs waits for an answer of
a second thread, which has no filter. That thread reads the address, decides (``connect_rules``), and connects the
socket itself, so that the task cannot put another address in between. What would connect by other calls is refused.
Datagrams stay free: names are looked up at 127.0.0.53 on many computers. A task that reaches certain computers alone
has none: it may make no socket that could send without connecting.
"""

from __future__ import annotations

import _thread
import ctypes
import errno
import os
import socket
import struct
from contextlib import suppress
from fcntl import ioctl

from loopline_worker.supervisor import processes
from loopline_worker.supervisor.users import credentials
from loopline_worker.supervisor.walls import connect_rules

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOW, _ASK = 0x7FFF0000, 0x7FC00000
_REFUSE = 0x00050000
_FAST_OPEN = 0x20000000
"""Flag of sendto(2) and the like: connects first."""
_CALLS = {
    "x86_64": (0xC000003E, 41, 42, 44, 46, 307, (248, 249, 250), (102, 362), 317),
    "aarch64": (0xC00000B7, 198, 203, 206, 211, 269, (217, 218, 219), (283,), 277),
}
"""By machine: its number; socket, connect, sendto, sendmsg, sendmmsg; the three of keyrings, which are the owner's;
what its 32-bit programs connect by; and seccomp itself."""
_IO_URING_SETUP = 425
_PIDFD_OPEN, _PIDFD_GETFD = 434, 438
_NEW_LISTENER, _NO_SLOWER, _UNINTERRUPTED = 1 << 3, 1 << 2, 1 << 5
_RECEIVE, _ANSWER, _IS_VALID = 0xC0502100, 0xC0182101, 0x40082102
_NO_NEW_PRIVS = 38
_LONGEST_ADDRESS = 128
_MOST_AT_ONCE = 200
"""Connections that may be under way, for each has a thread here."""
_libc = ctypes.CDLL(None, use_errno=True)


class ConnectFilter:
    """Decides on the connections of all tasks of this process."""

    def __init__(self, user: credentials.TaskUser | None = None) -> None:
        """``user``: the user of tasks, who also connects for them; None: the user of this process."""
        self._user = user
        self.open_hosts: list[str] | None = None  # reachable although they are this computer or link-local
        self.reaches: list[str] | None = None  # computers that this task may connect to; None: all
        self.folders: list[str] | None = None  # in which a task under Landlock reaches sockets; None: in all
        self._listener = -1
        self._under_way = 0

    def install(self) -> bool:
        """Put all children of the calling thread under the filter. False if this computer cannot have it."""
        if not is_possible():
            return False
        started = _thread.allocate_lock()
        started.acquire()
        _thread.start_new_thread(self._serve, (started,))  # before this thread has the filter
        self._listener = _install()
        started.release()
        return self._listener >= 0

    def _serve(self, started: _thread.LockType) -> None:
        started.acquire()
        while self._listener >= 0:
            request = bytearray(80)
            try:
                ioctl(self._listener, _RECEIVE, request)
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.EINTR):  # its task has been killed
                    continue
                return
            number, pid, _, call, _, _, file, address, length = struct.unpack_from("=QIIiIQQQQ", request)
            if call == _CALLS[os.uname().machine][1]:
                self._reply(number, errno.EACCES if self.reaches is not None else 0, goes_on=self.reaches is None)
                continue
            if self._under_way >= _MOST_AT_ONCE:
                self._reply(number, errno.EAGAIN)
                continue
            self._under_way += 1
            _thread.start_new_thread(self._handle, (number, pid, file, address, length))

    def _handle(self, number: int, pid: int, file: int, address: int, length: int) -> None:
        try:
            if self._user:
                credentials.become(self._user)
            self._reply(number, self._connect(number, pid, file, address, min(length, _LONGEST_ADDRESS)))
        finally:
            self._under_way -= 1

    def _reply(self, number: int, failure: int, *, goes_on: bool = False) -> None:
        """Answer a call: it has failed so, was made here, or ``goes_on`` as if it had not been asked for."""
        with suppress(OSError):  # the task has been killed
            ioctl(self._listener, _ANSWER, struct.pack("=QqiI", number, 0, -failure, goes_on))

    def _connect(self, number: int, pid: int, file: int, at: int, length: int) -> int:
        """Connect the task's socket if it may be. Return 0, or the number of the error."""
        opened: list[int] = []
        try:
            process = _leader_of(pid)
            opened.append(_call(_PIDFD_OPEN, process, 0))
            opened.append(_call(_PIDFD_GETFD, opened[0], file, 0))
            opened.append(os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC))
            address = os.pread(opened[2], length, at)
            ioctl(self._listener, _IS_VALID, struct.pack("=Q", number))  # that was the process which asks
            with socket.socket(fileno=os.dup(opened[1])) as theirs:
                wish = connect_rules.Wish(process, theirs.type, address)
            if self.reaches is not None:
                connect_rules.check_reach(wish, self.reaches)
            address = connect_rules.allowed(wish, self.open_hosts, self.folders, opened)
            return 0 if _libc.connect(opened[1], address, len(address)) == 0 else ctypes.get_errno()
        except connect_rules.RefusedError as refusal:
            return refusal.number
        except OSError as error:
            return error.errno or errno.EACCES
        finally:
            for one in opened:
                os.close(one)


def is_possible() -> bool:
    """True if the kernel supports this and permits it to this process."""
    if os.uname().machine not in _CALLS or processes.read("/proc/sys/kernel/yama/ptrace_scope").strip() in (
        b"2",
        b"3",
    ):
        return False
    if b"user_notif" not in processes.read("/proc/sys/kernel/seccomp/actions_avail"):
        return False
    try:
        own = _call(_PIDFD_OPEN, os.getpid(), 0)
    except OSError:
        return False
    try:
        os.close(_call(_PIDFD_GETFD, own, own, 0))  # containers may forbid it
    except OSError:
        return False
    finally:
        os.close(own)
    return True


def _install() -> int:
    """Install the filter for the calling thread. Return what is asked by it; negative if that failed."""
    lines = _program(os.uname().machine)
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(lines), ctypes.addressof(code)))
    if _libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0):
        return -1
    seccomp = _CALLS[os.uname().machine][-1]
    for flags in (_NEW_LISTENER | _NO_SLOWER | _UNINTERRUPTED, _NEW_LISTENER | _NO_SLOWER):
        listener: int = _libc.syscall(seccomp, 1, flags, program)
        if listener >= 0:
            os.set_inheritable(listener, False)
            return listener
    return -1


def _program(machine: str) -> list[tuple[int, int, int, int]]:
    """Return the filter: tests of a call's machine, number and flags, with how many lines to skip if (not) so."""
    own, make, connect, sendto, sendmsg, sendmmsg, keyrings, foreign, _ = _CALLS[machine]

    def refuse(number: int, reason: int) -> list[tuple[int, int, int, int]]:
        return [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _REFUSE | reason)]

    def refuse_fast_open(number: int, argument: int) -> list[tuple[int, int, int, int]]:
        flags = (_LOAD, 0, 0, 16 + 8 * argument)
        fast = [(_ANY_BIT, 0, 1, _FAST_OPEN), (_RETURN, 0, 0, _REFUSE | errno.EOPNOTSUPP)]
        return [(_EQUAL, 0, 4, number), flags, *fast, (_RETURN, 0, 0, _ALLOW)]

    others = [line for number in foreign for line in refuse(number, errno.EPERM)]
    others += [*refuse(_IO_URING_SETUP, errno.ENOSYS), (_RETURN, 0, 0, _ALLOW)]
    return [
        (_LOAD, 0, 0, 4),
        (_EQUAL, len(others) + 1, 0, own),
        (_LOAD, 0, 0, 0),
        *others,
        (_LOAD, 0, 0, 0),
        *[(_AT_LEAST, 0, 1, 0x40000000), (_RETURN, 0, 0, _REFUSE | errno.ENOSYS)],  # x32
        *[(_EQUAL, 0, 1, connect), (_RETURN, 0, 0, _ASK)],
        *_ask_for_datagrams(make),
        *refuse(_IO_URING_SETUP, errno.ENOSYS),
        *[line for number in keyrings for line in refuse(number, errno.EPERM)],
        *refuse_fast_open(sendto, 3),
        *refuse_fast_open(sendmsg, 2),
        *refuse_fast_open(sendmmsg, 3),
        (_RETURN, 0, 0, _ALLOW),
    ]


def _ask_for_datagrams(make: int) -> list[tuple[int, int, int, int]]:
    """Return the part of the filter that asks before a socket of the network is made which is no stream."""
    family, kind = (_LOAD, 0, 0, 16), (_LOAD, 0, 0, 24)
    is_of_network = [(_EQUAL, 1, 0, socket.AF_INET), (_EQUAL, 0, 3, socket.AF_INET6)]
    is_stream = [(_AND, 0, 0, 0xF), (_EQUAL, 0, 1, socket.SOCK_STREAM)]
    ends = [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ASK)]
    return [(_EQUAL, 0, 8, make), family, *is_of_network, kind, *is_stream, *ends]


def _leader_of(thread: int) -> int:
    """Return the process of a thread. Raises OSError if it has ended."""
    for line in processes.read(f"/proc/{thread}/status").splitlines():
        if line.startswith(b"Tgid:"):
            return int(line.split()[1])
    raise OSError(errno.ESRCH, "it has ended")


def _call(*arguments: int) -> int:
    result: int = _libc.syscall(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return result
