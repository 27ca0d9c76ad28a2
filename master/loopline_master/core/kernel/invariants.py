"""Invariants, which must hold for the scheduler after every step.

Tests check all of them (``check``). A running master samples them: ``check_job`` and ``check_worker`` take a bounded
time however large the grid is. So each invariant of one job, attempt or worker is a separate function.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import fields
from itertools import takewhile

from loopline_master.core.kernel.entities import LIVE, OCCUPYING, UNRELEASED, Attempt, Job, Task, Worker
from loopline_master.core.kernel.state import State
from loopline_master.core.policies import policy_named
from loopline_master.core.policies.policy import View
from loopline_shared.model import AttemptState, JobState, Order, TaskId, TaskState
from loopline_shared.parallel import launch_of

MOST_TASKS = 5_000
"""Largest number of tasks in memory for which a job's counts are checked; with more, only the guarantee is."""


def check(state: State) -> None:
    """Raises AssertionError if any invariant is violated, naming the first. Costs O(everything)."""
    _index_is_a_function_of_entities(state)
    if state.policy_index is not None:
        rebuilt = policy_named(state.settings.policy)(View(state)).index
        assert state.policy_index == rebuilt, "the policy's own index is not what it must be"
    for job in state.jobs.values():
        check_counts(state, job, [task for task in state.tasks.values() if task.job == job.id])
    for attempt in state.attempts.values():
        check_attempt(state, attempt)
    _replicas_are_bounded(state)
    _no_worker_is_overloaded(state)
    live = list(state.index.live.values())
    for place, job in enumerate(live):
        check_guarantee(state, job, live[:place])
        check_turn(state, job)
    for wing in state.wings.all:
        assert wing in state.wings.awake or not wing.is_awake, f"{wing} is awake, and its hooks are not called"
        wing.check(None)


def _index_is_a_function_of_entities(state: State) -> None:
    fresh_index = state.rebuilt_index()
    assert state.index.blockers.keys() == fresh_index.blockers.keys(), "who is held is not who must be"
    for field in fields(fresh_index):
        if field.name in ("blockers", "blocked"):
            continue  # any predecessor will do
        now, rebuilt = getattr(state.index, field.name), getattr(fresh_index, field.name)
        assert now == rebuilt, f"index {field.name} is {now}, rebuilt from entities it is {rebuilt}"
    assert list(state.index.live) == sorted(state.index.live), "live jobs are not in the order of their arrival"
    requirements = state.index.requirements
    for name in state.workers:  # computed for all equal workers while classes changed
        served = {key for key, names in requirements.workers.items() if name in names}
        found = {*requirements.served_by(name)}
        assert found == served, f"{name} serves {found}, and not {served}"


def check_counts(state: State, job: Job, tasks: Sequence[Task]) -> None:
    """Raises AssertionError if a job's counts do not agree with its tasks in memory."""
    job_id, fresh = job.id, state.fresh[job.id]
    running = sum(task.state is TaskState.RUNNING for task in tasks)
    assert job.running == running, f"job {job_id} counts {job.running} running tasks, {running} are"
    if job.is_live:
        waiting = sum(task.state is TaskState.QUEUED and task.started for task in tasks)
        total = len(fresh) + waiting + running + job.succeeded + job.failed
        assert total == job.task_count, f"job {job_id} has {job.task_count} tasks, {total} are accounted for"
    waits = job.state is JobState.WAITING
    assert (job.is_live or waits) == (job.departure is None), f"job {job_id} is {job.state}, left {job.departure}"
    assert waits == bool(job.waiting_for), f"job {job_id} is {job.state} and waits for {job.waiting_for}"
    assert job.is_over or waits == (job.arrival == UNRELEASED), f"job {job_id} is {job.state}, came {job.arrival}"


def check_attempt(state: State, attempt: Attempt) -> None:
    """Raises AssertionError if an attempt in memory contradicts its task or itself."""
    task = state.tasks.get(attempt.task_id)
    assert task is not None, f"attempt {attempt.id} has no task in memory"
    assert not attempt.is_over, f"attempt {attempt.id} ({attempt.state}) is over, but kept"
    ended = attempt.state in (AttemptState.SUCCEEDED, AttemptState.FAILED, AttemptState.CANCELLED)
    assert not ended, f"attempt {attempt.id} is {attempt.state}, but has not ended"
    assert attempt.number <= task.attempts, f"attempt {attempt.id} was never handed out"
    is_frozen = attempt.state is AttemptState.FROZEN
    assert not (is_frozen and not attempt.stands_still), f"attempt {attempt.id} is frozen, but since never"
    has_begun = attempt.state in (AttemptState.RUNNING, AttemptState.FROZEN)
    assert attempt.started_at is not None or not has_begun, f"attempt {attempt.id} runs, but since never"
    if attempt.state is AttemptState.PREPARED or (state.jobs[attempt.job].nodes > 1 and attempt.state in LIVE):
        assert state.lead.leads(attempt), f"attempt {attempt.id} is {attempt.state} without a gang"
    if attempt.state in LIVE:
        assert task.state is TaskState.RUNNING, f"attempt {attempt.id} is alive, its task is {task.state}"


def check_started(state: State, attempt: Attempt) -> None:
    """Raises AssertionError if a task could now fail more often than its job's ``max_attempts``.

    ``attempt``: started in the last step. (Later a lost attempt may come back as failed.)
    """
    task, job = state.tasks[attempt.task_id], state.jobs[attempt.job]
    if job.spec.function is not None:
        return
    own = [one for one in state.attempts.values() if one.task_id == task.id]
    if job.nodes > 1:
        running = {launch_of(one.id, job.nodes) for one in own if one.state in LIVE}
    else:
        running = {one.id for one in own if one.state in OCCUPYING}
    missing = max(0, (job.quorum or 1) - 1 - task.agreeing)
    at_most = task.setbacks + len(running) - missing
    assert at_most <= job.max_attempts, f"attempt {attempt.id} could be failure {at_most} of {job.max_attempts}"


def _replicas_are_bounded(state: State) -> None:
    for task_id, attempts in state.index.attempts.of_task.items():
        alive = [attempt for attempt in attempts.values() if attempt.state in LIVE]
        job = state.jobs[task_id.job]
        limit = None if job.max_replicas is None else job.max_replicas * job.nodes
        assert limit is None or len(alive) <= limit, f"task {task_id} has {len(alive)} attempts, {limit} are allowed"
    places = Counter((attempt.task_id, attempt.worker) for attempt in state.attempts.values())
    assert max(places.values(), default=0) <= 1, f"twice on one worker: {places.most_common(1)}"


def _no_worker_is_overloaded(state: State) -> None:
    on: dict[str, list[Attempt]] = {}
    for attempt in state.attempts.values():
        assert attempt.worker in state.workers, f"attempt {attempt.id} is on {attempt.worker}, which is unknown"
        on.setdefault(attempt.worker, []).append(attempt)
    for name, attempts in on.items():
        check_slots(state.workers[name], attempts)
        check_lease(state, name)


def check_slots(worker: Worker, attempts: Iterable[Attempt]) -> None:
    """Raises AssertionError if more slots are in use than the worker has.

    The slot of a cancelled attempt that has begun is free once the attempt is gone. Only an attempt that was
    cancelled before it was known to have begun may exceed the slots: the worker makes others wait until it is gone.
    """
    slots_used = sum(
        attempt.slots
        for attempt in attempts
        if attempt.is_seated and not (attempt.state is AttemptState.CANCELLING and attempt.started_at is None)
    )
    is_known = worker.reported > 0  # back with fewer slots, it has not reported its attempts yet
    slots = worker.facts.slots
    assert slots_used <= slots or not is_known, f"worker {worker.name} has {slots_used} slots in use of {slots}"


def check_lease(state: State, name: str) -> None:
    """Raises AssertionError if a worker has attempts without a lease: they would stay there for ever."""
    has_lease = name in state.index.leases.keys
    assert has_lease or not state.index.attempts.is_occupied(name), f"worker {name} has attempts, but no lease"


def check_guarantee(state: State, job: Job, earlier: Sequence[Job]) -> None:
    """Raises AssertionError if a live job could pass a predecessor among the ``earlier`` live jobs.

    A job with a predecessor keeps back one fresh task.
    """
    sized = [p for p in earlier if p.size is not None and p.order is not Order.NONE and not p.is_exempt]
    predecessors = [p for p in sized if (p.size or 0.0) <= job.weight and job.is_ordered_after(p)]
    if job.is_computed:
        assert job.order is Order.DELIVER, f"job {job.id} is computed, but does not complete"
        assert predecessors, f"job {job.id} is computed and held by nobody, but is not delivered"
    assert job.shown is None or job.size is None, f"job {job.id} has a size, and is weighed by what it has shown"
    if job.order is not Order.HOLD or job.released_at is not None:
        return
    assert len(state.fresh[job.id]) > 0, f"job {job.id} was never released, but has no task left to start"
    if predecessors and len(state.fresh[job.id]) == 1:
        assert state.index.is_held(job), f"job {job.id} is not held, but may not pass {predecessors[0].id}"
        blocker = state.index.blockers[job.id]
        assert blocker in [p.arrival for p in predecessors], f"job {job.id} waits for {blocker} in vain"
        assert job.id in state.index.blocked[blocker], f"nobody wakes job {job.id} when {blocker} goes"


def check_turn(state: State, job: Job) -> None:
    """Raises AssertionError if a live job of a session lacks the session's turn, or another live job its own."""
    session = state.index.sessions.find(job.session)
    if job.is_live and job.session is None:
        assert job.turn == job.arrival, f"job {job.id} arrived as {job.arrival}, its turn is {job.turn}"
    elif job.is_live:
        assert session is not None, f"job {job.id} is part of a session that is not there"
        assert job.turn == session.turn <= job.arrival, (
            f"job {job.id} has turn {job.turn}, its session {session.turn}"
        )


def check_job(state: State, number: int) -> None:
    """Raises AssertionError if a job contradicts its tasks, or breaks the guarantee.

    Costs O(live jobs + its tasks in memory).
    """
    job, in_memory = state.jobs[number], state.index.ready_sets[number].kept
    if len(in_memory) <= MOST_TASKS:
        check_counts(state, job, [state.tasks[TaskId(number, task)] for task in in_memory])
    for wing in state.wings.all:
        wing.check(job)
    check_turn(state, job)
    if job.is_live:
        assert state.index.live.get(job.arrival) is job, f"job {number} is live, but not in the order of arrival"
        check_guarantee(state, job, list(takewhile(lambda one: one is not job, state.index.live.values())))


def check_worker(state: State, name: str) -> None:
    """Raises AssertionError if a worker contradicts its attempts, or these their tasks. Costs O(its attempts)."""
    worker, index = state.workers[name], state.index.attempts
    attempts = list(index.of_worker.get(name, {}).values())
    for attempt in attempts:
        assert state.attempts.get(attempt.id) is attempt, f"attempt {attempt.id} is indexed, but not in memory"
        check_attempt(state, attempt)
    check_slots(worker, attempts)
    check_lease(state, name)
    seated = sum(attempt.slots for attempt in attempts if attempt.is_seated)
    used = index.used.get(name, 0)
    assert used == seated, f"worker {name} counts {used} slots in use, its attempts take {seated}"
    for wing in state.wings.all:
        wing.check(worker)
