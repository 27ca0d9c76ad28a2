"""The ``initializer`` of an executor: each interpreter calls it before its first call.

It travels as a preparation (protocol/chunks.py). Every call gets a fresh copy of its function, with the
globals that it had in the user's program. The globals that belong to the initializer are the exception. Those that it
sets, and the data that it names, are the interpreter's: a call finds them as the initializer or the last call left
them, as in a process pool.

Whatever is pickled here is pickled by value, so that workers need no client of Loopline's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any
from uuid import uuid4

from loopline.functions.calls import pickled


class Initializer:
    """An initializer and its arguments, which are pickled at the first call."""

    def __init__(self, function: Callable[..., object], arguments: Sequence[Any]) -> None:
        self._function, self._arguments = function, tuple(arguments)
        self._key = uuid4().hex
        self._anchor = _anchor(function)

    def preparation(self, modules: Iterable[ModuleType]) -> bytes:
        """Return the pickle that runs it, once in each interpreter.

        As with a process pool, a call whose initializer raised has concurrent.futures.BrokenExecutor.
        """
        own = pickled((self._function, self._arguments, self._anchor), modules)
        return pickled(_InitializerRun(own, self._key))

    def around(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that calls ``fn`` with the initializer's globals, and keeps their new values."""
        return fn if self._anchor is None else _around(fn, self._anchor, self._key)


class _InitializerRun:
    """Pickles as a call that runs the initializer."""

    def __init__(self, pickle: bytes, key: str) -> None:
        self._pickle, self._key = pickle, key

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _runner(), (self._pickle, self._key)


def _anchor(function: Any) -> FunctionType | None:
    """Return a function whose globals are those of the initializer; None if that is not written in Python.

    The functions of one pickle that share their globals here share them in an interpreter, too.
    """
    while isinstance(function, partial | MethodType):
        function = function.func if isinstance(function, partial) else function.__func__
    if not isinstance(function, FunctionType):
        function = type(function).__call__
    if not isinstance(function, FunctionType):
        return None
    anchor = FunctionType((lambda: None).__code__, function.__globals__, "_loopline_anchor")
    anchor.__module__, anchor.__qualname__ = function.__module__, "_loopline_anchor"
    return anchor


def _runner() -> Callable[[bytes, str], None]:
    def run(pickle: bytes, key: str) -> None:
        """Run the initializer unless it has run here, and note the globals that belong to it."""
        import pickle as pickles
        import sys
        import types

        belonging: dict[str, dict[str, Any]] = sys.__dict__.setdefault("_loopline_initialized", {})
        if key in belonging:
            return
        try:
            initializer, arguments, anchor = pickles.loads(pickle)  # noqa: S301
            names = {} if anchor is None else anchor.__globals__
            before = dict(names)
            initializer(*arguments)
        except BaseException as error:
            from concurrent.futures import BrokenExecutor

            what = f"{type(error).__name__}: {error}"
            raise BrokenExecutor(f"the initializer failed on this worker: {what}") from error
        constants = (int, float, complex, str, bytes, bool, type(None), type, types.FunctionType, types.ModuleType)
        belonging[key] = {
            name: value
            for name, value in names.items()
            if not name.startswith("__")
            and (name not in before or before[name] is not value or not isinstance(value, constants))
        }

    return run


def _around(fn: Callable[..., Any], anchor: FunctionType, key: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        import sys

        kept: dict[str, Any] = sys.__dict__["_loopline_initialized"][key]
        names = anchor.__globals__
        names.update(kept)
        try:
            return fn(*args, **kwargs)
        finally:
            kept.update({name: names[name] for name in kept if name in names})

    return call
