"""Deaths of agents: an agent that dies while a task runs may have died of it.

Such an end uses up none of the task's ``max_attempts``, for it may be no doing of the task's own. But a task that
kills every agent in turn would go round for ever, so after three such ends on two workers at least, or on the only
one there is for it, the task fails.
"""

from __future__ import annotations

from loopline_master.core.entities import MAX_TAKEN_DOWN, Attempt, Job, Task
from loopline_master.core.state import State

_MOST_PLACES = 16


def count(task: Task, attempt: Attempt) -> None:
    """Note that the worker's agent died while the attempt ran."""
    task.took_down = (*task.took_down, attempt.worker)[-_MOST_PLACES:]


def is_too_many(state: State, job: Job, task: Task) -> bool:
    """True if agents died so often while the task ran that it is to fail."""
    if len(task.took_down) < MAX_TAKEN_DOWN:
        return False
    requirements = state.index.requirements
    return task.is_dangerous or requirements.able.get(requirements.key_of(job), set()) <= set(task.took_down)


def verdict(task: Task) -> str:
    """Return the reason to be shown to users; empty if no agent has died."""
    times = len(task.took_down)
    return f"took its worker down {times} time{'' if times == 1 else 's'}" if times else ""
