"""The key of a state: equal keys have equal futures, but for names, numbers and the time of day.

- Times count from now. Numbers of frames count from the last Assign, sessions are equal to the row's or not.
- Jobs that have left memory and attempts that are forgotten drop out; the others are numbered by their order. So are
  arrivals and turns.
- Workers with equal facts may exchange their names: of the two keys the smaller one counts. (Ties between equal
  workers go to the first by name, so the future of the one state is that of the other with the names exchanged, up to
  such ties. ``make test-full`` explores one configuration without this.)
- Statistics that no decision reads are left out (``NOT_READ``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from hashlib import blake2b
from typing import Any

from loopline_master.core.kernel.entities import Attempt, Grid, Job, Program, Task, Worker
from loopline_master.core.snapshot import Snapshot
from loopline_master.core.wings.gangs.gang import Gang
from loopline_master.core.wings.gangs.planning.plan import Plan
from loopline_master.core.wings.power.sleeper import Sleeper
from loopline_master.core.wings.shares.user import User
from loopline_shared.protocol.worker_link import Assign
from tests.explored.agent import Agent, Ended
from tests.explored.grid import GridState

TIMES = {
    *("last_start", "looked_at", "idle_looked_at"),
    *("starved_since", "exempt_since", "retry_at"),
    *("lease_until", "kept_until", "quarantined_until", "usage_at"),
    *("since", "start", "told_at", "first_start", "earliest", "earliest_p50", "changed_at", "promised", "first_p50"),
    *("p50", "p90", "started_at", "dispatched_at"),
    *(
        "asleep_since",
        "waking_since",
        "last_wake_at",
        "first_wake_at",
        "woken_at",
        "wakes_planned_at",
        "wakes_due_at",
    ),
}
NOT_READ: Mapping[type, frozenset[str]] = {
    Grid: frozenset({"next_job", "sequence", "now", "virtual", "gangs_came", "last_worker"}),
    Job: frozenset(
        {
            *("spec", "owner", "submitted_at", "finished_at", "entered_at", "held_at", "released_at"),
            *("idempotency_key", "useful_cpu_ms", "replicated_cpu_ms", "won_cpu_ms", "wasted_cpu_ms", "lost_cpu_ms"),
            "started_at",
            *("departure", "predicted", "most_used", "proof", "waiting_for", "spec_bytes", "inputs"),
        }
    ),
    Task: frozenset({"started_at", "finished_at", "verdict"}),
    Attempt: frozenset(
        {
            *("reason", "ended_at", "stdout", "stderr", "outputs", "value", "metrics", "phases", "slot", "freezes"),
            *("assumed_cpu_ms", "wall_s", "cpu_s", "system_s", "peak_memory_bytes", "fetch_s", "frozen_s"),
            *("deliver_s", "accepted", "exit_code", "late", "worker"),
        }
    ),
    Worker: frozenset({"name", "boot", "facts", "joined_at", "session", "reported", "assigned", "load", "reported_at",
                       "drain_reason", "quarantine_reason"}),
    Program: frozenset({"first_run_at", "used_at", "window", "changed_at"}),
    User: frozenset(),
    Sleeper: frozenset({"worker"}),
    Gang: frozenset({"reason"}),
    Plan: frozenset({"reason", "broken_reason", "told_at", "moves", "changed_at"}),
}  # fmt: skip


class _Names:
    """New names and numbers for those of a state."""

    def __init__(self, state: GridState, snapshot: Snapshot) -> None:
        self.now, self.workers = state.now, dict[str, int]()
        turns = sorted({job.arrival for job in snapshot.jobs} | {job.turn for job in snapshot.jobs})
        self.places = {turn: place for place, turn in enumerate(turns, 1)}
        self.pointer = sum(turn <= snapshot.grid.pointer for turn in turns)
        found: dict[tuple[int, int], set[int]] = {}
        jobs = {job.id for job in snapshot.jobs}
        for task in snapshot.tasks:
            found.setdefault((task.job, task.number), set()).update(
                [task.attempts, *([task.winner] if task.winner else []), *(vote.attempt for vote in task.votes)]
            )
        for job, task, number in attempts_of(state, snapshot):
            found.setdefault((job, task), set()).add(number)
            jobs.add(job)
        self.jobs = {job: place for place, job in enumerate(sorted(jobs), 1)}
        self.numbers = {
            (*task, number): place for task, numbers in found.items() for place, number in enumerate(sorted(numbers))
        }

    def attempt(self, attempt: tuple[int, int, int]) -> tuple[int, int, int]:
        return self.jobs[attempt[0]], attempt[1], self.numbers[attempt]


def attempts_of(state: GridState, snapshot: Snapshot) -> Iterable[tuple[int, int, int]]:
    for attempt in snapshot.attempts:
        yield attempt.id
    for agent in state.agents.values():
        yield from agent.held
        yield from agent.members
        for one in agent.ended:
            yield one.attempt
        for assign in agent.mail:
            yield from (run.attempt for run in assign.run)
            yield from assign.cancel
            yield from (word.attempt for word in assign.words)


def key_of(state: GridState, *, exchanges_workers: bool = True) -> bytes:
    """Return the key of a state."""
    names, kept = _Names(state, state.rows.kept), state.rows.kept
    rows, held = {row.name: row for row in kept.workers}, dict[str, list[object]]()
    for attempt in sorted(kept.attempts, key=lambda one: one.id):
        its = names.attempt(attempt.id), _attempt(names, attempt, rows[attempt.worker])
        held.setdefault(attempt.worker, []).append(its)
    own: dict[str, str] = {}
    for name, agent in state.agents.items():
        row = rows.get(name)
        sleep = [_plain(names, one) for one in kept.sleepers if one.worker == name]
        own[name] = repr((agent.facts, _worker(names, row), _agent(names, agent, row), held.get(name), sleep))
    order = sorted(own, key=own.__getitem__) if exchanges_workers else list(own)
    orders = [order, order[::-1]] if len(order) == 2 and own[order[0]] == own[order[1]] else [order]
    text = min(repr(_of_grid(names, state, one)) for one in orders) + "".join(own[name] for name in order)
    return blake2b(text.encode(), digest_size=16).digest()


def _of_grid(names: _Names, state: GridState, order: Sequence[str]) -> object:
    """Return everything beside the workers and their attempts, with the workers in this order."""
    kept, names.workers = state.rows.kept, {name: place for place, name in enumerate(order, 1)}
    return (
        (_plain(names, kept.grid), names.pointer, state.to_submit, state.left),
        [_job(names, job, kept) for job in sorted(kept.jobs, key=lambda one: one.id)],
        [_task(names, task) for task in sorted(kept.tasks, key=lambda one: one.id)],
        [_plain(names, one) for one in (*kept.programs, *kept.users)],
        [(names.attempt((one.job, one.task, one.first)), _plain(names, one)) for one in kept.gangs],
        [_plain(names, one) for one in kept.plans],
    )


def _job(names: _Names, job: Job, kept: Snapshot) -> object:
    started, is_unreleased, was_held = kept.started.get(job.id), job.released_at is None, job.held_at is not None
    return job.spec.name, job.departure is None, is_unreleased, was_held, started, _plain(names, job)


def _task(names: _Names, task: Task) -> object:
    number = names.numbers[task.job, task.number, task.attempts]
    votes = [(names.numbers[task.job, task.number, one.attempt], names.workers[one.worker]) for one in task.votes]
    return (names.jobs[task.job], task.number), number, votes, _plain(names, task)


def _attempt(names: _Names, attempt: Attempt, worker: Worker) -> object:
    sent = attempt.sent - worker.assigned if attempt.sent else None
    return sent, attempt.started_at is None, attempt.stands_still, _plain(names, attempt)


def _worker(names: _Names, worker: Worker | None) -> object:
    if worker is None:
        return None
    return worker.session is None, bool(worker.reported), _plain(names, worker)


def _agent(names: _Names, agent: Agent, worker: Worker | None) -> object:
    is_known = worker is not None and agent.session == worker.session
    last = worker.assigned if worker is not None else 0
    return (
        bool(agent.session),
        is_known,
        bool(agent.reports),
        agent.seen - last if is_known and agent.reports else 0,
        [_assign(names, one, agent, last) for one in agent.mail],
        [names.attempt(one) for one in agent.held],
        sorted(names.attempt(one) for one in agent.begun),
        [names.attempt(one) for one in agent.members],
        sorted(names.attempt(one) for one in agent.frozen),
        [_ended(names, one, agent) for one in agent.ended],
        agent.is_doubtful,
        agent.owes_report,
        worker is not None and worker.boot == f"boot-{agent.boots}",
    )  # fmt: skip


def _ended(names: _Names, one: Ended, agent: Agent) -> object:
    return names.attempt(one.attempt), one.outcome, agent.reports - one.report if one.report else None


def _assign(names: _Names, assign: Assign, agent: Agent, last: int) -> object:
    return (
        assign.seq - last,
        assign.seen - agent.reports,
        [(names.attempt(run.attempt), run.gang is None) for run in assign.run],
        [names.attempt(one) for one in assign.cancel],
        [(names.attempt(one.attempt), one.order) for one in assign.words],
    )


_PLAIN: dict[type, tuple[tuple[str, Callable[[_Names, Any], object] | None], ...]] = {}


def _plain(names: _Names, row: Any) -> object:
    """Return the fields of a row that decisions read, those with times and numbers changed."""
    kind = row.__class__
    if kind not in _PLAIN:
        _PLAIN[kind] = tuple((name, _CHANGES.get(name)) for name in _names_of(kind))
    return [
        value if change is None or value is None else change(names, value)
        for name, change, value in ((name, change, getattr(row, name)) for name, change in _PLAIN[kind])
    ]


def _names_of(kind: type) -> Iterable[str]:
    left_out = {*NOT_READ.get(kind, ()), *("number", "attempts", "votes", "winner", "sent", "pointer", "id", "first")}
    return (field.name for field in fields(kind) if field.init and field.name not in left_out)


_CHANGES: dict[str, Callable[[_Names, Any], object]] = {
    **dict.fromkeys(TIMES, lambda names, at: round(at - names.now, 3)),
    **dict.fromkeys(
        ("failed_on", "took_down", "workers", "machines", "culprits"),
        lambda names, those: [names.workers[name] for name in those],
    ),
    "job": lambda names, job: names.jobs[job],
    "id": lambda names, job: names.jobs.get(job, 0),
    "arrival": lambda names, arrival: names.places[arrival],
    "turn": lambda names, turn: names.places[turn],
    "behind": lambda names, arrival: names.places.get(arrival, 0),
}
