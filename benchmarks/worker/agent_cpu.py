"""Cost of a task to the agent beside its process: the link, the core, the journal, the log.

The agent is the real one; in place of its runner is one whose tasks end as soon as they begin. A master in another
process keeps ``--window`` runs ahead of it and acknowledges whatever comes. Only the agent's CPU time counts.

    python benchmarks/worker/agent_cpu.py [--tasks 10000] [--window 200] [--slots 2] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import multiprocessing
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from loopline_shared.model import AttemptId, Held, Outcome, Output, Result
from loopline_shared.protocol.worker_link import Run
from loopline_worker import agent as agent_module
from loopline_worker import parts as parts_module
from loopline_worker.agent import Agent
from loopline_worker.core.events import AttemptEnded
from loopline_worker.settings import WorkerSettings
from loopline_worker.state.data_directory import DataDirectory

SHOWN = {
    "tasks": "tasks",
    "window": "of them ahead at the worker",
    "cpu_us_per_task": "the agent's CPU time per task, us",
    "tasks_per_s": "tasks a second (wall time: noise on a busy computer)",
    "tasks_per_report": "results in one Report",
}


class InstantRunner:
    """Tasks that need no time, so that only the agent's cost remains."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._post = next(each for each in arguments if callable(each) and each.__name__ == "post")

    def start(self, run: Run, slot: int = 0) -> None:
        output = Output(6, data=b"hello\n")
        result = Result(run.attempt, Outcome.SUCCEEDED, 0, "", 0.001, 0.001, 2**20, output, system_s=0.0005)
        asyncio.get_running_loop().call_soon(self._post, AttemptEnded(result))

    def held(self, attempt: AttemptId) -> Held:
        return Held(attempt)

    def room(self) -> int:
        return 0

    def retract(self) -> None: ...

    def in_hand(self) -> list[tuple[str, Held]]:
        return []

    def measure(self) -> float:
        return 0.0

    def cancel(self, attempt: AttemptId, outcome: Outcome, reason: str = "", *, gently: bool = False) -> None: ...
    async def close(self, reason: str) -> None: ...


def serve(port: Connection, tasks: int, window: int, commit_ms: float) -> None:
    """A master of one worker: tells its port, and then how many Reports brought all the results."""
    asyncio.run(_serve(port, tasks, window, commit_ms))


async def _serve(port: Connection, tasks: int, window: int, commit_ms: float) -> None:
    from aiohttp import web

    done = asyncio.Event()
    reports = 0

    pause_s = commit_ms / 1000

    async def link(request: web.Request) -> web.WebSocketResponse:
        nonlocal reports
        socket = web.WebSocketResponse(compress=False)
        await socket.prepare(request)
        given = ended = seq = 0
        async for frame in socket:
            message = json.loads(frame.data)
            if message["kind"] == "report" and not seq:
                port.send("connected")
            if message["kind"] == "hello":
                await socket.send_str('{"kind":"welcome","report_every_s":10,"lease_s":30}')
                continue
            await asyncio.sleep(pause_s)
            ended += len(message["results"])
            reports += bool(message["results"])
            for first in range(given, min(tasks, ended + window), 50) or [given]:
                numbers = range(first, min(tasks, ended + window, first + 50))
                seq, given = seq + 1, max(given, first + len(numbers))
                await socket.send_str(_assign(seq, message["seq"], numbers))
            if ended >= tasks:
                done.set()
        return socket

    app = web.Application()
    app.router.add_get("/api/v1/link", link)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port.send(runner.addresses[0][1])
    await done.wait()
    port.send(reports)
    await asyncio.sleep(0.2)


def _assign(seq: int, seen: int, numbers: range) -> str:
    runs = [
        {"attempt": f"1.{number + 1}.1", "command": ["true"], "parameters": {"i": number}, "environment": {}}
        for number in numbers
    ]
    return json.dumps({"kind": "assign", "seq": seq, "seen": seen, "run": runs, "held_s": 0.0})


def measure(tasks: int, window: int, slots: int, commit_ms: float) -> dict[str, float]:
    here, there = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    master = context.Process(target=serve, args=(there, tasks, window, commit_ms), daemon=True)
    master.start()
    url = f"http://127.0.0.1:{here.recv()}"
    parts_module.Runner = InstantRunner  # type: ignore[attr-defined,assignment]
    with tempfile.TemporaryDirectory() as folder:
        cpu_s, wall_s = asyncio.run(_work(url, Path(folder), slots, here))
    reports = here.recv()
    master.join()
    return {
        "tasks": tasks,
        "window": window,
        "cpu_us_per_task": round(cpu_s / tasks * 1e6, 1),
        "tasks_per_s": round(tasks / wall_s),
        "tasks_per_report": round(tasks / reports, 1),
    }


async def _work(url: str, folder: Path, slots: int, master: Connection) -> tuple[float, float]:
    settings = WorkerSettings.load(
        master=url, data_dir=folder, slots=slots, dedicated=True, token="x", disk_reserve_bytes=0, owner_page=False
    )
    home, agents = DataDirectory(folder), list[Agent]()
    home.speed.write_text("")
    work = asyncio.create_task(agent_module.run(settings, home, agents.append))
    await asyncio.to_thread(master.recv)
    agent = agents[0]
    cpu_s, wall_s = time.process_time(), time.monotonic()
    await asyncio.to_thread(master.poll, None)
    figures = time.process_time() - cpu_s, time.monotonic() - wall_s
    agent.stop()
    await work
    home.close()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--window", type=int, default=200)
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--commit-ms", type=float, default=2.0, help="what the master takes for an answer")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--profile", help="a file for cProfile's figures")
    options = parser.parse_args()
    log = tempfile.TemporaryFile("w")  # noqa: SIM115 - for as long as the program
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(message)s", stream=log)
    if options.profile:
        import cProfile

        with cProfile.Profile() as profile:
            figures = measure(options.tasks, options.window, options.slots, options.commit_ms)
        profile.dump_stats(options.profile)
    else:
        figures = measure(options.tasks, options.window, options.slots, options.commit_ms)
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        print("\n".join(f"{words:55}{figures[name]:>12}" for name, words in SHOWN.items()))


if __name__ == "__main__":
    main()
