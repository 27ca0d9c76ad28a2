"""The table of allowed changes of an attempt's state; ``Attempts.move`` checks every change against it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class State(StrEnum):
    """State of an attempt on this worker. An attempt without a record is unknown here."""

    WAITING = "waiting"  # for a slot: nothing of it runs
    PREFETCHED = "prefetched"  # handed to a supervisor, which begins it when its current task ends
    PREPARING = "preparing"  # a gang's member: it has its slots, and its files are on the way
    PREPARED = "prepared"  # a gang's member: ready, it waits for the master's word to start
    RUNNING = "running"
    FROZEN = "frozen"  # its processes are stopped for the owner
    ENDING = "ending"  # being ended, or its processes are gone; its result is not here yet
    DELIVERING = "delivering"  # ended; its result or a file of it is not on disk or at the master yet
    UNSENT = "unsent"  # its result goes with the next Report
    SENT = "sent"  # its result left with a Report of this session, and is not acknowledged


_RESULT = {State.DELIVERING, State.UNSENT}
TRANSITIONS: Mapping[State, frozenset[State]] = {
    State.WAITING: frozenset(  # unsent: dropped before it began
        {State.PREFETCHED, State.PREPARING, State.RUNNING, State.UNSENT}
    ),
    State.PREFETCHED: frozenset(  # waiting: retracted; a result: its supervisor was lost before reporting a start
        {State.WAITING, State.RUNNING, State.FROZEN, State.ENDING, *_RESULT}
    ),
    State.PREPARING: frozenset({State.PREPARED, State.ENDING, *_RESULT}),
    State.PREPARED: frozenset({State.RUNNING, State.ENDING, *_RESULT}),
    State.RUNNING: frozenset({State.FROZEN, State.ENDING, *_RESULT}),
    State.FROZEN: frozenset({State.RUNNING, State.ENDING, *_RESULT}),
    State.ENDING: frozenset(_RESULT),
    State.DELIVERING: frozenset({State.UNSENT}),
    State.UNSENT: frozenset({State.SENT, State.DELIVERING}),  # delivering: the disk did not take the result
    State.SENT: frozenset({State.UNSENT}),  # a new session: the Report may be lost; acknowledged: it is forgotten
}
