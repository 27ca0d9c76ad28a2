"""Answers of a master for tests."""

from __future__ import annotations

from typing import Any

from loopline_shared.model import Facts, JobState, Load, Order, Prediction, TaskId, TaskState
from loopline_shared.rest.bodies import Counts, JobDetail, Period, ProgramView, TaskResult, TaskView, WorkerView
from loopline_shared.spec import JobSpec


def job(number: int = 7, state: JobState = JobState.SUCCEEDED, **changes: Any) -> JobDetail:
    over = state not in (JobState.QUEUED, JobState.RUNNING)
    known: dict[str, Any] = {
        "id": number, "name": "pi", "user": "ann", "state": state, "condition": state.value,
        "paused": False, "stalled": False, "held": False,
        "size": 60.0, "order": Order.HOLD, "task_count": 2,
        "tasks": Counts(succeeded=2) if over else Counts(running=2),
        "submitted_at": 1000.0, "started_at": 1001.0, "finished_at": 1010.0 if over else None, "held_at": None,
        "waited": Period(since=1000.0, until=1001.0), "took": Period(since=1001.0, until=1010.0 if over else None),
        "released_at": None, "max_attempts": 3, "max_replicas": 2, "spec": JobSpec(command=["python3", "pi.py"]),
    }  # fmt: skip
    return JobDetail(**known | changes)


def task(number: int, state: TaskState = TaskState.SUCCEEDED, job: int = 7, **changes: Any) -> TaskView:
    return TaskView(**_task(number, state, job) | changes)


def result(number: int, stdout: str, *, cut: bool = False) -> TaskResult:
    return TaskResult(
        **_task(number, TaskState.SUCCEEDED, 7),
        parameters={},
        stdout=stdout,
        stdout_cut=cut,
        cursor=f"{number}.0@{number}",
    )


def worker(name: str = "pc-1", *, folders: tuple[str, ...] = (), **changes: Any) -> WorkerView:
    facts = Facts(
        "linux", "x86_64", "3.11.7", "0.1.0", "a processor", cpus=4, memory_bytes=8 * 10**9, slots=4, folders=folders
    )
    known: dict[str, Any] = {
        "name": name, "connected": True, "draining": False, "facts": facts, "load": Load(4, 2.5, 10**9, 10**9),
        "slots": 4, "slots_used": 1, "running": [], "joined_at": 1.0, "reported_at": 1.0, "lease_until": 2.0,
    }  # fmt: skip
    return WorkerView(**known | changes)


def program(name: str = "pi.py", **changes: Any) -> ProgramView:
    known: dict[str, Any] = {
        "user": "ann", "name": name, "folder": "/home/ann/pi", "runs": 40, "first_run_at": 1.0, "used_at": 1000.0,
        "changed_at": None, "predicted": Prediction(work=12.0, mean=13.0, p10=9.0, p90=31.0, runs=32),
        "wall_s": 6.0, "cpu_s": 5.9, "system_s": 0.1, "peak_memory_bytes": 3 * 10**8,
        "workers": {"pc-1": 20, "pc-2": 9, "pc-3": 2, "pc-4": 1}, "latest": [],
    }  # fmt: skip
    return ProgramView(**known | changes)


def _task(number: int, state: TaskState, job: int) -> dict[str, Any]:
    over = state not in (TaskState.QUEUED, TaskState.RUNNING)
    return {
        "id": TaskId(job, number), "number": number, "state": state, "failures": 0, "started_at": 1001.0,
        "finished_at": 1000.0 + number if over else None, "worker": "pc-1", "exit_code": 0 if over else None,
        "reason": "",
    }  # fmt: skip
