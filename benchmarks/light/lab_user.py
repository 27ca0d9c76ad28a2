"""A user in a lab: uploads files, and has a task with one of them on every worker.

Prints the time of day when the files are with the master and the tasks are submitted.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from loopline.client import AsyncClient
from loopline.settings import ClientSettings
from loopline.transfer import files
from loopline_shared.job.parameters import Range
from loopline_shared.spec import JobSpec

_SCRIPT = """
{ date +%s.%N; sha256sum large.bin; } > $0/$1.part && mv $0/$1.part $0/$1
while [ -e $0/$1 ] && [ ! -e $0/over ]; do sleep 0.2; done
"""


async def main(url: str, token_file: Path, stamps: Path, workers: int, names: list[Path]) -> None:
    """Submit a job for each file, once as many workers are there."""
    known = ClientSettings(master=url, token_file=token_file)
    async with AsyncClient(url, known.find_token(), ca=known.find_ca()) as client:
        uploaded = [await files.upload(client, name) for name in names]
        while len([worker async for worker in client.workers() if worker.connected and worker.load]) < workers:  # noqa: ASYNC110 - another process decides
            await asyncio.sleep(0.2)
        begin = time.time()
        for place, sha256 in enumerate(uploaded):
            first, last = (workers * n // len(uploaded) for n in (place, place + 1))
            await client.submit(
                JobSpec(
                    command=["sh", "-c", _SCRIPT, str(stamps), "{i}"],
                    parameters={"i": Range(range=[first + 1, last])},
                    inputs={"large.bin": f"sha256:{sha256}"},
                    max_replicas=1,
                )
            )
        print(begin, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]), [*map(Path, sys.argv[5:])]))
