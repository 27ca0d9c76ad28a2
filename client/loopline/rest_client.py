"""A master's REST API as Python: one method for each operation."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Collection
from typing import Any, Self, TypeVar
from urllib.parse import quote
from uuid import uuid4

from loopline.http import ENDLESS, NO_HURRY, Http, Model, UnavailableError, parse
from loopline.in_a_call import check_may_submit
from loopline.settings import ClientSettings
from loopline_shared.errors import LooplineError
from loopline_shared.model import JobState, Stream, TaskId, TaskState
from loopline_shared.rest.access import (
    AuditEntry,
    EncryptionView,
    JoinRequest,
    JoinTokenCreated,
    JoinTokenRequest,
    JoinTokenView,
    Offers,
    Role,
    TokenCreated,
    TokenRequest,
    TokenView,
    WebhookSecret,
    Whoami,
)
from loopline_shared.rest.bodies import (
    AttemptView,
    CheckpointList,
    CheckpointView,
    DemandView,
    Explanation,
    FailureReport,
    ForecastReport,
    FoundLine,
    GridChange,
    HistoryReport,
    HistorySort,
    HistorySubject,
    JobDetail,
    JobView,
    LimitsView,
    MeasurementView,
    NetworkView,
    Page,
    ParallelReport,
    PassingReport,
    PastJob,
    Preview,
    ProgramView,
    PruneReport,
    SharesView,
    Submission,
    TaskDetail,
    TaskResult,
    TaskView,
    WaitingPlans,
    WorkerStay,
    WorkerView,
)
from loopline_shared.spec import JobSpec

Item = TypeVar("Item")
LARGEST_PAGE = 1000


class RestClient:
    """Talks to one master's REST API. Every method raises LooplineError, and nothing else.

    ``master`` and ``token`` default to the settings (LOOPLINE_MASTER, LOOPLINE_TOKEN, loopline.toml). While the
    master is away, requests that are safe to repeat are repeated for ``patience_s``; submitting is safe.
    """

    def __init__(
        self,
        master: str | None = None,
        token: str | None = None,
        *,
        patience_s: float = 30.0,
        ca: str | None = None,
        fingerprint: str = "",
    ) -> None:
        """Raises LooplineError if the settings are wrong.

        ``ca``: the certificate (PEM) to trust the master by, empty for none of its own; ``fingerprint``: the SHA-256
        of its key, by which it is fetched. Without both, the settings say.
        """
        settings = ClientSettings.load(master=master, token=token)
        trusted = settings.find_ca() if ca is None and not fingerprint else ca or ""
        self.http = Http(settings.master, settings.find_token(), patience_s, ca=trusted, fingerprint=fingerprint)

    @property
    def master(self) -> str:
        """Address of the master, with those of its standbys behind commas."""
        return ",".join(self.http.addresses)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.close()

    # Jobs

    async def submit(self, job: JobSpec, *, wait: bool = False) -> Submission:
        """Submit a job. It is on disk when the answer comes, and submitted once however often the request is
        repeated. ``wait``: a moment longer, for the results if all are there by then.
        """
        check_may_submit()
        headers = {"Idempotency-Key": uuid4().hex} | ({"Prefer": "wait=1"} if wait else {})
        return await self.http.ask(Submission, "POST", "/jobs", json=job.to_json(), headers=headers)

    async def preview(self, job: JobSpec) -> Preview:
        """Return what the master would make of a job, without submitting it."""
        return await self.http.ask(Preview, "POST", "/jobs/preview", json=job.to_json())

    def jobs(self, state: JobState | None = None, *, page_size: int = LARGEST_PAGE) -> AsyncIterator[JobView]:
        """Yield the jobs, the newest first."""
        return self._pages(Page[JobView], "/jobs", page_size, state)

    async def job(self, job: int) -> JobDetail:
        """Return one job."""
        return await self._get(JobDetail, f"/jobs/{job}")

    async def cancel(self, job: int) -> JobView:
        """Cancel a job."""
        return await self.http.ask(JobView, "POST", f"/jobs/{job}/cancel")

    async def pause(self, job: int) -> JobView:
        """Start nothing more of a job until it is resumed."""
        return await self.http.ask(JobView, "POST", f"/jobs/{job}/pause")

    async def resume(self, job: int) -> JobView:
        """Resume a paused job."""
        return await self.http.ask(JobView, "POST", f"/jobs/{job}/resume")

    async def retry(self, job: int, tasks: Collection[int] = (), *, from_start: bool = False) -> JobView:
        """Run the failed and cancelled tasks of a finished job again; or only these of a failed job.

        ``from_start``: without the checkpoints that they have kept.
        """
        query = {"tasks": ",".join(map(str, tasks))} if tasks else {}
        if from_start:
            query["from_start"] = "true"
        return await self.http.ask(JobView, "POST", f"/jobs/{job}/retry", repeat=False, params=query)

    async def checkpoints(self, task: TaskId) -> list[CheckpointView]:
        """Return the checkpoints that a task keeps, the one with the most work first."""
        return (await self.http.ask(CheckpointList, "GET", f"/jobs/{task.job}/tasks/{task.task}/checkpoints")).items

    # Tasks and their output

    def tasks(
        self,
        job: int,
        state: TaskState | None = None,
        *,
        page_size: int = LARGEST_PAGE,
        parameters: bool = False,
    ) -> AsyncIterator[TaskView]:
        """Yield a job's tasks, in order. ``parameters``: with those of each."""
        more = {"parameters": "true"} if parameters else None
        return self._pages(Page[TaskView], f"/jobs/{job}/tasks", page_size, state, more)

    async def task(self, task: TaskId) -> TaskDetail:
        """Return one task, with its parameters."""
        return await self._get(TaskDetail, _at(task))

    def attempts(self, job: int) -> AsyncIterator[AttemptView]:
        """Yield the attempts of a job's tasks."""
        return self._pages(Page[AttemptView], f"/jobs/{job}/attempts")

    async def output(
        self, task: TaskId, stream: Stream = "stdout", *, follow: bool = False, rank: int = 0
    ) -> AsyncGenerator[bytes, None]:
        """Yield the output of a task's accepted attempt, else of its latest, in pieces.

        ``follow``: also what it writes from now on, until the task is over. ``rank``: which member's, of a task on
        several nodes.
        """
        asked = ({"follow": "true"} if follow else {}) | ({"rank": str(rank)} if rank else {})
        more: dict[str, Any] = {"params": asked, **({"timeout": ENDLESS} if follow else {})}
        done, patience = 0, self.http.patience()
        while True:
            skip = done  # bytes that came before the connection was lost
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
        """Yield every task's result as it finishes, until the job is over.

        Without ``follow``, yield the results that there are. ``cursor``: the cursor of the last result that you have.
        """
        query = ({"cursor": cursor} if cursor else {}) | ({} if follow else {"follow": "false"})
        patience = self.http.patience()
        while True:
            try:
                async with self.http.open("GET", f"/jobs/{job}/results", params=query) as answer:
                    async for line in _lines(answer.content.iter_any()):
                        result = parse(TaskResult, line)
                        query["cursor"] = result.cursor  # where to resume after the connection is lost
                        patience.restart()
                        yield result
                    return
            except UnavailableError as fault:
                await patience.after(fault)

    # The grid

    async def changes(self, *, rest_s: float = 0.1) -> AsyncGenerator[GridChange, None]:
        """Yield changes of the grid, at most one in ``rest_s``, for ever.

        The first one, and the first after each loss of the connection, has ``missed`` set: look at everything once.
        """
        patience = self.http.patience()
        while True:
            try:
                async with self.http.open("GET", "/events", params={"rest_s": repr(rest_s)}) as answer:
                    async for line in _lines(answer.content.iter_any()):
                        patience.restart()
                        if line.startswith(b"data:") and line != b"data: {}":  # which only says: still here
                            yield parse(GridChange, line.removeprefix(b"data:"))
                fault = UnavailableError(_hung_up(self.master), may_have_acted=False)
            except UnavailableError as away:
                fault = away
            await patience.after(fault)

    async def explain(self, subject: TaskId | int | str) -> Explanation:
        """Explain the state of a job, a task or a worker (by its name)."""
        place = f"/workers/{quote(subject, safe='')}" if isinstance(subject, str) else _at(subject)
        return await self._get(Explanation, f"{place}/explain")

    async def failures(self, user: str | None = None, since: float = 0.0) -> FailureReport:
        """Return the failures of the latest jobs that have any, grouped by reason."""
        query = {"since": repr(since), **({} if user is None else {"user": user})}
        return await self._get(FailureReport, "/failures", query)

    def lines(self, job: int, text: str) -> AsyncGenerator[FoundLine, None]:
        """Yield the lines that contain a text, of all tasks of a job."""
        return self._pages(Page[FoundLine], f"/jobs/{job}/lines", more={"text": text})

    async def forecasts(self) -> ForecastReport:
        """Return how accurate past ETAs were."""
        return await self._get(ForecastReport, "/forecasts")

    async def plans(self) -> WaitingPlans:
        """Return the planned starts of the gangs that wait, the earliest first."""
        return await self._get(WaitingPlans, "/plans")

    async def worker(self, name: str) -> WorkerView:
        """Return one worker."""
        return await self._get(WorkerView, f"/workers/{quote(name, safe='')}")

    def workers(self, *, last_hour: bool = False) -> AsyncIterator[WorkerView]:
        """Yield the workers. ``last_hour``: with the work that each did in the last hour."""
        return self._pages(Page[WorkerView], "/workers", more={"last_hour": "true"} if last_hour else None)

    def programs(
        self,
        user: str | None = None,
        name: str | None = None,
        *,
        page_size: int = LARGEST_PAGE,
    ) -> AsyncIterator[ProgramView]:
        """Yield what the grid knows of programs, the latest used first."""
        chosen = {"user": user, "name": name}
        more = {key: value for key, value in chosen.items() if value is not None}
        return self._pages(Page[ProgramView], "/programs", page_size, more=more)

    async def drain(self, worker: str, reason: str = "", *, now: bool = False) -> WorkerView:
        """Start nothing more on a worker; running tasks finish, or are ended ``now`` and queued again.

        ``reason``: one line, which users see.
        """
        query = {**({"reason": reason} if reason else {}), **({"now": "true"} if now else {})}
        return await self.http.ask(WorkerView, "POST", f"/workers/{quote(worker, safe='')}/drain", params=query)

    async def undrain(self, worker: str) -> WorkerView:
        """Let a drained worker run tasks again."""
        return await self.http.ask(WorkerView, "POST", f"/workers/{quote(worker, safe='')}/undrain")

    async def wake(self, worker: str, *, test: bool = False) -> WorkerView:
        """Wake the computer of a worker that is asleep; it comes later, or not at all.

        ``test``: suspend an idle computer, and wake it.
        """
        query = {"test": "true"} if test else {}
        return await self.http.ask(WorkerView, "POST", f"/workers/{quote(worker, safe='')}/wake", params=query)

    async def forget(self, worker: str) -> WorkerView:
        """Forget a worker that is away, with its token; return it as it was."""
        return await self.http.ask(WorkerView, "POST", f"/workers/{quote(worker, safe='')}/forget")

    async def network(self) -> NetworkView:
        """Return the known network and its current flows."""
        return await self._get(NetworkView, "/network")

    async def measure_network(self) -> MeasurementView:
        """Have an idle grid measured by probes between workers."""
        return await self.http.ask(MeasurementView, "POST", "/network/measure")

    async def passing(self) -> PassingReport:
        """Audit the order guarantee: count the jobs that completed before a job that they must not pass."""
        return await self._get(PassingReport, "/passing")

    async def history(
        self, by: HistorySubject = "user", *, since: float = 0.0, limit: int = 100, sort: HistorySort = "cpu"
    ) -> HistoryReport:
        """Return the processor time and energy used since then, by subject: most CPU time or most energy first."""
        query = {"by": by, "since": repr(since), "limit": str(limit), "sort": sort}
        return await self._get(HistoryReport, "/history", query)

    def past_jobs(self, *, since: float = 0.0) -> AsyncIterator[PastJob]:
        """Yield the jobs that ended since then, by number, with their sizes and their use of the grid."""
        return self._pages(Page[PastJob], "/history/jobs", more={"since": repr(since)})

    def stays(self, *, since: float = 0.0) -> AsyncIterator[WorkerStay]:
        """Yield when workers were connected, one worker after the other."""
        return self._pages(Page[WorkerStay], "/history/stays", 100, more={"since": repr(since)})

    async def parallel(self, *, since: float = 0.0) -> ParallelReport:
        """Return the utilisation of the grid, and the waits of jobs on several nodes."""
        return await self._get(ParallelReport, "/history/parallel", {"since": repr(since)})

    async def demand(self) -> DemandView:
        """Return what could start now if there were slots for it, for each different requirement."""
        return await self._get(DemandView, "/demand")

    async def shares(self) -> SharesView:
        """Return what each user has used of the grid, against their share."""
        return await self._get(SharesView, "/shares")

    async def set_share(self, user: str, share: float) -> SharesView:
        """Give a user another share of the grid: all begin with 1."""
        return await self.http.ask(SharesView, "PUT", f"/shares/{quote(user, safe='')}", json={"share": share})

    async def limits(self) -> LimitsView:
        """Return the limits, with the units that each user holds."""
        return await self._get(LimitsView, "/limits")

    async def set_limit(
        self, name: str, units: int, user: str | None = None, *, per_user: bool = False
    ) -> LimitsView:
        """Set a limit: for the whole grid, for one user, or for each user without one of their own."""
        wish = {"units": units, "user": user, "per_user": per_user}
        return await self.http.ask(LimitsView, "PUT", f"/limits/{quote(name, safe='')}", json=wish)

    async def remove_limit(self, name: str, user: str | None = None, *, per_user: bool = False) -> LimitsView:
        """Remove the limit for the whole grid, for one user, or for each user."""
        query = {"user": user} if user else {"per_user": "true"} if per_user else None
        return await self.http.ask(LimitsView, "DELETE", f"/limits/{quote(name, safe='')}", params=query)

    async def limit_job(self, job: int, max_running: int | None) -> JobView:
        """Change how many attempts of a job may run at once; None: unlimited."""
        return await self.http.ask(JobView, "PATCH", f"/jobs/{job}", json={"max_running": max_running})

    async def prune(self, older_than_s: float | None = None, *, delete: bool = False) -> PruneReport:
        """List unused files; with ``delete``, remove them.

        ``older_than_s``: also list the files of jobs that ended at least this many seconds ago.
        """
        wish = {"older_than_s": older_than_s, "delete": delete}
        return await self.http.ask(PruneReport, "POST", "/prune", json=wish, timeout=NO_HURRY)

    # Access

    async def whoami(self) -> Whoami:
        """Return the name and role that the token stands for."""
        return await self._get(Whoami, "/whoami")

    def tokens(self) -> AsyncIterator[TokenView]:
        """Yield the tokens, without their secrets."""
        return self._pages(Page[TokenView], "/tokens")

    def audit_log(self, who: str | None, since: float, page_size: int = 100) -> AsyncIterator[AuditEntry]:
        """Yield what was changed by requests, the latest first."""
        more = {"since": str(since), **({} if who is None else {"who": who})}
        return self._pages(Page[AuditEntry], "/audit-log", page_size, more=more)

    async def create_token(
        self, name: str, role: Role, expires_s: float | None = None, offers: Offers | None = None
    ) -> TokenCreated:
        """Create a token; the answer has its secret.

        ``offers``: units of resources that its worker may offer at most; None: any.
        """
        wish = TokenRequest(name=name, role=role, expires_s=expires_s, offers=offers).model_dump(exclude_none=True)
        return await self.http.ask(TokenCreated, "POST", "/tokens", repeat=False, json=wish)

    async def webhook_secret(self) -> str:
        """Return the secret that signs the webhooks about your jobs."""
        return (await self._get(WebhookSecret, "/webhook-secret")).secret

    async def revoke_token(self, token: str) -> TokenView:
        """Revoke a token."""
        return await self.http.ask(TokenView, "POST", f"/tokens/{quote(token, safe='')}/revoke")

    async def encryption(self) -> EncryptionView:
        """Return how the master is encrypted."""
        return await self._get(EncryptionView, "/tls")

    async def create_join_token(self, uses: int, expires_s: float, offers: Offers | None = None) -> JoinTokenCreated:
        """Create a join token for ``uses`` computers, valid for ``expires_s`` seconds.

        ``offers``: units of resources that each of them may offer at most; None: any.
        """
        wish = JoinTokenRequest(uses=uses, expires_s=expires_s, offers=offers).model_dump(exclude_none=True)
        return await self.http.ask(JoinTokenCreated, "POST", "/join-tokens", repeat=False, json=wish)

    def join_tokens(self) -> AsyncIterator[JoinTokenView]:
        """Yield the join tokens, without their secrets."""
        return self._pages(Page[JoinTokenView], "/join-tokens")

    async def revoke_join_token(self, token: str) -> JoinTokenView:
        """Revoke a join token."""
        return await self.http.ask(JoinTokenView, "POST", f"/join-tokens/{quote(token, safe='')}/revoke")

    async def join(self, wish: JoinRequest) -> TokenView:
        """Join a worker to the grid. The same request is granted once, however often it is repeated."""
        return await self.http.ask(TokenView, "POST", "/join", json=wish.model_dump())

    async def leave(self) -> TokenView:
        """Revoke the worker's token that this client has; it was got by joining."""
        return await self.http.ask(TokenView, "POST", "/leave")

    async def _get(self, answer: type[Model], path: str, query: dict[str, str] | None = None) -> Model:
        return await self.http.ask(answer, "GET", path, params=query)

    async def _pages(
        self,
        page: type[Page[Item]],
        path: str,
        size: int = LARGEST_PAGE,
        state: str | None = None,
        more: dict[str, str] | None = None,
    ) -> AsyncGenerator[Item, None]:
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
