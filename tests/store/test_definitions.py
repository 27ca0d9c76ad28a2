"""One definition for each word about the time and the state of jobs and tasks."""

from datetime import datetime
from typing import Any

import pytest

from loopline_master.outcomes import explain_ended_job, explain_ended_task
from loopline_master.store import Store
from loopline_shared.model import AttemptState, JobState, TaskId, TaskState
from loopline_shared.rest.bodies import JobView, Period
from tests.store.examples import a_job, a_task, a_worker, an_attempt, ended, keep

OVER: dict[str, Any] = {"state": JobState.SUCCEEDED, "departure": 6, "started_at": 171.0, "finished_at": 190.0}


async def viewed(store: Store, **fields: Any) -> JobView:
    await keep(store, a_job(1, **fields))
    view = await store.jobs.view(1)
    assert view is not None
    return view


async def test_job_waits_until_its_start_and_takes_until_its_end(store: Store) -> None:
    view = await viewed(store, **OVER, held_at=110.0, released_at=171.0)
    assert view.waited == Period(since=view.submitted_at, until=171.0)
    assert view.took == Period(since=171.0, until=190.0)
    assert view.was_held == Period(since=110.0, until=171.0)


async def test_view_of_a_job_without_a_size_has_its_weight(store: Store) -> None:
    assert (await viewed(store, size=None, shown=80.0)).shown == 80.0


async def test_periods_of_a_running_job_have_no_end(store: Store) -> None:
    view = await viewed(store, state=JobState.RUNNING, started_at=130.0, held_at=150.0)
    assert view.took == Period(since=130.0)
    assert view.was_held == Period(since=150.0)


async def test_job_cancelled_before_its_start_took_nothing(store: Store) -> None:
    view = await viewed(store, state=JobState.CANCELLED, departure=6, finished_at=190.0)
    assert (view.took, view.was_held) == (None, None)
    assert view.waited.until == 190.0


@pytest.mark.parametrize(
    ("fields", "condition"),
    [
        ({"held_at": 1.0, "stalled": True, "paused": True}, "paused"),
        ({"held_at": 1.0, "stalled": True}, "stalled"),
        ({"held_at": 1.0, "overdrawn": True}, "held"),
        ({"held_at": 1.0, "released_at": 2.0, "overdrawn": True}, "overdrawn"),
        ({}, "running"),
        ({"departure": 9, "state": JobState.FAILED, "held_at": 1.0, "stalled": True}, "failed"),
    ],
)
async def test_condition_is_the_reason_that_must_end_first(
    store: Store, fields: dict[str, Any], condition: str
) -> None:
    assert (await viewed(store, **{"state": JobState.RUNNING, **fields})).condition == condition


async def test_time_of_a_hold_is_not_counted_as_waiting_for_a_slot(store: Store) -> None:
    await keep(store, a_job(1, task_count=1, succeeded=1, entered_at=100.0, held_at=100.0, released_at=171.0, **OVER))
    view, story = await store.jobs.view(1), await store.job_histories.of_job(1)
    assert view is not None
    assert story is not None
    assert explain_ended_job(view, story).sentence == "it has succeeded in 19 s; held 71 s"


async def test_sort_by_took_counts_from_the_start(store: Store) -> None:
    await keep(store, a_job(1, **OVER), a_job(2, **OVER | {"submitted_at": 1.0, "started_at": 189.0}))
    assert [job.id for job in (await store.jobs.page(sort="took")).items] == [2, 1]


async def test_failed_attempts_of_a_task_are_counted(store: Store) -> None:
    await keep(store, a_job(1), a_task(1, state=TaskState.SUCCEEDED, winner=2, attempts=2), a_worker("ant"))
    failed = ended(accepted=False, state=AttemptState.FAILED, exit_code=1)
    await keep(store, an_attempt(1, number=1, **failed), an_attempt(1, number=2, **ended()))
    task = await store.tasks.detail(TaskId(1, 1))
    assert task is not None
    assert explain_ended_task(task).sentence == "it has succeeded on ant after 2 attempts"


async def test_members_of_a_gang_are_not_other_attempts(store: Store) -> None:
    await keep(store, a_job(1), a_task(1, state=TaskState.SUCCEEDED, winner=1, attempts=2), a_worker("ant"))
    await keep(store, an_attempt(1, number=1, **ended()), an_attempt(1, number=2, worker="bee", **ended()))
    task = await store.tasks.detail(TaskId(1, 1))
    assert task is not None
    assert explain_ended_task(task).sentence == "it has succeeded on ant and bee"


async def test_losing_replica_is_not_an_attempt_that_failed(store: Store) -> None:
    await keep(store, a_job(1), a_task(1, state=TaskState.SUCCEEDED, winner=2, attempts=3), a_worker("ant"))
    loser = ended(accepted=False, state=AttemptState.CANCELLED)
    preempted = ended(accepted=False, state=AttemptState.CANCELLED, reason="its owner is there")
    await keep(
        store,
        an_attempt(1, number=1, **preempted),
        an_attempt(1, number=2, worker="ant", **ended()),
        an_attempt(1, number=3, replica=True, **loser),
    )
    task = await store.tasks.detail(TaskId(1, 1))
    assert task is not None
    assert explain_ended_task(task).sentence == "it has succeeded on ant; other attempts: 1 preempted, 1 superseded"


@pytest.mark.parametrize(("exit_code", "reason"), [(3, "exit code 3"), (-9, "killed by signal 9")])
async def test_task_that_failed_without_stderr_has_a_reason(store: Store, exit_code: int, reason: str) -> None:
    await keep(store, a_job(1), a_task(1, state=TaskState.FAILED, attempts=1, failures=1), a_worker("ant"))
    failed = ended(accepted=False, state=AttemptState.FAILED, exit_code=exit_code, reason="")
    await keep(store, an_attempt(1, worker="ant", **failed))
    task = await store.tasks.detail(TaskId(1, 1))
    assert task is not None
    assert (task.reason, task.attempts[0].reason) == (reason, reason)
    page = await store.tasks.page(1)
    assert page is not None
    assert page.items[0].reason == reason
    assert explain_ended_task(task).sentence == f"it has failed on ant: {reason}"


@pytest.mark.parametrize("below_us", [0.2, 0.8])
async def test_end_of_a_job_as_rest_rounds_it_finds_the_job(store: Store, below_us: float) -> None:
    await keep(store, a_job(1, **OVER | {"finished_at": 1_800_000_000.000001 + below_us * 1e-6}))
    view = await store.jobs.view(1)
    assert view is not None
    answered = datetime.fromisoformat(view.model_dump(mode="json")["finished_at"]).timestamp()
    assert [job.id for job in (await store.jobs.page(ended=(answered, None))).items] == [1]
    assert (await store.jobs.page(ended=(None, answered))).items == []
