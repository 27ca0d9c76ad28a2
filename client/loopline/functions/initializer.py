"""The ``initializer`` of an executor: a function that each interpreter calls before its first call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def initialized(
    fn: Callable[..., Any], initializer: Callable[..., object], initargs: Sequence[Any], key: str
) -> Callable[..., Any]:
    """Return a function that calls ``fn``, and before that the initializer, once in each interpreter.

    ``key`` names the pair of initializer and arguments: functions of one executor share it, as they share
    interpreters. What is returned is pickled by value, so that workers need no client of Loopline's. As with a
    process pool, a call whose initializer raised has concurrent.futures.BrokenExecutor.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        import sys

        has_run: set[str] = sys.__dict__.setdefault("_loopline_initialized", set())
        if key not in has_run:
            try:
                initializer(*initargs)
            except BaseException as error:
                from concurrent.futures import BrokenExecutor

                what = f"{type(error).__name__}: {error}"
                raise BrokenExecutor(f"the initializer failed on this worker: {what}") from error
            has_run.add(key)
        return fn(*args, **kwargs)

    return call
