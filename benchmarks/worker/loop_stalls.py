"""The longest that the agent's loop is kept by one callback while tasks run away beside it.

Each runaway runs by the worker's runner, in the sandbox that this computer has, and without control groups: the agent
has to look at processes itself. The clock counts what other programs take of the processor too; the CPU time is the
loop's own, and waiting within the kernel is in the first only.

    python benchmarks/worker/loop_stalls.py [--seconds 15] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from asyncio import events
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from loopline_shared.model import AttemptId
from loopline_shared.protocol.worker_link import Run
from loopline_worker.attempts.limits import Quota
from loopline_worker.attempts.runner import Runner
from loopline_worker.core.events import AttemptEnded, Event
from loopline_worker.launch import delegation
from loopline_worker.launch.posix import PosixLauncher
from loopline_worker.launch.sandbox import open_sandbox
from loopline_worker.state.journal import Spool
from loopline_worker.task_group import TaskGroup

MIB = 2**20
QUOTA = Quota(
    task_memory_bytes=300 * MIB, processes=100, scratch_bytes=200 * MIB, output_bytes=20 * MIB, memory_bytes=2**34
)
RUNAWAYS = {
    "nothing": "import time; time.sleep(3)",
    "forks": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "threads": "import threading,time\nwhile True:\n    try: threading.Thread(target=time.sleep,args=(99,)).start()\n"
    "    except RuntimeError: time.sleep(.01)",
    "memory": "x=[]\nwhile True: x.append(bytearray(b'x'*(20<<20)))",
    "files": "i=0\nwhile True: open(f'f{i}','w').close(); i+=1",
    "deep": "import os\nwhile True: os.mkdir('d'); os.chdir('d')",
    "output": "import sys\nwhile True: sys.stdout.write('x'*65536)",
    "shared memory": "import time\nf=open('/dev/shm/x','wb')\nf.write(b'x'*(250<<20)); f.flush()\n"
    "x=b'x'*(90<<20); time.sleep(99)",
}


class Stalls:
    """Measures each callback of the loop from now on."""

    def __init__(self) -> None:
        self.wall_s = self.cpu_s = 0.0
        self._run = events.Handle._run

    def __enter__(self) -> Stalls:
        run = self._run

        def measured(handle: events.Handle) -> None:
            wall_s, cpu_s = time.monotonic(), time.thread_time()
            run(handle)
            self.wall_s = max(self.wall_s, time.monotonic() - wall_s)
            self.cpu_s = max(self.cpu_s, time.thread_time() - cpu_s)

        events.Handle._run = measured  # type: ignore[assignment,method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        events.Handle._run = self._run  # type: ignore[method-assign]


async def stalls(code: str, seconds: float) -> dict[str, Any]:
    """Run a runaway task for at most ``seconds``, measured once a second as the agent does."""
    ended: list[str] = []

    def take_in(event: Event) -> None:
        if isinstance(event, AttemptEnded):
            ended.append(event.result.reason)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        launcher = PosixLauncher(yields=True, sandbox=open_sandbox())
        scratch = Path(folder, "scratch")
        scratch.mkdir()
        async with TaskGroup() as task_group:
            runner = Runner(
                task_group, launcher, Spool(Path(folder, "spool"), 2**30), scratch, take_in,
                worker="bench", output_limit_bytes=2**24, quota=QUOTA,
            )  # fmt: skip
            command = (sys.executable, "-I", "-S", "-c", code)
            with Stalls() as found:
                runner.start(Run(AttemptId(1, 1, 1), command, parameters={}, environment={}))
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        while not ended:
                            runner.measure()
                            await asyncio.sleep(1.0)
                await runner.close("measured")
            launcher.close()
    return {"wall_s": found.wall_s, "cpu_s": found.cpu_s, "ended": ended[0] if ended else ""}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=15.0, help="after which a runaway is stopped")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    delegation.claim = lambda yields: {}  # type: ignore[assignment,misc]
    found = {name: asyncio.run(stalls(code, options.seconds)) for name, code in RUNAWAYS.items()}
    if options.json:
        print(json.dumps(found, indent=2))
        return
    for name, figures in found.items():
        print(f"{name:14} longest {figures['wall_s']:.3f} s, of CPU {figures['cpu_s']:.3f} s; {figures['ended']}")


if __name__ == "__main__":
    main()
