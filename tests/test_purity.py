"""The scheduler and the worker's core read no clock, draw no randomness, and touch no file, socket or event loop.

A whole grid runs for some hundred steps with all of these patched to raise, and processes with different hash seeds
produce the same effects.
"""

from __future__ import annotations

import asyncio
import builtins
import datetime
import hashlib
import importlib
import os
import pkgutil
import random
import secrets
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import loopline_master.core
import loopline_master.core.explain.explain_job
import loopline_shared.protocol
import loopline_worker.core
from loopline_master.core.events import BATCH, SchedulerSettings
from loopline_master.core.explain.explain_job import explain_job
from loopline_master.core.kernel.effects import Effects
from loopline_master.core.policies import REGISTRY
from loopline_master.core.scheduler import Scheduler
from loopline_shared.job.parameters import Range
from loopline_shared.job.requirements import Requirements
from loopline_shared.model import Facts, Outcome
from loopline_shared.protocol import link_session
from loopline_shared.rest.bodies import Explanation, Reason
from loopline_shared.spec import JobSpec
from loopline_simulator.full import grid_world
from tests.campaign import CHECK_EVERY, LONG
from tests.properties.world import Machine, World

ROOT = Path(__file__).parent.parent
OTHER_SEED = "4242"
"""Hash seeds; this process has another one."""
IMPURE: list[tuple[Any, str]] = [
    *((time, name) for name in ("time", "monotonic", "perf_counter", "time_ns", "monotonic_ns", "sleep")),
    *((random, name) for name in ("random", "randint", "choice", "shuffle", "sample", "uniform", "getrandbits")),
    (random.Random, "random"),
    (random.Random, "getrandbits"),
    *((secrets, name) for name in ("token_bytes", "token_hex", "token_urlsafe", "randbits", "choice")),
    *((os, name) for name in ("urandom", "open", "stat", "listdir", "getenv", "fork", "system")),
    (builtins, "open"),
    (builtins, "print"),
    (builtins, "input"),
    (uuid, "uuid4"),
    (socket, "socket"),
    (socket, "create_connection"),
    (subprocess, "Popen"),
    (threading, "Thread"),
    (datetime, "datetime"),
    *((asyncio, name) for name in ("sleep", "get_event_loop", "get_running_loop", "new_event_loop", "create_task")),
]


def a_life(policy: str) -> list[str]:
    """Run some hundred steps with all features; return the effects of each as text."""
    log: list[str] = []

    class Witnessed(Scheduler):
        def step(self, events: Any, now: float) -> Effects:
            effects = super().step(events, now)
            log.append(repr(effects))
            return effects

    original, grid_world.Scheduler = grid_world.Scheduler, Witnessed
    try:
        settings = SchedulerSettings(policy, lease_s=20.0, stall_after_s=30.0)
        _live(World(settings, _machines(), check_every=CHECK_EVERY), log)
    finally:
        grid_world.Scheduler = original
    return log


def _machines() -> list[Machine]:
    kinds = [(2, ("fast", "gpu")), (1, ()), (3, ("fast",)), (1, ("slow",))]
    return [
        Machine(
            f"worker-{place}",
            Facts(
                "linux", "x86_64", "3.11", "0", "model", cpus=slots, memory_bytes=10**9, slots=slots, labels=labels
            ),
        )
        for place, (slots, labels) in enumerate(kinds)
    ]


def _live(grid: World, log: list[str]) -> None:
    for number in range(160):
        turn = number * number + number // 3  # for variety, without randomness
        awake = list(grid.machines)[: 3 + (number > 70)]  # the last computer starts late, so its jobs stall
        name = awake[turn % len(awake)]
        _users_act(grid, number, turn)
        _machine_acts(grid, name, number, turn)
        _frames_travel(grid, name, crash="before commit" if number % 53 == 52 else "")
        grid.pass_time(number % 4)
        log.append(repr(explain_job(grid.scheduler, 1 + turn % 20)))
    grid.settle()
    assert len(grid.store.attempts) > 30, "the life has enough effects"
    assert {exemption.reason for exemption in grid.store.exemptions.values()} == {"paused", "stalled"}


def _users_act(grid: World, number: int, turn: int) -> None:
    if number % 8 == 0:
        grid.submit(_spec(number))
    jobs = sorted(grid.store.jobs)
    if jobs and number % 9 == 5:
        grid.steer(("pause", "resume", "cancel", "retry")[turn % 4], jobs[turn % len(jobs)])


def _machine_acts(grid: World, name: str, number: int, turn: int) -> None:
    machine = grid.machines[name]
    if machine.link is None:
        grid.connect(name)
    if number % 31 == 30:
        grid.cut(name, noticed=number % 2 == 0)
    if number % 47 == 46:
        machine.boot()
    for attempt in list(machine.processes)[: number % 3]:
        machine.end(attempt, (Outcome.SUCCEEDED, Outcome.SUCCEEDED, Outcome.FAILED)[turn % 3])
    machine.report()


def _frames_travel(grid: World, name: str, crash: str) -> None:
    for _ in range(3):
        grid.deliver_up(name)
    grid.master_steps(crash)
    for _ in range(3):
        grid.deliver_down(name)


def _spec(number: int) -> JobSpec:
    return JobSpec(
        command=["work", "{i}", "{j}"],
        parameters={"i": Range(range=[1, 2 + number % 3]), "j": ["x", 1.5, True][: 1 + number % 2]},
        size=[None, 1.0, 2.0, 1.0][number // 8 % 4],
        requires=Requirements(labels=[[], ["fast"], ["gpu", "fast"], ["slow"]][number // 8 % 4]),
        environment={"A": "1", "B": "2"},
    )


@pytest.fixture(autouse=True, scope="module")
def _built() -> None:
    """Pydantic builds models of the API and of the link at their first use, and reads the environment then."""
    for model in (Reason, Explanation, Range, Requirements, JobSpec):
        model.model_rebuild()
    for adapter in (link_session._from_worker, link_session._from_master, link_session._result, BATCH):
        adapter.rebuild()


@pytest.mark.parametrize("policy", sorted(REGISTRY))
def test_scheduler_and_machine_use_no_clock_randomness_files_or_network(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        for owner, name in IMPURE:
            patch.setattr(owner, name, _forbidden(name))
        log = a_life(policy)
    assert len(log) > 300


def test_patched_functions_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", _forbidden("time"))
        patch.setattr(Scheduler, "wake_at", property(lambda self: time.time()))
        with pytest.raises(AssertionError, match="time was called"):
            a_life("round-robin")


def _forbidden(name: str) -> Any:
    def forbidden(*args: object, **keywords: object) -> None:
        raise AssertionError(f"{name} was called")

    return forbidden


def pure_modules() -> Iterator[ModuleType]:
    for package in (loopline_master.core, loopline_worker.core, loopline_shared.protocol):
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            yield importlib.import_module(found.name)


def test_no_pure_module_imports_an_impure_function() -> None:
    """Otherwise ``from time import time`` would escape the patches above."""
    impure = {id(getattr(owner, name)) for owner, name in IMPURE} | {
        id(module) for module in (time, random, secrets, os, socket, subprocess, threading, datetime, asyncio, uuid)
    }
    modules = list(pure_modules())
    assert len(modules) > 20
    for module in modules:
        held = [name for name, value in vars(module).items() if id(value) in impure and name != "__builtins__"]
        assert not held, f"{module.__name__} holds {held}"


def test_decisions_do_not_depend_on_the_hash_seed() -> None:
    other = subprocess.Popen(
        [sys.executable, "-m", "tests.test_purity"],
        cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": OTHER_SEED}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    here = list(digests())
    there = other.communicate(timeout=60)[0].splitlines()
    assert other.returncode == 0
    lines = list(zip(here, there, strict=True))
    assert len(lines) > 500
    differing = [number for number, (one, other) in enumerate(lines) if one != other]
    assert not differing, f"effects differ from number {differing[0]} of {len(lines)} on"


def digests() -> Iterator[str]:
    for policy in sorted(REGISTRY) if LONG else ("fair", "turnaround"):
        for line in a_life(policy):
            yield hashlib.sha256(line.encode()).hexdigest()


if __name__ == "__main__":
    for each in digests():
        sys.stdout.write(f"{each}\n")
