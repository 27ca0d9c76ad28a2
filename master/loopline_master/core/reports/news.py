"""News: what a Report says that the scheduler does not know yet.

Most Reports of a grid say that all is as it was: computers are idle, or are at the same tasks. All that would follow
from such a Report is a new lease. The rows of the table in worker_sessions.py that say *nothing to do*, and those
parts of a load that no decision reads, or reads in steps, are no news.
"""

from __future__ import annotations

from loopline_master.core.entities import Worker
from loopline_master.core.estimates.measure import quarters_of
from loopline_master.core.gangs.gang import GangPhase
from loopline_master.core.gangs.phases import gang_of
from loopline_master.core.state import State
from loopline_shared.model import AttemptState, Load
from loopline_shared.protocol.attempt_ranges import attempts_of
from loopline_shared.protocol.transfers import PeerReport
from loopline_shared.protocol.worker_link import Report

_SWAY = 1 / 8
"""Spare CPU that swings by less, per slot, about the bound between two quarters is no news each time."""
_DELAY_STEP_S = 0.01
"""Delays are told apart to so much (policies/turnaround.py) ..."""
_DELAY_FACTOR = 2.0
"""... and by this factor, for those of radio links sway."""


def brings_news(state: State, worker: Worker, report: Report) -> bool:
    """True if anything but a new lease would follow from this Report of the worker's open session.

    The first of a session does: what the worker holds is not known before. So does each of a worker in quarantine:
    every Assign repeats the notice to its owner.
    """
    if not worker.reported or worker.quarantined_until is not None or report.results or report.members:
        return True
    if report.peers is not None and _speaks_of_files(state, worker, report.peers):
        return True
    return _has_moved(worker, report.load) or not _holds_as_believed(state, worker, report)


def _speaks_of_files(state: State, worker: Worker, told: PeerReport) -> bool:
    """True if a worker's large files are others than before, on their way here, or on their way to others."""
    if not state.settings.peers:
        return False
    carrier = state.carriers.get(worker.name)
    is_fetching = told.fetching or (carrier is not None and (carrier.fetching or carrier.unheard_since is not None))
    return bool(is_fetching or told.faults or told.cached is not None or worker.name in state.transfers.served)


def _has_moved(worker: Worker, load: Load) -> bool:
    """True if what decisions read of a load has moved."""
    known, offered = worker.load, min(load.slots, worker.facts.slots)
    if known is None or offered != worker.offered or _words(load) != _words(known):
        return True
    swing = abs(load.spare_cpu - known.spare_cpu) / (offered or 1)
    if swing >= _SWAY and quarters_of(load, offered) != quarters_of(known, offered):
        return True
    less_s, more_s = sorted((load.delay_s or 0.0, known.delay_s or 0.0))
    return more_s - less_s >= _DELAY_STEP_S and more_s >= _DELAY_FACTOR * less_s


def _words(load: Load) -> tuple[object, ...]:
    """Return the parts of a load that are no amounts: whatever changes there is shown, and explained, at once."""
    return load.withheld, load.in_use, load.on_battery, load.yielded, load.preparing


def _holds_as_believed(state: State, worker: Worker, report: Report) -> bool:
    """True if the worker holds what it is believed to, each attempt in the state in which it is believed to be."""
    ours = state.index.attempts.of_worker.get(worker.name, {})
    frozen, waiting = {held.attempt: held.frozen for held in report.holding}, set(attempts_of(report.waiting))
    if len(ours) != len(frozen) + len(waiting):
        return False
    for number, attempt in ours.items():
        if number in frozen:
            if attempt.state is not (AttemptState.FROZEN if frozen[number] else AttemptState.RUNNING):
                return False
            gang = gang_of(state, attempt)
            if gang is not None and (frozen[number] or gang.phase is not GangPhase.RUNNING):
                return False  # it may be due a word
        elif attempt.state is not AttemptState.PREFETCHED or number not in waiting:
            return False
    return True
