"""The owner's preferences as the settings have them, and in words."""

from __future__ import annotations

from loopline_worker.core.owner_policy import OwnerPreferences, Policy
from loopline_worker.settings import WorkerSettings

_GIB = 2**30
_MEMORY_SHARE = 8
_MOST_MEMORY = 2 * _GIB


def preferences_of(settings: WorkerSettings, memory_bytes: int) -> OwnerPreferences:
    """Return the preferences for a computer with this memory. A dedicated one has no owner."""
    if settings.dedicated:
        return OwnerPreferences(Policy.ALWAYS, on_battery=True)
    reserve_memory_bytes = settings.reserve_memory_bytes
    if reserve_memory_bytes is None:
        reserve_memory_bytes = min(memory_bytes // _MEMORY_SHARE, _MOST_MEMORY)
    return OwnerPreferences(
        settings.policy,
        settings.idle_s,
        settings.reserve_cores,
        reserve_memory_bytes=reserve_memory_bytes,
        max_share=settings.max_cores_percent / 100,
        max_temperature_c=settings.max_temperature_c,
        on_battery=settings.on_battery,
        yield_to_load=settings.yield_to_load,
    )


def in_words(settings: WorkerSettings, preferences: OwnerPreferences) -> list[str]:
    """Return sentences for the owner: the rights of this worker, and its limits."""
    if settings.dedicated:
        return ["This computer is dedicated to the grid: tasks run no matter who uses it."]
    words = [
        _WORDS[preferences.policy].format(idle=_span(preferences.idle_s), cores=f"{preferences.reserve_cores:g}")
    ]
    if preferences.policy is not Policy.ALWAYS:
        words.append(f"At least {preferences.reserve_memory_bytes / _GIB:.1f} GiB of memory are left free.")
    words.append(f"A task that has been frozen for {_span(settings.grace_s)} is given back, to run elsewhere.")
    words.append(f"At least {settings.disk_reserve_bytes / _GIB:.1f} GiB of disk space are left free.")
    if not preferences.on_battery:
        words.append("Nothing runs while this computer is on battery.")
    if preferences.max_share < 1:
        words.append(f"Tasks use at most {settings.max_cores_percent:g} % of the cores.")
    if preferences.max_temperature_c is not None:
        words.append(f"Nothing runs while a sensor of this computer is above {preferences.max_temperature_c:g} °C.")
    if not settings.on_metered:
        words.append("No files go over a metered connection, and no task starts on one.")
    if settings.max_mb_per_day is not None:
        words.append(f"Files of tasks take at most {settings.max_mb_per_day:g} MB of the network a day.")
    if settings.hours.spans:
        words.append(f"Tasks run only in these hours: {settings.hours.text}.")
    if settings.pause_while_running:
        words.append(f"Nothing runs while one of these programs does: {', '.join(settings.pause_while_running)}.")
    return words


_WORDS = {
    Policy.WHEN_IDLE: "Tasks run when this computer has not been used for {idle}, and are frozen when it is used.",
    Policy.SPARE: "Tasks run on the cores that your programs leave free; {cores} more stay free while you are here.",
    Policy.ALWAYS: "Tasks run at the lowest priority, no matter who uses this computer.",
}


def _span(seconds: float) -> str:
    return f"{seconds / 60:g} min" if seconds >= 60 else f"{seconds:g} s"
