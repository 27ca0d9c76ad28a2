"""Words for the reasons why a task does not start on workers that have room for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from loopline_master.core.explain.phrases import counted
from loopline_master.core.kernel.door.mechanism import Purpose
from loopline_master.core.kernel.eligibility import ends_in_time, should_go_elsewhere
from loopline_master.core.kernel.entities import Job, Worker
from loopline_master.core.kernel.state import State

OF_KERNEL: Mapping[str, str] = {
    "worker_ends": "would not end before the worker must",
    "tried_there": "would be its second attempt or result there",
    "failed_there": "would repeat a failure there, so it goes to another worker first",
}
"""Words for the kernel's own rules, by a code of this file."""
OF_WINGS: Mapping[str, str] = {
    "gang": "would delay a job of several nodes that is planned there",
    "user_slots": "would take more slots than one user may have at once",
    "restored": "must wait, because the database was restored, and the task may still run and must not run twice",
}
"""Words for the codes of vetoes."""


def why_not_on(
    state: State, job: Job, task: int | None, free: Iterable[Worker], *, known: Collection[str] = ()
) -> str:
    """Return why the task, by default the job's next one, does not start on these workers, which have room for it.

    ``known``: codes that the explanation has named already.
    """
    task = task or next(iter(state.index.ready_sets[job.id].to_retry.starts or state.fresh[job.id].starts), 1)
    counts = Counter(_refusal(state, job, task, worker) for worker in free)
    said = [
        f"; a start on {counted(counts[code], 'free worker')} {words}"
        for code, words in {**OF_KERNEL, **OF_WINGS}.items()
        if counts[code] and code not in known
    ]
    if counts[""]:
        said.append(f"; policy {state.settings.policy} has another use for what is free, or none for this job yet")
    return "".join(said)


def _refusal(state: State, job: Job, task: int, worker: Worker) -> str:
    """Return the code of the rule that refuses the task on this worker; empty if none does."""
    if not ends_in_time(state, job, task, worker, state.now):
        return "worker_ends"
    if state.index.on_worker(job.task_id(task), worker.name):
        return "tried_there"
    if should_go_elsewhere(state, job, task, worker):
        return "failed_there"
    veto = state.wings.veto(job, task, worker, Purpose.START)
    return "" if veto is None else veto.code
