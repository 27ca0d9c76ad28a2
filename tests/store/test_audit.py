"""The audit finds exactly the passings, each in the transaction that makes it."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, select

from loopline_master.core.events import Batch, SchedulerSettings
from loopline_master.core.kernel.effects import Effects
from loopline_master.core.kernel.entities import Grid, Job, MeasuredWork
from loopline_master.core.wings.exemptions.exemption import Evidence, Exemption
from loopline_master.store import tables
from loopline_master.store.audit import recheck
from loopline_master.store.database import Database, open_database, parse_url
from loopline_master.store.migrate import prepare
from loopline_master.store.store import Writer
from loopline_shared.model import AttemptState, JobState, Order, OrderWithin
from loopline_shared.rest.bodies import PassingReport
from tests.campaign import tried
from tests.store.examples import a_job, a_task, a_worker, an_attempt, keep

SUCCEEDED = {"state": JobState.SUCCEEDED, "finished_at": 300.0, "released_at": 250.0}


async def complete(store, job: Job, departure: int, **more) -> None:
    await keep(store, replace(job, departure=departure, **SUCCEEDED), new=False, completed=[job.id], **more)


async def test_passing_without_an_exemption_is_found(store):
    first, second = a_job(1, size=60.0), a_job(2, size=60.0)
    await keep(store, first, second)
    await complete(store, second, departure=3)
    report = await store.passings(SchedulerSettings())
    assert (report.completions, report.passings, report.excused) == (1, 1, {})
    assert [(found.job, found.passed, found.reason) for found in report.latest] == [(2, 1, None)]


@pytest.mark.parametrize(
    ("earlier", "later", "passes"),
    [
        (60.0, 60.0, True),  # ties count
        (60.0, 59.0, False),  # a strictly smaller job may pass
        (60.0, None, True),
        (None, 60.0, False),
        (None, None, False),  # a job without a size cannot be passed
    ],
)
async def test_passing_depends_on_the_sizes_of_both_jobs(store, earlier, later, passes):
    second = a_job(2, size=later)
    await keep(store, a_job(1, size=earlier), second)
    await complete(store, second, departure=3)
    assert (await store.passings(SchedulerSettings())).passings == passes


async def test_exemptions_excuse_a_passing(store):
    await keep(store, a_job(1), a_job(2))
    await complete(store, a_job(2), 5, told_by_wings={Exemption: [Exemption(1, 240.0, "paused")]})
    report = await store.passings(SchedulerSettings())
    assert (report.completions, report.passings, report.excused) == (1, 0, {"paused": 1})


PROOF = MeasuredWork(1, 1, "ant", seconds=40.0, speed=1.0, heard_at=241.0)
EVIDENCE = Evidence(1, 245.0, "overdrawn", 60.0, limit=0.5, attempts=(PROOF,))


async def reported(store, evidence: Evidence, job: Job | None = None, **attempt) -> PassingReport:
    """Let job 2 pass job 1 under an exemption with this evidence, and return the audit's report.

    Attempt 1.1.1 began at 200.0 on worker ant, which last reported at 241.0.
    """
    rows = [a_task(1), an_attempt(1, **{"state": AttemptState.RUNNING, "started_at": 200.0, **attempt})]
    await keep(store, a_job(1), a_job(2), a_worker(reported_at=241.0), *rows)
    begun = {Exemption: [Exemption(1, evidence.since, evidence.reason)], Evidence: [evidence]}
    await keep(store, job or a_job(1, cursor=1), new=False, told_by_wings=begun)
    await complete(store, a_job(2), 5)
    return await store.passings(SchedulerSettings())


async def test_exemption_with_evidence_that_the_rows_confirm_excuses(store):
    report = await reported(store, EVIDENCE)
    assert (report.passings, report.excused, report.unfounded) == (0, {"overdrawn": 1}, [])


@pytest.mark.parametrize(
    ("changes", "attempt", "flaw"),
    [
        ({"attempts": (replace(PROOF, heard_at=242.0),)}, {}, "counts beyond its worker's last Report"),
        ({"attempts": (replace(PROOF, seconds=41.1),)}, {}, "counts for more time than it ran"),
        ({}, {"freezes": ((210.0, 220.0),)}, "counts for more time than it ran"),
        ({}, {"started_at": 230.0}, "counts for more time than it ran"),
        ({}, {"fetch_s": 2.0}, "counts for more time than it ran"),
        ({}, {"is_set_up": False}, "counts for more time than it ran"),
        ({"attempts": (replace(PROOF, speed=0.7),)}, {}, "28 CPU-seconds are no more than 0.5 times its size"),
        ({"attempts": (replace(PROOF, speed=1.6),)}, {}, "counts at a speed of 1.6"),
        ({"attempts": (replace(PROOF, worker="bee"),)}, {}, "does not exist on bee"),
        ({"attempts": (replace(PROOF, attempt=2),)}, {}, "does not exist on ant"),
        ({}, {"replica": True}, "it is running and a replica"),
        ({}, {"state": AttemptState.LOST}, "does not count: it is lost"),
        ({"used": 40.0, "attempts": ()}, {}, "results show 0 CPU-seconds, not 40"),
        ({"size": 1.0}, {}, "the job has size 60.0, not 1.0"),
        ({"reason": "paused"}, {}, "the job was not paused"),
        ({"reason": "stalled", "starved_since": 100.0}, {}, "an attempt was at work"),
        ({"reason": "stalled", "idle_s": 59.0, "budget_s": 50.0}, {"state": AttemptState.LOST}, "not spent"),
        ({"reason": "stalled", "idle_s": 300.0}, {}, "charged for more time than it was there"),
    ],
)
async def test_exemption_without_sufficient_evidence_is_a_violation(store, changes, attempt, flaw):
    report = await reported(store, replace(EVIDENCE, **changes), a_job(1, entered_at=101.0), **attempt)
    assert (report.passings, report.excused) == (2, {}), "the exemption, and the passing that it does not excuse"
    (found,) = report.unfounded
    assert (found.job, found.reason) == (1, changes.get("reason", "overdrawn"))
    assert flaw in found.flaw


async def test_work_measured_before_an_attempt_was_lost_stays_valid_evidence(store):
    assert (await reported(store, EVIDENCE)).passings == 0
    lost = an_attempt(1, state=AttemptState.LOST, started_at=200.0)
    again = {Exemption: [Exemption(1, 260.0, "overdrawn")], Evidence: [replace(EVIDENCE, since=260.0)]}
    await keep(store, lost, new=False, told_by_wings=again)
    assert (await store.passings(SchedulerSettings())).passings == 0


@pytest.mark.parametrize("reason", ["paused", "stalled"])
async def test_pause_and_stall_are_confirmed_by_the_rows(store, reason):
    evidence = Evidence(1, 245.0, reason, 60.0, starved_since=100.0)
    job = a_job(1, paused=True)
    assert (await reported(store, evidence, job, state=AttemptState.LOST)).excused == {reason: 1}


async def test_job_outside_the_order_neither_passes_nor_is_passed(store):
    await keep(store, a_job(1), a_job(2, order=Order.NONE), a_job(3))
    await complete(store, a_job(2, order=Order.NONE), 5)
    assert (await store.passings(SchedulerSettings())).completions == 0
    await complete(store, a_job(1), 6)
    await complete(store, a_job(3), 7)
    report = await store.passings(SchedulerSettings())
    assert (report.completions, report.passings, report.excused) == (2, 0, {})
    again = a_job(4, order=Order.NONE)
    await keep(store, again, a_job(5))
    await complete(store, a_job(5), 10)
    assert (await store.passings(SchedulerSettings())).passings == 0, "the passed job is outside the order"


async def test_jobs_of_other_users_may_be_passed_under_order_within_users(store):
    later = a_job(3, owner="ann", within=OrderWithin.USER)
    await keep(store, a_job(1, owner="ann"), a_job(2, owner="bob"), later)
    await complete(store, later, 5)
    report = await store.passings(SchedulerSettings())
    assert (report.passings, report.excused) == (1, {"other-user": 1})


async def test_exemption_from_before_a_retry_does_not_count(store):
    await keep(store, a_job(1), a_job(2))
    await complete(store, a_job(2), 5, told_by_wings={Exemption: [Exemption(1, 240.0, "stalled", 260.0)]})
    again = a_job(2, arrival=6)
    await keep(store, again, new=False)
    await keep(store, replace(again, departure=7, **SUCCEEDED | {"released_at": 280.0}), new=False, completed=[2])
    report = await store.passings(SchedulerSettings())
    assert (report.completions, report.passings, report.excused) == (2, 1, {"stalled": 1})


@pytest.mark.parametrize(("until", "excused"), [(None, True), (250.0, True), (249.0, False)])
async def test_job_released_after_the_end_of_a_pause_is_not_excused(store, until, excused):
    await keep(store, a_job(1), a_job(2))
    await keep(store, a_job(1, cursor=1), new=False, told_by_wings={Exemption: [Exemption(1, 240.0, "paused")]})
    await complete(store, a_job(2), 5, told_by_wings={Exemption: [Exemption(1, 240.0, "paused", until)]})
    assert (await store.passings(SchedulerSettings())).passings == (not excused)


async def test_job_waiting_for_dependencies_is_not_in_the_grid(store):
    """A job cancelled while it waited was never in the grid either."""
    waiting = a_job(1, arrival=0, size=1.0, state=JobState.WAITING, waiting_for=(9,))
    given_up = a_job(2, arrival=0, size=1.0, state=JobState.CANCELLED, departure=9)
    await keep(store, waiting, given_up, a_job(3, arrival=3, size=60.0))
    await complete(store, a_job(3, arrival=3, size=60.0), departure=4)
    report = await store.passings(SchedulerSettings())
    assert (report.completions, report.passings) == (1, 0)


def weight_of(job: Job) -> float:
    sizes = [size for size in (job.size, job.shown) if size is not None]
    return sizes[0] if sizes else float("inf")


def passings_of(jobs: list[Job]) -> set[tuple[int, int]]:
    """Return all passings by the definition, as pairs (job, passed job)."""
    return {
        (b.id, a.id)
        for a in jobs
        for b in jobs
        if b.state in (JobState.SUCCEEDED, JobState.FAILED)
        if a.arrival < b.arrival and (a.departure is None or a.departure > b.departure)
        if a.size is not None and a.size <= weight_of(b)
    }


@st.composite
def histories(draw: st.DrawFn) -> list[list[Job]]:
    """Generate jobs that arrive and leave in any order, some never; yield the completions of each step."""
    count = draw(st.integers(1, 7))
    moments = draw(st.permutations([(job, end) for job in range(1, count + 1) for end in (False, True)]))
    ends = st.sampled_from([JobState.SUCCEEDED, JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, None])
    jobs: dict[int, Job] = {}
    steps: list[list[Job]] = []
    for sequence, (number, _) in enumerate(moments, start=1):
        if number not in jobs:
            size = draw(st.sampled_from([None, 1.0, 1.0, 2.0]))
            shown = draw(st.sampled_from([None, 1.0, 1.5])) if size is None else None
            jobs[number] = a_job(number, arrival=sequence, size=size, shown=shown)
        elif (state := draw(ends)) is not None:
            jobs[number] = replace(jobs[number], state=state, departure=sequence, released_at=1.0)
        else:
            continue
        if steps and draw(st.booleans()):
            steps[-1].append(jobs[number])
        else:
            steps.append([jobs[number]])
    return steps


async def audited(database: Database, steps: list[list[Job]]) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
    """Return the findings of the audit step by step, and of the recheck at the end."""
    writer = Writer(database.write)
    for table in (tables.passings, tables.audits, tables.jobs):
        await database.write(lambda connection, table=table: connection.execute(delete(table)))
    for step in steps:
        jobs = {job.id: job for job in step}
        completed = [job.id for job in jobs.values() if job.state in (JobState.SUCCEEDED, JobState.FAILED)]
        await writer.commit(Batch(1.0), Effects(Grid(), jobs=jobs, completed=completed))
    query = select(tables.passings.c.job, tables.passings.c.passed)
    found = await database.read(lambda connection: connection.execute(query).all())
    return {tuple(pair) for pair in found}, await database.read(recheck)


@pytest.fixture(scope="module")
def database(runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    url = parse_url(f"sqlite:///{tmp_path_factory.mktemp('audit') / 'loopline.db'}")
    stack = AsyncExitStack()
    opened = runner.run(stack.enter_async_context(open_database(url)))
    runner.run(prepare(opened, url))
    yield opened
    runner.run(stack.aclose())


@given(steps=histories())
@settings(max_examples=tried(12, 500), deadline=None)
def test_audit_recheck_and_definition_agree(runner, database, steps):
    final = {job.id: job for step in steps for job in step}
    found, rechecked = runner.run(audited(database, steps))
    assert found == rechecked == passings_of(list(final.values()))
