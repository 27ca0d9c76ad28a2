"""The client for ordinary code and notebooks: AsyncClient and AsyncJob without await."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

from loopline.blocking import BlockingClient, BlockingJob
from loopline.client import AsyncClient
from loopline.functions.loop_thread import LoopThread
from loopline.job import AsyncJob
from loopline.transfer.package_list import PackageList, spec_with_software
from loopline_shared.model import JobState
from loopline_shared.rest.bodies import TaskResult
from loopline_shared.spec import JobSpec


class Job(BlockingJob):
    """A job, for ordinary code: the methods of AsyncJob, without await."""

    def __init__(self, inner: AsyncJob, loop_thread: LoopThread) -> None:
        self._inner = inner
        self._loop_thread = loop_thread

    def __repr__(self) -> str:
        return repr(self._inner)

    def _repr_html_(self) -> str:
        return self._inner._repr_html_()

    @property
    def id(self) -> int:
        """Number of the job."""
        return self._inner.id

    @property
    def warnings(self) -> list[str]:
        """Warnings of the master about the submission."""
        return self._inner.warnings

    @property
    def state(self) -> JobState:
        """State of the job at this moment."""
        return self._loop_thread.call(self._inner.state())


class Client(BlockingClient):
    """AsyncClient for ordinary code: in threads, and in notebooks whose own loop runs.

    Asynchronous methods block here, and streams are ordinary iterators. Jobs are Job objects. Close the client, or
    use it in ``with``.
    """

    def __init__(self, master: str | None = None, token: str | None = None, *, patience_s: float = 30.0) -> None:
        self._inner = AsyncClient(master, token, patience_s=patience_s)
        self._loop_thread = LoopThread()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._inner)

    def _repr_html_(self) -> str:
        return self._inner._repr_html_()

    def close(self) -> None:
        """Close the connection to the master."""
        if self._loop_thread.is_open:
            self._loop_thread.call(self._inner.__aexit__())
            self._loop_thread.close()

    @property
    def master(self) -> str:
        """Address of the master."""
        return self._inner.master

    def submit(
        self,
        job: JobSpec | Sequence[str],
        *,
        requirements: PackageList | None = None,
        allow_builds: bool = False,
        image: str = "",
        **options: Any,
    ) -> Job:
        """Submit a whole JobSpec, or a command; ``options`` are then the other fields of a JobSpec.

        ``requirements``: Python packages that tasks need, as of an Executor; or else ``image``: a container image.
        """
        spec = _spec(job, options)
        if requirements is not None or image:
            having = spec_with_software(self._inner, spec, requirements, allow_builds=allow_builds, image=image)
            spec = self._loop_thread.call(having)
        submitted = self._loop_thread.call(self._inner.submit(spec))
        return Job(AsyncJob(self._inner, submitted.id, submitted.warnings, spec=spec), self._loop_thread)

    def run(self, job: JobSpec | Sequence[str], **options: Any) -> list[TaskResult]:
        """Submit a job as ``submit`` does, and return its results once it is over.

        One request is enough for a short job.
        """
        return self._loop_thread.call(self._inner.run(_spec(job, options)))

    def job(self, job: int) -> Job:
        """Return a job by its number, whoever submitted it. Raises LooplineError if there is none."""
        inner = self._inner.attach(job)
        self._loop_thread.call(inner.view())
        return Job(inner, self._loop_thread)

    attach = job

    def map(self, function: Callable[..., Any], *iterables: Iterable[Any], **options: Any) -> Job:
        """Submit a job as AsyncClient.map does."""
        return Job(self._loop_thread.call(self._inner.map(function, *iterables, **options)), self._loop_thread)

    def starmap(self, function: Callable[..., Any], calls: Iterable[Iterable[Any]], **options: Any) -> Job:
        """Submit a job as AsyncClient.starmap does."""
        return Job(self._loop_thread.call(self._inner.starmap(function, calls, **options)), self._loop_thread)


def _spec(job: JobSpec | Sequence[str], options: dict[str, Any]) -> JobSpec:
    return job if isinstance(job, JobSpec) else JobSpec(command=list(job), **options)
