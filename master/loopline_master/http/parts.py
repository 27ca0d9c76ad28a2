"""The parts of a running master, looked up by type: a handler that names one in its signature is given it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar, cast

from aiohttp import web

Part = TypeVar("Part")


class Parts:
    """The master's parts, one object of each type: ``parts[Store]`` is the store."""

    def __init__(self, *parts: object) -> None:
        self._by_type: dict[type, object] = {}
        self.add(*parts)

    def add(self, *parts: object) -> None:
        """Add parts, each of a type that is not there yet."""
        for part in parts:
            assert type(part) not in self, f"there are two parts of type {type(part).__name__}"
            self._by_type[type(part)] = part

    def __iter__(self) -> Iterator[type[object]]:
        """Iterate over the types."""
        return iter(self._by_type)

    def __contains__(self, kind: type[object]) -> bool:
        return kind in self._by_type

    def __getitem__(self, kind: type[Part]) -> Part:
        return cast("Part", self._by_type[kind])


PARTS = web.AppKey("parts", Parts)
