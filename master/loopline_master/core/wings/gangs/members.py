"""Members of gangs that have not begun, as Reports name them."""

from __future__ import annotations

from collections.abc import Sequence

from loopline_master.core.kernel import lifecycle
from loopline_master.core.kernel.entities import Attempt
from loopline_master.core.kernel.state import State
from loopline_master.core.wings.gangs.phases import gang_of, note_member
from loopline_shared.model import AttemptState
from loopline_shared.protocol.worker_link import Report

_CALLED_BACK = (AttemptState.CANCELLING, AttemptState.RETRACTING)


def note(state: State, report: Report, attempts: Sequence[Attempt]) -> list[Attempt]:
    """Note the members that have not begun; return the other attempts."""
    members = {member.attempt: member for member in report.members}
    for attempt in attempts:
        member = members.get(attempt.id)
        if member is None:
            continue
        if gang := gang_of(state, attempt):
            note_member(state, gang, attempt, member)
        elif attempt.state in _CALLED_BACK and report.seen >= attempt.sent:
            attempt.sent = 0
            state.put(attempt)
        elif attempt.state is AttemptState.LOST:
            lifecycle.adopt_attempt(state, attempt)
    return [attempt for attempt in attempts if attempt.id not in members]
