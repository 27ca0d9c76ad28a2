"""Arguments that are futures: a call is sent once they have their results, which take their places."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from types import ModuleType
from typing import Any

from loopline.functions.calls import pickled

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def are_there(arguments: Iterable[Any]) -> bool:
    """True if one of these arguments is a future. What lists and other containers hold is not looked through."""
    return any(isinstance(argument, Future) for argument in arguments)


class AwaitedArguments:
    """Arguments of a call, with futures among them. The others are kept as they are now.

    ``on_results`` is called once with all arguments, or ``on_error`` with each error; in any thread.
    """

    def __init__(
        self,
        arguments: Arguments,
        modules: Iterable[ModuleType],
        on_results: Callable[[Arguments], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        args, kwargs = arguments
        places: dict[Any, Any] = {**dict(enumerate(args)), **kwargs}
        self._futures = {place: value for place, value in places.items() if isinstance(value, Future)}
        self._positional = len(args)
        self._others = pickled(
            {place: value for place, value in places.items() if place not in self._futures}, modules
        )
        self._on_results, self._on_error = on_results, on_error
        self._lock = threading.Lock()
        self._left = len(self._futures)
        for future in self._futures.values():
            future.add_done_callback(self._on_done)

    def _on_done(self, future: Future[Any]) -> None:
        try:
            future.result()
            with self._lock:
                self._left -= 1
                if self._left:
                    return
            results = {place: one.result() for place, one in self._futures.items()}
            places = pickle.loads(self._others) | results  # noqa: S301
            args = tuple(places.pop(place) for place in range(self._positional))
            self._on_results((args, places))
        except BaseException as error:  # a cancellation, too
            self._on_error(error)
