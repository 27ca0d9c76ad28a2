"""What an idle worker costs its owner: CPU and memory of an agent that is connected and has nothing to do.

A master and a worker with its default settings run on this computer; the worker is left in peace, then measured.

    python benchmarks/idle_agent.py [--seconds 20] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from worker.launch import processes

ROOT = Path(__file__).parents[1]
SETTLE_S = 8.0
"""Connecting, and the first benchmark of the processor's speed, are over by then."""


@contextmanager
def grid(folder: Path) -> Iterator[int]:
    """The agent's process id, once it is connected."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("LOOPLINE", "XDG"))}
    environment |= {"HOME": str(folder), "PYTHONPATH": str(ROOT)}

    def start(module: str, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", module, *arguments]
        return subprocess.Popen(command, cwd=folder, env=environment, text=True, stdout=-1, stderr=-2)

    master = start("master", "--port", "0")
    started = [master]
    try:
        url = _wait_for(master, "serves at").split("serves at ")[1].strip()
        worker = start("worker", "--master", url)
        started.append(worker)
        _wait_for(worker, "connected to")
        yield worker.pid
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


def measure(seconds: float) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder, grid(Path(folder)) as agent:
        time.sleep(SETTLE_S)
        family = [agent, *processes.descendants(agent)]
        before = sum(map(_cpu_s, family))
        time.sleep(seconds)
        used_s = sum(map(_cpu_s, family)) - before
        memory = [_memory_bytes(pid) for pid in family]
        return {
            "seconds": seconds,
            "processes": len(family),
            "cpu_percent_of_one_core": round(100 * used_s / seconds, 4),
            "rss_mib": round(sum(each["Rss"] for each in memory) / 2**20, 1),
            "pss_mib": round(sum(each["Pss"] for each in memory) / 2**20, 1),
            "private_mib": round(sum(each["Private_Dirty"] + each["Private_Clean"] for each in memory) / 2**20, 1),
        }


def _cpu_s(pid: int) -> float:
    """To the nanosecond, of all its threads: an idle agent uses less than a tick of the usual clock."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int(processes.read(f"{task}/schedstat").split()[0]) for task in tasks) / 1e9


def _memory_bytes(pid: int) -> dict[str, int]:
    lines = processes.read(f"/proc/{pid}/smaps_rollup").decode().splitlines()[1:]
    return {name: int(value.split()[0]) * 1024 for name, _, value in (line.partition(":") for line in lines)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = measure(options.seconds)
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        print("\n".join(f"{name:26}{value:>10}" for name, value in figures.items()))


if __name__ == "__main__":
    main()
