"""The filter that protects the first process of a cell from its tasks (seccomp(2)).

A task cannot trace or kill it, but could change its limits of resources, its priority and its processors: they have
the same user. With a limit on its CPU time it would be killed, and the cell with it. Calls on pid 1, and on all
processes of a user, are refused; those on a task's own processes are not.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
_NO_CALL = 0x00050000 | errno.ENOSYS
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_X32 = 0x40000000
_NO_NEW_PRIVS, _SET_SECCOMP, _MODE_FILTER = 38, 22, 2
_FIRST = 1
_ALL_OF_A_USER = {"setpriority": 2, "ioprio_set": 3}
"""Values of ``which`` that stand for all processes of a user, the first one among them."""
_BY_PID = ("prlimit64", "sched_setparam", "sched_setscheduler", "sched_setaffinity", "sched_setattr")
_NAMES = (*_BY_PID, *_ALL_OF_A_USER)
_ARCHITECTURES = {  # by machine: its own number, and that of its 32-bit programs, with their calls' numbers
    "x86_64": {
        0xC000003E: (302, 142, 144, 203, 314, 141, 251),
        0x40000003: (340, 154, 156, 241, 351, 97, 289),
    },
    "aarch64": {
        0xC00000B7: (261, 118, 119, 122, 274, 140, 30),
        0x40000028: (369, 154, 156, 241, 380, 97, 314),
    },
}
Line = tuple[int, int, int, int]
_libc = ctypes.CDLL(None, use_errno=True)


def install() -> bool:
    """Put the calling thread and its future children under the filter. False if this computer cannot have it."""
    machine = os.uname().machine
    if machine not in _ARCHITECTURES:
        return False
    lines = _program(machine)
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(lines), ctypes.addressof(code)))
    if _libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0):
        return False
    return bool(_libc.prctl(_SET_SECCOMP, _MODE_FILTER, program, 0, 0) == 0)


def _program(machine: str) -> list[Line]:
    """Return the filter: tests of a call's architecture, number and arguments, with lines to skip if (not) so."""
    found: list[Line] = []
    for number, calls in _ARCHITECTURES[machine].items():
        block = _block(dict(zip(_NAMES, calls, strict=True)))
        found += [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 0, len(block), number), *block]
    return [*found, (_RETURN, 0, 0, _ALLOW)]


def _block(calls: dict[str, int]) -> list[Line]:
    block: list[Line] = [(_LOAD, 0, 0, _NUMBER), (_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _NO_CALL)]
    for name in _BY_PID:
        block += _if_call(calls[name], _refuse(0, _FIRST))
    for name, which in _ALL_OF_A_USER.items():
        block += _if_call(calls[name], [*_refuse(0, which), *_refuse(1, _FIRST)])
    return [*block, (_RETURN, 0, 0, _ALLOW)]


def _if_call(number: int, then: list[Line]) -> list[Line]:
    """Return the tests of one call; all its other arguments are allowed."""
    return [(_EQUAL, 0, len(then) + 1, number), *then, (_RETURN, 0, 0, _ALLOW)]


def _refuse(argument: int, value: int) -> list[Line]:
    """Return the refusal of a call whose argument has this value; of a pid the lower half counts."""
    return [(_LOAD, 0, 0, _ARGUMENTS + 8 * argument), (_EQUAL, 0, 1, value), (_RETURN, 0, 0, _REFUSE)]
