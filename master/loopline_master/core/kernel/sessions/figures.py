"""Figures of workers: their clocks, counters and facts are believed only within limits that the master knows.

An attempt cannot have run for longer than since it was dispatched. In that time it cannot have used more processor
time than all cores of its computer, nor more memory than the computer has. Larger figures are cut to the bound before
they are used, so that accounts, predictions, the order guarantee and the rows rely on possible figures only. A worker
is flagged (``Worker.overstated``) only if a figure is far above its bound: the master's own clock may lag behind a
little (engine.py).

No computer is ``MOST_SPEED`` times as fast, or as slow, as the reference, and none has more spare cores than cores.
Until runs of the same programs elsewhere have proven a worker's speed, no attempt there counts against its job's size
at more than the reference speed (``measure.credible_speed``, ``credible_work``). Predictions believe the stated
speed, and five runs elsewhere correct them. A worker may offer more slots than it has cores, for tasks that wait.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

from loopline_master.core.kernel.entities import Worker
from loopline_master.core.kernel.state import State
from loopline_shared.model import Facts, Load, Phases, Result

ROUNDING_S = 1e-3
"""A time may exceed its bound by this much: clocks tick, and differences of times are rounded."""
MOST_SPEED, MOST_CPUS = 64.0, 4096
"""Bounds of a computer's speed, in reference CPU-seconds a second, and of its cores."""
_FAR = 2.0
_SLACK_S = 120.0
"""A worker is flagged for a figure of more than ``_FAR`` times its bound; for a time, by this much in addition."""


def bounded(state: State, worker: Worker, result: Result, since: float, *, flags: bool = True) -> Result:
    """Return a result whose figures are possible for an attempt that was dispatched at ``since``.

    With ``flags``, flag the worker if any of them was far from possible.
    """
    most_s, facts = state.grid.now - since + ROUNDING_S, worker.facts
    if (
        result.wall_s <= most_s
        and result.cpu_s <= most_s * facts.cpus
        and result.system_s <= result.cpu_s
        and result.peak_memory_bytes <= facts.memory_bytes
        and (result.phases is None or _longest(result.phases) <= most_s)
    ):
        return result
    if flags and _exceeds_by_far(result, facts, most_s):
        worker.overstated += 1
        state.effects.overstated.append((worker.name, result.attempt))
        state.put(worker)
    return cut(result, facts, most_s)


def possible_facts(facts: Facts) -> Facts:
    """Return facts of a possible computer."""
    if 1 / MOST_SPEED <= facts.speed <= MOST_SPEED and facts.cpus <= MOST_CPUS:
        return facts
    speed = min(max(facts.speed, 1 / MOST_SPEED), MOST_SPEED)
    return replace(facts, speed=speed, cpus=min(facts.cpus, MOST_CPUS))


def possible_load(load: Load, facts: Facts) -> Load:
    """Return a load that is possible on this computer."""
    if load.spare_cpu <= facts.cpus and load.memory_available_bytes <= facts.memory_bytes:
        return load
    memory_bytes = min(load.memory_available_bytes, facts.memory_bytes)
    return replace(load, spare_cpu=min(load.spare_cpu, facts.cpus), memory_available_bytes=memory_bytes)


def cut(result: Result, facts: Facts, most_s: float) -> Result:
    """Return a result with figures that are possible on this computer within ``most_s``."""
    most_s = max(most_s, 0.0)
    cpu_s, phases = min(result.cpu_s, most_s * facts.cpus), result.phases
    return replace(
        result,
        wall_s=min(result.wall_s, most_s),
        cpu_s=cpu_s,
        system_s=min(result.system_s, cpu_s),
        peak_memory_bytes=min(result.peak_memory_bytes, facts.memory_bytes or result.peak_memory_bytes),
        phases=None if phases is None else _cut_phases(phases, most_s),
    )


def _exceeds_by_far(result: Result, facts: Facts, most_s: float) -> bool:
    longest_s = max(result.wall_s, 0.0 if result.phases is None else _longest(result.phases))
    return (
        longest_s > _FAR * most_s + _SLACK_S
        or result.cpu_s > _FAR * most_s * facts.cpus + _SLACK_S
        or result.peak_memory_bytes > _FAR * (facts.memory_bytes or inf)
    )


def _longest(phases: Phases) -> float:
    return max(phases.inputs_s, phases.began_s, phases.ended_s, phases.frozen_s, phases.delivered_s)


def _cut_phases(phases: Phases, most_s: float) -> Phases:
    return Phases(
        inputs_s=min(phases.inputs_s, most_s),
        began_s=min(phases.began_s, most_s),
        ended_s=min(phases.ended_s, most_s),
        frozen_s=min(phases.frozen_s, most_s),
        delivered_s=min(phases.delivered_s, most_s),
    )
