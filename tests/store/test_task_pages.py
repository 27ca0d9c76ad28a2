"""Tasks never started have no row, but appear on the right pages."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopline_master.core.kernel.entities import Job
from loopline_master.store import Store, open_store
from loopline_shared.model import JobState, TaskState
from tests.campaign import tried
from tests.store.examples import a_job, a_task, keep

numbers = count(1)


@dataclass(frozen=True)
class Case:
    rows: dict[int, TaskState]
    task_count: int
    is_cancelled: bool

    def naive(self, state: TaskState | None) -> list[tuple[int, TaskState]]:
        """Return the page from a list of all tasks."""
        absent = TaskState.CANCELLED if self.is_cancelled else TaskState.QUEUED
        every = [(number, self.rows.get(number, absent)) for number in range(1, self.task_count + 1)]
        return [task for task in every if state in (None, task[1])]

    def job(self, number: int) -> Job:
        counts = {
            state: list(self.rows.values()).count(TaskState(state)) for state in ("running", "succeeded", "failed")
        }
        ending = {"state": JobState.CANCELLED, "departure": 5} if self.is_cancelled else {}
        return a_job(number, self.task_count, **counts, **ending)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    task_count, is_cancelled = draw(st.integers(1, 30)), draw(st.booleans())
    first = draw(st.integers(0, task_count))  # tasks mostly start in order
    others = draw(st.sets(st.integers(1, task_count), max_size=6))
    ended = [TaskState.SUCCEEDED, TaskState.FAILED, TaskState.CANCELLED]
    states = st.sampled_from(ended if is_cancelled else list(TaskState))
    return Case({n: draw(states) for n in {*range(1, first + 1), *others}}, task_count, is_cancelled)


async def paged(store: Store, case: Case, state: TaskState | None, limit: int) -> list[tuple[int, TaskState]]:
    job = case.job(next(numbers))
    await keep(store, job, *(a_task(number, job.id, own) for number, own in case.rows.items()))
    seen, cursor = [], None
    while True:
        page = await store.tasks.page(job.id, state=state, cursor=cursor, limit=limit)
        assert len(page.items) == limit or page.next is None
        seen += [(task.number, task.state) for task in page.items]
        if page.next is None:
            return seen
        cursor = page.next


@pytest.fixture(scope="module")
def many_jobs(runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    stack = AsyncExitStack()
    url = f"sqlite:///{tmp_path_factory.mktemp('pages') / 'loopline.db'}"
    yield runner.run(stack.enter_async_context(open_store(url)))
    runner.run(stack.aclose())


@given(case=cases(), state=st.sampled_from([None, *TaskState]), limit=st.integers(1, 12))
@settings(max_examples=tried(15, 500), deadline=None)
def test_pages_equal_those_of_a_list_of_all_tasks(runner, many_jobs, case, state, limit):
    assert runner.run(paged(many_jobs, case, state, limit)) == case.naive(state)


async def test_pages_of_a_huge_job_include_tasks_without_rows(url):
    async with open_store(url) as store:
        await keep(store, a_job(tasks=1_000_000, running=2, succeeded=1))
        await keep(store, *(a_task(n, state=s) for n, s in ((1, "succeeded"), (2, "running"), (500_000, "running"))))
        first = await store.tasks.page(1, limit=3)
        assert [task.number for task in first.items] == [1, 2, 3]
        queued = await store.tasks.page(1, state=TaskState.QUEUED, limit=2, cursor="499998")
        assert [task.number for task in queued.items] == [499_999, 500_001]
        last = await store.tasks.page(1, cursor="999999")
        assert [(task.number, last.next) for task in last.items] == [(1_000_000, None)]
