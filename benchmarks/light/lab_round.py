"""A user in a lab whose tasks have files of their own: one task on every worker, each with several files.

First each file comes to one worker, by a job of its own. Prints when the second job was submitted, and, for each of
its tasks, when it had its files.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

from loopline.client import AsyncClient
from loopline.settings import ClientSettings
from loopline.transfer import files
from loopline_shared.spec import JobSpec

_SCRIPT = "cat f-* > /dev/null; date +%s.%N; while [ ! -e $0/over-$1 ]; do sleep 0.2; done"


async def main(
    url: str, token_file: Path, stamps: Path, workers: int, wants: list[list[int]], names: list[Path]
) -> None:
    """Place the files in turn, then run the round; ``wants`` has the numbers of each task's files."""
    known = ClientSettings(master=url, token_file=token_file)
    async with AsyncClient(url, known.find_token(), ca=known.find_ca()) as client:
        uploaded = [await files.upload(client, name) for name in names]
        while len([worker async for worker in client.workers() if worker.connected and worker.load]) < workers:  # noqa: ASYNC110 - another process decides
            await asyncio.sleep(0.2)
        await _round(client, stamps, "first", [[number] for number in range(len(names))], uploaded)
        await asyncio.sleep(2.0)  # until their caches are reported, and all are free
        begin = time.time()
        print(begin, flush=True)
        for at in await _round(client, stamps, "second", wants, uploaded):
            print(at, flush=True)


async def _round(
    client: AsyncClient, stamps: Path, name: str, wants: list[list[int]], uploaded: list[str]
) -> list[float]:
    tasks = [{"inputs": {f"f-{number}": f"sha256:{uploaded[number]}" for number in each}} for each in wants]
    spec = {"command": ["sh", "-c", _SCRIPT, str(stamps), name], "tasks": tasks, "max_replicas": 1}
    job = await client.submit(JobSpec.model_validate(spec))
    ended = asyncio.create_task(_results(client, job.id))
    while (await client.job(job.id)).tasks.running < len(wants):  # noqa: ASYNC110 - another process decides
        await asyncio.sleep(0.2)
    (stamps / f"over-{name}").touch()
    return await ended


async def _results(client: AsyncClient, job: int) -> list[float]:
    return [float(result.stdout) async for result in client.results(job)]


if __name__ == "__main__":
    wanted: list[list[int]] = json.loads(sys.argv[5])
    asyncio.run(
        main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]), wanted, [*map(Path, sys.argv[6:])])
    )
