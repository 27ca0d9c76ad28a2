"""The program of an interpreter: it runs the calls that it receives, one at a time.

It runs under the Python that the worker is set to, 3.9 or newer, and imports the standard library and cloudpickle
only. It receives calls over the socket that is its stdout: a line of JSON for each task, perhaps with the pickles
of the function and of the arguments as open files, and replies by a line. The first line brings two files for good:
stdout, and the file to which it appends results. (It has stderr from its start.) A long result of a single call is
written to a file in the call's own folder. With a file on its command line it runs the calls of that one task and
ends.

A task has one call, or several (a ``chunk``). The arguments and results of a chunk are written as protocol/chunks.py
says: one result after the other, as they come, so that those before a crash are kept.

Each call gets the function as it was submitted. The pickle of a function is kept, and loaded again for each call, so
that nothing a call changes in a closure, an object or a global reaches the next one. A function itself is kept only
if it cannot carry such state. protocol/chunks.py has the format of the file that a function comes in.
"""

from __future__ import annotations

import binascii
import copyreg
import faulthandler
import io
import json
import os
import pickle
import signal
import socket
import struct
import sys
import time
import traceback
import types

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
_READ = os.O_RDONLY | getattr(os, "O_BINARY", 0)
_PLAIN = (int, float, str, bytes, bool, type(None))
"""Types whose pickles need no cloudpickle."""
_GROWTH_KIB = 1024
_LONG_BYTES = 1024
_COARSEST_TIME_S = 2.0
_libc = ctypes.CDLL(None) if ctypes and os.name == "posix" else None
_buffers: dict[bytes, Any] = {}  # of variables, for the C library
_given: dict[str, str] = {}  # variables as calls were given them, each with its last value
_kept: dict[bytes, bytes] = {}  # all variables as they were when the last call began
_as_bytes = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()
_clean: tuple[int, ...] = ()  # of the last call's folder and the one in it, if empty: their numbers and times
_own_pid = os.getpid()
_is_terminated = False  # by SIGTERM: the running call was the last
_functions: dict[str, SubmittedFunction] = {}  # by hash; the oldest first
_prepared: tuple[bytes, ...] = ()  # the preparations that are in effect
_STATEFUL_NAMES = {"__code__", "__defaults__", "__kwdefaults__", "__dict__", "setattr", "__setattr__"}
_MOST_FUNCTIONS = 64
_LONGEST_KEPT_BYTES = 2**20
"""The agent sends a longer function again with each task that calls it."""


def main() -> None:
    """Run calls until the agent closes the socket."""
    sys.path[0] = ""  # not where this file is, but the folder of the call
    os.environ["LOOPLINE_CALL"] = "1"  # the client reads it and refuses to submit, in subprocesses too
    faulthandler.enable()
    signal.signal(signal.SIGTERM, _on_sigterm)
    import cloudpickle  # noqa: F401 - before it says that it is ready

    if len(sys.argv) > 1:
        _call_once(sys.argv[1])
    agent = socket.socket(fileno=os.dup(1))
    _, (stdout, results) = _receive(agent)
    outputs = (stdout, os.dup(2))
    _redirect_output(outputs)
    _send(agent, {"ready": os.getpid()})
    while _serve(agent, outputs, results) and not _is_terminated:
        pass


def _on_sigterm(number: int, frame: types.FrameType | None) -> None:
    """Leave the running call by an exception, so that its ``finally`` and ``with`` blocks run. SIGKILL follows soon.

    The agent sends SIGTERM only while a call runs. The call may have set a handler of its own.
    """
    global _is_terminated  # noqa: PLW0603
    _is_terminated = True
    sys.exit(128 + number)


def _serve(agent: socket.socket, outputs: tuple[int, int], results: int) -> bool:
    """Run one task. False if no more will come."""
    line, files = _receive(agent)
    if not line:
        return False
    if line == b"{}\n":  # the line itself is too long for a socket
        line, files = _read(files[0]), files[1:]
    task = json.loads(line.decode())  # given bytes, it would detect their encoding first
    contents = dict(zip(task["brings"], map(_read, files)))  # noqa: B905 - of Python 3.9
    answer = _run(task, contents.get("function", b""), contents.get("arguments", b""), results)
    _flush()
    _redirect_output(outputs)  # before another file takes their numbers: the function may have closed them
    answer["is_clean"] = _is_clean(task["folder"])
    answer["is_loaded"] = task["function"] in _functions
    if len(_functions) > _MOST_FUNCTIONS:
        answer["forgotten"] = next(iter(_functions))
        del _functions[answer["forgotten"]]
    _send(agent, {**answer, **_used()})
    return True


def _call_once(file: str) -> None:
    """Run one task and exit. The reason of a failure is the last line of stderr."""
    with open(file, encoding="utf-8") as stream:  # noqa: PTH123
        task = json.load(stream)
    function, *arguments = (_read(os.open(path, _READ)) for path in task["files"])
    answer = _run(task, function, b"".join(arguments))
    if not _is_terminated:  # else output that is not flushed yet is ahead of the last saved state
        _flush()
        if answer["reason"]:
            os.write(2, f"{answer['reason']}\n".encode())
    os._exit(1 if _is_terminated or answer["reason"] else 0)  # as a warm interpreter, it waits for no thread


def _run(task: dict[str, Any], function: bytes, arguments: bytes = b"", results: int = -1) -> dict[str, Any]:
    """Run a task. Return exit code 0, or 1 if a call failed, with the reason."""
    try:
        os.chdir(task["folder"])
        _set_environment(task["environment"])
        arguments = arguments or binascii.a2b_base64(task["arguments"])
        if task["chunk"]:
            return _run_chunk(task, function, arguments, results)
        how, content, reason = _call(task["function"], function, arguments, has_names=True)
        if _is_terminated:
            return {"exit_code": how, "reason": reason}
        if results >= 0 and len(content) <= task["inline"]:
            _write(results, content)
        else:
            _write_file(task["value"], content)
    except (OSError, ValueError, struct.error) as error:
        how, reason = _RAISED, f"cannot read the arguments, or write the result: {error}"
    return {"exit_code": how, "reason": reason}


def _run_chunk(task: dict[str, Any], function: bytes, arguments: bytes, results: int) -> dict[str, Any]:
    """Run the calls of a chunk after the first ``skip`` of them; a call that raises does not affect the others."""
    calls = list(_split(arguments))
    failed, first = 0, ""
    if results < 0:
        results = os.open(task["value"], os.O_CREAT | os.O_WRONLY | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o600)
    for call in calls[task["skip"] :]:
        began = time.perf_counter()
        how, content, reason = _call(task["function"], function, call, has_names=False)
        if _is_terminated:  # this call has no end of its own
            break
        _write(results, _END.pack(how, time.perf_counter() - began, len(content)) + content)
        if how != _RETURNED:
            failed, first = failed + 1, first or reason
    if failed and len(calls) > 1:
        first = f"{failed} of {len(calls)} calls failed; the first: {first}"[:_LONGEST_REASON]
    return {"exit_code": int(failed > 0), "reason": first}


def _call(name: str, function: bytes, arguments: bytes, has_names: bool) -> tuple[int, bytes, str]:
    """Run one call. Return how it ended, a pickle, and the reason of a failure.

    The pickle is that of the value, or of a failure: the exception's own pickle and its traceback.
    """
    try:
        submitted = _functions.get(name)
        callable_ = submitted.for_call() if submitted else _load_first(name, function)
        if has_names:
            positional, named = pickle.loads(arguments)  # noqa: S301
            end = _RETURNED, _pickled(callable_(*positional, **named)), ""
        else:
            end = _RETURNED, _pickled(callable_(*pickle.loads(arguments))), ""  # noqa: S301
    except BaseException as error:
        end = _RAISED, _failure(error), _reason(error)
    if os.getpid() != _own_pid:  # forked by the function: only one of the two goes on
        os._exit(0)
    return end


# Functions.


class SubmittedFunction:
    """A function as it was submitted. Raises an error of ``pickle`` if the file cannot be read."""

    def __init__(self, content: bytes) -> None:
        preparations, self._pickle = pickle.loads(content)  # noqa: S301
        known = (_prepared, *(function._preparations for function in _functions.values()))
        self._preparations: tuple[bytes, ...] = next((one for one in known if one == preparations), preparations)
        self._kept: Callable[..., Any] | None = None
        self._variables: list[dict[str, Any]] = []  # of the kept function and the functions that it calls, by value
        self._as_loaded: list[dict[str, Any]] | None = None  # a copy of them; None if nothing is kept
        self._may_keep = True

    def __len__(self) -> int:
        """Return the length of the function's pickle, in bytes."""
        return len(self._pickle)

    def for_call(self) -> Callable[..., Any]:
        """Return the function for one call. Raises any exception of loading it or of its initializer."""
        if self._variables == self._as_loaded and self._preparations is _prepared:
            return self._kept  # type: ignore[return-value]
        if self._preparations is not _prepared:
            _prepare(self._preparations)
        elif self._as_loaded is not None:  # a call has changed the function, by ``globals()`` or the like
            self._may_keep = False
        self._kept, self._as_loaded = None, None
        loaded: Callable[..., Any] = pickle.loads(self._pickle)  # noqa: S301
        parts = _parts(loaded) if self._may_keep else None
        if parts is None:
            self._may_keep = False
        else:
            self._variables = [variables for part in parts for variables in (part.__globals__, part.__dict__)]
            self._kept, self._as_loaded = loaded, [dict(variables) for variables in self._variables]
        return loaded


def _load_first(name: str, content: bytes) -> Callable[..., Any]:
    """Return a function that came with this task, and keep it for later tasks unless it is long."""
    submitted = SubmittedFunction(content)
    taken = submitted.for_call()
    if len(submitted) <= _LONGEST_KEPT_BYTES:
        _functions[name] = submitted
    return taken


def _prepare(preparations: tuple[bytes, ...]) -> None:
    """Replace the preparations in effect. Raises what the initializer raises."""
    global _prepared  # noqa: PLW0603
    _prepared = ()
    for preparation in preparations:
        pickle.loads(preparation)  # noqa: S301
    _prepared = preparations


def _parts(function: Any) -> list[types.FunctionType] | None:
    """Return the functions that a function consists of, if none can carry state from one call to the next; else None.

    Of functions that were pickled by value, only plain ones qualify: without a closure, with plain defaults, and with
    globals that are plain values, modules or references into modules. They may not set globals. The variables of a
    module are the process's own state, as in every process pool.
    """
    found: list[types.FunctionType] = []
    waiting = [function]
    while waiting:
        one = waiting.pop()
        if _is_fixed(one) or any(one is known for known in found):
            continue
        if type(one) is not types.FunctionType or one.__closure__ or one.__dict__ or _sets_state(one.__code__):
            return None
        if not _is_fixed((*(one.__defaults__ or ()), *(one.__kwdefaults__ or {}).values())):
            return None
        found.append(one)
        waiting += [value for name, value in one.__globals__.items() if name != "__builtins__"]
    return found


def _is_fixed(thing: Any) -> bool:
    """True for a plain value, a module, and a function or class that was pickled as a reference into a module."""
    if type(thing) in _PLAIN:
        return True
    if type(thing) is tuple:
        return all(map(_is_fixed, thing))
    if type(thing) is types.ModuleType:
        return sys.modules.get(thing.__name__) is thing
    if isinstance(thing, (types.FunctionType, types.BuiltinFunctionType, type)):
        return getattr(sys.modules.get(thing.__module__), thing.__qualname__, None) is thing
    return False


def _sets_state(code: types.CodeType) -> bool:
    """True if the code sets a global, or may set an attribute of a function other than those in its ``__dict__``."""
    numbers = sys.modules["opcode"].opmap  # cloudpickle needs that module
    operations = code.co_code[::2]
    if numbers["STORE_GLOBAL"] in operations or numbers["DELETE_GLOBAL"] in operations:
        return True
    if not _STATEFUL_NAMES.isdisjoint(code.co_names):
        return True
    return any(_sets_state(inner) for inner in code.co_consts if isinstance(inner, types.CodeType))


# Values and failures.


def _pickled(value: Any) -> bytes:
    if type(value) in _PLAIN:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    return bytes(sys.modules["cloudpickle"].dumps(value))


def _failure(error: BaseException) -> bytes:
    """Return the pickle of a failure, whose traceback survives an exception that cannot be pickled."""
    frames = error.__traceback__
    while frames and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    text = "".join(traceback.format_exception(type(error), error, frames))
    try:
        of_error = _pickled_error(error.with_traceback(None))
    except Exception:
        of_error = None
    return pickle.dumps((of_error, text), pickle.HIGHEST_PROTOCOL)


def _pickled_error(error: BaseException) -> bytes:
    """Return the pickle that the exception's own class makes.

    What a library of the function registered for exceptions (tblib, which dask's ``distributed`` installs) is left
    out: the program that submitted the call may lack that library.
    """
    cloudpickle = sys.modules["cloudpickle"]

    class ErrorPickler(cloudpickle.Pickler):  # type: ignore[misc, name-defined]
        def reducer_override(self, thing: Any) -> Any:
            if isinstance(thing, BaseException):
                return _reduced(thing)
            return super().reducer_override(thing)

    file = io.BytesIO()
    ErrorPickler(file).dump(error)
    return file.getvalue()


def _reduced(error: BaseException) -> Any:
    """Return how to make an exception again: without ``__init__`` if that takes other arguments than ``args``."""
    reduced = error.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
    if reduced[0] is not type(error) or not isinstance(type(error).__init__, types.FunctionType):
        return reduced
    try:
        if reduced[0](*reduced[1]).args == error.args:
            return reduced
    except Exception:  # noqa: S110
        pass
    return (copyreg.__newobj__, (type(error), *error.args), *reduced[2:])  # type: ignore[attr-defined]


def _reason(error: BaseException) -> str:
    return traceback.format_exception_only(type(error), error)[-1].strip()[:_LONGEST_REASON]


def _split(arguments: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(arguments):
        (length,) = _ARGUMENTS.unpack_from(arguments, at)
        at += _ARGUMENTS.size + length
        yield arguments[at - length : at]


def _set_environment(environment: dict[str, str]) -> None:
    """Set the variables of this call, and have ``tempfile`` forget the last call's folder.

    If the last call has changed none of any, only those that are others in this call are set.
    """
    global _kept  # noqa: PLW0603
    if _libc and isinstance(os.environ, os._Environ):
        kept = os.environ._data  # type: ignore[attr-defined]
        others = environment.items() - _given.items() if kept == _kept else environment.items()
        for name, value in others:
            _set(name.encode(*_as_bytes), value.encode(*_as_bytes))
        _given.update(others)
        _kept = dict(kept)
    else:
        os.environ.update(environment)
    if "tempfile" in sys.modules:
        sys.modules["tempfile"].tempdir = None  # type: ignore[attr-defined]


def _set(name: bytes, value: bytes) -> None:
    """Set a variable, for Python and for C, in one buffer: ``setenv`` would keep every value for ever."""
    entry, buffer = name + b"=" + value, _buffers.get(name)
    if buffer is None or len(buffer) <= len(entry):
        buffer = _buffers[name] = ctypes.create_string_buffer(max(_LONG_BYTES, 2 * len(entry)))
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(buffer))  # the C library may read it to the very end
    buffer.value = entry
    assert _libc
    _libc.putenv(buffer)
    os.environ._data[name] = value  # type: ignore[attr-defined]


def _is_clean(folder: str) -> bool:
    """True if nothing was left in the call's folder, so that another call may have it.

    A folder and the one in it are still empty if their times are those at which they were found so, because whatever
    enters or leaves them changes these. Times are believed once they are older than any file system counts coarsely.
    """
    global _clean  # noqa: PLW0603
    try:
        outer, inner = os.lstat(folder), os.lstat(folder + "/.tmp")
        found = outer.st_ino, outer.st_mtime_ns, inner.st_ino, inner.st_mtime_ns
        if found == _clean:
            return True
        is_clean = os.listdir(folder) == [".tmp"] and not os.listdir(folder + "/.tmp")  # noqa: PTH208
    except OSError:
        return False
    is_old = max(outer.st_mtime, inner.st_mtime) < time.time() - _COARSEST_TIME_S
    _clean = found if is_clean and is_old else ()
    return is_clean


# Files, and the socket to the agent.


def _receive(agent: socket.socket) -> tuple[bytes, list[int]]:
    line, files = b"", list[int]()
    while not line.endswith(b"\n"):
        part, more, _, _ = socket.recv_fds(agent, 65536, _MOST_FILES)
        if not part:
            return b"", []
        line, files = line + part, files + more
    for file in files:
        os.set_inheritable(file, False)
    return line, files


def _send(agent: socket.socket, message: dict[str, Any]) -> None:
    agent.sendall(json.dumps(message).encode() + b"\n")


def _read(file: int) -> bytes:
    """Return a whole file, from its beginning: others may have read it through the same handle."""
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


def _redirect_output(outputs: tuple[int, int]) -> None:
    """Write stdout and stderr to these files from now on."""
    for place, file in enumerate(outputs, 1):
        os.dup2(file, place)


def _flush() -> None:
    """Flush what has been printed, by C libraries too."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):  # closed or replaced by the function
            continue
    if _libc:
        _libc.fflush(None)


# Pools within a call.


class PoolFinder:
    """Watches for the import of multiprocessing, whose pools then pickle the script's functions and classes by value.

    By name they could not be found: ``__main__`` is this program here, in a pool's processes too.
    """

    @staticmethod
    def find_spec(name: str, *_: Any) -> Any:
        """Return how to load multiprocessing.reduction; None for other modules."""
        if name != "multiprocessing.reduction":
            return None
        import importlib.util

        sys.meta_path.remove(PoolFinder)
        spec = importlib.util.find_spec(name)
        assert spec
        loader: Any = spec.loader
        load = loader.exec_module

        def exec_module(module: Any) -> None:
            load(module)
            module.ForkingPickler.reducer_override = _by_value

        loader.exec_module = exec_module
        return spec


def _by_value(_: Any, thing: Any) -> Any:
    """Pickle functions and classes of the script by value."""
    if isinstance(thing, (types.FunctionType, type)) and thing.__module__ == "__main__":
        import cloudpickle

        return pickle.loads, (cloudpickle.dumps(thing),)
    return NotImplemented


# Usage.


_peak_kib = 0  # that the system still knows of earlier calls


def _used() -> dict[str, Any]:
    """Return the CPU time since the start, with children that were waited for, and the peak memory of this call."""
    global _peak_kib  # noqa: PLW0603
    import resource

    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    unit = 1 if sys.platform == "darwin" else 1024
    if own.ru_maxrss > _peak_kib + _GROWTH_KIB:  # it must not count against the next call
        _forget_peak()
        _peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cpu_s = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
    return {"cpu_s": cpu_s, "peak_memory_bytes": own.ru_maxrss * unit}


def _forget_peak() -> None:
    try:
        with open("/proc/self/clear_refs", "w") as stream:  # noqa: PTH123
            stream.write("5")
    except OSError:
        pass  # then it is the peak of all calls so far


if __name__ == "__main__":
    sys.meta_path.insert(0, PoolFinder)
    main()
elif __name__ == "__mp_main__":  # a process of a pool in a call, which was not forked
    sys.modules["multiprocessing.reduction"].ForkingPickler.reducer_override = _by_value
