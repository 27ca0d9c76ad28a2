"""Accounts including late results, explanations of ended jobs, and forecasts compared with completions."""

from dataclasses import replace

from loopline_master.core.wings.checkpoints.saved_work import CheckpointAccount
from loopline_master.outcomes import explain_ended_job, explain_ended_task, failure_reasons
from loopline_master.store.queries.failure_queries import FailureGroup
from loopline_master.store.records import ToldEta
from loopline_shared.model import AttemptId, AttemptState, JobState, Outcome, Phases, Result, TaskId, TaskState
from loopline_shared.rest.bodies import JobAccounting
from tests.store.examples import a_job, a_task, a_worker, an_attempt, ended, keep

DONE = {"state": JobState.SUCCEEDED, "started_at": 130.0, "finished_at": 190.0, "succeeded": 3}


async def test_late_result_corrects_the_accounts(store):
    job = a_job(useful_cpu_ms=5000, lost_cpu_ms=8000, replicated_cpu_ms=1500, won_cpu_ms=500)
    lost = an_attempt(1, state=AttemptState.LOST, assumed_cpu_ms=8000)
    await keep(store, job, a_task(1), lost)
    before = (await store.jobs.view(1)).ledger
    assert before == JobAccounting(useful_cpu_s=5.0, replicated_cpu_s=1.5, won_cpu_s=0.5, lost_cpu_s=8.0)
    late = Result(AttemptId(1, 1, 1), Outcome.SUCCEEDED, 0, cpu_s=6.5)
    await keep(store, late=[("ant", late), ("ant", late)])
    after = (await store.jobs.page()).items[0].ledger
    assert (after.lost_cpu_s, after.wasted_cpu_s) == (0.0, 6.5)


async def test_history_counts_votes_of_a_quorum_but_no_losing_replica(store):
    await keep(store, a_job(1), a_task(1), a_task(2), a_worker("ant"))
    await keep(
        store,
        an_attempt(1, number=1, **ended(cpu_s=1.0, accepted=False)),
        an_attempt(1, number=2, replica=True, asked=True, **ended(cpu_s=2.0)),
        an_attempt(2, number=1, **ended(cpu_s=4.0)),
        an_attempt(2, number=2, replica=True, **ended(cpu_s=8.0, accepted=False)),
    )
    for subject in ("user", "worker", "job"):
        [line] = (await store.usage.by(subject, 0.0, 1e9, 9)).lines
        assert (line.useful_cpu_s, line.wasted_cpu_s, line.replicated_cpu_s) == (7.0, 8.0, 8.0), subject


async def test_history_counts_a_preempted_attempt_as_lost(store):
    stopped = {"state": AttemptState.CANCELLED, "accepted": False}
    await keep(store, a_job(1), a_task(1), a_task(2), a_worker("ant"))
    await keep(
        store,
        an_attempt(1, number=1, **ended(cpu_s=1.0, ended_at=202.0, **stopped)),
        an_attempt(1, number=2, **ended(cpu_s=2.0)),
        an_attempt(1, number=3, replica=True, **ended(cpu_s=4.0, ended_at=205.0, **stopped)),
        an_attempt(2, number=1, **ended(cpu_s=8.0, **stopped)),
    )
    for subject in ("user", "worker", "job"):
        [line] = (await store.usage.by(subject, 0.0, 1e9, 9)).lines
        assert (line.useful_cpu_s, line.wasted_cpu_s, line.lost_cpu_s) == (2.0, 4.0, 9.0), subject


async def test_history_counts_time_in_checkpoints_as_kept(store):
    accounts = [
        CheckpointAccount(1, 1, 1, sent=3, sent_bytes=1000, held_s=0.5, kept_cpu_ms=6000),
        CheckpointAccount(1, 2, 1, sent=1, sent_bytes=10, held_s=0.25, kept_cpu_ms=2000),
    ]
    await keep(store, a_job(1, finished_at=300.0), a_job(2), a_task(1), a_task(2), a_task(1, 2), a_worker("ant"))
    cut = {"state": AttemptState.FAILED, "accepted": False}
    await keep(
        store,
        an_attempt(1, number=1, **ended(cpu_s=8.0, **cut)),
        an_attempt(1, number=2, **ended(cpu_s=1.0)),
        an_attempt(2, number=1, **ended(cpu_s=5.0, accepted=False)),
        an_attempt(2, number=2, **ended(cpu_s=1.0)),
        an_attempt(1, 2, 1, **ended(cpu_s=4.0)),
        of_wings={CheckpointAccount: {one.id: one for one in accounts}},
    )
    for subject in ("user", "worker", "job"):
        line = (await store.usage.by(subject, 0.0, 1e9, 9)).lines[0]
        figures = (line.kept_cpu_s, line.lost_cpu_s, line.wasted_cpu_s, line.checkpoints, line.checkpoint_bytes)
        assert figures == (8.0, 2.0, 3.0, 4, 1010), subject
        assert line.checkpoint_held_s == 0.75
    (line,) = (await store.usage.by("job", 0.0, 1e9, 1)).lines
    assert (line.subject, line.checkpoints) == ("1", 4), "the cut line is not brought back by its checkpoints"
    ledger = (await store.jobs.view(1)).ledger
    assert (ledger.kept_cpu_s, ledger.checkpoints, ledger.checkpoint_bytes, ledger.checkpoint_held_s) == (
        8.0,
        4,
        1010,
        0.75,
    )
    before = (await store.usage.by("worker", 0.0, 1e9, 9)).lines
    await keep(store, forgotten_jobs=(1,))
    assert (await store.usage.by("worker", 0.0, 1e9, 9)).lines == before


async def test_ended_job_explains_its_duration(store):
    first = a_job(1, departure=5, **DONE | {"finished_at": 180.0})
    job = a_job(2, entered_at=115.0, arrival=4, departure=6, held_at=150.0, released_at=180.0, mismatches=1, **DONE)
    waiting = a_job(3, arrival=0, waiting_for=(2,), state=JobState.WAITING)
    await keep(store, first, job, waiting, a_worker("ant"), a_task(1, 2), a_task(2, 2), a_task(3, 2))
    await keep(
        store,
        an_attempt(1, 2, 1, state=AttemptState.LOST),
        an_attempt(1, 2, 2, **ended(wall_s=2.0, frozen_s=8.0, fetch_s=3.0, deliver_s=2.0)),
        an_attempt(2, 2, 1, replica=True, **ended(wall_s=2.0, started_at=1.0, ended_at=3.0)),
        an_attempt(3, 2, 1, worker="ant", **ended(wall_s=30.0, started_at=160.0, ended_at=190.0)),
    )
    explained = explain_ended_job(await store.jobs.view(2), await store.job_histories.of_job(2))
    assert explained.sentence == (
        "it has succeeded: 3 of 3 tasks succeeded, in 60 s; waited 13 s for the jobs that it came after; "
        "waited 15 s for a slot; held 30 s behind job 1; unsuccessful attempts: 1 lost; "
        "3 s in total to fetch inputs and software; frozen for 8 s in total while the PC's owner was there; "
        "2 s in total to deliver outputs; "
        "1 replica finished first; results of 1 task differ between workers; "
        "its slowest task, 3, ran 30 s on ant (speed 1.5), 2.6 times the mean"
    )
    assert {reason.code: reason.job for reason in explained.reasons}["held"] == 1
    assert await store.job_histories.of_job(9) is None
    assert await store.jobs.states([1, 3, 9]) == {1: JobState.SUCCEEDED, 3: JobState.WAITING}
    assert (await store.jobs.view(3)).waiting_for == [2]


async def test_forecasts_are_compared_when_their_job_completes(store):
    said = ToldEta(1, 1, 0, 100.0, 150.0, 200.0, 50.0, 100.0)
    job = a_job()
    await keep(store, job, a_job(2))
    await store.eta_records.add([said, replace(said, job=2, arrival=2), replace(said, moment=25)])
    await store.eta_records.add([replace(said, p50_at=999.0)])
    await store.eta_records.add([])
    assert await store.eta_records.judged() == []
    await keep(store, replace(job, departure=3, **DONE), new=False)
    judged = await store.eta_records.judged()
    assert {(one.eta.moment, one.eta.p50_at, one.completed_at) for one in judged} == {
        (0, 150.0, 190.0),
        (25, 150.0, 190.0),
    }
    await keep(store, replace(job, arrival=7, departure=8, **DONE), new=False)  # a retried job counts as another job
    assert await store.eta_records.judged() == []


def test_failures_outside_the_groups_are_counted():
    groups = [FailureGroup(3, f"no {word}", 2, example) for example, word in enumerate("abcdefg", 1)]
    assert [reason.count for reason in failure_reasons(1, 20, groups)] == [2, 2, 2, 2, 2, 4, 6]
    assert [reason.count for reason in failure_reasons(1, 14, groups)] == [2, 2, 2, 2, 2, 4]


async def test_explained_task_names_each_phase_by_its_name(store):
    await keep(store, a_job(1), a_task(1, state=TaskState.SUCCEEDED, winner=1, attempts=1), a_worker("ant"))
    phases = Phases(inputs_s=12.0, began_s=12.0, ended_s=35.0, frozen_s=3.0, delivered_s=43.0)
    times = {"dispatched_at": 100.0, "started_at": 102.0, "wall_s": 20.0, "phases": phases}
    await keep(store, an_attempt(1, worker="ant", **ended(**times)))
    sentence = explain_ended_task(await store.tasks.detail(TaskId(1, 1))).sentence
    assert sentence == (
        "it has succeeded on ant; waited 2 s at its worker for a slot, took 12 s to fetch inputs and software, "
        "ran 20 s, was frozen for 3 s, took 8 s to deliver outputs"
    )
