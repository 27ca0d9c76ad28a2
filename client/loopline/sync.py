"""The client for ordinary code and notebooks: AsyncClient without await."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self

from loopline.client import AsyncClient
from loopline.face import face_of
from loopline.functions.portal import Portal
from loopline.job import AsyncJob, Job
from loopline_shared.spec import JobSpec


@face_of(AsyncClient)
class Client:
    """All methods of AsyncClient, for ordinary code: in threads, and in notebooks whose own loop runs.

    What is asynchronous there waits here, and streams are ordinary iterators. Jobs are Job objects. Close it, or use
    it in ``with``.
    """

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def __init__(self, master: str | None = None, token: str | None = None, *, patience_s: float = 30.0) -> None:
        self._inner = AsyncClient(master, token, patience_s=patience_s)
        self._portal = Portal()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._portal.is_open:
            self._portal.call(self._inner.__aexit__())
            self._portal.close()

    @property
    def master(self) -> str:
        return self._inner.master

    def submit(self, job: JobSpec | Sequence[str], **options: Any) -> Job:
        """Submit a whole JobSpec, or a command; ``options`` are then the other fields of a JobSpec."""
        spec = job if isinstance(job, JobSpec) else JobSpec(command=list(job), **options)
        submitted = self._portal.call(self._inner.submit(spec))
        return Job(AsyncJob(self._inner, submitted.id, submitted.warnings), self._portal)

    def job(self, job: int) -> Job:
        """A job by its number, whoever submitted it."""
        inner = self._inner.attach(job)
        self._portal.call(inner.view())  # LooplineError where there is none
        return Job(inner, self._portal)

    attach = job

    def map(self, function: Callable[..., Any], *iterables: Iterable[Any], **options: Any) -> Job:
        """As AsyncClient.map."""
        return Job(self._portal.call(self._inner.map(function, *iterables, **options)), self._portal)

    def starmap(self, function: Callable[..., Any], calls: Iterable[Iterable[Any]], **options: Any) -> Job:
        """As AsyncClient.starmap."""
        return Job(self._portal.call(self._inner.starmap(function, calls, **options)), self._portal)
