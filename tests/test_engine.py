"""The engine's order: commit first, then replies and frames, for every waiter."""

import asyncio
import time
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from loopline_master.change_feed import MAX_NAMED, ChangeFeed
from loopline_master.core.events import (
    JobCancelled,
    JobPaused,
    JobSubmitted,
    MasterStarted,
    MasterStoodStill,
    SchedulerSettings,
    WorkerDrained,
    WorkerJoined,
    WorkerReported,
    WorkersHeard,
)
from loopline_master.core.kernel.effects import Declined, Done, Effects, Submitted
from loopline_master.core.kernel.entities import Grid
from loopline_master.core.scheduler import Scheduler
from loopline_master.core.wings.leases.kept_back import LONG_LEASES
from loopline_master.engine import Clock, Engine
from loopline_master.files.removal_clock import RemovalClock
from loopline_master.log_bound import LogBound
from loopline_master.store import StoreBroken, open_store
from loopline_master.store.replay import check, check_and_start
from loopline_shared.errors import LooplineError
from loopline_shared.model import Facts, Held, JobState, Load, Outcome, Result
from loopline_shared.protocol.worker_link import Report
from loopline_shared.spec import JobSpec

FACTS = Facts("linux", "x86_64", "3.11", "0", "model", cpus=2, memory_bytes=10**9, slots=2)
SUBMISSION = JobSubmitted("ann", JobSpec(command=["work"]))


class Gate:
    """A store whose commits wait until the test permits them."""

    is_sure = True

    def __init__(self) -> None:
        self.commits: asyncio.Queue = asyncio.Queue()

    async def commit(self, batch, effects, actions) -> None:
        through = asyncio.get_running_loop().create_future()
        await self.commits.put((batch, through))
        await through

    async def let(self, error=None) -> list:
        """Permit the next commit, or fail it with ``error``; return its events."""
        batch, through = await self.commits.get()
        through.set_exception(error) if error else through.set_result(None)
        return batch.events


@dataclass
class Links:
    sent: asyncio.Queue = field(default_factory=asyncio.Queue)
    closed: list = field(default_factory=list)

    def deliver(self, worker, assign) -> None:
        self.sent.put_nowait((worker, assign))

    def close(self, worker, session) -> None:
        self.closed.append((worker, session))


@pytest.fixture
async def gate():
    return Gate()


@pytest.fixture
async def links():
    return Links()


@pytest.fixture
async def engine(gate):
    return Engine(Scheduler(), gate, Clock(), max_inbox=3)


@pytest.fixture
async def running(engine, links):
    task = asyncio.create_task(engine.run(links))
    yield task
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def settled() -> None:
    """Wait until everything that needs no commit has happened."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_results_are_sent_before_frames_and_replies(engine, gate):
    heard, tickets = [], []

    class Reader:
        def on_commit(self, effects):
            heard.append(("results", tickets[-1].done()))

    class Recording(Links):
        def deliver(self, worker, assign):
            heard.append((worker, tickets[-1].done()))

    engine.changes.add_listener(Reader())
    report = WorkerReported("ant", 1, Report(1, 0, (), (), Load(2)))
    for event in (WorkerJoined("ant", 1, "boot", FACTS), SUBMISSION, report):
        heard.clear()
        tickets.append(engine.post(event))
        turn = asyncio.create_task(engine.turn(Recording()))
        await gate.let()
        await turn
    assert heard == [("results", False), ("ant", False)]
    assert all(ticket.done() for ticket in tickets)


async def test_no_reply_or_frame_leaves_before_the_commit(engine, gate, links, running):
    asked = [engine.post(WorkerJoined("ant", 1, "boot", FACTS)), engine.post(SUBMISSION)]
    asked.append(engine.post(WorkerReported("ant", 1, Report(1, 0, (), (), Load(2)))))
    with engine.changes.read() as changes:
        heard = asyncio.create_task(changes.next())
        await settled()
        assert not any(ticket.done() for ticket in asked)
        assert not heard.done()
        assert links.sent.empty()
        await gate.let()
        assert await asyncio.gather(*asked) == [Done(), Submitted(1), Done()]
        worker, assign = await links.sent.get()
        assert (worker, [str(run.attempt) for run in assign.run]) == ("ant", ["1.1.1"])
        change = await heard
        assert (set(change.jobs), set(change.workers), change.missed) == ({1}, {"ant"}, False)


async def test_events_during_a_commit_are_committed_together_next(engine, gate, running):
    first = engine.post(SUBMISSION)
    await settled()
    others = [engine.post(JobPaused(1)), engine.post(SUBMISSION), engine.post(JobCancelled(9))]
    assert len(await gate.let()) == 1
    assert await first == Submitted(1, (await first).warnings)
    assert len(await gate.let()) == 3
    paused, submitted, declined = await asyncio.gather(*others)
    assert (paused, submitted.job, declined.code) == (Done(), 2, "job_is_over")


async def test_requests_beyond_the_limit_are_declined(engine, gate, running):
    first = engine.post(SUBMISSION)
    await settled()
    waiting = [asyncio.create_task(engine.request(SUBMISSION)) for _ in range(3)]
    await settled()
    refused = await engine.request(SUBMISSION)
    assert isinstance(refused, Declined)
    assert (refused.status, refused.code) == (503, "busy")
    heard = engine.post(WorkerDrained("ant"))  # events of links are never declined
    assert (len(await gate.let()), len(await gate.let())) == (1, 4)
    assert (await heard).code == "no_such_worker"
    assert [reply.job for reply in await asyncio.gather(first, *waiting)] == [1, 2, 3, 4]


async def test_cancelled_request_does_not_stop_the_engine(engine, gate, running):
    gone, stays = asyncio.create_task(engine.request(SUBMISSION)), asyncio.create_task(engine.request(SUBMISSION))
    await settled()
    gone.cancel()
    await gate.let()
    assert (await stays).job == 2


async def test_broken_store_stops_the_engine_and_fails_all_waiters(engine, gate, running):
    broken = StoreBroken("store_broken", "the disk is full", status=503)
    taken = engine.post(SUBMISSION)
    await settled()
    waiting = engine.post(SUBMISSION)
    await gate.let(broken)
    for ended in (running, taken, waiting, engine.post(SUBMISSION)):
        with pytest.raises(StoreBroken, match="the disk is full"):
            await ended


async def test_scheduler_error_stops_the_engine(engine, running, monkeypatch):
    monkeypatch.setattr(Scheduler, "step", lambda *_: 1 // 0)
    asked = engine.post(SUBMISSION)
    for ended in (running, asked):
        with pytest.raises(ZeroDivisionError):
            await ended


async def test_listener_error_does_not_stop_the_engine(gate, links, caplog):
    heard = []

    class Broken:
        def on_commit(self, effects):
            raise KeyError("a follower")

    class Whole:
        def on_commit(self, effects):
            heard.append(effects)

    def metric(*_):
        heard.append("metric")
        raise ZeroDivisionError("a metric")

    engine = Engine(Scheduler(), gate, Clock(), after_step=metric)
    for listener in (Broken(), Whole()):
        engine.changes.add_listener(listener)
    running = asyncio.create_task(engine.run(links))
    for _ in range(2):
        asked = engine.post(SUBMISSION)
        await gate.let()
        await asked
    engine.stop()
    await running
    assert len(heard) == 4, "the next listener and the metric of each step"
    errors = [record.exc_info[0] for record in caplog.records if record.levelname == "ERROR"]
    assert errors == [KeyError, ZeroDivisionError], "logged once, not at every step"


def test_listener_of_a_kind_receives_only_commits_with_it():
    heard = []

    class Listener:
        def on_commit(self, effects):
            heard.append(effects)

    feed, plain, row, notice = ChangeFeed(), *(Effects(Grid()) for _ in range(3))
    row.note("ant", Facts("linux", "x86_64", "3.11", "0", "model", cpus=1, memory_bytes=1, slots=1))
    notice.tell(LONG_LEASES)
    feed.add_listener(Listener(), Facts, type(LONG_LEASES))
    for effects in (plain, row, notice):
        feed.publish(effects)
    assert heard == [row, notice]


async def test_stop_waits_for_the_running_commit(engine, gate, running):
    taken = engine.post(SUBMISSION)
    await settled()
    waiting = engine.post(SUBMISSION)
    engine.stop()
    await gate.let()
    await running
    assert (await taken).job == 1
    with pytest.raises(LooplineError, match="stopping"):
        await waiting


async def test_passing_time_causes_a_step(engine, gate, links, running):
    engine.post(MasterStarted(SchedulerSettings(lease_s=0.01)))
    engine.post(WorkerJoined("ant", 1, "boot", FACTS))
    assert len(await gate.let()) == 2
    assert await gate.let() == []  # the worker's lease ran out
    await settled()
    assert links.closed == [("ant", 1)]


async def test_no_lease_ends_while_the_master_is_suspended(gate, links):
    asleep_s = 0.0

    class CountsOn(Clock):
        """A monotonic clock that counts while the computer sleeps, as on some systems."""

        def __call__(self) -> float:
            return super().__call__() + asleep_s

    engine = Engine(Scheduler(), gate, CountsOn(), max_inbox=3)
    running = asyncio.create_task(engine.run(links))
    engine.post(MasterStarted(SchedulerSettings(lease_s=0.05)))
    engine.post(WorkerJoined("ant", 1, "boot", FACTS))
    assert len(await gate.let()) == 2
    asleep_s = 60.0  # the computer was suspended: the alarm of the lease fires far too late
    assert await gate.let() == [MasterStoodStill()]
    await settled()
    assert links.closed == []
    assert await gate.let() == []  # silent for another lease
    await settled()
    assert links.closed == [("ant", 1)]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_step_that_was_due_before_the_last_one_is_no_suspension(gate, links):
    """The first check of a kind is due at once: its last time is 0."""

    class DueAtOnce(Scheduler):
        steps = 0

        def step(self, events, now):
            self.steps += 1
            return super().step(events, now)

        @property
        def wake_at(self):
            return 0.0 if self.steps == 1 else super().wake_at

    engine = Engine(DueAtOnce(), gate, Clock(), max_inbox=3)
    running = asyncio.create_task(engine.run(links))
    engine.post(MasterStarted(SchedulerSettings()))
    assert len(await gate.let()) == 1
    assert await gate.let() == [], "no lease restarts"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_master_that_keeps_reports_back_is_not_suspended(gate, links):
    passed_s = 0.0

    class Passing(Clock):
        def __call__(self) -> float:
            return super().__call__() + passed_s

    engine = Engine(Scheduler(), gate, Passing(), max_inbox=3)
    running = asyncio.create_task(engine.run(links))
    first, second, third = (WorkerReported("ant", 1, Report(seq, 0, (), (), Load(2))) for seq in (1, 2, 3))
    engine.post(MasterStarted(SchedulerSettings(lease_s=60.0)))
    engine.post(WorkerJoined("ant", 1, "boot", FACTS))
    engine.post(first)
    assert len(await gate.let()) == 3
    await settled()
    passed_s = 50.0
    assert engine.keep_back(second)
    passed_s = 61.0
    engine.post(request := JobCancelled(9))
    heard, job = await gate.let()
    assert isinstance(heard, WorkersHeard), "the lease of the row is over, and the worker is there"
    assert job == request
    await settled()
    passed_s = 100.0
    assert engine.keep_back(third)
    passed_s = 140.0  # the second Report's lease has been over for half a minute
    engine.post(request)
    assert await gate.let() == [request], "no lease restarts"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_stopped_clock_is_set_before_the_first_report_is_stepped(engine, gate, links, running, monkeypatch):
    engine.post(MasterStarted(SchedulerSettings()))
    engine.post(WorkerJoined("ant", 1, "boot", FACTS))
    await gate.let()
    await settled()
    woke_at = time.time() + 3600.0
    monkeypatch.setattr("time.time", lambda: woke_at)  # the monotonic clock stopped while the computer slept
    report = WorkerReported("ant", 1, Report(1, 0, (), (), Load(2)))
    engine.post(report)
    assert await gate.let() == [MasterStoodStill(), report]
    await settled()
    assert engine._clock() >= woke_at


def test_change_feed_drops_its_oldest_names():
    feed = ChangeFeed()
    with feed.read() as reader:
        for first in (0, MAX_NAMED // 2, MAX_NAMED):
            jobs = dict.fromkeys(range(first, first + MAX_NAMED // 2))
            feed.publish(Effects(Grid(), jobs=jobs))
        change = asyncio.run(reader.next())
    assert list(change.jobs) == list(range(MAX_NAMED // 2, 3 * MAX_NAMED // 2))
    assert change.missed


def test_change_feed_keeps_the_latest_names_for_readers_that_reconnect(monkeypatch):
    monkeypatch.setattr("loopline_master.change_feed.MAX_NAMED", 2)
    feed, marks = ChangeFeed(), []
    for job in (1, 2, 3, 2):
        marks.append(feed.mark)
        feed.publish(Effects(Grid(), jobs={job: None}))
    feed.publish(Effects(Grid()))
    assert [list(feed.since(mark).jobs) for mark in (*marks[1:], feed.mark)] == [[3, 2], [3, 2], [2], []]
    assert feed.since(marks[0]).missed, "job 1 is forgotten"
    assert not feed.since(marks[1]).missed
    feed.publish(Effects(Grid(), workers=dict.fromkeys(("ant", "bee", "cow"))))
    assert feed.since(marks[3]).missed, "worker ant is forgotten"
    assert ChangeFeed().since(feed.mark).missed, "a mark of another run"


def test_clock_always_advances(monkeypatch):
    monkeypatch.setattr("time.time", lambda: 1000.0)
    clock = Clock(after=5000.0)  # the wall clock was set back while the master was down
    monkeypatch.setattr("time.monotonic", lambda start=clock._monotonic: start)
    times = [clock() for _ in range(100)]
    assert times[0] > 5000.0
    assert all(earlier < later for earlier, later in pairwise(times))
    assert times[-1] < 5001.0


async def test_job_passes_from_submission_to_result_across_a_restart(tmp_path, links):
    url = f"sqlite:///{tmp_path / 'loopline.db'}"

    async def one_run(during) -> None:
        async with open_store(url) as store:
            snapshot = await store.snapshot()
            engine = Engine(Scheduler(snapshot), store, Clock(after=snapshot.grid.now))
            engine.post(MasterStarted(SchedulerSettings()))
            running = asyncio.create_task(engine.run(links))
            await during(engine, store)
            engine.stop()
            await running

    async def report(engine, session, seq, *results, holding=()):
        report = Report(seq, 0, tuple(map(Held, holding)), results, Load(2))
        assert await engine.request(WorkerReported("ant", session, report)) == Done()
        return (await links.sent.get())[1]

    async def first(engine, store) -> None:
        assert (await engine.request(SUBMISSION)).job == 1
        await engine.request(WorkerJoined("ant", 1, "boot", FACTS))
        assign = await report(engine, 1, 1)
        assert [str(run.attempt) for run in assign.run] == ["1.1.1"]

    async def second(engine, store) -> None:
        (run,) = (attempt for attempt in (await store.attempts.of_job(1)).items)
        await engine.request(WorkerJoined("ant", 2, "boot", FACTS))
        assign = await report(engine, 2, 1, Result(run.id, Outcome.SUCCEEDED, 0))
        assert (assign.seen, assign.run) == (1, ())
        assert (await store.jobs.detail(1)).state is JobState.SUCCEEDED

    await one_run(first)
    await one_run(second)
    assert await check(url) == []


async def test_reports_without_news_are_not_logged_until_a_lease_is_due(gate, links):
    now = 1000.0
    engine = Engine(Scheduler(), gate, lambda: now)

    async def turn():
        turn = asyncio.create_task(engine.turn(links))
        events = await gate.let()
        await turn
        return events

    first, second, third = (WorkerReported("ant", 1, Report(seq, 0, (), (), Load(2))) for seq in (1, 2, 3))
    for event in (MasterStarted(SchedulerSettings()), WorkerJoined("ant", 1, "boot", FACTS), first):
        engine.post(event)
    assert not engine.keep_back(first), "the worker's first Report is news"
    await turn()
    assert engine.wake_at == 1030.0
    now = 1010.0
    assert engine.keep_back(second)
    now = 1030.0
    assert await turn() == [WorkersHeard({"ant": 20.0}, 30.0 * LONG_LEASES)]
    assert engine.wake_at == 1040.0, "the engine wakes at the end of the lease"
    assert engine.keep_back(third)
    now = engine.wake_at
    assert await turn() == [WorkersHeard({"ant": 30.0}, 30.0)]
    assert links.closed == [("ant", 1)]
    engine.stop()
    assert not engine.keep_back(third)


async def test_snapshot_is_the_first_event_of_its_step_and_starts_the_log(tmp_path, links):
    async with open_store(f"sqlite:///{tmp_path / 'loopline.db'}") as store:
        engine = Engine(Scheduler(), store, Clock())
        bound = LogBound(engine, store, 1e-3, RemovalClock())
        running = asyncio.create_task(engine.run(links))
        await engine.request(MasterStarted(SchedulerSettings(lease_s=77.0)))
        assert (await engine.request(SUBMISSION)).job == 1
        await bound.look()
        await engine.request(WorkerJoined("ant", 1, "boot", FACTS))
        await bound.look()
        _, start = await check_and_start(str(tmp_path / "loopline.db"))
        assert [job.id for job in start.rows.jobs] == [1]
        assert await check(str(tmp_path / "loopline.db")) == []
        engine.stop()
        await running
        with pytest.raises(LooplineError, match="stopping"):
            await engine.write_snapshot()
