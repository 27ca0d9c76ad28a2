"""A master on a real port that makes the calls it is given itself, when a test lets it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import cloudpickle
from aiohttp import web

from loopline_shared.job.parameters import RowFile, Table
from loopline_shared.model import Facts, JobState, Order, Output, TaskId, TaskState
from loopline_shared.protocol.chunks import ARGUMENTS, END, RAISED, RETURNED
from loopline_shared.protocol.client_link import (
    Ends,
    Follow,
    JobAccepted,
    Opened,
    Over,
    Refusal,
    Submit,
    TaskEnd,
    decode_from_client,
    encode_to_client,
    key_of,
)
from loopline_shared.rest.address import API_PREFIX
from loopline_shared.rest.bodies import (
    Counts,
    Explanation,
    GridChange,
    JobDetail,
    Page,
    Period,
    Problem,
    Reason,
    Submission,
    TaskResult,
    TaskView,
    WorkerView,
)
from loopline_shared.spec import JobSpec
from loopline_worker.functions.program import call_loop


@dataclass
class SmallJob:
    spec: JobSpec
    calls: list[str]
    results: list[TaskResult] = field(default_factory=list)
    state: JobState = JobState.RUNNING


class SmallGrid:
    """``holds``: jobs wait until ``finish`` is called."""

    def __init__(self) -> None:
        self.url = ""
        self.holds = False
        self.is_away = False
        self.spoils = False  # it sends wrong bytes of files
        self.output: dict[str, bytes] = {}  # of every task, by the name of the stream
        self.reasons: list[Reason] = []  # why its jobs wait
        self.pythons: list[str | None] = ["3.11"]
        self.jobs: dict[int, SmallJob] = {}
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.running: set[TaskId] = set()  # tasks that a worker is said to have a slot for
        self.prefetched: set[TaskId] = set()
        self.makes: int | None = None  # number of calls that it makes of each task
        self.makes_tasks: int | None = None
        self.call_s = 0.25  # that each call is said to have taken
        self.is_slow = threading.Event()  # submissions wait until it is cleared
        self.hangs_up_at_submission = False  # once, after it is carried out
        self.is_busy = False  # once
        self.answers_late = False  # patient submissions: with their results
        self.patient: list[bool] = []  # whether each submission was
        self.closes_with: int | None = None  # close code in answer to any submission
        self._keys: dict[str, int] = {}
        self.links: set[web.WebSocketResponse] = set()
        self._news = asyncio.Condition()

    def app(self) -> web.Application:
        app = web.Application(client_max_size=2**26, middlewares=[self._note])
        at = API_PREFIX
        app.add_routes(
            [
                web.get(f"{at}/workers", self._workers), web.post(f"{at}/jobs", self._submit),
                web.get(f"{at}/jobs/{{job}}", self._job), web.post(f"{at}/jobs/{{job}}/cancel", self._cancel),
                web.get(f"{at}/jobs/{{job}}/results", self._results), web.get(f"{at}/events", self._events),
                web.get(f"{at}/calls", self._calls), web.get(f"{at}/jobs/{{job}}/tasks", self._tasks),
                web.get(f"{at}/jobs/{{job}}/explain", self._explain),
                web.get(f"{at}/jobs/{{job}}/tasks/{{task}}/{{stream}}", self._output),
                web.get(f"{at}/files/{{sha}}", self._file), web.put(f"{at}/files/{{sha}}", self._put),
            ]
        )  # fmt: skip
        return app

    async def finish(self, number: int) -> None:
        """Make what is left of a job's calls."""
        job = self.jobs[number]
        last = self.makes_tasks or len(job.calls)
        for task in range(len(job.results) + 1, last + 1):
            job.results.append(self._make(number, task))
        if last < len(job.calls):
            await self._tell()
            return
        job.state = JobState.FAILED if any(r.state is TaskState.FAILED for r in job.results) else JobState.SUCCEEDED
        await self._tell()

    async def leave(self) -> None:
        self.is_away = True
        await self.hang_up()

    async def hang_up(self) -> None:
        for link in list(self.links):  # a client that is quick has a new one already
            await link.close()
        await self._tell()

    async def _tell(self) -> None:
        async with self._news:
            self._news.notify_all()

    def _make(self, number: int, task: int) -> TaskResult:
        job = self.jobs[number]
        assert job.spec.function
        call = job.calls[task - 1]
        arguments = self.files[call[7:]] if call.startswith("sha256:") else base64.b64decode(call)
        function = call_loop.SubmittedFunction(self.files[job.spec.function.file[7:]])
        reason, state = "", TaskState.SUCCEEDED
        if job.spec.function.chunk:
            calls = _calls_in(arguments)
            made = [_call(function, lambda one=one: (pickle.loads(one), {})) for one in calls][: self.makes]
            content = b"".join(END.pack(how, self.call_s, len(end)) + end for how, end in made)
            if self.makes:
                state, reason = TaskState.FAILED, "it took too long"
        else:
            how, content = _call(function, lambda: pickle.loads(arguments))
            state = TaskState.FAILED if how else TaskState.SUCCEEDED
        output = Output(len(content), data=content)
        if len(content) > 4096:
            output = Output(len(content), sha256=self._keep(content))
        return TaskResult(
            id=TaskId(number, task), number=task, state=state, failures=0, started_at=1.0, finished_at=float(task),
            worker="w", exit_code=0, reason=reason, parameters={}, stdout="", stdout_cut=False, value=output,
            cursor=f"{task}.0@{task}",
        )  # fmt: skip

    def _keep(self, content: bytes) -> str:
        sha256 = hashlib.sha256(content).hexdigest()
        self.files[sha256] = content
        return sha256

    @web.middleware
    async def _note(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.asked.append(f"{request.method} {request.path.removeprefix(API_PREFIX)}")
        if self.is_away:
            return _body(Problem(title="No", status=503, detail="it is away", code="away"), 503)
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _submit(self, request: web.Request) -> web.Response:
        return _body(await self._take(JobSpec.model_validate_json(await request.read())), 201)

    async def _take(self, spec: JobSpec) -> Submission:
        match spec.parameters:
            case RowFile():
                rows = [json.loads(line) for line in self.files[spec.parameters.file[7:]].splitlines()]
            case Table():
                rows = spec.parameters.rows
            case _:
                raise AssertionError(spec)
        number = len(self.jobs) + 1
        self.jobs[number] = SmallJob(spec, [str(row["call"]) for row in rows])
        if not self.holds:
            await self.finish(number)
        return Submission(id=number, task_count=len(rows))

    async def _calls(self, request: web.Request) -> web.WebSocketResponse:
        """The link of an executor."""
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.links.add(socket)
        name = f"link{len(self.links)}"
        await socket.send_bytes(encode_to_client(Opened(name)))
        followers = set()
        async for frame in socket:
            match decode_from_client(frame.data):
                case Submit(number, spec, again, is_patient):
                    self.asked.append("submit")
                    self.patient.append(is_patient)
                    if self.closes_with:
                        await socket.close(code=self.closes_with)
                        break
                    while self.is_slow.is_set():
                        await asyncio.sleep(0.001)
                    if refusal := self._refusal(number, spec):
                        await socket.send_bytes(encode_to_client(refusal))
                        continue
                    key = again or key_of(name, number)
                    job = self._keys.get(key) or (await self._take(spec)).id
                    self._keys[key] = job
                    if self.hangs_up_at_submission:
                        self.hangs_up_at_submission = False
                        break
                    late = number if is_patient and self.answers_late else 0
                    if not late:
                        await socket.send_bytes(encode_to_client(JobAccepted(number, job)))
                    followers.add(asyncio.create_task(self._feed(socket, job, 0, late)))
                case Follow(job, cursor):
                    self.asked.append(f"follow {job} {cursor}")
                    begin = int(cursor.partition("@")[2] or 0)
                    followers.add(asyncio.create_task(self._feed(socket, job, begin)))
        for follower in followers:
            follower.cancel()
        return socket

    def _refusal(self, number: int, spec: JobSpec) -> Refusal | None:
        assert spec.function
        if self.is_busy:
            self.is_busy = False
            return Refusal(number, 503, "busy", "it is busy")
        if spec.function.file[7:] not in self.files:
            return Refusal(number, 422, "missing_input", "there is no such function")
        return None

    async def _feed(self, socket: web.WebSocketResponse, number: int, begin: int, accepted: int = 0) -> None:
        job = self.jobs[number]
        while True:
            fresh, begin = job.results[begin:], len(job.results)
            if fresh:
                ends = [
                    TaskEnd(r.number, r.state, r.worker, exit_code=r.exit_code, reason=r.reason, value=r.value)
                    for r in fresh
                ]
                await socket.send_bytes(encode_to_client(Ends(number, fresh[-1].cursor, ends, accepted=accepted)))
                accepted = 0
            if job.state is not JobState.RUNNING:
                await socket.send_bytes(encode_to_client(Over(number, job.state)))
                return
            async with self._news:
                await self._news.wait()

    async def _cancel(self, request: web.Request) -> web.Response:
        job = self.jobs[int(request.match_info["job"])]
        job.state = JobState.CANCELLED
        await self._tell()
        return await self._job(request)

    async def _job(self, request: web.Request) -> web.Response:
        number = int(request.match_info["job"])
        if number not in self.jobs:
            return _body(Problem(title="No", status=404, detail=f"there is no job {number}", code="not_found"), 404)
        job = self.jobs[number]
        is_over = job.state not in (JobState.QUEUED, JobState.RUNNING)
        known = {name: None for name, info in JobDetail.model_fields.items() if info.is_required()}
        given = {
            "id": number, "name": job.spec.name, "user": "me", "state": job.state, "paused": False, "stalled": False,
            "held": False, "condition": job.state.value, "waited": Period(since=0.0), "order": Order.NONE,
            "task_count": len(job.calls), "tasks": Counts(), "submitted_at": 0.0,
            "finished_at": 1.0 if is_over else None, "max_attempts": 1, "spec": job.spec,
        }  # fmt: skip
        document = JobDetail.model_construct(**{**known, **given}).model_dump(mode="json", warnings=False)
        return web.json_response(
            {name: value for name, value in document.items() if value is not None or name in known}
        )

    async def _explain(self, request: web.Request) -> web.Response:
        return _body(
            Explanation(subject=request.match_info["job"], state="queued", sentence="", reasons=self.reasons)
        )

    async def _output(self, request: web.Request) -> web.Response:
        return web.Response(body=self.output.get(request.match_info["stream"], b""))

    async def _tasks(self, request: web.Request) -> web.Response:
        assert request.query["state"] == TaskState.RUNNING
        views = [
            TaskView(
                id=task, number=task.task, state=TaskState.RUNNING, failures=0, started_at=1.0, finished_at=None,
                worker="w", exit_code=None, reason="", prefetched=task in self.prefetched,
            )
            for task in sorted(self.running | self.prefetched) if task.job == int(request.match_info["job"])
        ]  # fmt: skip
        return _body(Page[TaskView](items=views))

    async def _results(self, request: web.Request) -> web.StreamResponse:
        job = self.jobs[int(request.match_info["job"])]
        begin = int(request.query.get("cursor", "@0").partition("@")[2])
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            fresh, begin = job.results[begin:], len(job.results)
            for result in fresh:
                await response.write(result.model_dump_json().encode() + b"\n")
            if "follow" in request.query or job.state is not JobState.RUNNING:
                return response
            async with self._news:
                await self._news.wait()

    async def _events(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            while not self.is_away:
                await response.write(b"data: " + GridChange(missed=True).model_dump_json().encode() + b"\n\n")
                async with self._news:
                    await self._news.wait()
        return response

    async def _workers(self, request: web.Request) -> web.Response:
        views = [
            WorkerView(
                name=f"w{number}", connected=True, draining=False, load=None, slots=2, slots_used=0, running=[],
                facts=Facts(
                    "linux", "x86_64", "3.11.7", "0", "cpu", cpus=2, memory_bytes=2**33, slots=2, functions=python
                ),
                joined_at=0.0, reported_at=None, lease_until=0.0,
            )
            for number, python in enumerate(self.pythons)
        ]  # fmt: skip
        return _body(Page[WorkerView](items=views))

    async def _file(self, request: web.Request) -> web.Response:
        content = self.files.get(request.match_info["sha"])
        if content is None:
            return _body(Problem(title="No", status=404, detail="no such file", code="not_found"), 404)
        return web.Response(body=content[::-1] if self.spoils else content)

    async def _put(self, request: web.Request) -> web.Response:
        assert self._keep(await request.read()) == request.match_info["sha"]
        return web.Response(status=204)


def _call(function: call_loop.SubmittedFunction, arguments: Callable[[], Any]) -> tuple[int, bytes]:
    try:
        taken = function.for_call()
        args, kwargs = arguments()
        return RETURNED, cloudpickle.dumps(taken(*args, **kwargs))
    except Exception as error:
        return RAISED, failure_of(error)


def failure_of(error: BaseException) -> bytes:
    """Return what a worker's interpreter writes of a failed call."""
    of_error, _ = pickle.loads(call_loop._failure(error))
    return pickle.dumps((of_error, "Traceback: there"))


def _calls_in(arguments: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(arguments):
        (length,) = ARGUMENTS.unpack_from(arguments, at)
        at += ARGUMENTS.size + length
        yield arguments[at - length : at]


def _body(body: Any, status: int = 200) -> web.Response:
    return web.Response(body=body.model_dump_json().encode(), status=status, content_type="application/json")


@contextlib.contextmanager
def serving() -> Iterator[tuple[SmallGrid, asyncio.AbstractEventLoop]]:
    loop, ready, grid = asyncio.new_event_loop(), threading.Event(), SmallGrid()

    async def serve(stop: asyncio.Event) -> None:
        runner = web.AppRunner(grid.app(), shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        grid.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        ready.set()
        await stop.wait()
        await runner.cleanup()

    stop, places = asyncio.Event(), sys.path[:]
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(stop),))
    thread.start()
    ready.wait()
    yield grid, loop
    loop.call_soon_threadsafe(stop.set)
    thread.join()
    loop.close()
    sys.path[:] = places  # calls made in this process leave archives of modules there, a package `tests` among them
