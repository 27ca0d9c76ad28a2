"""The judge: the outcome of an attempt and its reason, from the task's end and the requested outcome. Pure."""

from __future__ import annotations

import signal

from loopline_shared.model import Outcome
from loopline_worker.launch.interface import Ended, Job
from loopline_worker.supervisor.orders import Breach

_DEADLY = frozenset(
    getattr(signal, name)
    for name in ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGTERM")
    if hasattr(signal, name)
)
Verdict = tuple[Outcome, str]
"""Outcome and reason."""

_BY_OTHERS = ", by another program or by the system for lack of memory"
_OFFLINE = (
    "name resolution", "Name or service not known", "Could not resolve", "resolve host", "Network is unreachable",
    "Cannot assign requested address",
)  # fmt: skip
"""Words of programs that find no network."""
_OF_SHELL = 128
"""A shell exits with this plus the number of the signal that killed its last command."""


def judge(ended: Ended, job: Job, requested: Verdict | None = None, trouble: str = "") -> Verdict:
    """Return the verdict. ``requested``: the requested outcome; ``trouble``: this computer's failure.

    A task that ended by itself before it was killed is judged by its own end.
    """
    if trouble:
        return Outcome.GIVEN_BACK, trouble
    if requested and (ended.killed or ended.trouble):
        return requested
    if ended.trouble:
        return Outcome.GIVEN_BACK, ended.trouble
    if ended.expired:
        return Outcome.GIVEN_BACK, "the master answered no Report for its whole term"
    if ended.refusal:
        program = "".join(job.command[:1]) or "an empty command"
        return Outcome.FAILED, f"cannot run {'a function' if job.call else program}: {ended.refusal}"
    if ended.exit_code == 0 and ended.breach is not Breach.OUTPUT:
        return Outcome.SUCCEEDED, _about_strays(ended.strays)
    if ended.breach:
        return Outcome.FAILED, job.limits.words(ended.breach)
    return Outcome.FAILED, ended.reason or death_by_signal(ended.exit_code)


def death_by_signal(exit_code: int | None) -> str:
    """Return the words for an exit code that means a signal; empty for any other."""
    if exit_code is None:
        return ""
    if exit_code < 0:
        return f"killed by {_name(-exit_code)}{_BY_OTHERS if exit_code == -signal.SIGKILL else ''}"
    if exit_code == _OF_SHELL + signal.SIGKILL:
        return "exit code 137: a process of it was killed by SIGKILL, perhaps for lack of memory"
    if exit_code - _OF_SHELL in _DEADLY:
        return f"exit code {exit_code}: a process of it was killed by {_name(exit_code - _OF_SHELL)}"
    return ""


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def with_last_line(reason: str, exit_code: int | None, last_line: str) -> str:
    """Return why a task failed: the reason, else the last line of its stderr; both if a signal killed it."""
    if reason and last_line and reason == death_by_signal(exit_code):
        return f"{reason}: {last_line}"
    return reason or last_line


def with_network_hint(reason: str, job: Job) -> str:
    """Return why a task failed, with the remedy if it seems to lack the network that its job has not requested."""
    if job.may_request_network and any(words in reason for words in _OFFLINE):
        return f"{reason[:300]} (it had no network: submit with `--network`, or `requires: {{network: true}}`)"
    return reason


def is_read(outcome: Outcome) -> bool:
    """True if the whole output is kept, because users read it; otherwise only its beginning is."""
    return outcome is Outcome.SUCCEEDED or outcome is Outcome.FAILED


def _about_strays(count: int) -> str:
    return f"{count} processes that it left running were stopped: nothing outlives its task" if count else ""
