"""Views of jobs, tasks, attempts, workers and tokens."""

import asyncio
from dataclasses import replace

import pytest

from loopline_master.core.events import JobRetried
from loopline_master.core.kernel.entities import SEATED, UNSEATED
from loopline_master.store import open_store
from loopline_master.store.queries.failure_queries import without_own
from loopline_shared.errors import LooplineError
from loopline_shared.job.parameters import RowFile
from loopline_shared.job.requirements import Requirements
from loopline_shared.model import AttemptId, AttemptState, JobState, Output, TaskId, TaskState
from loopline_shared.rest.access import TokenView
from loopline_shared.rest.bodies import LiveTotals
from tests.store.examples import LOAD, a_job, a_task, a_worker, an_attempt, ended, keep

SUCCEEDED, FAILED = TaskState.SUCCEEDED, TaskState.FAILED


async def everything(read, **filters):
    """Return all pages of a list, with two items each."""
    items, cursor = [], None
    while True:
        page = await read(cursor=cursor, limit=2, **filters)
        items += page.items
        if page.next is None:
            return items
        cursor = page.next


async def test_jobs_are_listed_newest_first_by_state_and_owner(store):
    await keep(store, *(a_job(n, owner="ann" if n % 2 else "bob") for n in range(1, 8)))
    await keep(store, *(a_job(n, owner="ann", state=JobState.RUNNING) for n in (3, 5)), new=False)

    async def ids(**filters):
        return [job.id for job in await everything(store.jobs.page, **filters)]

    assert await ids() == [7, 6, 5, 4, 3, 2, 1]
    assert await ids(owner="bob") == [6, 4, 2]
    assert await ids(state=JobState.RUNNING) == [5, 3]
    assert await ids(state=JobState.QUEUED, owner="ann") == [7, 1]
    assert await ids(state=JobState.CANCELLED) == []


async def test_jobs_are_filtered_by_a_required_label_in_either_database(url):
    def needs(*labels):
        return a_job().spec.model_copy(update={"requires": Requirements(labels=list(labels))})

    async with open_store(url) as store:
        jobs = [a_job(1, spec=needs("gpu", "ssd")), a_job(2, spec=needs("gpu-2")), a_job(3)]
        await keep(store, *jobs, a_job(4, spec=needs("ssd"), departure=1, state=JobState.CANCELLED))
        found = [(await store.jobs.page(label=label)).items for label in ("gpu", "ssd", "g_u", "labels")]
        assert [[job.id for job in items] for items in found] == [[1], [4, 1], [], []]
        assert [job.id for job in (await store.jobs.live_page(label="ssd")).items] == [1]


async def test_live_jobs_are_listed_by_arrival_with_totals(store):
    """Job 1 was retried, so it arrived last; jobs 3 and 4 wait outside the grid; job 5 has ended."""
    await keep(
        store,
        a_job(1, arrival=9, tasks=10, running=2, succeeded=3, failed=1, state=JobState.RUNNING, owner="bob"),
        a_job(2, arrival=2, tasks=4, held_at=5.0),
        *(a_job(n, arrival=0, tasks=100, state=JobState.WAITING) for n in (3, 4)),
        a_job(5, arrival=3, departure=8, state=JobState.CANCELLED, held_at=5.0),
        a_job(6, arrival=6, tasks=7, held_at=5.0, released_at=6.0),
    )
    assert [job.id for job in await everything(store.jobs.live_page)] == [2, 6, 1, 3, 4]
    page = await store.jobs.live_page(limit=1)
    assert [job.id for job in page.items] == [2]
    assert page.live == LiveTotals(in_grid=3, waiting=2, held=1, tasks_queued=4 + 4 + 7)

    bobs = await store.jobs.live_page(owner="bob")
    assert [job.id for job in bobs.items] == [1]
    assert bobs.live == LiveTotals(in_grid=1, waiting=0, held=0, tasks_queued=4)
    none = await store.jobs.live_page(state=JobState.CANCELLED)
    assert (none.items, none.live) == ([], LiveTotals(in_grid=0, waiting=0, held=0, tasks_queued=0))


async def test_job_view_shows_counts_and_hold(store):
    job = a_job(tasks=10, state=JobState.RUNNING, running=2, succeeded=3, failed=1, held_at=5.0)
    await keep(store, job)
    view = await store.jobs.detail(1)
    assert view.tasks.model_dump() == {
        "queued": 4, "running": 2, "prefetched": 0, "succeeded": 3, "failed": 1, "cancelled": 0,
    }  # fmt: skip
    assert (view.held, view.name, view.spec) == (True, "job 1", job.spec)

    await keep(store, replace(job, released_at=6.0), new=False)
    assert not (await store.jobs.detail(1)).held
    await keep(store, replace(job, state=JobState.CANCELLED, running=0, departure=9), new=False)
    view = await store.jobs.detail(1)
    assert (view.tasks.cancelled, view.tasks.queued, view.held) == (6, 0, False)
    assert await store.jobs.view(1) == (await store.jobs.page()).items[0]
    assert (await store.jobs.view(2), await store.jobs.detail(2)) == (None, None)


async def test_job_is_found_by_its_owners_key(store):
    await keep(store, a_job(1, idempotency_key="k"), a_job(2, owner="bob", idempotency_key="k"), a_job(3), a_job(4))
    assert (await store.jobs.by_key("bob", "k")).id == 2
    assert await store.jobs.by_key("ann", "other") is None


async def test_task_view_describes_the_winning_or_latest_attempt(store):
    await keep(store, a_job(), a_task(1, attempts=2, state=SUCCEEDED, winner=1), a_task(2, attempts=2))
    await keep(
        store,
        an_attempt(1, number=1, worker="ant", **ended()),
        an_attempt(1, number=2, worker="bee", state=AttemptState.CANCELLED, reason="lost the race"),
        an_attempt(2, number=1, worker="ant", state=AttemptState.FAILED, exit_code=1),
        an_attempt(2, number=2, worker="cat", state=AttemptState.LOST, reason="fell silent"),
    )
    page = await store.tasks.page(1)
    assert [(task.worker, task.exit_code, task.reason) for task in page.items] == [
        ("ant", 0, ""),
        ("cat", None, "fell silent"),
        (None, None, ""),
    ]
    detail = await store.tasks.detail(TaskId(1, 2))
    assert (detail.command, detail.parameters) == (["echo", "2"], {"i": 2})
    assert [(str(attempt.id), attempt.state) for attempt in detail.attempts] == [
        ("1.2.1", "failed"),
        ("1.2.2", "lost"),
    ]
    absent = await store.tasks.detail(TaskId(1, 3))
    assert (absent.state, absent.command, absent.attempts) == ("queued", ["echo", "3"], [])
    for nowhere in (TaskId(1, 4), TaskId(1, 0), TaskId(2, 1)):
        assert await store.tasks.detail(nowhere) is None
    assert await store.tasks.page(2) is None


async def test_attempts_are_filtered_by_job_and_time(store):
    await keep(store, a_job(1), a_job(2), a_task(1), a_task(2), a_task(1, job=2))
    times = [(1, 1, 10.0, 20.0), (1, 2, 15.0, None), (2, 1, 30.0, 40.0), (1, 3, 30.0, 35.0)]
    for task, number, begin, end in times:
        await keep(store, an_attempt(task, number=number, dispatched_at=begin, ended_at=end))
    await keep(store, an_attempt(1, job=2, dispatched_at=12.0, ended_at=90.0, stdout=Output(7), stderr=Output(2)))

    async def of_job(**more):
        return await store.attempts.of_job(1, **more)

    async def in_window(**more):
        return await store.attempts.between(25.0, 30.0, **more)

    assert [str(attempt.id) for attempt in await everything(of_job)] == ["1.1.1", "1.1.2", "1.1.3", "1.2.1"]
    window = await everything(in_window)
    assert [str(attempt.id) for attempt in window] == ["2.1.1", "1.1.2"]
    assert (window[0].stdout_bytes, window[0].stderr_bytes) == (7, 2)
    late = await everything(lambda **more: store.attempts.between(25.0, 99.0, **more))
    assert [str(attempt.id) for attempt in late] == ["2.1.1", "1.1.2", "1.1.3", "1.2.1"]


async def test_output_is_that_of_the_winner_or_the_last_to_end(store):
    task = TaskId(1, 1)
    await keep(store, a_job(), a_task(), an_attempt())
    assert await store.attempts.output(task, "stdout") is None
    lost = ended(b"first", accepted=False, state=AttemptState.FAILED, ended_at=9.0)
    await keep(
        store, an_attempt(**lost), an_attempt(number=2, **lost | ended(b"second", accepted=False, ended_at=9.5))
    )
    assert (await store.attempts.output(task, "stdout"))[1].data == b"second"
    await keep(store, an_attempt(**ended(b"won", ended_at=8.0)))
    assert (await store.attempts.output(task, "stdout"))[1].data == b"won"
    assert (await store.attempts.output(task, "stderr"))[1].data == b""


async def test_worker_view_shows_its_attempts(store):
    await keep(
        store, a_worker("ant", session=3, load=LOAD, offered=4), a_worker("bee", draining=True), a_worker("cat")
    )
    await keep(
        store, a_job(), a_task(), *(an_attempt(number=n, slots=2, state=s) for n, s in enumerate(AttemptState))
    )
    ant, bee, _ = await everything(store.workers.page)
    assert (ant.connected, ant.slots, ant.slots_used, ant.load) == (True, 4, 10, LOAD)
    numbers = {state: AttemptId(1, 1, number) for number, state in enumerate(AttemptState)}
    assert ant.running == sorted(numbers[state] for state in SEATED)
    assert ant.waiting == sorted(numbers[state] for state in UNSEATED)
    assert (bee.connected, bee.draining, bee.slots_used, bee.running) == (False, True, 0, [])
    assert await store.workers.detail("ant") == ant
    assert await store.workers.detail("dog") is None


async def test_many_readers_of_results_do_not_block_the_loop(store):
    """Two pages are built at a time: other readers wait for these, and a cancelled reader leaves at once."""
    await keep(store, a_job(), a_task(state=SUCCEEDED, finished_at=300.0), an_attempt(**ended()))
    making, most, released = [0], [0], asyncio.Event()

    async def lines(_spec, _numbers):
        making[0] += 1
        most[0] = max(most[0], making[0])
        await released.wait()
        making[0] -= 1
        return {}

    readers = [asyncio.create_task(store.results.of_job(1, _nothing, lines=lines).next()) for _ in range(20)]
    while not making[0]:
        await asyncio.sleep(0)
    await store.jobs.view(1)
    for reader in readers[10:]:
        reader.cancel()
    assert len(await asyncio.gather(*readers[10:], return_exceptions=True)) == 10
    released.set()
    assert [len(page) for page in await asyncio.gather(*readers[:10])] == [1] * 10
    assert most[0] <= 2


async def _nothing(_output):
    return b""


async def test_results_are_in_order_of_their_ends_from_any_cursor(store, monkeypatch):
    monkeypatch.setattr("loopline_master.store.queries.result_queries.CHUNK", 2)
    order = [4, 2, 5, 1]
    await keep(store, a_job(tasks=6))
    for at, number in enumerate(order):
        state = FAILED if number == 5 else SUCCEEDED
        task = a_task(number, state=state, winner=1, finished_at=0.1 + (at if number != 1 else at - 1))
        await keep(store, task, an_attempt(number, **ended(f"out {number} \xff".encode("latin1"))))
    await keep(store, a_task(3), a_task(6, state=TaskState.CANCELLED, finished_at=1.5))

    async def beginning(output):
        return output.data[:5]

    async def results(cursor=None):
        return [found async for found in store.results.of_job(1, beginning, cursor=cursor)]

    found = await results()
    assert [result.number for _, result in found] == [4, 2, 1, 5]  # 1 and 5 at the same time
    assert [(r.stdout, r.stdout_cut, r.parameters) for _, r in found[:1]] == [("out 4", True, {"i": 4})]
    for place, (cursor, _) in enumerate(found):
        assert await results(cursor) == found[place + 1 :]
    assert [r async for r in store.results.of_job(2, beginning)] == []
    state, is_over, ends = await store.results.ends(1, (0.0, 0))
    assert ([end.number for end, _ in ends], is_over) == ([4, 2, 1, 5], False)
    for place, (_, cursor) in enumerate(ends):
        assert await store.results.ends(1, cursor, 2) == (state, False, ends[place + 1 :][:2])
    assert await store.results.ends(2, (0.0, 0)) == (None, True, [])


async def test_result_includes_the_value_of_a_function(store):
    value = Output(3, data=b"abc")
    task = a_task(1, state=SUCCEEDED, winner=1, finished_at=1.0)
    await keep(store, a_job(), task, an_attempt(**ended(value=value)))

    async def beginning(output):
        return output.data

    found = [result async for _, result in store.results.of_job(1, beginning)]
    assert [result.value for result in found] == [value]


async def test_retry_loads_all_tasks_that_did_not_succeed(store):
    job = a_job(tasks=9, state=JobState.FAILED, departure=7)
    rows = [a_task(n, state=FAILED if n in (3, 7) else SUCCEEDED) for n in (1, 2, 3, 4, 6, 7, 8)]
    await keep(store, job, *rows)
    expected = JobRetried(job, [rows[2], rows[5]], [(1, 3), (4, 5), (6, 7), (8, 9)])
    assert await store.retry_material(1) == expected
    assert await store.retry_material(2) is None


async def test_tokens_are_listed_and_revoked(store):
    tokens = [TokenView(id=f"t{n}", name="ann", role="user", created_at=float(n)) for n in range(3)]
    for token in tokens:
        await store.tokens.add(token, token.id * 32)
    assert await everything(store.tokens.page) == tokens
    assert await store.tokens.by_hash("t1" * 32) == tokens[1]
    assert await store.tokens.by_hash("t9" * 32) is None
    assert (await store.tokens.revoke("t1", 5.0)).revoked_at == 5.0
    assert (await store.tokens.revoke("t1", 6.0)).revoked_at == 5.0
    assert (await store.tokens.by_hash("t1" * 32)).revoked_at == 5.0
    assert await store.tokens.revoke("t9", 5.0) is None


@pytest.mark.parametrize("cursor", ["", "x", "-1", "1.5", "9" * 17, "nan@1", "1@1", "٣", "a\x00", "1.1.1.1", "2@1.1"])
async def test_invalid_cursor_is_refused(store, cursor):
    await keep(store, a_job())

    async def one_result():
        return [r async for r in store.results.of_job(1, None, cursor=cursor)]

    reads = [
        lambda: store.jobs.page(cursor=cursor),
        lambda: store.jobs.live_page(cursor=cursor),
        lambda: store.tasks.page(1, cursor=cursor),
        lambda: store.attempts.of_job(1, cursor=cursor),
        lambda: store.attempts.between(0.0, 1.0, cursor=cursor),
        one_result,
    ]
    if "\x00" in cursor:  # other texts could name a worker or a token
        reads += [lambda: store.workers.page(cursor=cursor), lambda: store.tokens.page(cursor=cursor)]
    for read in reads[:-1] if cursor == "1@1" else reads:  # valid as a cursor of results
        with pytest.raises(LooplineError, match="not a cursor"):
            await read()


async def test_failures_of_an_ended_job_are_cached_until_a_retry(store, monkeypatch):
    def failing(job, state):
        told = {"state": state, "reason": "no data", "exit_code": 3, "ended_at": None}
        over = a_job(job, state=JobState.FAILED, finished_at=9.0, departure=job)
        return over, a_task(1, job, FAILED, finished_at=9.0), an_attempt(1, job, **told)

    await keep(store, a_worker(), *failing(1, AttemptState.FAILED), *failing(2, AttemptState.LOST))
    read, asked = store.failures._read, []
    monkeypatch.setattr(store.failures, "_read", lambda work: asked.append(work) or read(work))
    for job, times in ((1, 1), (2, 2)):
        asked.clear()
        first, second = [await store.failures.of_job(job, 9.0) for _ in range(2)]
        assert first == second == await store.failures.of_job(job)
        assert [(group.count, group.exit_code, group.reason) for group in first] == [(1, 3, "no data")]
        assert len(asked) == times + 1
    await keep(store, a_task(1, 1, SUCCEEDED, finished_at=10.0), new=False)
    assert await store.failures.of_job(1, 10.0) == [], "the job was retried"


async def test_failures_that_differ_by_a_tasks_own_file_are_one_group(store):
    names = ["in/alpha.txt", "in/beta.txt", "in/gamma.txt"]
    reasons = ["cannot open in/alpha.txt", "cannot open beta.txt", "cannot open delta.txt"]

    def failing(number):
        told = {"state": AttemptState.FAILED, "reason": reasons[number - 1], "exit_code": 1, "ended_at": None}
        return a_task(number, job, FAILED, finished_at=9.0), an_attempt(number, job, **told)

    async def rows(_, tasks):
        return {number: {"line": names[number - 1]} for number in tasks}

    listed, filed = {"line": names}, RowFile(file=f"sha256:{'0' * 64}", count=3)
    await keep(store, a_worker())
    for job, parameters in ((1, listed), (2, filed)):
        spec = a_job().spec.model_copy(update={"parameters": parameters})
        over = a_job(job, spec=spec, state=JobState.FAILED, finished_at=9.0, departure=job)
        await keep(store, over, *(row for number in (1, 2, 3) for row in failing(number)))
        groups = await store.failures.of_job(job, None, rows)
        assert [(group.count, group.example) for group in groups] == [(2, 1), (1, 3)]


def test_reason_is_grouped_without_the_tasks_own_parameters():
    own = {"line": "in/a.txt", "seed": 7, "mode": "fast"}
    assert without_own("open 'in/a.txt': no a.txt in breakfast", own) == "open '{line}': no {line} in breakfast"
    assert without_own("mode fast: in/a.txt.bak", {"mode": "fast"}) == "mode {mode}: in/a.txt.bak"
    assert without_own("no data", {}) == "no data"
