"""Outcomes: explanations of ended jobs and tasks, with where their time went, from the stored rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from loopline_master.core.explain.explain_job import succeeded_words
from loopline_master.core.explain.phrases import counted, spoken
from loopline_master.store.queries.failure_queries import FailureGroup
from loopline_master.store.queries.job_history import JobHistory
from loopline_shared.model import AttemptState, JobState, TaskState
from loopline_shared.rest.bodies import AttemptView, Explanation, JobView, Reason, TaskDetail

_NOTABLE_S = 1.0
_MOST_GROUPS = 5
_LONG = 1.5
"""The slowest task is named if it took so many times the mean."""


def failure_reasons(job: int, failed: int, groups: Sequence[FailureGroup]) -> list[Reason]:
    """Return what the failures of a job have in common, with an example of each.

    ``failed`` tasks there are: of those with very many different ends, some may be in no group.
    """
    reasons = [Reason(code="failures", count=one.count, detail=_failure(job, one)) for one in groups[:_MOST_GROUPS]]
    if others := groups[_MOST_GROUPS:]:
        count = sum(one.count for one in others)
        reasons.append(Reason(code="failures", count=count, detail=f"{count} failed in {len(others)} other ways"))
    if (rest := failed - sum(one.count for one in groups)) > 0:
        reasons.append(Reason(code="failures", count=rest, detail=f"{rest} more failed in ways that are rarer still"))
    return reasons


def with_failures(explained: Explanation, failures: Sequence[Reason]) -> Explanation:
    """Return the explanation of an unfinished job with the failures that it had so far."""
    sentence = "; ".join([explained.sentence, *(reason.detail for reason in failures)])
    return explained.model_copy(update={"sentence": sentence, "reasons": [*explained.reasons, *failures]})


def _failure(job: int, group: FailureGroup) -> str:
    code = group.exit_code
    how = "" if code is None else f" by signal {-code}" if code < 0 else f" with exit code {code}"
    if group.reason and (code is not None and (code < 0 or group.reason.startswith(f"exit code {code}:"))):
        how = ""  # the reason says so
    said = f": {group.reason}" if group.reason else ""
    return f"{group.count} failed{how}, such as task {job}.{group.example}{said}"


def explain_ended_job(
    job: JobView, story: JobHistory, failures: Sequence[Reason] = (), max_fails: int | None = None
) -> Explanation:
    """Explain how a job ended, why tasks of it failed, and where its time went.

    ``max_fails``: it was to be stopped at so many failures.
    """
    verb = "was" if job.state is JobState.CANCELLED else "has"
    sentence = f"it {verb} {job.state}"
    if job.task_count > 1:
        sentence += f": {succeeded_words(job.tasks.succeeded, job.task_count, job.tasks.failed)}"
    if job.took is not None and job.took.until is not None:
        sentence += "," if job.task_count > 1 else ""
        sentence += f" in {spoken(job.took.until - job.took.since)}"
    if max_fails is not None and job.state is JobState.CANCELLED and job.tasks.failed >= max_fails:
        sentence += f"; it was stopped because {counted(job.tasks.failed, 'task')} failed (--max-fails)"
    reasons = [*failures, *_reasons(job, story)]
    told = "; ".join([sentence, *(reason.detail for reason in reasons)])
    return Explanation(subject=str(job.id), state=job.state, sentence=told, reasons=reasons)


def _reasons(job: JobView, story: JobHistory) -> Iterator[Reason]:
    if story.chained_s >= _NOTABLE_S:
        detail = f"waited {spoken(story.chained_s)} for the jobs that it came after"
        yield Reason(code="chained", count=job.task_count, detail=detail)
    if story.queued_s >= _NOTABLE_S:
        yield Reason(code="queued", count=job.task_count, detail=f"waited {spoken(story.queued_s)} for a slot")
    if story.held_s >= _NOTABLE_S:
        behind = f" behind job {story.held_behind}" if story.held_behind else ""
        yield Reason(code="held", count=1, detail=f"held {spoken(story.held_s)}{behind}", job=story.held_behind)
    ends = {"lost": story.lost, "failed": story.failed, "preempted": story.given_back}
    if any(ends.values()):
        detail = ", ".join(f"{count} {how}" for how, count in ends.items() if count)
        yield Reason(code="attempts", count=sum(ends.values()), detail=f"unsuccessful attempts: {detail}")
    yield from _phases(story, " in total" if job.task_count > 1 else "")
    if story.replicas_won:
        detail = f"{counted(story.replicas_won, 'replica')} finished first"
        yield Reason(code="replicas", count=story.replicas_won, detail=detail)
    if job.mismatches:
        detail = f"results of {counted(job.mismatches, 'task')} differ between workers"
        yield Reason(code="mismatch", count=job.mismatches, detail=detail)
    slowest = story.slowest
    if slowest is not None and job.task_count > 1 and slowest.times_mean >= _LONG:
        detail = f"its slowest task, {slowest.task}, ran {spoken(slowest.took_s)} on {slowest.worker}"
        detail += f" (speed {slowest.speed:.3g}), {slowest.times_mean:.1f} times the mean"
        yield Reason(code="slowest", count=1, detail=detail)


def _phases(story: JobHistory, in_total: str) -> Iterator[Reason]:
    """Yield how long the phases of accepted attempts took, apart from the run itself."""
    if story.fetch_s >= _NOTABLE_S:
        detail = f"{spoken(story.fetch_s)}{in_total} to fetch inputs and software"
        yield Reason(code="fetch", count=1, detail=detail)
    if story.frozen_s >= _NOTABLE_S:
        detail = f"frozen for {spoken(story.frozen_s)}{in_total} while the PC's owner was there"
        yield Reason(code="frozen", count=1, detail=detail)
    if story.deliver_s >= _NOTABLE_S:
        yield Reason(code="deliver", count=1, detail=f"{spoken(story.deliver_s)}{in_total} to deliver outputs")


def explain_ended_task(task: TaskDetail) -> Explanation:
    """Explain how a task ended."""
    accepted = [one.worker for one in task.attempts if one.accepted]  # several: the members of a gang
    place = f" on {' and '.join(accepted or [task.worker or ''])}" if accepted or task.worker else ""
    reason = f": {task.reason}" if task.reason else ""
    verb = "was" if task.state is TaskState.CANCELLED else "has"
    about = attempt_described(task)
    ends = Counter(_end_of(one, task) for one in task.attempts if not (one is about or one.accepted))
    tries = ends.pop("failed", 0) + 1
    after = f" after {tries} attempts" if tries > 1 else ""
    sentence = f"it {verb} {task.state}{place}{after}{reason}"
    if ends:
        sentence += f"; other attempts: {', '.join(f'{count} {how}' for how, count in ends.items())}"
    if times := _times_of(task):
        sentence += f"; {', '.join(times)}"
    if task.mismatch:
        digests = len({vote.digest for vote in task.votes})
        differ = f"{counted(len(task.votes), 'result')}, {digests} different" if digests > 1 else "two results"
        sentence += f"; its results differ between workers ({differ})"
    return Explanation(subject=str(task.id), state=task.state, sentence=sentence)


def _end_of(attempt: AttemptView, task: TaskDetail) -> str:
    """Return how an attempt ended that does not describe the task: only failed ones use up the job's attempts."""
    if attempt.state is AttemptState.SUCCEEDED:
        return "voted" if len(task.votes) > 1 else "superseded"
    if attempt.state is not AttemptState.CANCELLED:
        return attempt.state.value
    if "owner" in attempt.reason:
        return "preempted"
    return "superseded" if task.state is TaskState.SUCCEEDED else "cancelled"


def attempt_described(task: TaskDetail) -> AttemptView | None:
    """Return the attempt that a task's row describes: the accepted one, else the latest."""
    return next((one for one in task.attempts if one.accepted), task.attempts[-1] if task.attempts else None)


def _times_of(task: TaskDetail) -> list[str]:
    """Return the phases of a second or more of the attempt that describes the task."""
    attempt = attempt_described(task)
    if attempt is None or attempt.started_at is None or attempt.phases is None:
        return []
    phases = attempt.phases
    times = {
        "waited {} at its worker for a slot": attempt.started_at - attempt.dispatched_at,
        "took {} to fetch inputs and software": phases.inputs_s,
        "ran {}": attempt.wall_s,
        "was frozen for {}": phases.frozen_s,
        "took {} to deliver outputs": phases.deliver_s,
    }
    return [words.format(spoken(seconds)) for words, seconds in times.items() if seconds >= _NOTABLE_S]
