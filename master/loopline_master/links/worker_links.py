"""The open links of workers: frames become events on the way in, Assigns become frames on the way out.

A link begins with Hello; Welcome is sent once the worker's joining is on disk. An error on a link closes that link
and nothing else: the worker reconnects, and its first Report brings the master up to date.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import count

from aiohttp import WSCloseCode, web

from loopline_master.admission.busy_time import BusyTime
from loopline_master.certificates.worker_keys import Bearer, WorkerKeys
from loopline_master.core.events import WorkerJoined, WorkerLeft, WorkerReported
from loopline_master.core.kernel.effects import Declined
from loopline_master.engine import Engine
from loopline_master.files.blobs import Blobs
from loopline_master.links.connection import Complete, WorkerLink
from loopline_master.peers.exchange import Exchange
from loopline_master.settings import MasterSettings
from loopline_master.task_progress import TaskProgress
from loopline_master.timings import CLOSE_WITHIN_S, TWIN_SHOWN_S
from loopline_shared.errors import LooplineError, ProtocolError
from loopline_shared.model import AttemptId, Facts, Outcome, Output, Resource, Result, Stream
from loopline_shared.protocol import saved_state
from loopline_shared.protocol.link_session import ANSWER
from loopline_shared.protocol.transfers import FileSource, FlowMeasured
from loopline_shared.protocol.worker_link import (
    MAX_FRAME_BYTES,
    Assign,
    Hello,
    Refused,
    Report,
    Welcome,
    Wrote,
)

log = logging.getLogger(__name__)
_SAME_IDENTITY = "same_identity"
_TAKEN = (
    "another agent works under this name, with a key or a data folder of its own",
    "give this one another --name; if the other has stopped, it is let in as soon as its link is known to be dead",
)
_MOST_REFUSED = 1000


class WorkerLinks:
    """The open link of each worker. The engine sends through it and never waits for it."""

    def __init__(
        self,
        engine: Engine,
        settings: MasterSettings,
        complete: Complete,
        blobs: Blobs,
        exchange: Exchange,
        keys: WorkerKeys,
        busy_time: BusyTime,
        progress: TaskProgress,
        life: str = "",
    ) -> None:
        """``life``: of the database (store/past/lives.py)."""
        self._engine = engine
        self._busy_time = busy_time
        self._progress = progress
        self._exchange = exchange
        self._complete = complete
        self._blobs = blobs
        self._welcome = Welcome(settings.scheduler.report_every_s, settings.scheduler.lease_s, life=life)
        self._keys = keys
        self._max_frames = settings.limits.max_frames
        self._sessions = count(1)
        self._open: dict[str, WorkerLink] = {}
        self._twins: dict[str, tuple[str, float]] = {}
        self._refused: dict[str, tuple[str, float]] = {}  # the latest last
        self._left_out: dict[str, dict[str, int]] = {}

    def twin(self, worker: str) -> str:
        """Return the address of another computer with its identity, which was refused lately; else empty."""
        remote, at = self._twins.get(worker, ("", 0.0))
        return remote if time.monotonic() - at < TWIN_SHOWN_S else ""

    def refused(self, worker: str) -> str:
        """Return why a link of this worker was refused lately, as for its version; else empty."""
        why, at = self._refused.get(worker, ("", 0.0))
        return why if time.monotonic() - at < TWIN_SHOWN_S else ""

    def left_out(self, worker: str) -> dict[str, int]:
        """Return the units, by resource, that a connected worker offers and its token does not allow."""
        return self._left_out.get(worker, {})

    def deliver(self, worker: str, assign: Assign) -> None:
        """Queue the frame if the worker is connected; otherwise drop it, and the worker's next Report reconciles."""
        if link := self._open.get(worker):
            link.send(assign if assign.peers is None else self._exchange.with_orders(worker, assign))

    async def read(self, worker: str, attempt: AttemptId, stream: Stream, offset: int) -> Wrote | None:
        """Return what an attempt has written from this byte on, once there is some; None if its worker is not
        connected.

        Raises LooplineError if too many readers are waiting.
        """
        link = self._open.get(worker)
        return await link.read(attempt, stream, offset) if link else None

    async def probe(self, worker: str, source: FileSource | None, seconds: float) -> FlowMeasured | None:
        """Have a worker receive from another one, to measure what is between them; None if it is not connected.

        Without a source it receives from the master. For no time its probe under way ends, and there is no answer.
        """
        link = self._open.get(worker)
        return await link.probe(source, seconds) if link else None

    def close(self, worker: str, session: int) -> None:
        """Close the worker's link if it is still the one of this session."""
        link = self._open.get(worker)
        if link is not None and link.session == session:
            link.close("another link of this worker took over, or its lease ended")

    def close_all(self) -> None:
        """Close all links: the master is stopping."""
        for link in self._open.values():
            link.close("the master is stopping", WSCloseCode.GOING_AWAY)

    async def serve(self, request: web.Request, bearer: Bearer) -> web.WebSocketResponse:
        """Serve one connection until it ends."""
        sender = bearer.token or request.remote or ""
        await self._busy_time.rest(sender)
        socket = web.WebSocketResponse(
            compress=False, decode_text=False, max_msg_size=MAX_FRAME_BYTES, timeout=CLOSE_WITHIN_S
        )
        await socket.prepare(request)
        charge = partial(self._busy_time.charge, sender)
        link = WorkerLink(
            request, socket, next(self._sessions), self._max_frames, complete=self._complete, charge=charge
        )
        try:
            await self._serve_worker(link, bearer)
        except ProtocolError as error:
            log.warning("link from %s: %s", request.remote, error)
            link.close(str(error), WSCloseCode.PROTOCOL_ERROR)
        except LooplineError as error:  # a bucket does not answer: the Report is not acknowledged, and comes again
            log.warning("link from %s: %s", request.remote, error)
            link.close(error.message, WSCloseCode.TRY_AGAIN_LATER)
        finally:
            await link.end()
        return socket

    async def _serve_worker(self, link: WorkerLink, bearer: Bearer) -> None:
        hello = await link.hello()
        if hello is None:
            return
        admitted = link.refusal() or await self._keys.admit(hello, bearer, link.shown)
        if isinstance(admitted, Refused):
            is_its_own = await self._keys.may_claim(hello.worker, bearer)
            self._note_refused(hello.worker if is_its_own else bearer.worker, link, admitted)
            link.refuse(admitted)
        elif admitted and not link.shown.key:
            link.send(replace(self._welcome, certificate=admitted))
            link.close("connect again with your certificate")
        else:
            facts, left_out = allowed_part(hello.facts, bearer.offers)
            hello = replace(hello, facts=facts)
            if refused := await self._join(hello, link):
                link.refuse(refused)
                return
            peers = self._exchange.terms(hello, has_certificate=link.has_certificate)
            link.send(replace(self._welcome, peers=peers, certificate=admitted))
            await self._hear(link, hello, left_out)

    async def _hear(self, link: WorkerLink, hello: Hello, left_out: dict[str, int]) -> None:
        """Take in the Reports of a worker until its link ends."""
        self._open[hello.worker], self._left_out[hello.worker] = link, left_out
        log.info("worker %s joined from %s", hello.worker, link.remote)
        for name, units in left_out.items():
            log.warning("worker %s offers %d %s more than its token allows", hello.worker, units, name)
        try:
            while report := await link.next_report():
                self._refuse_other_life(report)
                self._progress.note(hello.worker, report)
                if report.peers is not None:
                    self._exchange.heard(
                        hello, link.session, link.remote, report, has_certificate=link.has_certificate
                    )
                if report.results:
                    report = await with_files(self._blobs, report)
                if report.checkpoints:
                    report = await whole_checkpoints(self._blobs, report)
                event = WorkerReported(hello.worker, link.session, report)
                if link.may_answer and self._engine.keep_back(event):
                    link.send(Assign(ANSWER, report.seq))
                else:
                    await self._engine.post(event)
        finally:
            self._exchange.left(hello.worker, link.session)
            if self._open.get(hello.worker) is link:
                self._progress.left(hello.worker)
            self._engine.post(WorkerLeft(hello.worker, link.session))
            if self._open.get(hello.worker) is link:
                del self._open[hello.worker], self._left_out[hello.worker]
            log.info("worker %s left", hello.worker)

    def _note_refused(self, worker: str | None, link: WorkerLink, refused: Refused) -> None:
        """Log a refusal, and keep it for the worker whose token was shown; None: no token, or a shared one."""
        name = worker or f"link from {link.remote}"  # which is no name of a worker
        if self.refused(name) != refused.message:
            log.warning("link from %s refused: %s; %s", link.remote, refused.message, refused.hint)
        self._refused.pop(name, None)
        self._refused[name] = refused.message, time.monotonic()
        if len(self._refused) > _MOST_REFUSED:
            del self._refused[next(iter(self._refused))]

    def _refuse_other_life(self, report: Report) -> None:
        """Raises ProtocolError for attempts of another life. A new worker names none."""
        if report.life and report.life != self._welcome.life:
            raise ProtocolError(f"a report of what life {report.life} of the database has given")

    async def _join(self, hello: Hello, link: WorkerLink) -> Refused | None:
        link.instance = hello.instance
        if (present := self._open.get(hello.worker)) and not link.may_take_over(present):
            return self._refuse_twin(hello, link, Refused(_SAME_IDENTITY, *_TAKEN))
        reply = await self._engine.post(WorkerJoined(hello.worker, link.session, hello.boot, hello.facts))
        if not isinstance(reply, Declined):
            return None
        refused = Refused(reply.code, reply.message, reply.hint)
        return self._refuse_twin(hello, link, refused) if reply.code == _SAME_IDENTITY else refused

    def _refuse_twin(self, hello: Hello, link: WorkerLink, refused: Refused) -> Refused:
        if not self.twin(hello.worker):
            log.warning("a second computer at %s has the identity of worker %s: refused", link.remote, hello.worker)
        self._twins[hello.worker] = str(link.remote), time.monotonic()
        return refused


async def with_files(blobs: Blobs, report: Report) -> Report:
    """Return the report with results that name only files on this disk, retained until their rows name them.

    Workers upload files first, and send results after them. A file may still be gone by then: the link may have been
    down for longer than files without a name are retained. A success without its files could never be repaired. So an
    attempt whose outputs or value are gone counts as preempted, and its task runs again; a missing stdout or stderr
    is marked as cut. Reports that name no files cost nothing.
    """
    names = {name for result in report.results for name in _names(result)}
    if not names:
        return report
    missing = await asyncio.to_thread(lambda: {name for name in names if blobs.retain(name) is None})
    if not missing:
        return report
    return replace(report, results=tuple(_without(result, missing) for result in report.results))


def _names(result: Result) -> Iterator[str]:
    for output in (result.stdout, result.stderr, result.value):
        if output is not None and output.sha256 is not None:
            yield output.sha256
    for file in result.outputs:
        yield file.sha256


def _without(result: Result, missing: set[str]) -> Result:
    result = replace(result, stdout=_cut(result.stdout, missing), stderr=_cut(result.stderr, missing))
    if result.outcome is Outcome.FAILED:  # its files are a help, and no result
        result = replace(result, outputs=tuple(file for file in result.outputs if file.sha256 not in missing))
    gone = next((file.path for file in result.outputs if file.sha256 in missing), "")
    if not gone and (result.value is None or result.value.sha256 not in missing):
        return result
    reason = f"the master does not have {f'its output {gone}' if gone else 'its value'} any more"
    log.warning("the result of attempt %s is not accepted: %s", result.attempt, reason)
    is_over = result.outcome in (Outcome.SUCCEEDED, Outcome.FAILED)
    outcome = Outcome.GIVEN_BACK if is_over else result.outcome
    return replace(result, outcome=outcome, reason=reason[:500], outputs=(), value=None)


def _cut(output: Output, missing: set[str]) -> Output:
    return Output(output.size_bytes, cut=True) if output.sha256 in missing else output


def allowed_part(facts: Facts, most: Mapping[str, int] | None) -> tuple[Facts, dict[str, int]]:
    """Return the facts with at most these units of each resource, and the units that were left out, by name.

    ``most`` None: all are allowed. Of GPUs the first ones stay.
    """
    if most is None or not facts.resources:
        return facts, {}
    allowed = tuple(_within(facts.resources, most))
    if allowed == facts.resources:
        return facts, {}
    left_out = Counter({one.name: one.units for one in facts.resources})
    left_out.subtract({one.name: one.units for one in allowed})
    return replace(facts, resources=allowed), dict(+left_out)


def _within(resources: tuple[Resource, ...], most: Mapping[str, int]) -> Iterator[Resource]:
    for resource in resources:
        units = min(resource.units, most.get(resource.name, 0))
        if units:
            yield replace(resource, units=units, gpus=resource.gpus[:units])


async def whole_checkpoints(blobs: Blobs, report: Report) -> Report:
    """Return the report with those checkpoints alone whose manifest and pieces are here, and are retained.

    Workers upload the files first. One that is not whole is left out, and the worker's next one takes its place.
    """
    told = report.checkpoints
    taken = told.taken if told else ()
    whole = await asyncio.to_thread(lambda: [one for one in taken if _is_whole(blobs, one.manifest)])
    for one in taken:
        if one not in whole:
            log.warning("a checkpoint of attempt %s is not kept: its files are not here", one.attempt)
    if told is None or len(whole) == len(taken):
        return report
    return replace(report, checkpoints=replace(told, taken=tuple(whole)))


def _is_whole(blobs: Blobs, manifest: str) -> bool:
    size_bytes, path = blobs.retain(manifest), blobs.find(manifest)
    if size_bytes is None or path is None or size_bytes > saved_state.MAX_MANIFEST_BYTES:
        return False
    try:
        pieces = saved_state.decode(path.read_bytes()).pieces()
    except (OSError, ValueError):
        return False
    return all(blobs.retain(piece) is not None for piece in pieces)
