"""A member of a gang that is a Dask cluster: rank 0 is scheduler and worker, the others are workers.

It runs under the workers' interpreter, where Dask must be installed; of Loopline it needs nothing. The scheduler's
address is the first line that rank 0 prints. Everything ends when no client has asked for anything for --idle
seconds, or when the job is cancelled.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import sys

NO_DASK = 3
CONNECT_S = 60.0


async def run(idle_s: float, threads: int) -> None:
    from distributed import Scheduler

    host, _, port = os.environ["LOOPLINE_RENDEZVOUS"].rpartition(":")
    address = f"tcp://{host}:{port}"
    if os.environ["LOOPLINE_RANK"] != "0":
        await work(address, threads)
        return
    async with Scheduler(
        host=host, port=int(port), dashboard=False, dashboard_address=None, idle_timeout=idle_s
    ) as scheduler:
        print(f"scheduler {scheduler.address}", flush=True)
        await asyncio.gather(work(address, threads), scheduler.finished())


async def work(address: str, threads: int) -> None:
    """Be a worker until the scheduler ends."""
    from distributed import Worker

    hosts, rank = os.environ["LOOPLINE_HOSTS"].split(","), int(os.environ["LOOPLINE_RANK"])
    name = f"rank-{rank}"
    async with Worker(
        address, name=name, host=hosts[rank], nthreads=threads, local_directory=".", dashboard=False
    ) as one:
        await one.finished()


def main() -> int:
    asking = argparse.ArgumentParser(description=__doc__)
    asking.add_argument("--idle", type=float, required=True)
    asking.add_argument("--threads", type=int, required=True)
    options = asking.parse_args()
    try:
        import dask
        import distributed  # noqa: F401 whether it is there
    except ImportError:
        here = f"{sys.executable} on {socket.gethostname()}"
        print(f"Dask is not installed for {here}: pip install distributed there, or choose --python", file=sys.stderr)
        return NO_DASK
    dask.config.set({"distributed.comm.timeouts.connect": f"{CONNECT_S} s", "distributed.comm.timeouts.tcp": "120 s"})
    dask.config.set({"distributed.worker.daemon": False})
    asyncio.run(run(options.idle, options.threads))
    return 0


if __name__ == "__main__":
    sys.exit(main())
