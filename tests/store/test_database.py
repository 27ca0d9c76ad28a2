"""Where transactions run: short ones in the event loop while that is fast, others in a thread, one at a time."""

import asyncio
import threading
from itertools import accumulate, repeat

import pytest
from sqlalchemy import text

from loopline_master.store import StoreBroken, database, open_store
from loopline_master.store.database import open_database, parse_url, reading, shrink, writing
from tests.api.bench import until


def where(connection):
    assert connection.exec_driver_sql("SELECT 1").scalar() == 1
    return threading.get_ident()


@pytest.fixture
def takes(monkeypatch):
    """Return a function that sets how many seconds pass at each reading of the clock."""

    def take(seconds):
        times = accumulate(repeat(seconds))
        monkeypatch.setattr(database, "_now", lambda: next(times))

    return take


async def test_short_transaction_runs_without_a_thread_after_a_fast_one(sqlite_url, takes):
    takes(database.QUICK_S / 2)
    async with writing(parse_url(sqlite_url)) as write:
        assert await write(where, is_short=True) == threading.get_ident()
        assert await write(where) != threading.get_ident()  # not marked as short
        takes(2 * database.QUICK_S)  # a slow disk blocks the loop once
        assert await write(where, is_short=True) == threading.get_ident()
        assert await write(where, is_short=True) != threading.get_ident()
        takes(database.QUICK_S / 2)
        assert await write(where, is_short=True) != threading.get_ident()
        assert await write(where, is_short=True) == threading.get_ident()


async def test_transaction_waits_for_a_cancelled_one_to_finish(sqlite_url, takes):
    takes(2 * database.QUICK_S)
    begun, go_on = threading.Event(), threading.Event()

    def slow(connection):
        begun.set()
        assert go_on.wait(60)

    async with writing(parse_url(sqlite_url)) as write:
        await write(where, is_short=True)
        takes(database.QUICK_S / 2)
        before, waiting = (
            asyncio.create_task(write(where, is_short=True)),
            asyncio.create_task(write(slow, is_short=True)),
        )
        assert await before != threading.get_ident()
        assert await asyncio.to_thread(begun.wait, 60)
        waiting.cancel()
        await asyncio.wait([waiting])
        next_one = asyncio.create_task(write(where, is_short=True))
        await asyncio.sleep(0)
        assert not next_one.done()
        go_on.set()
        assert await next_one != threading.get_ident()


async def test_cancelled_waiter_keeps_the_connection_that_has_the_lock(postgres_url):
    url, lock = parse_url(postgres_url), text("SELECT pg_advisory_lock(1)")

    def own_process(connection):
        return connection.scalar(text("SELECT pg_backend_pid()"))

    def waits(connection):
        return connection.scalar(text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"))

    async with writing(url) as block, writing(url, exclusive=True) as write:
        before = await write(own_process)
        await block(lambda connection: connection.execute(lock))
        waiting = asyncio.create_task(write(lambda connection: connection.execute(lock)))
        await until(lambda: block(waits))
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        await block(lambda connection: connection.execute(text("SELECT pg_advisory_unlock(1)")))
        assert await write(own_process) == before


async def test_transactions_behind_a_lost_connection_fail_without_the_lock(postgres_url):
    url = parse_url(postgres_url)
    end = text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = :of")
    async with writing(url) as other, writing(url, exclusive=True) as write:
        own = await write(lambda connection: connection.scalar(text("SELECT pg_backend_pid()")))
        await other(lambda connection: connection.execute(end, {"of": own}))
        both = [asyncio.create_task(write(lambda connection: connection.execute(text("SELECT 1")))) for _ in range(2)]
        lost = await asyncio.gather(*both, return_exceptions=True)
    assert [(type(one), one.is_passing) for one in lost] == [(StoreBroken, True)] * 2


async def test_error_rolls_a_transaction_back(sqlite_url, takes):
    takes(database.QUICK_S / 2)

    def fails(connection):
        connection.exec_driver_sql("CREATE TABLE t (x)")
        raise ZeroDivisionError

    async with writing(parse_url(sqlite_url)) as write:
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                await write(fails, is_short=True)
        await write(lambda connection: connection.exec_driver_sql("CREATE TABLE t (x)"))


async def test_fast_reads_see_committed_rows_without_a_thread(sqlite_url, takes):
    takes(database.QUICK_S / 2)
    async with open_database(parse_url(sqlite_url)) as opened:
        assert await opened.look(where, is_short=True) == threading.get_ident()
        assert await opened.read(where, is_short=True) != threading.get_ident()
        await opened.write(lambda connection: connection.exec_driver_sql("CREATE TABLE t (x)"))
        assert await opened.look(lambda c: c.exec_driver_sql("SELECT count(*) FROM t").scalar()) == 0
        takes(2 * database.QUICK_S)
        await opened.look(where, is_short=True)
        assert await opened.look(where, is_short=True) != threading.get_ident()
        with pytest.raises(StoreBroken):
            await opened.look(lambda connection: connection.exec_driver_sql("DROP TABLE t"))


async def test_free_pages_are_returned_to_the_file_system(sqlite_url):
    async def pages():
        return await store._read(lambda c: c.scalar(text("SELECT page_count FROM pragma_page_count()")))

    async with open_store(sqlite_url) as store:
        await store._writer.write(lambda c: c.execute(text("CREATE TABLE large AS SELECT zeroblob(4000000) AS it")))
        assert await pages() > 900
        await store._writer.write(lambda c: c.execute(text("DROP TABLE large")))
        await store._writer.write(shrink)
        assert await pages() < 300


def driver_of(connection):
    return connection.connection.driver_connection


async def test_read_sends_only_begin_and_commit_beside_its_query(postgres_url):
    async with reading(parse_url(postgres_url)) as read:
        statements = []
        driver = await read(driver_of)
        driver.add_query_logger(lambda record: statements.append(record.query))
        assert await read(lambda connection: connection.scalar(text("SELECT 1"))) == 1
        assert await read(driver_of) is driver
    assert statements == ["BEGIN ISOLATION LEVEL REPEATABLE READ;", "COMMIT;"]


async def test_look_sends_only_its_query(postgres_url):
    async with open_database(parse_url(postgres_url)) as opened:
        statements = []
        (await opened.look(driver_of)).add_query_logger(lambda record: statements.append(record.query))
        assert await opened.look(lambda connection: connection.scalar(text("SELECT 1"))) == 1
    assert statements == []


async def test_read_after_the_server_has_closed_a_connection_takes_another(postgres_url):
    own, end = text("SELECT pg_backend_pid()"), text("SELECT pg_terminate_backend(:of)")
    async with reading(parse_url(postgres_url)) as read, reading(parse_url(postgres_url)) as other:
        driver, pid = await read(driver_of), await read(lambda connection: connection.scalar(own))
        await other(lambda connection: connection.execute(end, {"of": pid}))
        await until(lambda: asyncio.sleep(0, driver.is_closed()))
        assert await read(lambda connection: connection.scalar(own)) != pid
