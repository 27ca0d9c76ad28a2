"""A master's REST API as Python: one method for each thing that can be asked."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Self, TypeVar
from urllib.parse import quote
from uuid import uuid4

from loopline.http import ENDLESS, NO_HURRY, Http, Model, UnavailableError, parse
from loopline.settings import ClientSettings
from loopline_shared.errors import LooplineError
from loopline_shared.model import JobState, Stream, TaskId, TaskState
from loopline_shared.rest.access import (
    JoinRequest,
    JoinTokenCreated,
    JoinTokenView,
    Role,
    TokenCreated,
    TokenView,
    Whoami,
)
from loopline_shared.rest.bodies import (
    AttemptView,
    Explanation,
    ForecastReport,
    GridChange,
    HistoryReport,
    HistorySubject,
    JobDetail,
    JobView,
    Page,
    PassingReport,
    Preview,
    ProgramView,
    PruneReport,
    Submission,
    TaskDetail,
    TaskResult,
    TaskView,
    WorkerView,
)
from loopline_shared.spec import JobSpec

Item = TypeVar("Item")
LARGEST_PAGE = 1000


class RestClient:
    """Talks to one master; use it in ``async with``. Every method raises LooplineError, and nothing else.

    ``master`` and ``token`` default to the settings (LOOPLINE_MASTER, LOOPLINE_TOKEN, loopline.toml). While the
    master is away, whatever is safe to repeat is repeated for ``patience_s``; submitting is safe.
    """

    def __init__(
        self, master: str | None = None, token: str | None = None, *, patience_s: float = 30.0, fingerprint: str = ""
    ) -> None:
        """``fingerprint``: the SHA-256 of the only certificate that is believed to be the master's."""
        settings = ClientSettings.load(master=master, token=token)
        self.http = Http(settings.master, settings.find_token(), patience_s, fingerprint)

    @property
    def master(self) -> str:
        return self.http.url

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.close()

    # Jobs

    async def submit(self, job: JobSpec) -> Submission:
        """Answered once the job is on the master's disk; done once however often it must be repeated."""
        headers = {"Idempotency-Key": uuid4().hex}
        return await self.http.ask(Submission, "POST", "/jobs", json=job.to_json(), headers=headers)

    async def preview(self, job: JobSpec) -> Preview:
        """What would come of submitting a job; nothing is submitted."""
        return await self.http.ask(Preview, "POST", "/jobs/preview", json=job.to_json())

    def jobs(self, state: JobState | None = None, *, page_size: int = LARGEST_PAGE) -> AsyncIterator[JobView]:
        """The newest first."""
        return self._pages(Page[JobView], "/jobs", page_size, state)

    async def job(self, job: int) -> JobDetail:
        return await self._get(JobDetail, f"/jobs/{job}")

    async def cancel(self, job: int) -> JobView:
        return await self.http.ask(JobView, "POST", f"/jobs/{job}/cancel")

    async def pause(self, job: int) -> JobView:
        return await self.http.ask(JobView, "POST", f"/jobs/{job}/pause")

    async def resume(self, job: int) -> JobView:
        return await self.http.ask(JobView, "POST", f"/jobs/{job}/resume")

    async def retry(self, job: int) -> JobView:
        """Run the failed and cancelled tasks of a finished job again."""
        return await self.http.ask(JobView, "POST", f"/jobs/{job}/retry", repeat=False)

    # Tasks and what they printed

    def tasks(
        self, job: int, state: TaskState | None = None, *, page_size: int = LARGEST_PAGE
    ) -> AsyncIterator[TaskView]:
        return self._pages(Page[TaskView], f"/jobs/{job}/tasks", page_size, state)

    async def task(self, task: TaskId) -> TaskDetail:
        return await self._get(TaskDetail, _at(task))

    def attempts(self, job: int) -> AsyncIterator[AttemptView]:
        return self._pages(Page[AttemptView], f"/jobs/{job}/attempts")

    async def output(
        self, task: TaskId, stream: Stream = "stdout", *, follow: bool = False
    ) -> AsyncGenerator[bytes, None]:
        """What the task's accepted attempt, else its latest, wrote; in pieces. ``follow``: as it writes it, until the
        task is over.
        """
        more: dict[str, Any] = {"params": {"follow": "true"}, "timeout": ENDLESS} if follow else {}
        done, patience = 0, self.http.patience()
        while True:
            skip = done  # of what came before the connection was lost
            try:
                async with self.http.open("GET", f"{_at(task)}/{stream}", **more) as answer:
                    async for piece in answer.content.iter_any():
                        fresh = piece[skip:]
                        skip -= len(piece) - len(fresh)
                        done += len(fresh)
                        patience.restart()
                        yield fresh
                    return
            except UnavailableError as fault:
                await patience.after(fault)

    async def results(self, job: int, *, cursor: str = "", follow: bool = True) -> AsyncGenerator[TaskResult, None]:
        """Every task's result as it finishes, until the job is over; or, without ``follow``, those that are there.
        ``cursor``: of the result after which to go on.
        """
        query = ({"cursor": cursor} if cursor else {}) | ({} if follow else {"follow": "false"})
        patience = self.http.patience()
        while True:
            try:
                async with self.http.open("GET", f"/jobs/{job}/results", params=query) as answer:
                    async for line in _lines(answer.content.iter_any()):
                        result = parse(TaskResult, line)
                        query["cursor"] = result.cursor  # where to go on once the connection is lost
                        patience.restart()
                        yield result
                    return
            except UnavailableError as fault:
                await patience.after(fault)

    # The grid

    async def changes(self, *, rest_s: float = 0.1) -> AsyncGenerator[GridChange, None]:
        """What changes, at most once in ``rest_s``, for ever. The first one, and the first after each loss of the
        connection, says ``missed``: look at everything once.
        """
        patience = self.http.patience()
        while True:
            try:
                async with self.http.open("GET", "/events", params={"rest_s": repr(rest_s)}) as answer:
                    async for line in _lines(answer.content.iter_any()):
                        patience.restart()
                        if line.startswith(b"data:"):
                            yield parse(GridChange, line.removeprefix(b"data:"))
                fault = UnavailableError(_hung_up(self.master), may_have_acted=False)
            except UnavailableError as away:
                fault = away
            await patience.after(fault)

    async def explain(self, subject: TaskId | int | str) -> Explanation:
        """Why a job, a task or a worker (by its name) is where it is."""
        place = f"/workers/{quote(subject, safe='')}" if isinstance(subject, str) else _at(subject)
        return await self._get(Explanation, f"{place}/explain")

    async def forecasts(self) -> ForecastReport:
        """How well past ETAs held."""
        return await self._get(ForecastReport, "/forecasts")

    def workers(self, *, last_hour: bool = False) -> AsyncIterator[WorkerView]:
        """With what each did in the last hour, if asked."""
        return self._pages(Page[WorkerView], "/workers", more={"last_hour": "true"} if last_hour else None)

    def programs(
        self,
        user: str | None = None,
        name: str | None = None,
        *,
        page_size: int = LARGEST_PAGE,
        owner: str | None = None,
    ) -> AsyncIterator[ProgramView]:
        """Yield what the grid knows of programs, the latest used first. ``owner``: the old name of ``user``."""
        chosen = {"owner": user or owner, "name": name}
        more = {key: value for key, value in chosen.items() if value is not None}
        return self._pages(Page[ProgramView], "/programs", page_size, more=more)

    async def drain(self, worker: str) -> WorkerView:
        """Let it finish what it runs, and give it nothing more."""
        return await self.http.ask(WorkerView, "POST", f"/workers/{quote(worker, safe='')}/drain")

    async def undrain(self, worker: str) -> WorkerView:
        return await self.http.ask(WorkerView, "POST", f"/workers/{quote(worker, safe='')}/undrain")

    async def passing(self) -> PassingReport:
        """The audit: has any job passed one that it must not pass?"""
        return await self._get(PassingReport, "/passing")

    async def history(self, by: HistorySubject = "user", *, since: float = 0.0, limit: int = 100) -> HistoryReport:
        """Who used how much processor time, of what has ended since then; the greatest first."""
        return await self._get(HistoryReport, "/history", {"by": by, "since": repr(since), "limit": str(limit)})

    async def prune(self, older_than_s: float | None = None, *, delete: bool = False) -> PruneReport:
        """Files that nobody needs, and of jobs that have been over for so long; with ``delete`` they are removed."""
        wish = {"older_than_s": older_than_s, "delete": delete}
        return await self.http.ask(PruneReport, "POST", "/prune", json=wish, timeout=NO_HURRY)

    # Access

    async def whoami(self) -> Whoami:
        return await self._get(Whoami, "/whoami")

    def tokens(self) -> AsyncIterator[TokenView]:
        return self._pages(Page[TokenView], "/tokens")

    async def create_token(self, name: str, role: Role) -> TokenCreated:
        return await self.http.ask(TokenCreated, "POST", "/tokens", repeat=False, json={"name": name, "role": role})

    async def revoke_token(self, token: str) -> TokenView:
        return await self.http.ask(TokenView, "POST", f"/tokens/{quote(token, safe='')}/revoke")

    async def create_join_token(self, uses: int, expires_s: float) -> JoinTokenCreated:
        wish = {"uses": uses, "expires_s": expires_s}
        return await self.http.ask(JoinTokenCreated, "POST", "/join-tokens", repeat=False, json=wish)

    def join_tokens(self) -> AsyncIterator[JoinTokenView]:
        return self._pages(Page[JoinTokenView], "/join-tokens")

    async def revoke_join_token(self, token: str) -> JoinTokenView:
        return await self.http.ask(JoinTokenView, "POST", f"/join-tokens/{quote(token, safe='')}/revoke")

    async def join(self, wish: JoinRequest) -> TokenView:
        """The same wish twice is granted once."""
        return await self.http.ask(TokenView, "POST", "/join", json=wish.model_dump())

    async def _get(self, answer: type[Model], path: str, query: dict[str, str] | None = None) -> Model:
        return await self.http.ask(answer, "GET", path, params=query)

    async def _pages(
        self,
        page: type[Page[Item]],
        path: str,
        size: int = LARGEST_PAGE,
        state: str | None = None,
        more: dict[str, str] | None = None,
    ) -> AsyncIterator[Item]:
        query = {"limit": str(size)} | ({"state": state} if state else {}) | (more or {})
        while True:
            answer = await self._get(page, path, query)
            for item in answer.items:
                yield item
            if answer.next is None:
                return
            query["cursor"] = answer.next


def _at(subject: TaskId | int) -> str:
    return f"/jobs/{subject.job}/tasks/{subject.task}" if isinstance(subject, TaskId) else f"/jobs/{subject}"


def _hung_up(master: str) -> LooplineError:
    return LooplineError("unreachable", f"{master} has ended the stream of changes", status=503)


async def _lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = b""
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.strip():
                yield line
