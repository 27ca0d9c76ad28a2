"""Engines that PSI/J speaks to: Slurm, PBS and LSF. It writes their scripts, submits, looks and cancels."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from loopline.elastic.engine import Wish
from loopline.elastic.plan import Allocation, Stage
from loopline_shared.errors import LooplineError

_LOOK_EVERY_S = 5
_FIND_WITHIN_S = 30.0


class PsijEngine:
    """An executor of PSI/J. Its folder must be seen by the cluster's nodes, too, as homes mostly are."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._psij, self._executor = _library(kind, folder)
        if kind == "slurm":  # which alone can call back what has not begun, and nothing else
            self._executor.get_cancel_command = lambda found: ["scancel", "--quiet", "--state=PENDING", found]
        self._kind = kind
        self._jobs: dict[str, Any] = {}

    def submit(self, name: str, command: Sequence[str], wish: Wish) -> str:
        job = self._psij.Job(_spec(self._psij, self._kind, name, command, wish))
        try:
            self._executor.submit(job)
        except (self._psij.SubmitException, OSError) as error:
            raise LooplineError("engine", f"{self._kind} refused: {str(error).strip()}") from None
        self._jobs[name] = job
        return str(job.native_id)

    def stage(self, allocation: Allocation) -> Stage:
        status, states = self._job(allocation).status, self._psij.JobState
        if status.state is states.FAILED and _is_unknown(status.message):
            del self._jobs[allocation.name]  # and look again
            return allocation.stage
        if status.state.final:
            return Stage.OVER
        if status.state is states.NEW:  # of an earlier run, not checked since then
            return allocation.stage if allocation.stage is Stage.RUNNING else Stage.QUEUED
        return Stage.RUNNING if status.state is states.ACTIVE else Stage.QUEUED

    def find(self, name: str) -> str | None:
        if self._kind != "slurm":
            return None
        line = ["squeue", "--me", "--noheader", "--states=all", f"--name={name}", "--format=%A"]
        try:
            said = subprocess.run(line, capture_output=True, text=True, timeout=_FIND_WITHIN_S, check=True)
        except (OSError, subprocess.SubprocessError):
            return None
        return said.stdout.split("\n")[0].strip()

    def cancel(self, allocation: Allocation) -> None:
        try:
            self._executor.cancel(self._job(allocation))
        except (self._psij.SubmitException, OSError) as error:
            raise LooplineError("engine", f"{self._kind} did not cancel: {str(error).strip()}") from None

    def _job(self, allocation: Allocation) -> Any:
        """Return PSI/J's job; one of an earlier run is attached to."""
        if allocation.name not in self._jobs:
            job = self._jobs[allocation.name] = self._psij.Job(self._psij.JobSpec(name=allocation.name))
            self._executor.attach(job, allocation.id)
        return self._jobs[allocation.name]


def _library(kind: str, folder: Path) -> tuple[Any, Any]:
    """Return PSI/J and its executor of this name. Raises LooplineError if either is missing."""
    try:
        import psij
        from psij.executors.batch.batch_scheduler_executor import BatchSchedulerExecutorConfig
    except ImportError:
        hint = "install it, apart from a worker's libraries: pip install 'loopline[elastic]'"
        raise LooplineError("not_installed", "PSI/J is not installed", hint) from None
    folder.mkdir(parents=True, exist_ok=True)
    config = BatchSchedulerExecutorConfig(work_directory=folder, queue_polling_interval=_LOOK_EVERY_S)
    return psij, psij.JobExecutor.get_instance(kind, config=config)


def _spec(psij: Any, kind: str, name: str, command: Sequence[str], wish: Wish) -> Any:
    resources = psij.ResourceSpecV1(
        node_count=1,
        processes_per_node=1,
        cpu_cores_per_process=wish.slots,
        gpu_cores_per_process=wish.gpus or None,
        memory=wish.memory_bytes,
    )
    options = wish.options
    if wish.resources:
        options = {"gres": ",".join(f"{name}:{units}" for name, units in wish.resources.items()), **options}
    attributes = psij.JobAttributes(
        duration=timedelta(seconds=wish.time_limit_s),
        queue_name=wish.queue or None,
        account=wish.account or None,
        custom_attributes={f"{kind}.{key}": value for key, value in options.items()} or None,
    )
    return psij.JobSpec(
        executable=command[0],
        arguments=list(command[1:]),
        name=name,
        resources=resources,
        attributes=attributes,
        launcher="single",
    )


def _is_unknown(message: str | None) -> bool:
    """True if PSI/J gave a job up because the engine was silent: the job may go on."""
    return (message or "").startswith(("Failed to poll", "Error updating", "Failed to update"))
