"""The judge: the outcome of an attempt and the reason for it, by how its task ended and what it was told. Pure."""

from __future__ import annotations

from loopline_shared.model import Outcome
from loopline_worker.launch.interface import Ended, Job
from loopline_worker.supervisor.orders import Breach

Verdict = tuple[Outcome, str]
"""Outcome and reason."""

_KILLED_BY_OTHERS = "killed by another program, or by the system for lack of memory"


def judge(ended: Ended, job: Job, told: Verdict | None = None, trouble: str = "") -> Verdict:
    """Return the verdict. ``told``: what it was to end as; ``trouble``: what this computer could not do.

    A task that ended by itself before it was killed is judged by its own end.
    """
    if trouble:
        return Outcome.GIVEN_BACK, trouble
    if told and (ended.killed or ended.trouble):
        return told
    if ended.trouble:
        return Outcome.GIVEN_BACK, ended.trouble
    if ended.refusal:
        program = "".join(job.command[:1]) or "an empty command"
        return Outcome.FAILED, f"cannot run {'a function' if job.call else program}: {ended.refusal}"
    if ended.exit_code == 0 and ended.breach is not Breach.OUTPUT:
        return Outcome.SUCCEEDED, _about_strays(ended.strays)
    if ended.breach:
        return Outcome.FAILED, job.limits.words(ended.breach)
    return Outcome.FAILED, ended.reason or (_KILLED_BY_OTHERS if ended.exit_code == -9 else "")


def is_read(outcome: Outcome) -> bool:
    """True if somebody wants to read all that the task wrote; otherwise only the beginning is kept."""
    return outcome is Outcome.SUCCEEDED or outcome is Outcome.FAILED


def _about_strays(count: int) -> str:
    return f"{count} processes that it left running were stopped: nothing outlives its task" if count else ""
