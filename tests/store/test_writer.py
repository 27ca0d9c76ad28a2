"""A step is stored completely and exactly, or not at all."""

import asyncio
import re
from dataclasses import fields, replace
from pathlib import Path

import pytest
from sqlalchemy import func, select, update

from loopline_master import core
from loopline_master.core.events import BATCH, Batch, WorkerDrained
from loopline_master.core.kernel.entities import Job, Vote
from loopline_master.core.wings.exemptions.exemption import Exemption
from loopline_master.core.wings.shares.user import User
from loopline_master.store import StoreBroken, open_store, postgres, rows, tables
from loopline_master.store.database import _WritingConnection, is_sqlite, open_database, parse_url
from loopline_master.store.migrate import prepare
from loopline_master.store.store import Writer
from loopline_shared.model import AttemptId, AttemptState, JobState, Order, Outcome, Output, Result, TaskState
from loopline_shared.spec import Notify
from tests.store.examples import LOAD, a_job, a_task, a_worker, an_attempt, effects_of, ended

BARE = (a_job(), a_task(), an_attempt(replica=True), a_worker())  # replica: never changes
FULL = (
    a_job(
        idempotency_key="once",
        state=JobState.FAILED,
        paused=True,
        starved_since=1.0000000001,
        stalled=True,
        used=0.1,
        overdrawn=True,
        cursor=2,
        running=1,
        succeeded=2,
        failed=3,
        held_at=4.5,
        released_at=5.5,
        started_at=6.5,
        finished_at=7.5,
        departure=8,
        size=None,
        order=Order.NONE,
        max_replicas=None,
    ),
    a_task(state=TaskState.SUCCEEDED, failures=1, winner=1, started_at=1.1, finished_at=2.2),
    an_attempt(**ended(bytes(range(256)), replica=True, reason="naïve – ünïcode", exit_code=-9)),
    a_worker(session=2**50, draining=True, load=LOAD, reported_at=3.3, offered=4, reported=5, assigned=6),
)
CORE = Path(core.__path__[0])
MAPPERS = (rows.JOBS, rows.TASKS, rows.ATTEMPTS, rows.WORKERS)


@pytest.fixture
async def database(url):
    async with open_database(parse_url(url)) as database:
        await prepare(database, parse_url(url))
        if not is_sqlite(parse_url(url)):
            await database.write(database.epoch.begin)
        yield database


async def read(database, query):
    return await database.read(lambda connection: connection.execute(query).all())


async def one(database, mapper):
    (row,) = await read(database, mapper.select())
    return mapper.entity(row)


async def test_every_field_is_loaded_as_it_was_stored(database):
    writer = Writer(database.write)
    for entities in (BARE, FULL, BARE):  # created, changed, changed back
        effects = effects_of(*entities, told_by_wings={Exemption: [Exemption(1, 250.0, "paused")]})
        await writer.commit(Batch(250.0), effects)
        for entity, mapper in zip(entities, MAPPERS, strict=True):
            assert await one(database, mapper) == entity
        assert await one(database, rows.GRID) == effects.grid
        assert await one(database, rows.EXEMPTIONS) == effects.told(Exemption)[0]


async def test_rows_of_one_task_take_one_statement_on_postgresql(postgres_url):
    url, asked = parse_url(postgres_url), list[str]()
    async with postgres.connections(url, 1) as engine, postgres.connected(engine) as connection:
        driver = (await connection.get_raw_connection()).driver_connection
        async with open_store(postgres_url) as store:
            epoch = store._database.epoch
        writing = _WritingConnection(connection, url, epoch)
        driver.add_query_logger(lambda record: asked.append(record.query))
        writer = Writer(writing.run)
        await writer.commit(Batch(250.0), effects_of(*BARE))
        assert len(asked) == 1
        await writer.commit(Batch(251.0), effects_of(*FULL, completed=[1]))  # audited, which reads the rows
        assert len(asked) == 1 + 4  # with BEGIN and COMMIT
        await writer.commit(Batch(252.0), effects_of(a_task(1), a_task(2), new=False))  # several rows
        assert not any(text.startswith("WITH") for text in asked[5:])
        epoch.number -= 1  # another master has written since
        with pytest.raises(StoreBroken, match="another master has taken over"):
            await writer.commit(Batch(253.0), effects_of(a_job(2)))
        log = (await connection.execute(select(tables.event_log.c.at))).scalars().all()
    assert log == [250.0, 251.0, 252.0]


async def test_rows_are_those_of_the_step_if_entities_change_during_the_commit(database):
    job = a_job()
    committing = asyncio.create_task(Writer(database.write).commit(Batch(250.0), effects_of(job)))
    await asyncio.sleep(0)  # let the commit begin
    job.cursor = 99
    await committing
    assert (await one(database, rows.JOBS)).cursor == 0


async def test_spec_is_written_once(database):
    writer, job = Writer(database.write), a_job()
    await writer.commit(Batch(250.0), effects_of(job))
    changed = a_job(state=JobState.RUNNING, spec=a_job(2).spec)
    await writer.commit(Batch(251.0), effects_of(changed, new=False))
    stored = await one(database, rows.JOBS)
    assert (stored.state, stored.spec) == (JobState.RUNNING, job.spec)


async def test_row_of_a_worker_has_its_latest_state(database):
    writer, worker = Writer(database.write), a_worker()
    await writer.commit(Batch(250.0), effects_of(worker))
    worker.load, worker.reported = LOAD, 7
    await writer.commit(Batch(251.0), effects_of(worker))
    assert await one(database, rows.WORKERS) == worker
    worker.boot, worker.facts = "boot-2", replace(worker.facts, model="another")  # it joins again
    await writer.commit(Batch(252.0), effects_of(worker))
    assert await one(database, rows.WORKERS) == worker
    await writer.commit(Batch(253.0), effects_of(gone=("ant",)))
    come_back = replace(worker, joined_at=254.0)
    await writer.commit(Batch(254.0), effects_of(come_back))
    assert await one(database, rows.WORKERS) == come_back


async def test_only_a_step_that_stores_notifications_wakes_the_notifier(database):
    writer, job = Writer(database.write), a_job()
    job.spec = job.spec.model_copy(update={"notify": Notify(command="mail")})
    assert not await writer.commit(Batch(250.0), effects_of(job))
    job.state, job.finished_at, job.departure = JobState.SUCCEEDED, 251.0, 9
    assert await writer.commit(Batch(251.0), effects_of(job, new=False))


async def test_late_result_is_recorded_only_for_a_lost_attempt_of_its_worker(database):
    writer = Writer(database.write)
    lost = an_attempt(1, state=AttemptState.LOST)
    over = an_attempt(2, state=AttemptState.CANCELLED)
    await writer.commit(Batch(250.0), effects_of(a_job(), a_task(1), a_task(2), lost, over))
    result = Result(lost.id, Outcome.FAILED, 3, "too late", 9.0, 8.0, 7, Output(2, False, b"hi"), Output())
    unheard = [
        ("bee", result),  # not its worker
        ("ant", Result(over.id, Outcome.SUCCEEDED)),  # not lost
        ("ant", Result(AttemptId(1, 1, 2), Outcome.SUCCEEDED)),  # never existed
    ]
    await writer.commit(Batch(260.0), effects_of(late=unheard))
    assert [rows.ATTEMPTS.entity(row) for row in await read(database, rows.ATTEMPTS.select())] == [lost, over]

    await writer.commit(Batch(270.0), effects_of(late=[("ant", result)]))
    (row, _) = await read(database, rows.ATTEMPTS.select().order_by(tables.attempts.c.task))
    assert rows.ATTEMPTS.entity(row) == an_attempt(
        state=AttemptState.FAILED,
        ended_at=250.0,
        exit_code=3,
        reason="too late",
        wall_s=9.0,
        cpu_s=8.0,
        peak_memory_bytes=7,
        late=True,
        outputs=(),
        stdout=result.stdout,
        stderr=result.stderr,
    )


async def test_log_holds_each_batch_except_idle_steps(database):
    writer = Writer(database.write)
    batches = [Batch(1.0, [WorkerDrained("ant")]), Batch(2.0), Batch(3.0)]
    await writer.commit(batches[0], effects_of())
    await writer.commit(batches[1], effects_of())  # no events and no changes
    await writer.commit(batches[2], effects_of(a_worker()))
    log = await read(database, select(tables.event_log).order_by(tables.event_log.c.seq))
    assert [(row.at, BATCH.validate_json(row.batch)) for row in log] == [(1.0, batches[0]), (3.0, batches[2])]


async def test_failed_commit_stores_nothing_and_stops_the_writer(database):
    writer = Writer(database.write)
    with pytest.raises(StoreBroken, match=r"writing to the database failed: .*(FOREIGN KEY|foreign key)"):
        await writer.commit(Batch(250.0), effects_of(a_job(), an_attempt()))  # an attempt without a task
    with pytest.raises(StoreBroken):
        await writer.commit(Batch(251.0), effects_of(a_job()))
    assert await read(database, select(tables.jobs)) == []


async def test_database_constraint_refuses_unknown_states(database):
    await Writer(database.write).commit(Batch(250.0), effects_of(*BARE))
    for table in (tables.jobs, tables.tasks, tables.attempts):
        with pytest.raises(StoreBroken, match=f"(?i)ck_{table.name}_state"):
            await Writer(database.write).write(lambda c, table=table: c.execute(update(table).values(state="odd")))


async def test_full_disk_is_reported(sqlite_url):
    async with open_database(parse_url(sqlite_url)) as database:
        await prepare(database, parse_url(sqlite_url))
        await database.write(lambda connection: connection.exec_driver_sql("PRAGMA max_page_count=50"))
        with pytest.raises(StoreBroken, match="the disk is full") as caught:
            await Writer(database.write).commit(Batch(1.0), effects_of(a_job(tasks=1, owner="x" * 10**6)))
        assert "free some space" in caught.value.hint
        assert await read(database, select(func.count()).select_from(tables.jobs)) == [(0,)]


def test_urls_get_the_drivers_of_loopline():
    assert str(parse_url("sqlite:////data/loopline.db")) == "sqlite:////data/loopline.db"
    assert parse_url("postgres://ann@host/grid").drivername == "postgresql+asyncpg"


async def test_only_a_commit_of_few_rows_is_short():
    """A long one in the thread of the event loop would block everything else."""
    said = []

    async def write(work, *, is_short=False):
        said.append(is_short)

    writer = Writer(write)
    for tasks in (1, 1_000):
        effects = effects_of(a_job(), *(a_task(number=number) for number in range(1, tasks + 1)))
        await writer.commit(Batch(1.0, []), effects)
    assert said == [True, False]


async def test_update_writes_every_field_that_may_change(database):
    writer, job, task, user = Writer(database.write), a_job(), a_task(), User("ann", usage=1.5)
    await writer.commit(Batch(250.0), effects_of(job, task, of_wings={User: {"ann": user}}))
    for name in {field.name for field in fields(Job) if field.init} - {"id", "spec", *rows.SUBMITTED}:
        setattr(job, name, getattr(FULL[0], name))
    job.waiting_for, job.departure = (7, 8), None
    task.failed_on, task.votes, task.state = ("ant",), (Vote(1, "ant", "digest", 7),), TaskState.FAILED
    user.usage, user.at_work = 2.5, 3
    effects = effects_of(job, task, of_wings={User: {"ann": user}}, new=False)
    effects.grid.sequence += 1
    await writer.commit(Batch(251.0), effects)
    for entity, mapper in ((job, rows.JOBS), (task, rows.TASKS), (user, rows.USERS), (effects.grid, rows.GRID)):
        assert await one(database, mapper) == entity
    task.failed_on, task.finished_at, job.departure = (), 252.0, 9
    await writer.commit(Batch(252.0), effects_of(job, task, new=False))
    job.departure, job.cursor, task.finished_at = None, 5, None  # as after a retry
    await writer.commit(Batch(253.0), effects_of(job, task, new=False))
    assert (await one(database, rows.JOBS), await one(database, rows.TASKS)) == (job, task)


@pytest.mark.parametrize(("entity", "written_once"), [("job", rows.SUBMITTED), ("attempt", rows.DISPATCHED)])
def test_scheduler_changes_no_field_that_is_written_once(entity, written_once):
    changes = re.compile(rf"\b{entity}\.({'|'.join(written_once)})\b(, [\w.]+)* [-+*/]?= ")
    found = [line for path in CORE.rglob("*.py") for line in path.read_text().splitlines() if changes.search(line)]
    assert found == []


async def test_step_after_an_unlogged_first_step_is_stored(database):
    writer = Writer(database.write)
    await writer.commit(Batch(249.0), effects_of())
    await writer.commit(Batch(250.0, [WorkerDrained("ant")]), effects_of())
    assert await one(database, rows.GRID) == effects_of().grid
