"""Routes that are created late, one subject after the other, when a request matches none of the existing ones."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator

from aiohttp import web
from yarl import URL

from loopline_master.dashboard.manual_pages import add_manual
from loopline_master.dashboard.pages import add_page
from loopline_master.http.operations import Operation, Parts
from loopline_master.http.routes import SUBJECTS, operations_of

FIRST = ("live.streams", "routes.workers", "routes.jobs")
"""Subjects that most masters need first: the workers' links, jobs and their results."""
_PAUSE_S = 2.0
_Add = Callable[[web.UrlDispatcher], None]


class LateRoutes(web.AbstractResource):
    """Stands for the routes that are still to be created, by receiving requests that match no other."""

    def __init__(self, router: web.UrlDispatcher, parts: Parts) -> None:
        super().__init__()
        self._router = router
        self._parts = parts
        rest = (subject for subject in SUBJECTS if subject not in FIRST)
        self._waiting: deque[str | _Add] = deque([*FIRST, *rest, add_page, add_manual])
        router.register_resource(self)

    async def resolve(self, request: web.Request) -> tuple[web.UrlMappingMatchInfo | None, set[str]]:
        """Create the routes of the next subject and resolve again, which repeats this until a route matches."""
        if not self._waiting:
            return None, set()
        self._make_next()
        found = await self._router.resolve(request)
        error = found.http_exception
        if error is None:
            return found, set()
        return None, error.allowed_methods if isinstance(error, web.HTTPMethodNotAllowed) else set()

    def make_first(self) -> None:
        """Create the routes that most masters need first."""
        while self._waiting and self._waiting[0] in FIRST:
            self._make_next()

    async def make_rest(self) -> None:
        """Create the remaining routes after a while."""
        await asyncio.sleep(_PAUSE_S)
        while self._waiting:
            self._make_next()
            await asyncio.sleep(0)

    def _make_next(self) -> None:
        made, subject = web.UrlDispatcher(), self._waiting.popleft()
        if isinstance(subject, str):
            self._add(made, operations_of(subject))
        else:
            subject(made)
        for resource in made.resources():
            self._router.index_resource(resource)

    def _add(self, made: web.UrlDispatcher, operations: list[Operation]) -> None:
        with_head = {operation.path for operation in operations if operation.method == "HEAD"}
        for operation in sorted(operations, key=lambda one: not one.is_frequent):
            serve = operation.served_by(self._parts)
            made.add_route(operation.method, operation.route, serve)
            if operation.method == "GET" and operation.path not in with_head:
                made.add_route("HEAD", operation.route, serve)

    @property
    def canonical(self) -> str:
        """The common prefix of all routes."""
        return "/"

    def url_for(self, **kwargs: str) -> URL:
        """Return the address of the prefix."""
        return URL(self.canonical)

    def raw_match(self, path: str) -> bool:
        """Return False: no path is this resource's own."""
        return False

    def add_prefix(self, prefix: str) -> None:
        """Ignore the prefix: the master's application is not nested."""

    def get_info(self) -> dict[str, str]:  # type: ignore[override]
        """Return an empty description, which the router does not use."""
        return {}

    def __iter__(self) -> Iterator[web.AbstractRoute]:
        return iter(())

    def __len__(self) -> int:
        return 0
