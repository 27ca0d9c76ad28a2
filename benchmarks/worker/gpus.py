"""GPUs on a computer that has some of NVIDIA's: detection, isolation, exclusive use, and the agent's cost.

A master and a dedicated worker with its default sandbox run here for two minutes. Four checks, each against something
that is not ours:

- the GPUs of the worker, beside those of ``nvidia-smi``;
- what a task sees of them by CUDA and in /dev, with one GPU and without;
- tasks alive at once on each GPU, as /proc shows them;
- CPU time of the agent and the programs that it starts: idle, and while a task has a GPU.

    python benchmarks/worker/gpus.py [--seconds 30] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.harness.grid import Grid, grid
from loopline.client import AsyncClient
from loopline_shared.job.parameters import Range
from loopline_shared.job.requirements import Requirements
from loopline_shared.model import JobState
from loopline_shared.spec import JobSpec
from loopline_worker.supervisor import processes

Figures = dict[str, Any]
SEES = """
import ctypes, glob, json, os, uuid
def by_cuda():
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return str(error)
    count, found = ctypes.c_int(), []
    if code := cuda.cuInit(0):
        return f"cuInit returns {code}"
    cuda.cuDeviceGetCount(ctypes.byref(count))
    for index in range(count.value):
        name = (ctypes.c_ubyte * 16)()
        cuda.cuDeviceGetUuid(name, index)
        found.append(f"GPU-{uuid.UUID(bytes=bytes(name))}")
    return found
devices = sorted(glob.glob("/dev/nvidia[0-9]*"))
print(json.dumps({"own": os.environ["LOOPLINE_GPUS"], "cuda": by_cuda(), "devices": devices}))
"""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


async def measure(seconds: float) -> Figures:
    """Run all checks on a grid of this computer."""
    by_smi = smi("index,uuid,name,memory.total,compute_cap")
    async with grid(slots=max(4, 2 * len(by_smi))) as here, here.client() as client:
        await until_used(client)
        offered = await detected(client)
        return {
            "sandbox": (await client.worker("w1")).facts.sandbox,
            "nvidia_smi": by_smi,
            "worker": offered,
            "is_same": sorted(one["uuid"] for one in by_smi) == sorted(one["uuid"] for one in offered),
            "sees_with_a_gpu": await seen(client, len(offered), gpus=1),
            "sees_without": await seen(client, 1, gpus=0),
            "most_tasks_on_a_gpu": await most_at_once(here, client, 6 * len(offered)),
            "agent_idle_cpu": await cost(here, client, seconds, has_task=False),
            "agent_busy_cpu": await cost(here, client, seconds, has_task=True),
        }


def smi(fields: str) -> list[dict[str, str]]:
    """Return what ``nvidia-smi`` says of each GPU."""
    words = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    return [dict(zip(fields.split(","), map(str.strip, line.split(",")), strict=True)) for line in lines]


async def run(client: AsyncClient, code: str, tasks: int, gpus: int) -> list[str]:
    """Run Python code in each of these tasks, and return their output."""
    job = await client.submit(
        JobSpec(
            command=[sys.executable, "-c", code],
            parameters={"i": Range(range=[1, tasks])},
            requires=Requirements(gpus=gpus),
        )
    )
    while (view := await client.job(job.id)).finished_at is None:  # noqa: ASYNC110 - it asks another process
        await asyncio.sleep(0.1)
    assert view.state is JobState.SUCCEEDED, f"job {job.id} {view.state}: {await client.explain(job.id)}"
    return [result.stdout async for result in client.results(job.id)]


async def until_used(client: AsyncClient) -> None:
    """Use every GPU once: the worker asks NVML for the memory of a GPU while it is in use."""
    gpus = len(await detected(client))
    if not gpus:
        raise SystemExit("the worker offers no GPU: `loopline doctor` says why")
    await run(client, "import time; time.sleep(15)", gpus, gpus=1)


async def detected(client: AsyncClient) -> list[dict[str, Any]]:
    """Return the worker's GPUs."""
    facts = (await client.worker("w1")).facts
    found = [gpu for one in facts.resources for gpu in one.gpus]
    return [
        {"index": gpu.index, "uuid": gpu.id, "name": gpu.model, "memory": gpu.memory_bytes // 2**20} for gpu in found
    ]


async def seen(client: AsyncClient, tasks: int, gpus: int) -> list[dict[str, Any]]:
    """Return what tasks see, each with the GPUs that it was given."""
    return [json.loads(said) for said in await run(client, SEES, tasks, gpus)]


async def most_at_once(here: Grid, client: AsyncClient, tasks: int) -> int:
    """Return the largest number of tasks alive at once on one GPU."""
    running = asyncio.create_task(run(client, "import time; time.sleep(1)", tasks, gpus=1))
    most = 0
    while not running.done():
        found = {gpu_and_folder(pid) for pid in processes.descendants(here.programs["w1"].pid)} - {None}
        most = max([most, *Counter(one[0] for one in found if one).values()])
        await asyncio.sleep(0.01)
    await running
    return most


def gpu_and_folder(pid: int) -> tuple[bytes, bytes] | None:
    """Return the GPU and the scratch folder of a task's process; None for any other process."""
    variables = dict(line.partition(b"=")[::2] for line in processes.read(f"/proc/{pid}/environ").split(b"\0"))
    gpu, folder = variables.get(b"LOOPLINE_GPUS"), variables.get(b"LOOPLINE_SCRATCH")
    return (gpu, folder) if gpu and folder else None


async def cost(here: Grid, client: AsyncClient, seconds: float, *, has_task: bool) -> float:
    """Return the CPU use of the agent and of programs that it has waited for, in per cent of a core."""
    work = f"import time; time.sleep({seconds + 2})"
    running = asyncio.create_task(run(client, work, 1, gpus=1)) if has_task else None
    await asyncio.sleep(1.0)
    pid, begin = here.programs["w1"].pid, time.monotonic()
    before_s = used_s(pid)
    await asyncio.sleep(seconds)
    share = (used_s(pid) - before_s) / (time.monotonic() - begin)
    if running:
        await running
    return round(100 * share, 2)


def used_s(pid: int) -> float:
    """Return the CPU seconds of a process and of its children that have ended."""
    fields = processes.read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return sum(map(int, fields[11:15])) / _TICKS_PER_S


def in_text(found: Figures) -> str:
    """Return the figures as lines."""
    faults = [one for one in found["sees_with_a_gpu"] if one["cuda"] != [one["own"]] or len(one["devices"]) != 1]
    return "\n".join(
        [
            f"sandbox: {found['sandbox']}",
            *(f"nvidia-smi: {one}" for one in found["nvidia_smi"]),
            *(f"worker:     {one}" for one in found["worker"]),
            f"the same GPUs: {found['is_same']}",
            f"tasks with a GPU that see anything else: {faults or 'none'}",
            f"a task without GPUs sees: {found['sees_without'][0]}",
            f"most tasks at once on one GPU: {found['most_tasks_on_a_gpu']}",
            f"the agent's CPU: {found['agent_idle_cpu']} % of a core idle, {found['agent_busy_cpu']} % with a task",
        ]
    )


def main() -> None:
    """Parse the arguments, measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0, help="length of each of two measurements of CPU use")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    try:
        found = asyncio.run(measure(options.seconds))
    except FileNotFoundError:
        raise SystemExit("this computer has no nvidia-smi, so no GPU of NVIDIA's") from None
    print(json.dumps(found) if options.json else in_text(found))


if __name__ == "__main__":
    main()
