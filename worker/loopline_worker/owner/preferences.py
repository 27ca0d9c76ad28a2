"""The owner's terms as the settings have them, and in words."""

from __future__ import annotations

from loopline_worker.core.owner_policy import Policy, Terms
from loopline_worker.settings import WorkerSettings

_GIB = 2**30
_MEMORY_SHARE = 8
_MOST_MEMORY = 2 * _GIB


def terms_of(settings: WorkerSettings, memory_bytes: int) -> Terms:
    """Of a computer with so much memory. A dedicated one has no owner to heed."""
    if settings.dedicated:
        return Terms(Policy.ALWAYS, on_battery=True)
    leave_memory_bytes = settings.leave_memory_bytes
    if leave_memory_bytes is None:
        leave_memory_bytes = min(memory_bytes // _MEMORY_SHARE, _MOST_MEMORY)
    return Terms(
        settings.policy,
        settings.idle_s,
        settings.leave_cores,
        leave_memory_bytes,
        settings.on_battery,
        settings.heed_load,
    )


def in_words(settings: WorkerSettings, terms: Terms) -> list[str]:
    """For the owner: what this worker may do, and when it may not."""
    if settings.dedicated:
        return ["This computer is dedicated to the grid: tasks run whoever uses it."]
    words = [_WORDS[terms.policy].format(idle=_span(terms.idle_s), cores=f"{terms.leave_cores:g}")]
    if terms.policy is not Policy.ALWAYS:
        words.append(f"At least {terms.leave_memory_bytes / _GIB:.1f} GiB of memory are left to you.")
    words.append(f"What has stood still for {_span(settings.grace_s)} is given back, to run elsewhere.")
    words.append(f"At least {settings.disk_reserve_bytes / _GIB:.1f} GiB of disk space are left alone.")
    if not terms.on_battery:
        words.append("Nothing runs while this computer is on battery.")
    if settings.hours.spans:
        words.append(f"Tasks run only in these hours: {settings.hours.text}.")
    if settings.not_while:
        words.append(f"Nothing runs while one of these programs does: {', '.join(settings.not_while)}.")
    return words


_WORDS = {
    Policy.WHEN_IDLE: "Tasks run when nobody has used this computer for {idle}, and stand still when somebody does.",
    Policy.SPARE: "Tasks run on the cores that your programs leave over; {cores} more stay free while you are here.",
    Policy.ALWAYS: "Tasks run at the lowest priority, whoever uses this computer.",
}


def _span(seconds: float) -> str:
    return f"{seconds / 60:g} min" if seconds >= 60 else f"{seconds:g} s"
