"""``loopline run``: an engine as one gang of the grid, for as long as its client needs it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from loopline.cli import values
from loopline.cli.common import PATIENCE_S, PLAIN, Common, read_by, stderr
from loopline.cli.errors import Exit, usage
from loopline.client import AsyncClient
from loopline.local.stopping import run_command, run_until_stopped
from loopline.transfer.files import upload
from loopline_shared.errors import LooplineError
from loopline_shared.job.requirements import Requirements
from loopline_shared.model import TaskId
from loopline_shared.rest.bodies import Submission
from loopline_shared.spec import JobSpec

_MEMBER = Path(__file__).parent / "dask_member.py"
_SAID = b"scheduler "
_PAUSE_S = 0.3


def run(
    engine: Literal["dask"],
    *command: str,
    nodes: Annotated[int, Parameter(alias="-n")] = 2,
    slots: int = 1,
    time_limit: Annotated[float | None, read_by(values.duration, "DURATION")] = None,
    idle: Annotated[float, read_by(values.duration, "DURATION")] = 600.0,
    python: str = "python3",
    label: tuple[str, ...] = (),
    common: Common = PLAIN,
) -> int:
    """Run a cluster of another engine as one gang, until Ctrl-C or until a command has ended.

    Its address is printed as soon as it is up. With a command after `--`, that command runs on this computer with the
    address in DASK_SCHEDULER_ADDRESS, where `distributed.Client()` finds it; the cluster ends with it:

        loopline run dask --nodes 8 --time-limit 2h
        loopline run dask --nodes 8 -- ipython

    Workers need Dask (`pip install distributed`) for their `python3`, of the release that the client has. Whoever
    reaches the scheduler's port can use it: Dask's own traffic is neither encrypted nor secret.

    Parameters
    ----------
    engine
        What to run: dask.
    command
        Command to run on this computer, beside the cluster.
    nodes
        Workers of the grid that take part; one of them is the scheduler, too.
    slots
        Slots on each, and threads of each of Dask's workers.
    time_limit
        The cluster is ended after so long, such as 2h; its start can then be promised.
    idle
        The cluster ends if no client has used it for so long.
    python
        Interpreter on the workers that has Dask.
    label
        Labels that each worker must have.
    """
    if nodes < 2:
        raise usage("--nodes must be 2 or more")
    needs = Requirements(slots=slots, labels=list(label), network=True)
    words = [python, _MEMBER.name, "--idle", str(idle), "--threads", str(slots)]
    spec = JobSpec(
        name=engine, command=words, nodes=nodes, timeout_s=time_limit, requires=needs, max_attempts=1, size="unknown"
    )
    return run_until_stopped(_run(spec, command, common), lambda: stderr().print("\nthe cluster has ended"))


async def _run(spec: JobSpec, command: tuple[str, ...], common: Common) -> int:
    """Start the cluster, run what is to run beside it, and end it whatever happens."""
    async with common.client(PATIENCE_S) as client:
        file = await upload(client, _MEMBER)
        told = await client.submit(
            JobSpec.model_validate(spec.model_dump() | {"inputs": {_MEMBER.name: f"sha256:{file}"}})
        )
        stderr().print(f"job {told.id}: {spec.nodes} nodes{_planned(told)}", soft_wrap=True)
        try:
            address = await _address(client, told.id)
            common.show({"job": told.id, "address": address}, lambda: address)
            if command:
                return await run_command(command, {**os.environ, "DASK_SCHEDULER_ADDRESS": address})
            return await _until_over(client, told.id)
        finally:
            await asyncio.shield(_end(client, told.id))


def _planned(told: Submission) -> str:
    """Return when it is planned to start, to stand after the number of its job."""
    if told.plan is None or told.plan.start_at is None:
        return f"; `loopline explain {told.id}` says what it waits for"
    word = "promised" if told.plan.kind == "promise" else "estimated"
    return f", {word} to start on {', '.join(told.plan.machines)}"


async def _address(client: AsyncClient, job: int) -> str:
    """Return the scheduler's address once it has said it. Raises LooplineError if the job ends before."""
    while True:
        said = b"".join([piece async for piece in _first_line(client, job)])
        if said.startswith(_SAID):
            return said.split(b"\n")[0].removeprefix(_SAID).decode()
        if (await client.job(job)).finished_at is not None:
            raise await _failure(client, job)
        await asyncio.sleep(_PAUSE_S)


async def _first_line(client: AsyncClient, job: int) -> AsyncIterator[bytes]:
    async for piece in client.output(TaskId(job, 1), follow=True):
        yield piece
        if b"\n" in piece:
            return


async def _failure(client: AsyncClient, job: int) -> LooplineError:
    """Return why there is no cluster: the last words of its members, or else why the first one ended."""
    nodes = (await client.job(job)).spec.nodes
    said = set()
    for rank in range(nodes):
        text = b"".join([piece async for piece in client.output(TaskId(job, 1), "stderr", rank=rank)])
        said |= set(text.decode(errors="replace").strip().splitlines()[-1:])
    why = "; ".join(sorted(said)) or (await client.task(TaskId(job, 1))).reason or "it ended"
    return LooplineError("engine", f"the cluster of job {job} did not come up: {why}")


async def _until_over(client: AsyncClient, job: int) -> int:
    """Wait until the cluster has ended by itself: it was idle, or its time was over."""
    _ = [result async for result in client.results(job)]
    stderr().print(f"job {job} has ended")
    return Exit.OK


async def _end(client: AsyncClient, job: int) -> None:
    if (await client.job(job)).finished_at is None:
        await client.cancel(job)
