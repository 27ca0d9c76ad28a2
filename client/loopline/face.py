"""The synchronous face of an asynchronous class: the same methods, without a second text of each."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

Kind = TypeVar("Kind", bound=type)


def face_of(asynchronous: type) -> Callable[[Kind], Kind]:
    """Give a class all public methods of another that it has not itself.

    Its objects have ``_inner``, an object of the other class, and ``_portal``, through which that is spoken to.
    """

    def with_methods(kind: Kind) -> Kind:
        for name, method in inspect.getmembers(asynchronous, callable):
            if not name.startswith("_") and name not in vars(kind):
                setattr(kind, name, _method(name, method))
        return kind

    return with_methods


def _method(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        answer = getattr(self._inner, name)(*arguments, **options)
        if inspect.iscoroutine(answer):
            return self._portal.call(answer)
        return self._portal.iterate(answer) if hasattr(answer, "__anext__") else answer

    return call
