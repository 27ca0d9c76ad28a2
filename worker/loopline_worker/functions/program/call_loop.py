"""What a warm interpreter runs: makes the calls that it is told of, one at a time.

It runs under whatever Python the worker is set to, 3.9 or newer, with the standard library and cloudpickle, and
nothing of ours. It is told of calls over the socket that is its stdout: a line of JSON for each task, perhaps with
the function's pickle and that of the arguments as open files, and it answers by a line. The first line brings two
files for good: stdout, and the one to which it appends what calls come to. (stderr it has from its beginning.) What
one call returned, or raised, and is long, is written to a file in the call's own folder. With a file named on its
command line it makes the calls of that one task and ends.

A task makes one call, or several (``chunk``), whose arguments and ends are written as protocol/chunks.py says: one
end after the other, as they come, so that those before a crash are not lost.
"""

from __future__ import annotations

import base64
import faulthandler
import json
import os
import pickle
import socket
import struct
import sys
import time
import traceback

try:
    import ctypes
except ImportError:  # a Python that was built without it
    ctypes = None  # type: ignore[assignment]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

_MOST_FILES = 4
_LONGEST_REASON = 400
_ARGUMENTS, _END = struct.Struct("<I"), struct.Struct("<BfI")
_RETURNED, _RAISED = 0, 1
_PLAIN = (int, float, str, bytes, bool, type(None))
"""Whose pickles need no cloudpickle."""
_GROWTH_KIB = 1024
_LONG_BYTES = 1024
_libc = ctypes.CDLL(None) if ctypes and os.name == "posix" else None
_places: dict[bytes, Any] = {}  # of variables, for the C library
_functions: dict[str, Callable[..., Any]] = {}  # by hash: a session's modules are imported once


def main() -> None:
    sys.path[0] = ""  # not where this file is, but the folder of the call
    faulthandler.enable()
    import cloudpickle  # noqa: F401 - before it says that it is ready

    if len(sys.argv) > 1:
        sys.exit(_call_once(sys.argv[1]))
    agent = socket.socket(fileno=os.dup(1))
    _, (stdout, ends) = _hear(agent)
    outputs = (stdout, os.dup(2))
    _print_to(outputs)
    _say(agent, {"ready": os.getpid()})
    while _serve(agent, outputs, ends):
        pass


def _serve(agent: socket.socket, outputs: tuple[int, int], ends: int) -> bool:
    """One task; False where there will be no more."""
    line, files = _hear(agent)
    if not line:
        return False
    task = json.loads(line)
    contents = dict(zip(task["brings"], map(_read, files)))  # noqa: B905 - of Python 3.9
    answer = _make(task, contents.get("function", b""), contents.get("arguments", b""), ends)
    _flush()
    _print_to(outputs)  # whatever was made of them: before another file takes their places
    answer["is_clean"] = _is_clean(task["folder"])
    answer["is_loaded"] = task["function"] in _functions
    _say(agent, {**answer, **_used()})
    return True


def _call_once(file: str) -> int:
    with open(file, encoding="utf-8") as stream:  # noqa: PTH123
        task = json.load(stream)
    contents = []
    for path in task["files"]:
        with open(path, "rb") as stream:  # noqa: PTH123
            contents.append(stream.read())
    function, *arguments = contents
    return int(_make(task, function, b"".join(arguments))["exit_code"])


def _make(task: dict[str, Any], function: bytes, arguments: bytes = b"", ends: int = -1) -> dict[str, Any]:
    """Exit code 0, or 1 where a call did not succeed, and why not."""
    try:
        os.chdir(task["folder"])
        _become(task["environment"])
        arguments = arguments or base64.b64decode(task["arguments"])
        if task["chunk"]:
            return _make_all(task, function, arguments, ends)
        how, content, reason = _call(task["function"], function, arguments, has_names=True)
        if ends >= 0 and len(content) <= task["inline"]:
            _write(ends, content)
        else:
            _write_file(task["value"], content)
    except (OSError, ValueError, struct.error) as error:
        how, reason = _RAISED, f"its arguments cannot be read, or what it returned not be written: {error}"
    return {"exit_code": how, "reason": reason}


def _make_all(task: dict[str, Any], function: bytes, arguments: bytes, ends: int) -> dict[str, Any]:
    """The calls of a chunk, but for the first ``skip`` of them. What one raises is no concern of the others."""
    calls = list(_split(arguments))
    failed, first = 0, ""
    if ends < 0:
        ends = os.open(task["value"], os.O_CREAT | os.O_WRONLY | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o600)
    for call in calls[task["skip"] :]:
        began = time.perf_counter()
        how, content, reason = _call(task["function"], function, call, has_names=False)
        _write(ends, _END.pack(how, time.perf_counter() - began, len(content)) + content)
        if how != _RETURNED:
            failed, first = failed + 1, first or reason
    if failed and len(calls) > 1:
        first = f"{failed} of {len(calls)} calls failed; the first: {first}"[:_LONGEST_REASON]
    return {"exit_code": int(failed > 0), "reason": first}


def _call(name: str, function: bytes, arguments: bytes, has_names: bool) -> tuple[int, bytes, str]:
    """How it went, the pickle of the value or of (the exception's own pickle, its traceback), and why."""
    own = os.getpid()
    try:
        make = _functions.get(name)
        if make is None:
            make = _functions[name] = pickle.loads(function)  # noqa: S301
        if has_names:
            positional, named = pickle.loads(arguments)  # noqa: S301
            end = _RETURNED, _pickled(make(*positional, **named)), ""
        else:
            end = _RETURNED, _pickled(make(*pickle.loads(arguments))), ""  # noqa: S301
    except BaseException as error:
        end = _RAISED, _failure(error), _reason(error)
    if os.getpid() != own:  # forked by the function: only one of the two is ours
        os._exit(0)
    return end


def _pickled(value: Any) -> bytes:
    if type(value) in _PLAIN:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    return bytes(sys.modules["cloudpickle"].dumps(value))


def _failure(error: BaseException) -> bytes:
    """The traceback is there even where the exception cannot be pickled, or not be unpickled."""
    frames = error.__traceback__ and error.__traceback__.tb_next  # without our own
    text = "".join(traceback.format_exception(type(error), error, frames))
    try:
        of_error = sys.modules["cloudpickle"].dumps(error.with_traceback(None))
    except Exception:
        of_error = None
    return pickle.dumps((of_error, text), pickle.HIGHEST_PROTOCOL)


def _reason(error: BaseException) -> str:
    return traceback.format_exception_only(type(error), error)[-1].strip()[:_LONGEST_REASON]


def _split(arguments: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(arguments):
        (length,) = _ARGUMENTS.unpack_from(arguments, at)
        at += _ARGUMENTS.size + length
        yield arguments[at - length : at]


def _become(environment: dict[str, str]) -> None:
    """The environment of this call; where temporary files go is remembered by its module."""
    for name, value in environment.items():
        if _libc and isinstance(os.environ, os._Environ):
            _set(os.fsencode(name), os.fsencode(value))
        else:
            os.environ[name] = value
    if "tempfile" in sys.modules:
        sys.modules["tempfile"].tempdir = None  # type: ignore[attr-defined]


def _set(name: bytes, value: bytes) -> None:
    """A variable, for Python and for C, always in the same place: ``setenv`` would keep every value for ever."""
    entry, place = name + b"=" + value, _places.get(name)
    if place is None or len(place) <= len(entry):
        place = _places[name] = ctypes.create_string_buffer(max(_LONG_BYTES, 2 * len(entry)))
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(place))  # the C library may read it to the very end
    place.value = entry
    assert _libc
    _libc.putenv(place)
    os.environ._data[name] = value  # type: ignore[attr-defined]


def _is_clean(folder: str) -> bool:
    """Nothing was left in the call's folder: another one may have it."""
    try:
        return os.listdir(folder) == [".tmp"] and not os.listdir(folder + "/.tmp")  # noqa: PTH208
    except OSError:
        return False


# Files, and the line to the agent.


def _hear(agent: socket.socket) -> tuple[bytes, list[int]]:
    line, files = b"", list[int]()
    while not line.endswith(b"\n"):
        part, more, _, _ = socket.recv_fds(agent, 65536, _MOST_FILES)
        if not part:
            return b"", []
        line, files = line + part, files + more
    for file in files:
        os.set_inheritable(file, False)
    return line, files


def _say(agent: socket.socket, message: dict[str, Any]) -> None:
    agent.sendall(json.dumps(message).encode() + b"\n")


def _read(file: int) -> bytes:
    """A whole file, from its beginning: others may have read it through the same handle."""
    os.lseek(file, 0, os.SEEK_SET)
    with os.fdopen(file, "rb") as stream:
        return stream.read()


def _write(file: int, content: bytes) -> None:
    written = os.write(file, content)
    while written < len(content):
        written += os.write(file, content[written:])


def _write_file(name: str, content: bytes) -> None:
    with open(name, "wb") as stream:  # noqa: PTH123
        stream.write(content)


def _print_to(outputs: tuple[int, int]) -> None:
    """From now on."""
    for place, file in enumerate(outputs, 1):
        os.dup2(file, place)


def _flush() -> None:
    """What has been printed, from C as well."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):  # closed or replaced by the function
            continue
    if _libc:
        _libc.fflush(None)


# What it used.


_peak_kib = 0  # that the system still knows of calls before


def _used() -> dict[str, Any]:
    """CPU time since the interpreter began, with children that it has waited for; the largest memory of this call."""
    global _peak_kib  # noqa: PLW0603
    import resource

    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    unit = 1 if sys.platform == "darwin" else 1024
    if own.ru_maxrss > _peak_kib + _GROWTH_KIB:  # the next call need not answer for it
        _forget_peak()
        _peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cpu_s = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
    return {"cpu_s": cpu_s, "peak_memory_bytes": own.ru_maxrss * unit}


def _forget_peak() -> None:
    try:
        with open("/proc/self/clear_refs", "w") as stream:  # noqa: PTH123
            stream.write("5")
    except OSError:
        pass  # then it is the largest so far


if __name__ == "__main__":
    main()
