"""Cost of a worker before its first task: at its start, and then idle, with its owner's protection.

A master and a worker with its default settings run on this computer, and a reporter, as each desktop starts one for a
worker that is a service of the system: with an X server without a screen where Xvfb is installed, with a bus where
dbus-daemon is. The worker is measured as it connects; after a rest, both are measured again. The yardstick, in the
same run, is bare Python.

    python benchmarks/worker/idle_agent.py [--seconds 30] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from loopline.programs import program
from loopline_worker.supervisor import processes
from tests.worker.presence.witnesses import bus, x_server

ROOT = Path(__file__).parents[2]
SETTLE_S = 3.0
OPTIONS = program("loopline_worker", "worker")[1:-2]
"""The interpreter's, as the command line starts a worker."""
YARDSTICKS = ("pass", "import asyncio", "import aiohttp.client", "import asyncio, pydantic, aiohttp.web")


AGENT = """
import sys
from loopline_worker.__main__ import main
from loopline_worker.owner import session_server
session_server.people_but_tasks = lambda is_here: lambda uid: True
sys.exit(main())
"""
"""A worker that answers its own user, too: here one user is the service and sits at the desktop."""


@contextmanager
def grid(folder: Path) -> Iterator[tuple[int, int]]:
    """Process ids of the agent, once it is connected, and of the reporter, once it has reported its session.

    The agent has been started before: its computer's speed is known.
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("LOOPLINE", "XDG", "PYTHONDONTWRITE"))}
    environment |= {"HOME": str(folder)}

    def start(*words: str, **more: str) -> subprocess.Popen[str]:
        command, own = [sys.executable, *words], environment | more
        started.append(subprocess.Popen(command, cwd=folder, env=own, text=True, stdout=-1, stderr=-2))
        return started[-1]

    started: list[subprocess.Popen[str]] = []
    socket = folder / "sessions"
    with ExitStack() as desktop:
        try:
            master = start("-m", "loopline_master", "--port", "0")
            url = _wait_for(master, "serves at").split("serves at ")[1].strip()
            worker = (*OPTIONS, "-c", AGENT, "--master", url, "--owner-socket", str(socket))
            first = start(*worker)
            _wait_for(first, "connected to")
            first.terminate()
            first.communicate(timeout=30)
            agent = start(*worker)
            _wait_for(agent, "connected to")
            has = desktop.enter_context(x_server()) if shutil.which("Xvfb") else {}
            if shutil.which("dbus-daemon"):
                has["DBUS_SESSION_BUS_ADDRESS"] = desktop.enter_context(bus())
            reporter = start("-m", "loopline_worker.presence", str(socket), **has)
            yield agent.pid, reporter.pid
        finally:
            for process in reversed(started):
                process.terminate()
                process.communicate(timeout=30)


def _wait_for(process: subprocess.Popen[str], words: str) -> str:
    assert process.stdout
    for line in process.stdout:
        if words in line:
            return line
    raise SystemExit(f"a program ended before it said {words!r}")


def measure(seconds: float) -> dict[str, dict[str, float]]:
    with tempfile.TemporaryDirectory() as folder, grid(Path(folder)) as (agent, reporter):
        start_cpu_s = _cpu_s(agent)
        time.sleep(SETTLE_S)
        families = {
            "agent": [agent, *processes.descendants(agent)],
            "reporter": [reporter, *processes.descendants(reporter)],
        }
        before = {name: sum(map(_cpu_s, family)) for name, family in families.items()}
        time.sleep(seconds)
        found = {
            name: _figures(family, (sum(map(_cpu_s, family)) - before[name]) / seconds)
            for name, family in families.items()
        }
    found["both"] = {name: round(sum(one[name] for one in found.values()), 4) for name in found["agent"]}
    found["agent"] |= {"start_cpu_s": round(start_cpu_s, 3), "seconds": seconds}
    return found


def _figures(family: list[int], cpu: float) -> dict[str, float]:
    memory = [_memory_bytes(pid) for pid in family]
    return {
        "processes": len(family),
        "cpu_percent_of_one_core": round(100 * cpu, 4),
        "rss_mib": _mib(each["Rss"] for each in memory),
        "pss_mib": _mib(each["Pss"] for each in memory),
        "private_mib": _mib(each["Private_Dirty"] + each["Private_Clean"] for each in memory),
    }


def yardstick(code: str) -> dict[str, float]:
    """Return memory and CPU time of a Python process that does only this."""
    command = [sys.executable, "-c", f"{code}\nprint(flush=True); input()"]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout
        process.stdout.readline()
        memory = _memory_bytes(process.pid)
        figures = {"rss_mib": _mib([memory["Rss"]]), "start_cpu_s": round(_cpu_s(process.pid), 3)}
        process.communicate("\n")
    return figures


def _mib(sizes_bytes: Iterable[int]) -> float:
    return round(sum(sizes_bytes) / 2**20, 1)


def _cpu_s(pid: int) -> float:
    """Return the CPU time of all its threads in nanoseconds: an idle agent uses less than a tick of the
    usual clock.
    """
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int(processes.read(f"{task}/schedstat").split()[0]) for task in tasks) / 1e9


def _memory_bytes(pid: int) -> dict[str, int]:
    lines = processes.read(f"/proc/{pid}/smaps_rollup").decode().splitlines()[1:]
    return {name: int(value.split()[0]) * 1024 for name, _, value in (line.partition(":") for line in lines)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = measure(options.seconds)
    beside = {code: yardstick(code) for code in YARDSTICKS}
    if options.json:
        print(json.dumps({**figures, "yardsticks": beside}, indent=2))
        return
    for who, found in figures.items():
        print("\n".join(f"{who:10}{name:26}{value:>10}" for name, value in found.items()))
    for code, told in beside.items():
        print(f"python -c {code!r:42} RSS {told['rss_mib']:5.1f} MiB, {told['start_cpu_s']:.3f} s of CPU")


if __name__ == "__main__":
    main()
