"""Snakemake's jobs as jobs of a Loopline grid. Workers share the file system with the workflow."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional
from uuid import uuid4

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface
from snakemake_interface_executor_plugins.settings import CommonSettings, ExecutorSettingsBase

import loopline

common_settings = CommonSettings(non_local_exec=True, implies_no_shared_fs=False, job_deploy_sources=False)


@dataclass
class ExecutorSettings(ExecutorSettingsBase):
    master: Optional[str] = field(  # noqa: UP045 - Snakemake makes a flag of it
        default=None, metadata={"help": "The Loopline master's address", "env_var": False}
    )
    network: bool = field(
        default=False,
        metadata={"help": "Jobs need the network, which some workers give on request alone", "env_var": False},
    )


class Executor(RemoteExecutor):
    def __post_init__(self) -> None:
        settings = self.workflow.executor_settings
        self.client = loopline.Client(settings.master if settings else None, patience_s=600)
        self.session = uuid4().hex  # the workflow's: its jobs take turns as one, and hold up nobody's
        try:
            self._check_folder(Path.cwd())
        except loopline.LooplineError as error:
            raise WorkflowError(f"{error.message}\n{error.hint}") from error

    def _check_folder(self, folder: Path) -> None:
        """Raises WorkflowError if there are workers, and none of them lets jobs run in the workflow's folder."""
        workers = [worker for worker in self.client.workers() if worker.connected]
        shared = {Path(one) for worker in workers for one in worker.facts.folders}
        if workers and not any(folder.is_relative_to(one) for one in shared):
            known = f"they share {', '.join(map(str, sorted(shared)))}" if shared else "none shares any folder"
            hint = f"start workers with `--shared-folder {folder}` (or a folder above it)"
            raise WorkflowError(f"no worker of the grid shares {folder}: {known}\n{hint}")

    def run_job(self, job: JobExecutorInterface) -> None:
        settings = self.workflow.executor_settings
        memory, minutes = job.resources.get("mem_mb"), job.resources.get("runtime")
        try:
            submitted = self.client.submit(
                ["sh", "-c", self.format_job_exec(job)],
                name=job.name[:200],
                requires={
                    "folder": str(Path.cwd()),  # a sandbox shows it to the task, and the task starts there
                    "network": bool(settings and settings.network),
                    "slots": job.threads,
                    "memory_bytes": int(memory * 10**6) if memory else 0,
                },
                timeout_s=float(minutes * 60) if minutes else None,
                max_attempts=1,  # Snakemake has --retries of its own
                session=self.session,
            )
        except loopline.LooplineError as error:
            raise WorkflowError(f"{error.message}\n{error.hint}") from error
        self.report_job_submission(SubmittedJobInfo(job, str(submitted.id), aux={"job": submitted}))

    def additional_general_args(self) -> str:
        """Return options of Snakemake on the workers. Its cache is the task's own: they do not see the user's home.

        Its interface speaks of a list, and takes text.
        """
        return '--runtime-source-cache-path "$HOME/.cache/snakemake-sources"'

    async def check_active_jobs(self, active_jobs: list[SubmittedJobInfo]) -> AsyncGenerator[SubmittedJobInfo, None]:
        for info in active_jobs:
            async with self.status_rate_limiter:
                state = await asyncio.to_thread(lambda job=info.aux["job"]: job.state)
            if state == "succeeded":
                self.report_job_success(info)
            elif state in ("failed", "cancelled"):
                hint = f"it has {state} on the grid: `loopline logs {info.external_jobid}.1 --stderr` says more"
                self.report_job_error(info, msg=hint)
            else:
                yield info

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        for info in active_jobs:
            try:
                info.aux["job"].cancel()
            except loopline.LooplineError as error:  # usually the job has ended meanwhile
                self.logger.debug(error.message)

    def shutdown(self) -> None:
        super().shutdown()
        self.client.close()
