"""The judge's table: outcome and reason by the end of a task, the request to end it, and failures of the computer."""

from dataclasses import replace

import pytest

from loopline_shared.model import Outcome
from loopline_worker.attempts.judge import Verdict, is_read, judge, with_last_line, with_network_hint
from loopline_worker.launch.interface import Call, Ended, Job, Limits
from loopline_worker.supervisor.orders import Breach

CANCELLED = (Outcome.CANCELLED, "nobody wants it")
JOB = Job(["prog", "-x"], "/scratch/1.1.1", {}, Limits(scratch_bytes=2**20))
KILLED = "killed by SIGKILL, by another program or by the system for lack of memory"
OF_SHELL = "exit code 137: a process of it was killed by SIGKILL, perhaps for lack of memory"
CALL = Job((), "/scratch/1.1.1", {}, call=Call("session", "f" * 64, "", {}))


@pytest.mark.parametrize(
    ("ended", "told", "trouble", "verdict"),
    [
        (Ended(0), None, "", (Outcome.SUCCEEDED, "")),
        (Ended(3), None, "", (Outcome.FAILED, "")),
        (Ended(3, reason="of its own"), None, "", (Outcome.FAILED, "of its own")),
        (Ended(-9), None, "", (Outcome.FAILED, KILLED)),
        (Ended(-11), None, "", (Outcome.FAILED, "killed by SIGSEGV")),
        (Ended(-63), None, "", (Outcome.FAILED, "killed by signal 63")),
        (Ended(137), None, "", (Outcome.FAILED, OF_SHELL)),
        (Ended(139), None, "", (Outcome.FAILED, "exit code 139: a process of it was killed by SIGSEGV")),
        (Ended(130), None, "", (Outcome.FAILED, "")),
        (Ended(0, killed=True), CANCELLED, "", CANCELLED),
        (Ended(-9, killed=True), CANCELLED, "", CANCELLED),
        (Ended(killed=True), CANCELLED, "", CANCELLED),
        (Ended(0), CANCELLED, "", (Outcome.SUCCEEDED, "")),
        (Ended(3), CANCELLED, "", (Outcome.FAILED, "")),
        (Ended(trouble="its supervisor was killed"), None, "", (Outcome.GIVEN_BACK, "its supervisor was killed")),
        (Ended(trouble="its supervisor was killed"), CANCELLED, "", CANCELLED),
        (Ended(0), None, "the disk is full", (Outcome.GIVEN_BACK, "the disk is full")),
        (Ended(-9, killed=True), CANCELLED, "the disk is full", (Outcome.GIVEN_BACK, "the disk is full")),
        (Ended(127, refusal="no such file"), None, "", (Outcome.FAILED, "cannot run prog: no such file")),
        (Ended(-9, breach=Breach.SCRATCH), None, "", (Outcome.FAILED, JOB.limits.words(Breach.SCRATCH))),
        (Ended(0, breach=Breach.SCRATCH), None, "", (Outcome.SUCCEEDED, "")),
    ],
)
def test_verdict_follows_from_the_end(ended: Ended, told: Verdict | None, trouble: str, verdict: Verdict) -> None:
    assert judge(ended, JOB, told, trouble) == verdict


def test_last_line_of_stderr_stands_beside_the_signal() -> None:
    assert with_last_line("", 3, "no licence") == "no licence"
    assert with_last_line("killed by SIGSEGV", -11, "reading x.csv") == "killed by SIGSEGV: reading x.csv"
    assert with_last_line("timed out after 2 s", -15, "reading x.csv") == "timed out after 2 s"


def test_job_that_may_request_the_network_gets_a_hint() -> None:
    assert with_network_hint("Network is unreachable", JOB) == "Network is unreachable"
    job = replace(JOB, may_request_network=True)
    assert "requires: {network: true}" in with_network_hint("Network is unreachable", job)


def test_processes_left_running_are_mentioned_but_no_failure() -> None:
    outcome, reason = judge(Ended(0, strays=2), JOB)
    assert outcome is Outcome.SUCCEEDED
    assert reason.startswith("2 processes that it left running")


@pytest.mark.parametrize(
    ("job", "what"),
    [(CALL, "a function"), (Job([""], "", {}), "an empty command"), (Job([], "", {}), "an empty command")],
)
def test_program_that_could_not_be_run_is_named(job: Job, what: str) -> None:
    assert judge(Ended(1, refusal="gone"), job) == (Outcome.FAILED, f"cannot run {what}: gone")


def test_output_is_read_completely_only_if_the_task_ended_by_itself() -> None:
    assert [outcome for outcome in Outcome if is_read(outcome)] == [Outcome.SUCCEEDED, Outcome.FAILED]
