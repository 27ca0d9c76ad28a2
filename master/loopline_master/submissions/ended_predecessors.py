"""Jobs that come after others: how those ended that have left the scheduler's memory is read for it from the rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from loopline_master.core.effects import Done, Submitted
from loopline_master.core.events import JobRetried, JobSubmitted
from loopline_master.http.services import Services
from loopline_shared.errors import LooplineError
from loopline_shared.model import JobState

RETRIES = "retries"
"""They take turns: what one has read of ended jobs, no other may change before the step that takes it in."""

TRIES = 5
_UNSUCCESSFUL = (JobState.FAILED, JobState.CANCELLED)
Chained = TypeVar("Chained", JobSubmitted, JobRetried)


async def ask_in_chain(services: Services, event: JobSubmitted) -> Done | Submitted:
    """As Services.ask. A job that ended without success may be retried at any time, and so is read in turn."""
    informed = await _informed(services, event)
    if not any(state in _UNSUCCESSFUL for state in informed.ended.values()):
        try:
            return await services.ask(informed)
        except LooplineError as error:
            if error.code != "changed_meanwhile":
                raise
    return await services.turns.take(RETRIES, ask_in_turn(services, event))


async def ask_in_turn(services: Services, event: Chained) -> Done | Submitted:
    """What was running as it was read may end before the step: then it is read again."""
    for _ in range(TRIES - 1):
        try:
            return await services.ask(await _informed(services, event))
        except LooplineError as error:
            if error.code != "changed_meanwhile":
                raise
    return await services.ask(await _informed(services, event))


async def _informed(services: Services, event: Chained) -> Chained:
    after = (event.spec if isinstance(event, JobSubmitted) else event.job.spec).after
    states = await services.store.jobs.states(after)
    unknown = sorted(set(after).difference(states))
    if unknown:
        message = f"it is to come after job {unknown[0]}, which there is not"
        raise LooplineError("no_such_job", message, "loopline jobs lists those that there are", status=422)
    ended = {job: state for job, state in states.items() if state in (*_UNSUCCESSFUL, JobState.SUCCEEDED)}
    return replace(event, ended=ended)
