"""What a warm interpreter runs: makes the calls that it is told of, one at a time.

It runs under whatever Python the worker is set to, 3.9 or newer, with the standard library and cloudpickle, and
nothing of ours. It is told of calls over the socket that is its stdout: a line of JSON each, and with it stdout,
stderr, the function's pickle and perhaps the arguments' as open files. It answers each by a line. What a function
returned, or raised, is written to a file in the call's own folder. With a file named on its command line it makes
that one call and ends.
"""

from __future__ import annotations

import base64
import faulthandler
import json
import os
import socket
import sys
import traceback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_MOST_FILES = 4
_LONGEST_REASON = 400
_functions: dict[str, Callable[..., Any]] = {}  # by hash: a session's modules are imported once


def main() -> None:
    sys.path[0] = ""  # not where this file is, but the folder of the call
    faulthandler.enable()
    if len(sys.argv) > 1:
        sys.exit(_call_once(sys.argv[1]))
    agent = socket.socket(fileno=os.dup(1))
    _print_to(os.open(os.devnull, os.O_WRONLY), 1)
    import cloudpickle  # noqa: F401 - before it says that it is ready

    _say(agent, {"ready": os.getpid()})
    home = os.getcwd()  # noqa: PTH109
    while _serve(agent):
        os.chdir(home)


def _serve(agent: socket.socket) -> bool:
    """One call; False where there will be no more."""
    line, files = _hear(agent)
    if not line:
        return False
    call = json.loads(line)
    for place, file in enumerate(files[:2], 1):
        _print_to(file, place)
    _forget_peak()
    answer = _call(call, *(_read(file) for file in files[2:]))
    _flush()
    for place in (1, 2):  # whoever reads waits for their end
        _print_to(os.open(os.devnull, os.O_WRONLY), place)
    _say(agent, {**answer, **_used()})
    return True


def _call_once(file: str) -> int:
    with open(file, encoding="utf-8") as stream:  # noqa: PTH123
        call = json.load(stream)
    contents = []
    for path in call["files"]:
        with open(path, "rb") as stream:  # noqa: PTH123
            contents.append(stream.read())
    return int(_call(call, *contents)["exit_code"])


def _call(call: dict[str, Any], function: bytes, arguments: bytes = b"") -> dict[str, Any]:
    """Exit code 0 and a pickle of the value in its file; or 1, and of (the exception's own pickle, its traceback)."""
    import cloudpickle

    own = os.getpid()
    try:
        os.chdir(call["folder"])
        _become(call["environment"])
        make = _functions.get(call["function"]) or cloudpickle.loads(function)
        _functions[call["function"]] = make
        positional, named = cloudpickle.loads(arguments or base64.b64decode(call["arguments"]))
        content, code, reason = cloudpickle.dumps(make(*positional, **named)), 0, ""
    except BaseException as error:
        content, code, reason = _failure(error), 1, _reason(error)
    if os.getpid() != own:  # forked by the function: only one of the two is ours
        os._exit(0)
    try:
        with open(call["value"], "wb") as stream:  # noqa: PTH123
            stream.write(content)
    except OSError as error:
        code, reason = 1, f"cannot write what it returned: {error}"
    return {"exit_code": code, "reason": reason}


def _failure(error: BaseException) -> bytes:
    """The traceback is there even where the exception cannot be pickled, or not be unpickled."""
    import cloudpickle

    frames = error.__traceback__ and error.__traceback__.tb_next  # without our own
    text = "".join(traceback.format_exception(type(error), error, frames))
    try:
        pickle = cloudpickle.dumps(error.with_traceback(None))
    except Exception:
        pickle = None
    return bytes(cloudpickle.dumps((pickle, text)))


def _reason(error: BaseException) -> str:
    return traceback.format_exception_only(type(error), error)[-1].strip()[:_LONGEST_REASON]


def _become(environment: dict[str, str]) -> None:
    """The environment of this call; where temporary files go is remembered by its module."""
    os.environ.update(environment)
    if "tempfile" in sys.modules:
        sys.modules["tempfile"].tempdir = None  # type: ignore[attr-defined]


# The line to the agent.


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
    with os.fdopen(file, "rb") as stream:
        return stream.read()


def _print_to(file: int, place: int) -> None:
    os.dup2(file, place)
    os.close(file)


def _flush() -> None:
    """What has been printed, from C as well."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):  # closed or replaced by the function
            continue
    if "ctypes" in sys.modules:  # without it hardly anybody prints from C
        sys.modules["ctypes"].CDLL(None).fflush(None)


# What it used.


def _used() -> dict[str, Any]:
    """CPU time since the interpreter began, with children that it has waited for; the largest memory of this call."""
    import resource

    uses = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    unit = 1 if sys.platform == "darwin" else 1024
    return {
        "cpu_s": sum(use.ru_utime + use.ru_stime for use in uses),
        "peak_memory_bytes": _peak_memory_bytes() or uses[0].ru_maxrss * unit,
    }


def _peak_memory_bytes() -> int:
    """0 where the kernel does not say."""
    try:
        with open("/proc/self/status", "rb") as stream:  # noqa: PTH123
            lines = [line for line in stream if line.startswith(b"VmHWM:")]
    except OSError:
        return 0
    return int(lines[0].split()[1]) * 1024 if lines else 0


def _forget_peak() -> None:
    try:
        with open("/proc/self/clear_refs", "w") as stream:  # noqa: PTH123
            stream.write("5")
    except OSError:
        pass  # then it is the largest so far


if __name__ == "__main__":
    main()
