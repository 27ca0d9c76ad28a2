"""The agent: the interpreter of the worker's machine (core/machine.py), which decides everything.

What happens here is posted as an event. A turn drains the events: the machine takes a step, the step's entry goes to
the journal in one write, then each instruction is carried out; at the end a Report leaves if one is due.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import psutil

from loopline_shared.model import Quarantine, Resource, Result
from loopline_shared.protocol.link_session import WorkerSession, with_results
from loopline_shared.protocol.transfers import FlowMeasured, MeasureFlow
from loopline_shared.protocol.worker_link import MAX_WROTE_BYTES, Assign, Read, Run, Welcome, Wrote
from loopline_worker.core import instructions as do
from loopline_worker.core.events import (
    Assigned,
    AttemptEnded,
    Connected,
    Event,
    FreezeCompleted,
    LinkSilent,
    Reported,
    Restored,
    Stopping,
    Welcomed,
    WriteFailed,
)
from loopline_worker.core.instructions import Entry, Instruction, Instructions, Urgency
from loopline_worker.core.machine_wing import DraftReport
from loopline_worker.host import own_code
from loopline_worker.host.boot_clock import boot_s, steady
from loopline_worker.host.load import SAMPLE_EVERY_S
from loopline_worker.link.http_client import HttpClient
from loopline_worker.link.link import Link
from loopline_worker.owner.owner_access import OwnerAccess
from loopline_worker.parts import Parts, assemble
from loopline_worker.settings import WorkerSettings
from loopline_worker.state.data_directory import DataDirectory
from loopline_worker.task_group import TaskGroup
from loopline_worker.timings import INTERPRETER_PAUSE_AFTER_S, STOP_GRACE_S

if TYPE_CHECKING:
    from loopline_worker.attempts.agent_wing import AgentWing

log = logging.getLogger(__name__)

_STOP_WITHIN_S = STOP_GRACE_S + 5.0
_DRAIN_WITHIN_S = 2.0
_FIRST_SAMPLE_S = 0.1
_CHANGED = "its files were changed on disk, as by an upgrade"
_READ_WITHIN_S = 15.0
_LOOK_AT_CERTIFICATE_EVERY_S = 86_400.0


async def run(settings: WorkerSettings, data_directory: DataDirectory, on_start: Callable[[Agent], None]) -> int:
    """Serve the master until the agent is stopped; return the exit code.

    Raises LooplineError if its first connection is refused.
    """
    async with HttpClient(settings) as http_client, TaskGroup() as task_group:
        agent = Agent(settings, data_directory, http_client, task_group)
        on_start(agent)
        await agent.serve()
        return agent.exit_code


class Agent:
    """The agent of one worker. Tasks keep running while the master is away; their results wait in the journal."""

    def __init__(
        self, settings: WorkerSettings, data_directory: DataDirectory, http_client: HttpClient, task_group: TaskGroup
    ) -> None:
        self.name = settings.name or data_directory.worker_name()
        self.parts: Parts = assemble(self.name, settings, data_directory, http_client, task_group, self.post)
        self._latest = Instructions()  # of the last step
        self._boot = secrets.token_hex(8)
        self._task_group = task_group
        self._events: list[Event] = []
        self._is_turning = False
        self._ended: list[Result] = []  # of attempts whose end is not logged yet
        self._link = Link(http_client, self)
        for wing in self.parts.wings:
            wing.attach(self)
        self.owner_access = OwnerAccess()
        self._quarantine: Quarantine | None = None  # of the last Assign
        self._is_ready = asyncio.Event()
        self._stopped = asyncio.Event()
        self._heard = asyncio.Event()
        self.exit_code = 0

    def stop(self) -> None:
        """Return running tasks to the queue, report that to the master, and end ``serve``."""
        self._stopped.set()

    async def serve(self) -> None:
        """Work until ``stop``."""
        parts = self.parts
        try:
            self._restore()
            self._task_group.start(self._link.keep())
            self._task_group.start(self._keep_certificate())
            if parts.settings.dedicated:  # elsewhere an idle worker keeps no process beside it
                self._task_group.soon(parts.launcher.prepare)  # while the link connects
            self._sample()
            if not parts.settings.dedicated:
                await asyncio.sleep(_FIRST_SAMPLE_S)
            parts.monitor.start(self._task_group)
            self.turn()
            self._is_ready.set()
            if parts.settings.owner_page:
                await self._open_owner_access()
            self._task_group.start(self._watch())
            await self._stopped.wait()
            await self._leave()
        finally:
            await self.owner_access.close()
            parts.close()

    async def _keep_certificate(self) -> None:
        """Renew the certificate in time by reconnecting, even if the link stays open for long."""
        while True:
            await asyncio.sleep(_LOOK_AT_CERTIFICATE_EVERY_S)
            if self.parts.http_client.trust.identity.is_due:
                self._link.reopen("the certificate is to be renewed")

    # Events in, instructions out.

    def post(self, event: Event) -> None:
        """Post an event to the machine, which takes it at the next turn together with other events.

        The end of the only attempt is handled at once, since no other event could share its Report.
        """
        self._events.append(event)
        if isinstance(event, AttemptEnded) and len(self.parts.machine.attempts) == 1 and not self._is_turning:
            self.turn()
        elif len(self._events) == 1 and not self._is_turning:
            self._task_group.soon(self.turn)

    def turn(self) -> None:
        """Step the machine with the posted events, then send a Report if one is due."""
        urgency, self._is_turning = Urgency.NOT, True
        try:
            while self._events:
                events, self._events = self._events, []
                urgency = max(urgency, self._step(events))
        finally:
            self._is_turning = False
        if urgency is Urgency.NOW:
            self._link.speak_now()
        elif urgency is Urgency.SOON:
            self._link.speak_soon()
        while self._ended:  # not urgent
            self.parts.attempt_log.ended(self._ended.pop(0))

    def _step(self, events: Sequence[Event]) -> Urgency:
        """Decide, commit, obey. Return how soon a Report is due."""
        steps = self.parts.machine.step(events, time.monotonic(), self.parts.runner.room())
        entry = steps.journal
        if entry.results or entry.over or entry.came or entry.began or entry.life:
            self._write(entry)
        for instruction in steps.todo:
            self._obey(instruction)
        self._latest = steps
        return steps.report

    def _write(self, entry: Entry) -> None:
        """Commit a step. If the disk rejects the entry, the machine gets WriteFailed before anything else."""
        parts = self.parts
        if entry.life and parts.journal.life:  # otherwise the results that are being delivered may be of this life
            parts.delivery.stop()
        try:
            parts.journal.write(entry)
        except OSError as error:
            what = "a result" if entry.results else "down what the master sends"
            results = [result.attempt for result in entry.results]
            if not self._events:
                self._task_group.soon(self.turn)
            self._events.insert(0, WriteFailed(results, f"cannot write {what}: {error}"))
        else:
            for result in entry.results:
                parts.spool.keep(result)
        self._ended += entry.results
        if entry.over:
            parts.spool.forget(entry.over)

    def _obey(self, instruction: Instruction) -> None:  # noqa: C901 - a line for each kind of instruction
        parts = self.parts
        match instruction:
            case do.Start(run, slot):
                parts.runner.start(run, slot)
                self.log_start(run)
            case do.Prefetch(run):
                parts.runner.prefetch(run)
            case do.Prepare(run, slot):
                parts.runner.start(run, slot)
            case do.LogStart(run):
                parts.attempt_log.began(run)
            case do.Retract():
                parts.runner.retract()
            case do.Kill(attempt, outcome, reason, gently):
                if reason:
                    log.info("attempt %s is %s: %s", attempt, outcome.replace("_", " "), reason)
                parts.runner.cancel(attempt, outcome, reason, gently=gently)
            case do.Freeze(attempt):
                if parts.runner.freeze(attempt):
                    self.post(FreezeCompleted(attempt))
            case do.Thaw(attempt):
                log.info("attempt %s continues", attempt)
                parts.runner.thaw(attempt)
            case do.Deliver(result):
                parts.delivery.deliver(result)
            case do.RecordPreemption():
                parts.monitor.record(instruction)
                self._tell_wings()
            case do.Log(text, is_warning):
                log.log(logging.WARNING if is_warning else logging.INFO, "%s", text)
            case do.WingInstruction():
                for wing in parts.wings:
                    wing.obey(instruction)

    # Methods for wings (attempts/agent_wing.py), beside ``post``.

    @property
    def is_wanted(self) -> bool:
        """True while tasks or the owner want this computer."""
        return not self.parts.machine.is_idle or self.parts.machine.is_in_use

    @property
    def is_in_use(self) -> bool:
        """True if the owner uses the computer or presence is unknown."""
        return self.parts.machine.is_in_use

    @property
    def idle_s(self) -> float | None:
        """Seconds since the last input; None: unknown."""
        return self.parts.monitor.idleness.idle_s

    @property
    def sleep_locks(self) -> tuple[str, ...]:
        """Locks of logind that are needed so that tasks continue."""
        return self.parts.monitor.sleep_locks

    @property
    def is_linked(self) -> bool:
        """True while the link to the master is open."""
        return self._link.is_open

    @property
    def own_address(self) -> str:
        """Local address of the open link; empty if it is closed."""
        return self._link.own_address

    @property
    def is_ending(self) -> bool:
        """True while processes of ended attempts are left, or their results are not in the journal."""
        attempts = self.parts.machine.attempts
        return bool(attempts.ending or attempts.delivering)

    @property
    def is_stopping(self) -> bool:
        """True once the agent ends, or its computer is about to sleep."""
        return self._stopped.is_set() or bool(self.parts.machine.wing_obstacle)

    @property
    def life(self) -> str:
        """The life of the master's database that all attempts come from; empty: not known."""
        return self.parts.machine.life

    def speak(self) -> None:
        """Send a Report soon."""
        self._link.speak()

    def pause_link(self) -> None:
        """Do not connect again before ``resume_link``. An open link stays open until the master closes it."""
        self._link.pause()

    def resume_link(self) -> None:
        """Connect again at once."""
        self._link.reopen()

    def log_start(self, run: Run) -> None:
        """Note that an attempt has started in slots of its own."""
        self.parts.attempt_log.began(run)
        self.parts.monitor.attend()

    def offer(self, resource: Resource) -> None:
        """Report another state of a resource, in a new session with the master."""
        facts = self.parts.facts
        resources = (resource if one.name == resource.name else one for one in facts.resources)
        self.parts.facts = replace(facts, resources=tuple(resources))
        self._link.reopen("more is known about this computer")

    # Methods for the link.

    async def ready(self, welcome: Welcome) -> None:
        """Wait until the owner's decision and the life of the attempts here are known."""
        await self._is_ready.wait()
        for wing in self.parts.wings:
            wing.connected(welcome)
        self.post(Welcomed(welcome.life))
        self.turn()

    @property
    def has_news(self) -> bool:
        """True if the master does not know all yet."""
        return self._latest.report is not Urgency.NOT

    @property
    def is_busy(self) -> bool:
        """True while attempts wait here for a slot."""
        return self._latest.is_busy

    def new_session(self) -> WorkerSession:
        """Start another session with the master."""
        self.post(Connected())
        self.parts.link_quality.connected()
        return WorkerSession(
            self.name, self._boot, self.parts.facts, instance=self.parts.http_client.trust.identity.instance
        )

    def assigned(self, assign: Assign, frame: bytes) -> None:
        """Handle an Assign at once: the next Report acknowledges it."""
        self.parts.link_quality.answered(assign.seen, assign.held_s, boot_s())
        self._quarantine = assign.quarantine
        for wing in self._awake():
            wing.assign(assign)
        self._events.append(Assigned(assign, frame))
        self.turn()
        self._heard.set()

    def report(self, session: WorkerSession) -> bytes:
        """Return the frame of the next Report."""
        parts = self.parts
        inventory = parts.machine.inventory()
        held = [parts.runner.held(attempt) for attempt in inventory.holding]
        draft = DraftReport(held, parts.monitor.load(parts.link_quality))
        parts.machine.report(draft)
        wings = self._awake()
        for wing in wings:
            wing.report(draft)
        texts = [parts.journal.text(result) for result in inventory.results]
        life, delivering = parts.machine.life, inventory.delivering
        seq, frame = session.report(
            held, (), draft.load, inventory.waiting, draft.members, draft.peers,
            delivering=delivering, checkpoints=draft.checkpoints, good_bye=draft.good_bye, life=life,
        )  # fmt: skip
        for wing in wings:
            wing.reported(seq)
        parts.link_quality.sent(seq, boot_s())
        frame = with_results(frame, texts)
        if self._step([Reported(seq, inventory.results)]) is Urgency.NOW:  # there is more than one Report may bring
            self._link.speak()
        return frame

    async def wrote(self, read: Read) -> Wrote:
        """Return output of an attempt; an empty answer after a while means that there is none yet."""
        try:
            async with asyncio.timeout(_READ_WITHIN_S):
                data = await self.parts.runner.read(read.attempt, read.stream, read.offset, MAX_WROTE_BYTES)
        except TimeoutError:
            return Wrote(read.number, b"", is_over=False)
        return Wrote(read.number, data, is_over=not data)

    async def probed(self, probe: MeasureFlow) -> FlowMeasured:
        """Return the result of a probe, unless tasks or the owner need the computer."""
        return await self.parts.probe(probe)

    def _awake(self) -> list[AgentWing]:
        return [wing for wing in self.parts.wings if wing.is_awake]

    # From beginning to end.

    def _restore(self) -> None:
        """Restore the attempts of an earlier agent. Those that had begun are preempted."""
        journal = self.parts.journal
        results, begun, waiting = journal.results, journal.begun, journal.waiting
        self.parts.spool.clear(results)
        if results:
            log.info("%d results of an earlier run wait for the master", len(results))
        if waiting or begun:
            counts = len(waiting), len(begun)
            log.info("an earlier agent left %d attempts that wait; %d that had begun return to the queue", *counts)
        died = journal.left_at > psutil.boot_time()  # else the computer may have been switched off
        self._step([Restored(results, begun, waiting, died, journal.life)])

    async def _watch(self) -> NoReturn:
        trouble = ""
        while True:
            try:
                self._check_computer()
                trouble = ""
            except (OSError, psutil.Error) as error:  # no file descriptor left: the next sample may succeed
                if not trouble:
                    log.warning("cannot check this computer just now: %s", error)
                trouble = str(error)
            self._depart_in_time()
            await asyncio.sleep(SAMPLE_EVERY_S)

    def _check_computer(self) -> None:
        """Post a sample of the computer and its disk."""
        parts = self.parts
        self._sample()
        parts.monitor.sample()
        self._tell_wings()
        short_of_bytes = parts.settings.disk_reserve_bytes - parts.data_directory.free_bytes()
        if short_of_bytes > 0:
            left_bytes = short_of_bytes - parts.cache.size_bytes
            parts.cache.make_room(short_of_bytes)  # before tasks do
            for wing in parts.wings:
                wing.make_room(left_bytes)
        observed = parts.disk.look(self._latest.trouble, parts.spool.is_full(parts.journal.live_bytes))
        self.post(replace(observed, obstacle=_CHANGED) if own_code.own_code.has_changed() else observed)
        if (interpreters := parts.launcher.interpreters).idle:
            # an attempt in its slot may be about to use an interpreter that became idle just now
            interpreters.keep(self._latest.idle_slots, INTERPRETER_PAUSE_AFTER_S)
        parts.attempt_log.sum_up()
        parts.journal.rest()
        if self._link.has_been_silent:
            self.post(LinkSilent())

    def _tell_wings(self) -> None:
        for wing in self.parts.wings:
            wing.on_sample()

    def _depart_in_time(self) -> None:
        machine, departure = self.parts.machine, self.parts.departure
        if reason := departure.reason(steady(), is_idle=machine.is_idle, is_linked=self._link.is_open):
            log.info("ending: %s", reason)
            self.stop()
        elif machine.is_idle and own_code.own_code.has_changed():
            log.warning("%s: this worker ends, so that its service starts it again; without one, start it", _CHANGED)
            self.exit_code = own_code.EX_TEMPFAIL
            self.stop()

    def _sample(self) -> None:
        parts = self.parts
        own_s = parts.launcher.cpu_s() + sum(wing.cpu_s() for wing in self._awake()) + time.process_time()
        parts.meter.sample(parts.runner.measure() + own_s)

    async def _open_owner_access(self) -> None:
        from loopline_worker.launch.sandbox import WORDS
        from loopline_worker.owner.state import OwnerControls

        parts = self.parts
        words = WORDS[parts.facts.sandbox]
        controls = OwnerControls(
            self.name,
            parts.settings,
            parts.monitor,
            parts.runner,
            most_slots=parts.facts.slots,
            quarantine=lambda: self._quarantine,
            peers=lambda: " ".join(filter(None, (wing.notice() for wing in parts.wings))),
            sandbox=f"{words[0].upper()}{words[1:]}.",
            contribution=parts.attempt_log.contribution,
        )
        await self.owner_access.open(controls, parts.data_directory.folder, parts.settings, parts.monitor)

    async def _leave(self) -> None:
        log.info("shutting down: returning running tasks to the queue")
        stopping = Stopping()
        self.post(stopping)
        self.turn()
        with suppress(TimeoutError):
            await asyncio.wait_for(self.parts.runner.close(stopping.reason), _STOP_WITHIN_S)
        self.turn()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._drain(), _DRAIN_WITHIN_S)

    async def _drain(self) -> None:
        """Wait until the master has everything, if it is there."""
        self._link.speak()
        while self._link.is_open and not self.parts.machine.is_idle:
            self._heard.clear()
            await self._heard.wait()
        self.parts.journal.rest()
