"""A second account of checkpoints, by committed rows: it does not rely on the scheduler to remove the right ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from copy import copy

from loopline_master.core.kernel.effects import Effects
from loopline_master.core.kernel.entities import Attempt, Job
from loopline_master.core.kernel.state import State
from loopline_master.core.wings.checkpoints.checkpoints_wing import KEPT, MOST_FAILED
from loopline_master.core.wings.checkpoints.saved_work import ResumedAttempt, SavedCheckpoint
from loopline_shared.model import AttemptId, TaskId, TaskState
from loopline_shared.parallel import launch_of, rank_of
from loopline_shared.protocol.checkpoints import TakenCheckpoint
from loopline_simulator.full.store import MemoryStore


class CheckpointLedger:
    """The newest committed checkpoints of each task. A worker's Report is acknowledged once they are committed."""

    def __init__(self) -> None:
        self._kept: dict[TaskId, list[SavedCheckpoint]] = {}  # the newest last
        self._committed: set[str] = set()  # manifests

    def check(self, known: Container[AttemptId], effects: Effects, state: State) -> None:
        """Check that each attempt that is not ``known`` starts from the newest checkpoint it may use.

        Checkpoints of the same step do not count, as the attempt may have been started before they came.
        """
        changed = effects.rows(SavedCheckpoint)
        for attempt in effects.attempts.values():
            job = state.jobs.get(attempt.job)
            if attempt.id in known or job is None or job.spec.checkpoint is None:
                continue
            kept = [changed.get(one.key, one) for one in self._kept.get(attempt.task_id, ())]
            if job.nodes > 1:
                _check_member(attempt, job, kept, effects, state)
                continue
            usable = [one.work for one in kept if _may_use(one, job, attempt, state)]
            resumed = effects.rows(ResumedAttempt).get(attempt.id)
            work = resumed.work if resumed else 0.0
            assert work >= max(usable, default=0.0), f"{attempt.id} starts from {work}, and {max(usable)} is there"

    def check_acknowledged(self, told: Iterable[TakenCheckpoint], store: MemoryStore) -> None:
        """Check that acknowledged checkpoints of open tasks were committed, unless another attempt is ahead.

        If no time has passed since the kept one, the work in a later one is the same, by the bound on claims.
        """
        now = store.grid.now
        for taken in told:
            attempt = store.attempts[taken.attempt]
            if taken.manifest in self._committed or attempt.is_over or not store.tasks[attempt.task_id].is_open:
                continue
            if store.jobs[taken.attempt.job].nodes > 1:
                rows = self._kept.get(attempt.task_id, ())
                same = any((one.attempt, one.step) == (attempt.number, taken.step) for one in rows)
                assert same, f"step {taken.step} of {attempt.id} was acknowledged, and not kept"
                continue
            kept = self._kept.get(attempt.task_id, ())
            is_behind = any(
                one.attempt != attempt.number or one.cpu_s >= taken.cpu_s or one.taken_at >= now for one in kept
            )
            assert is_behind, f"a checkpoint of {attempt.id} was acknowledged, and not kept"

    def commit(self, effects: Effects) -> None:
        """Take in the rows of a step. An open task keeps its newest ones, a failed or cancelled task one."""
        for saved in effects.rows(SavedCheckpoint).values():
            others = [one for one in self._kept.get(saved.task_id, ()) if one.manifest != saved.manifest]
            rows = sorted([*others, copy(saved)], key=_rank)
            self._kept[saved.task_id] = rows if saved.step is not None else rows[-KEPT:]
            self._committed.add(saved.manifest)
        for task in effects.tasks.values():
            if task.id in self._kept and not task.is_open:
                rows = self._kept[task.id]
                if task.state is TaskState.SUCCEEDED:
                    self._kept[task.id] = []
                elif rows and rows[0].step is None:
                    self._kept[task.id] = rows[-1:]


def _check_member(
    attempt: Attempt, job: Job, kept: Iterable[SavedCheckpoint], effects: Effects, state: State
) -> None:
    """Check that a launch starts from the newest step that all members of one launch have saved, or a newer one."""
    launch, nodes = launch_of(attempt.id, job.nodes), job.nodes
    members = [launch._replace(number=launch.number + rank) for rank in range(nodes)]
    saved = defaultdict[tuple[int, int], set[int]](set)  # by step and launch: ranks
    for one in kept:
        rank = rank_of(one.attempt, nodes)
        if one.step is not None and _may_use(one, job, state.attempts[members[rank]], state):
            saved[one.step, one.attempt - rank].add(rank)
    whole = max((cut for cut, ranks in saved.items() if len(ranks) == nodes), default=_START)
    rows = {one.manifest: one for one in (*kept, *effects.rows(SavedCheckpoint).values())}
    begun = {_cut_of(rows, effects.rows(ResumedAttempt).get(member), nodes) for member in members}
    assert len(begun) == 1, f"{launch} starts from several states: {begun}"
    assert max(begun) >= whole, f"{launch} starts from {begun}, and {whole} is there"


_START = -1, 0


def _cut_of(rows: Mapping[str, SavedCheckpoint], resumed: ResumedAttempt | None, nodes: int) -> tuple[int, int]:
    """Return the step and the launch of the checkpoint that a member continues from."""
    saved = rows[resumed.manifest] if resumed else None
    return (
        _START if saved is None or saved.step is None else (saved.step, saved.attempt - rank_of(saved.attempt, nodes))
    )


def _rank(saved: SavedCheckpoint) -> tuple[bool, float, float]:
    return len(saved.failed_on) < MOST_FAILED, saved.work, saved.wall_s


def _may_use(saved: SavedCheckpoint, job: Job, attempt: Attempt, state: State) -> bool:
    others = {name for name in saved.line if name != attempt.worker}
    if job.quorum is not None and others:
        return False
    workers = [state.workers[name] for name in others if name in state.workers]
    return len(saved.failed_on) < MOST_FAILED and all(worker.quarantined_until is None for worker in workers)
