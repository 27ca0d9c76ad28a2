"""Checks of the rows that a master may start from, and of the end of a run. Raise AssertionError on a violation."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from loopline_master.core.estimates.measure import ms_of
from loopline_master.core.kernel.effects import Effects
from loopline_master.core.kernel.eligibility import startable_tasks
from loopline_master.core.kernel.entities import OCCUPYING
from loopline_master.core.kernel.index.requirement_class import meets
from loopline_master.core.kernel.state import State
from loopline_master.core.wings.checkpoints.checkpoints_wing import Checkpoints
from loopline_master.core.wings.gangs.gang_memory import GangMemory
from loopline_master.core.wings.power.sleeper import Sleeper, Sleepers
from loopline_master.core.wings.power.wakes import GIVE_UP_S
from loopline_master.core.wings.shares.accounts import Accounts
from loopline_master.core.wings.transfers.transfer_memory import TransferMemory
from loopline_shared.model import AttemptId, TaskState
from loopline_shared.parallel import rank_of
from loopline_simulator.full.machine import WATTS, Machine
from loopline_simulator.full.store import MemoryStore


def check_restart_changes_nothing(now: State, again: State) -> None:
    """Check that the rows have everything that the scheduler knows: ``again`` was restored from them."""
    assert now.grid == again.grid
    for part in ("jobs", "tasks", "attempts", "workers", "programs", "fresh"):
        assert_same(part, getattr(now, part), getattr(again, part))
    assert_same("gangs", now.own(GangMemory).gangs, again.own(GangMemory).gangs)
    assert_same("carriers", now.own(TransferMemory).carriers, again.own(TransferMemory).carriers)
    assert_same("sleepers", now.own(Sleepers).of, again.own(Sleepers).of)
    assert_same("users", now.own(Accounts).users, again.own(Accounts).users)
    assert_same("checkpoints", now.wings[Checkpoints].of_live_jobs(), again.wings[Checkpoints].of_live_jobs())
    assert now.index.ready == again.index.ready
    assert now.index.blockers.keys() == again.index.blockers.keys()


def check_rows(store: MemoryStore, acknowledged: Iterable[int]) -> None:
    """Check that every acknowledged job has ended, and that each succeeded task has one accepted result."""
    for job_id in acknowledged:
        job = store.jobs[job_id]
        assert not job.is_live, f"job {job_id} is still {job.state}: {job}"
        assert job.departure is not None
    accepted: dict[tuple[int, int], int] = {}
    for attempt in store.attempts.values():
        accepted[attempt.task_id] = accepted.get(attempt.task_id, 0) + attempt.accepted
    for task in store.tasks.values():
        assert not task.is_open, f"task {task.id} is still {task.state}"
        results, expected = accepted.get(task.id, 0), store.jobs[task.job].nodes
        assert results == expected * (task.state is TaskState.SUCCEEDED), f"task {task.id}, {task.state}: {results}"
    _gangs_are_whole(store)
    _ledgers_add_up(store)
    _energy_adds_up(store)
    _quorums_were_kept(store)
    live = [a.id for a in store.attempts.values() if a.state in OCCUPYING]
    assert not live, f"attempts still alive: {live}"
    assert not store.passings, f"passings: {store.passings}"


def check_begun(members: Iterable[AttemptId], store: MemoryStore, starts_named: Collection[AttemptId]) -> None:
    """Check that the start of each gang was committed before a member began: all were prepared then."""
    for member in members:
        rank = rank_of(member.number, store.jobs[member.job].nodes)
        first = AttemptId(member.job, member.task, member.number - rank)
        assert first in starts_named, f"{member} began before the start of its gang was committed"


def check_wakes(effects: Effects, before: Mapping[str, Sleeper], state: State) -> None:
    """Check that each computer that is woken sleeps, is not being woken, and can do work that waits."""
    for name, sleeper in effects.rows(Sleeper).items():
        old = before.get(name)
        if sleeper.last_wake_at is None or (old is not None and old.last_wake_at == sleeper.last_wake_at):
            continue
        assert sleeper.is_asleep, f"{name} is awake, and is woken"
        if old is not None and old.waking_since is not None and old.asleep_since == sleeper.asleep_since:
            assert old.waking_since + GIVE_UP_S <= state.now, f"{name} is woken twice at once"
        facts, requirements = state.workers[name].facts, state.index.requirements
        live = state.index.live.values()
        useful = (job for job in live if startable_tasks(state, job) and meets(facts, requirements.key_of(job)))
        assert any(useful), f"{name} is woken, and no work waits that it could do"


def _gangs_are_whole(store: MemoryStore) -> None:
    """Check that the accepted members of each gang are those of one launch, on as many workers."""
    for task in store.tasks.values():
        nodes = store.jobs[task.job].nodes
        if nodes > 1 and task.winner is not None:
            ids = [AttemptId(task.job, task.number, task.winner + rank) for rank in range(nodes)]
            members = [store.attempts[one] for one in ids]
            assert all(member.accepted for member in members), f"{task.id} has members that were not accepted"
            assert len({member.worker for member in members}) == nodes, f"{task.id} was on too few workers"


def _ledgers_add_up(store: MemoryStore) -> None:
    """Check that each attempt's time is accounted to its job exactly once."""
    known = dict.fromkeys(store.jobs, 0)
    for attempt in store.attempts.values():
        is_known = attempt.exit_code is not None and not attempt.late
        assert not (is_known and attempt.assumed_cpu_ms), f"attempt {attempt.id} is known, and still assumed"
        kept = store.checkpoint_accounts.get(attempt.id)
        kept_ms = kept.kept_cpu_ms if kept else 0
        known[attempt.job] += max(0, ms_of(attempt.cpu_s) - kept_ms) if is_known else attempt.assumed_cpu_ms
    for job in store.jobs.values():
        entered = job.useful_cpu_ms + job.wasted_cpu_ms + job.lost_cpu_ms
        assert entered == known[job.id], f"job {job.id} has {entered} ms in its ledger, its attempts {known[job.id]}"
        assert job.won_cpu_ms <= job.replicated_cpu_ms, f"job {job.id}: {job}"
        marked = sum(task.mismatch for task in store.tasks.values() if task.job == job.id)
        assert job.mismatches == marked, f"job {job.id} counts {job.mismatches} mismatches of {marked}"


def _energy_adds_up(store: MemoryStore) -> None:
    """Check that the energy of each attempt with a result is known once, from workers that declare it."""
    known = (one for one in store.attempts.values() if one.exit_code is not None and not one.late and one.cpu_s)
    expected: dict[tuple[int, int, int, str], float] = {
        (*attempt.id, source): attempt.cpu_s * WATTS
        for attempt in known
        if (worker := store.workers.get(attempt.worker))
        for source in worker.facts.energy
    }
    found = {key: row.joules for key, row in store.energies.items()}
    differing = found.keys() ^ expected.keys()
    assert not differing, f"energy without a result, or the other way round: {differing}"
    wrong = {key: joules for key, joules in found.items() if not math.isclose(joules, expected[key], abs_tol=0.1)}
    assert not wrong, f"energy is {wrong}"


def _quorums_were_kept(store: MemoryStore) -> None:
    for task in store.tasks.values():
        quorum = store.jobs[task.job].spec.quorum
        if quorum is None or task.winner is None:
            continue
        digests = {vote.attempt: vote.digest for vote in task.votes}
        agreeing = {vote.worker for vote in task.votes if vote.digest == digests[task.winner]}
        assert len(agreeing) >= quorum, f"task {task.id} was accepted, but only {agreeing} agreed"


def check_machines(machines: Iterable[Machine]) -> None:
    """Check that all processes have ended and all results are acknowledged."""
    for machine in machines:
        assert not machine.processes, f"{machine.name} still runs {list(machine.processes)}"
        kept = {**machine.disk.results, **machine.disk.begun, **machine.disk.waiting}
        assert not kept, f"{machine.name} still keeps {list(kept)}"


def check_replay(store: MemoryStore) -> None:
    """Check that the log alone leads to the same rows."""
    again = store.replayed()
    assert again.grid == store.grid
    for part in (
        "jobs", "tasks", "attempts", "workers", "programs", "gangs", "carriers", "users", "exemptions", "checkpoints",
        "sleepers", "resumed", "checkpoint_accounts", "energies",
    ):  # fmt: skip
        assert_same(part, getattr(store, part), getattr(again, part))


def assert_same(what: str, now: Mapping[Any, object], again: Mapping[Any, object]) -> None:
    for key in {**now, **again}:
        assert now.get(key) == again.get(key), f"{what} {key}: now {now.get(key)}, again {again.get(key)}"
