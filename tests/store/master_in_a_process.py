"""A master without a network port, in a process that can be killed: it submits jobs and prints acknowledged ones.

python -m tests.store.master_in_a_process URL [LARGEST_FILE_BYTES]
"""

import asyncio
import resource
import sys

from loopline_master.core.events import JobSubmitted, MasterStarted, SchedulerSettings
from loopline_master.core.scheduler import Scheduler
from loopline_master.engine import Clock, Engine
from loopline_master.store import StoreBroken, open_store
from loopline_shared.spec import JobSpec


class NoLinks:
    def deliver(self, worker, assign):
        raise AssertionError("there is no worker")

    close = deliver


async def started(store):
    snapshot = await store.snapshot()
    engine = Engine(Scheduler(snapshot), store, Clock(after=snapshot.grid.now))
    engine.post(MasterStarted(SchedulerSettings(max_jobs=10**6)))
    await engine.turn()
    return engine


async def submit_for_ever(engine):
    while True:
        specs = [JobSpec(command=["work", "x" * 1000]) for _ in range(5)]
        replies = await asyncio.gather(*(engine.request(JobSubmitted("ann", spec)) for spec in specs))
        print(*(reply.job for reply in replies), flush=True)


async def main(url, largest_file_bytes=None):
    async with open_store(url) as store:
        engine = await started(store)
        if largest_file_bytes:
            resource.setrlimit(resource.RLIMIT_FSIZE, (int(largest_file_bytes),) * 2)
        submitting = asyncio.create_task(submit_for_ever(engine))
        try:
            await engine.run(NoLinks())
        except StoreBroken as broken:
            print(f"{broken.message}; {broken.hint}", file=sys.stderr)
            return 3
        finally:
            submitting.cancel()
            await asyncio.gather(submitting, return_exceptions=True)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
