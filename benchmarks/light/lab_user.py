"""A user in a lab: uploads a file, and has one task with it on every worker: ``python -m benchmarks.light.lab_user``.

Prints the time of day when the file is with the master and the tasks are submitted.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from loopline.client import AsyncClient
from loopline.transfer import files
from loopline_shared.spec import JobSpec, Range

_SCRIPT = """
{ date +%s.%N; sha256sum large.bin; } > $0/$1.part && mv $0/$1.part $0/$1
while [ ! -e $0/over ]; do sleep 0.2; done
"""


async def main(url: str, token: str, file: Path, stamps: Path, workers: int) -> None:
    """Submit, once as many workers are there."""
    async with AsyncClient(url, token) as client:
        sha256 = await files.upload(client, file)
        while len([worker async for worker in client.workers() if worker.connected and worker.load]) < workers:  # noqa: ASYNC110 - another process decides
            await asyncio.sleep(0.2)
        begin = time.time()
        await client.submit(
            JobSpec(
                command=["sh", "-c", _SCRIPT, str(stamps), "{i}"],
                parameters={"i": Range(range=[1, workers])},
                inputs={"large.bin": f"sha256:{sha256}"},
                max_replicas=1,
            )
        )
        print(begin, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]), int(sys.argv[5])))
