"""Competing programs, each in its best honest configuration, in its own environment.

``ways`` are rows for a benchmark's table, taken in turns with ours. They are left out until
`make bench-peers` has installed them, and ``hint`` says so. ``yardsticks/`` has a program for each, which is
independent of Loopline.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.harness.grid import ROOT, YARDSTICKS, Way, yardstick

FOLDER = ROOT / ".bench"
PYTHON = FOLDER / "bin" / "python"
DEBIAN = FOLDER / "debian"
PROCESSES, CALLS, ONE_PROCESS, ONE_CALL, START = "processes", "calls", "one-process", "one-call", "start"
ALL = frozenset({PROCESSES, CALLS, ONE_PROCESS, ONE_CALL, START})
HINT = "Peers are left out: install them by `make bench-peers`."


@dataclass(frozen=True)
class Peer:
    name: str
    durable: str
    script: str
    variant: str = ""
    processes_per_s: int = 1000
    """About; with the next, how many tasks it is given, so that slow ones do not take for ever."""
    calls_per_s: int = 1000
    kinds: frozenset[str] = ALL
    program: str = ""
    """A program that it needs, besides Python."""
    as_root: bool = False
    """Whether it runs as root only."""
    least: int = 100
    """As few tasks as it is given at least."""


PEERS = (
    Peer("Dask", "no", "with_dask.py", calls_per_s=700),
    Peer("Dask, tuned", "no", "with_dask.py", "tuned", 1300, 4000, ALL - {ONE_CALL, ONE_PROCESS, START}),
    Peer("Parsl", "no", "with_parsl.py", "htex", 1000, 2000),
    Peer("Parsl, threads", "no", "with_parsl.py", "threads", 1000, 10_000, ALL - {CALLS}),
    Peer("huey, SQLite", "yes", "with_huey.py", "", 1000, 2000),
    Peer("Celery, Redis", "no", "with_celery.py", "", 600, 900, program="redis-server"),
    Peer("Celery, Redis with fsync", "yes", "with_celery.py", "fsync", 500, 600, program="redis-server"),
    Peer("HyperQueue", "no", "with_hyperqueue.py", "", 500, kinds=frozenset({PROCESSES, ONE_PROCESS, START})),
    Peer("Slurm, steps", "no", "with_slurm.py", "steps", 30, 0, ALL - {CALLS, ONE_CALL}, "slurmctld", as_root=True),
    Peer("Slurm, array", "no", "with_slurm.py", "array", 2, 0, frozenset({PROCESSES}), "slurmctld", True, least=20),
    Peer("GNU parallel", "no", "with_pools.py", "parallel", 300, kinds=frozenset({PROCESSES}), program="parallel"),
)

OF_PYTHON = (
    Peer("asyncio subprocess", "-", "with_pools.py", "asyncio", 2500, kinds=frozenset({PROCESSES, ONE_PROCESS})),
    Peer("xargs -P2", "-", "with_pools.py", "xargs", 2000, kinds=frozenset({PROCESSES}), program="xargs"),
    Peer("ProcessPoolExecutor", "no", "with_pools.py", "executor", 2000, 500_000, ALL),
    Peer("multiprocessing.Pool", "no", "with_pools.py", "pool", 2000, 500_000, ALL - {PROCESSES, ONE_PROCESS}),
)
"""Programs that are always there: they form no grid, but are quick. Pools make many calls at a time, as their
documentation advises.
"""


def is_installed() -> bool:
    return PYTHON.exists()


def ways(kind: str, tasks: int, slots: int = 2, *, silent: bool = False, seconds: float = 3.0) -> list[Way]:
    """Return all installed peers of this kind. A peer that would take much longer than ``seconds`` gets fewer tasks,
    and the figures say how many: ``{"tasks": ..., "seconds": ...}``, of ``one-...`` ``{"each_s": [...]}``.
    """
    chosen = [*OF_PYTHON, *(PEERS if is_installed() else ())]
    return [
        Way(peer.name, peer.durable, partial(yardstick, *_command(peer, kind, tasks, slots, silent, seconds),
                                             environment=environment()), rounds=1)
        for peer in chosen
        if kind in peer.kinds and _can_run(peer)
    ]  # fmt: skip


def _can_run(peer: Peer) -> bool:
    is_there = not peer.program or shutil.which(peer.program, path=environment()["PATH"]) is not None
    return is_there and (os.geteuid() == 0 or not peer.as_root)


def hint() -> list[str]:
    return [] if is_installed() else [HINT]


def _command(peer: Peer, kind: str, tasks: int, slots: int, silent: bool, seconds: float) -> list[str]:
    python = sys.executable if peer in OF_PYTHON else str(PYTHON)
    words = [python, str(YARDSTICKS / peer.script), kind, "--slots", str(slots), "--variant", peer.variant]
    return [*words, "--tasks", str(_share(peer, kind, tasks, seconds)), *(["--silent"] if silent else [])]


def _share(peer: Peer, kind: str, tasks: int, seconds: float) -> int:
    rate = peer.calls_per_s if kind == CALLS else peer.processes_per_s
    slowest = {"HyperQueue": 3}.get(peer.name, tasks)  # it looks once in a second
    return min(tasks, slowest) if kind.startswith("one") else min(tasks, max(peer.least, int(rate * seconds)))


def environment() -> dict[str, str]:
    """Return the environment of peers, with their own programs."""
    libraries = [str(path) for path in (DEBIAN / "usr" / "lib").glob("*-linux-gnu*")]
    path = [str(FOLDER / "bin"), str(DEBIAN / "usr" / "bin"), os.environ.get("PATH", os.defpath)]
    return {
        "PATH": os.pathsep.join(path),
        "PYTHONPATH": str(YARDSTICKS),
        **({"LD_LIBRARY_PATH": os.pathsep.join(libraries)} if libraries else {}),
    }


def versions() -> dict[str, str]:
    """Return the installed versions, for the record."""
    found: dict[str, str] = {}
    for info in sorted(Path(FOLDER, "lib").glob("python3*/site-packages/*.dist-info")):
        name, _, version = info.name.removesuffix(".dist-info").partition("-")
        if name in ("distributed", "parsl", "huey", "celery", "redis", "hyperqueue"):
            found[name] = version
    for package in sorted(DEBIAN.glob("*.deb")):
        name, version, *_ = package.name.split("_")
        if name in ("redis-server", "parallel"):
            found[name] = version.replace("%3a", ":")
    if shutil.which("slurmctld"):
        said = subprocess.run(["slurmctld", "-V"], capture_output=True, text=True, check=False).stdout
        found["slurm"] = said.removeprefix("slurm-wlm ").strip()
    return found
