"""``loopline submit --cwd``: tasks run in the folder that the job is submitted from."""

from __future__ import annotations

from loopline.cli.common import some
from loopline.cli.errors import usage
from loopline.client import AsyncClient
from loopline_shared.spec import JobSpec

_PRIVATE = ("/tmp", "/var/tmp", "/")  # noqa: S108


async def check(client: AsyncClient, job: JobSpec) -> None:
    """Raises LooplineError (usage) if a job wants a folder that no worker shares, or one and files of its own."""
    folder = job.requires.folder
    if not folder:
        return
    if job.inputs or job.outputs:
        raise usage("--cwd has tasks run where their files are", "leave --input and --output out, or --cwd")
    if folder in _PRIVATE:
        raise usage(f"{folder} cannot be shared: each task has its own in a sandbox", "use a folder in it")
    shared = {one for worker in await some(0, client.workers()) for one in worker.facts.folders}
    if not any(folder == one or folder.startswith(f"{one}/") for one in shared):
        known = f"they share {', '.join(sorted(shared))}" if shared else "none shares any folder"
        hint = "have a worker's operator set shared_folders, or leave --cwd out and name files by --input"
        raise usage(f"no worker shares {folder}: {known}", hint)
