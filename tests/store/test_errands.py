"""Work in threads: waiters resume at once, and all work is done in order, even without a waiter."""

import asyncio
import threading

import pytest

from loopline_master.store.errands import Errand, Errands


@pytest.fixture
async def errands():
    def do(work):
        return work()

    errands = Errands(do, 1)
    yield errands
    errands.close()


def fails():
    raise ZeroDivisionError


async def test_waiter_resumes_in_the_call_that_delivers_the_result():
    loop, heard = asyncio.get_running_loop(), []
    errand = Errand(loop=loop)

    async def wait():
        heard.append(await errand)

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)  # let it start to wait
    loop.call_soon(lambda: (errand.bring("result", None), heard.append("who came after it")))
    await waiting
    await asyncio.sleep(0)
    assert heard == ["result", "who came after it"]


async def test_work_is_done_in_another_thread(errands):
    assert await errands.give(threading.get_ident) != threading.get_ident()


async def test_error_is_raised_in_the_waiter_and_the_thread_continues(errands):
    with pytest.raises(ZeroDivisionError):
        await errands.give(fails)
    assert await errands.give(lambda: "on") == "on"


async def test_cancelled_work_is_done_before_later_work(errands):
    gate, done = threading.Event(), []

    async def wait():
        await errands.give(lambda: gate.wait(60) and done.append("first"))

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    assert errands.under_way == 1
    gate.set()
    await errands.give(lambda: done.append("second"))
    assert done == ["first", "second"]
    assert errands.under_way == 0


async def test_close_waits_for_all_work():
    done = []
    errands = Errands(done.append, 2)
    for number in range(10):
        errands.give(number)
    errands.close()
    assert sorted(done) == list(range(10))
