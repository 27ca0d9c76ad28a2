"""The whole agent yields to an owner: real processes are frozen, thawed and given back."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from loopline_shared.model import Load, Outcome
from loopline_shared.protocol.worker_link import Run
from loopline_worker import agent as agent_module
from loopline_worker import parts as parts_module
from loopline_worker.attempts.limits import Stopwatch
from loopline_worker.host import load as load_module
from loopline_worker.host.computer import Computer
from loopline_worker.host.contention import Contention
from loopline_worker.launch.posix import DurationEstimate
from loopline_worker.owner import owner_monitor
from loopline_worker.owner.blockers import Pause, PauseEnd
from loopline_worker.presence.idle_detector import IdleDetector
from loopline_worker.presence.probe import Probe
from loopline_worker.presence.terminals import Terminals
from loopline_worker.supervisor.control_groups import ControlGroup
from tests.worker.bench import processes_of, python, run_of, until
from tests.worker.presence.witnesses import Hand, moving_mouse, only_display, terminal, type_at, x_server
from tests.worker.small_master import SmallMaster
from tests.worker.test_agent import Started

STOPPED = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
CGROUP_MOUNTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
FAMILY = "(setsid sh -c 'while :; do sleep 0.01; done' &); echo > begun; while :; do sleep 0.01; done"

Start = Callable[..., Started]


@pytest.fixture
def hand() -> Hand:
    return Hand()


@pytest.fixture
async def start(
    tmp_path: Path, master: SmallMaster, monkeypatch: pytest.MonkeyPatch, hand: Hand
) -> AsyncIterator[Start]:
    monkeypatch.setattr(agent_module, "SAMPLE_EVERY_S", 0.05)
    monkeypatch.setattr(owner_monitor, "LOOK_EVERY_S", 0.02)
    make = parts_module.make_launcher  # normal priority for tasks, since other tests run at the same time
    monkeypatch.setattr(parts_module, "make_launcher", lambda yields, sandbox: make(False, sandbox))
    agents: list[Started] = []

    def begin(*probes: Probe, **settings: Any) -> Started:
        monkeypatch.setattr(owner_monitor, "_open_idle_detector", lambda: IdleDetector(probes or [hand]))
        owners = {"dedicated": False, "reserve_memory_bytes": 0, "owner_page": False, "on_battery": True}
        # Other tests use the processor too, and must not count as an owner.
        monkeypatch.setattr(Computer, "busy_cpu_s", lambda computer: 0.0)
        monkeypatch.setattr(Contention, "look", lambda contention, now, times=1: False)
        agents.append(Started(tmp_path / "data", master.url, owners | settings))
        return agents[-1]

    yield begin
    for agent in agents:
        await agent.crash()


async def runs(master: SmallMaster, agent: Started, *runs: Run) -> None:
    """Assign these runs, and wait for their first processes."""
    await until(lambda: master.reports and master.reports[-1].load.slots > 0)
    await master.say(*runs)
    for run in runs:
        await until(lambda run=run: (agent.folder / "scratch" / str(run.attempt) / "begun").exists())


def load(master: SmallMaster) -> Load:
    return master.reports[-1].load


def frozen(master: SmallMaster) -> list[bool]:
    return [held.frozen for held in master.reports[-1].holding]


def all_stopped(agent: Started) -> bool:
    processes = processes_of(agent.folder)
    return bool(processes) and all(is_stopped(process) for process in processes)


def is_stopped(process: psutil.Process) -> bool:
    """Return whether a process is stopped by a signal or by the freezer of its control group."""
    try:
        if process.status() in STOPPED or is_in_frozen_group(process):
            return True
        in_vfork = process.status() == psutil.STATUS_DISK_SLEEP  # waiting for its stopped child
        return in_vfork and any(child.status() in STOPPED for child in process.children())
    except (psutil.NoSuchProcess, OSError):
        return False  # it has ended


def is_in_frozen_group(process: psutil.Process) -> bool:
    groups = Path(f"/proc/{process.pid}/cgroup").read_text().splitlines()
    own = next((line.removeprefix("0::/") for line in groups if line.startswith("0::")), None)
    places = [Path(mount, own, "cgroup.events") for mount in CGROUP_MOUNTS if own]
    return any(place.exists() and "frozen 1" in place.read_text() for place in places)


@pytest.mark.parametrize("by", ["groups", "signals"])
async def test_whole_process_tree_is_frozen_and_thawed(
    master: SmallMaster, start: Start, hand: Hand, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by == "signals":
        monkeypatch.setattr(ControlGroup, "freeze", lambda group, frozen: False)
        monkeypatch.setattr(ControlGroup, "stopped", lambda group: set())
    agent = start()
    await runs(master, agent, run_of("sh", "-c", FAMILY))
    await until(lambda: len(processes_of(agent.folder)) >= 2)
    (attempt,) = agent.agent.parts.runner._attempts.values()
    await until(lambda: attempt._tree is not None and attempt._tree._root > 0)  # its process id is known
    supervisor = psutil.Process(attempt._tree._root)  # type: ignore[union-attr]
    hand.idle_s = 0.0
    await until(lambda: frozen(master) == [True])
    await until(lambda: all_stopped(agent))
    assert not is_stopped(supervisor)
    assert (load(master).slots, load(master).in_use) == (0, True)
    assert load(master).withheld == "somebody is using this computer"
    await until(lambda: load(master).yielded.count == 1)
    assert load(master).yielded.p99_s > 0
    hand.idle_s = 9999.0
    await until(lambda: frozen(master) == [False])
    await until(lambda: not any(is_stopped(process) for process in processes_of(agent.folder)))
    await until(lambda: (load(master).slots, load(master).in_use, load(master).idle_s) == (2, False, 9999.0))


async def test_no_prefetched_task_starts_when_the_owner_returns(
    master: SmallMaster, start: Start, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner returns to two slots with short tasks, while the next ones are already at their supervisors."""
    monkeypatch.setattr(DurationEstimate, "prefetch_depth", lambda estimate: 8)
    agent = start()
    log = agent.folder / "log"
    waits = f"[ -e {log}.stop ] || [ $LOOPLINE_TASK -gt 50 -a ! -e {log}.on ]"  # half of them wait
    script = f"echo begun >> {log}; while {waits}; do sleep 0.01; done; echo ended >> {log}"
    every = [run_of("sh", "-c", script, task=task) for task in range(1, 101)]
    await until(lambda: master.reports and master.reports[-1].load.slots > 0)
    await master.say(*every)
    await until(lambda: len(agent.agent.parts.machine.attempts.prefetched) > 8)
    await until(lambda: log.exists() and "ended" in log.read_text())
    Path(f"{log}.stop").touch()
    hand.idle_s = 0.0
    attempts = agent.agent.parts.machine.attempts
    await until(lambda: not attempts.running and all(frozen(master)))
    await until(lambda: all(is_stopped(process) for process in processes_of(agent.folder)))
    words = log.read_text().split()
    assert words.count("begun") - words.count("ended") <= 2, (
        "at most one per slot, which may have been between two tasks"
    )
    Path(f"{log}.on").touch()
    Path(f"{log}.stop").unlink()
    hand.idle_s = 9999.0
    await master.results_of(*every)
    assert log.read_text().split().count("begun") == sum(r.outcome is Outcome.SUCCEEDED for r in master.results)
    assert len(master.results) == len(every), "one result per run"
    assert {result.outcome for result in master.results} == {Outcome.SUCCEEDED, Outcome.GIVEN_BACK}


async def test_frozen_time_is_not_counted(master: SmallMaster, start: Start, hand: Hand) -> None:
    agent = start()
    await runs(master, agent, run_of("sh", "-c", "echo > begun; sleep 100", timeout_s=60))
    hand.idle_s = 0.0
    await until(lambda: frozen(master) == [True])
    stood = master.reports[-1].holding[0].wall_s
    count = len(master.reports)
    master.report_every_s = 0.02
    await master.hang_up()
    await until(lambda: len(master.reports) > count + 3)
    assert master.reports[-1].holding[0].wall_s == stood


async def test_time_limit_is_suspended_while_frozen() -> None:
    ended: list[str] = []
    still, other = Stopwatch(), Stopwatch()
    still.limit(0.02, lambda: ended.append("still"))
    still.stop()
    other.limit(0.03, lambda: ended.append("other"))
    await until(lambda: ended)
    assert ended == ["other"]
    still.start()
    await until(lambda: ended == ["other", "still"])


async def test_frozen_attempt_is_given_back_after_the_grace_time(
    master: SmallMaster, start: Start, hand: Hand
) -> None:
    agent = start(grace_s=0.2)
    run = run_of("sh", "-c", FAMILY)
    await runs(master, agent, run)
    hand.idle_s = 0.0
    (result,) = await master.results_of(run)
    assert (result.outcome, result.reason) == (Outcome.GIVEN_BACK, "somebody is using this computer")
    assert result.phases
    assert result.phases.frozen_s > 0
    assert processes_of(agent.folder) == []


async def test_a_frozen_attempt_that_is_cancelled_dies_as_a_whole(
    master: SmallMaster, start: Start, hand: Hand
) -> None:
    agent = start()
    run = run_of("sh", "-c", FAMILY)
    await runs(master, agent, run)
    hand.idle_s = 0.0
    await until(lambda: frozen(master) == [True])
    await master.say(cancel=(run.attempt,))
    (result,) = await master.results_of(run)
    assert result.outcome is Outcome.CANCELLED
    assert processes_of(agent.folder) == []


async def test_frozen_attempts_die_with_the_agent(master: SmallMaster, start: Start, hand: Hand) -> None:
    agent = start()
    await runs(master, agent, run_of("sh", "-c", FAMILY))
    hand.idle_s = 0.0
    await until(lambda: frozen(master) == [True])
    await agent.crash()
    await until(lambda: processes_of(agent.folder) == [])


async def test_run_is_given_back_while_the_computer_is_in_use(
    master: SmallMaster, start: Start, hand: Hand, tmp_path: Path
) -> None:
    hand.idle_s = 0.0
    start()
    await until(lambda: master.reports)
    run = run_of("touch", str(tmp_path / "ran"))
    await master.say(run)
    (result,) = await master.results_of(run)
    assert (result.outcome, result.reason) == (Outcome.GIVEN_BACK, "somebody is using this computer")
    assert not (tmp_path / "ran").exists()


async def test_no_task_runs_without_an_idle_probe(master: SmallMaster, start: Start, hand: Hand) -> None:
    hand.idle_s = None
    start()
    await until(lambda: master.reports)
    assert (load(master).slots, load(master).in_use, load(master).idle_s) == (0, True, None)
    assert "it is unknown whether" in load(master).withheld


@pytest.mark.parametrize("settings", [{"dedicated": True}, {"policy": "always"}])
async def test_presence_is_ignored_if_so_configured(
    master: SmallMaster, start: Start, hand: Hand, settings: dict[str, Any]
) -> None:
    hand.idle_s = 0.0
    start(**settings)
    await until(lambda: master.reports)
    assert (load(master).slots, load(master).in_use, load(master).idle_s) == (2, False, None)


async def test_pause_gives_attempts_back_and_survives_a_restart(master: SmallMaster, start: Start) -> None:
    agent = start()
    run = run_of("sh", "-c", FAMILY)
    await runs(master, agent, run)
    agent.agent.parts.monitor.pause.set(PauseEnd(time.time() + 3600))
    (result,) = await master.results_of(run)
    assert result.outcome is Outcome.GIVEN_BACK
    assert result.reason.startswith("paused by the owner until ")
    await agent.stop()
    agent.data_directory.close()
    count = len(master.reports)
    start()
    await until(lambda: len(master.reports) > count)
    assert load(master).slots == 0
    Pause(agent.folder / "pause.json").clear()


async def test_administrators_file_gives_tasks_back_until_it_is_removed(
    master: SmallMaster, start: Start, tmp_path: Path
) -> None:
    off = tmp_path / "off"
    agent = start(policy="always", slots=1, off_file=off)
    await until(lambda: master.reports and load(master).slots == 1)
    run = run_of("sh", "-c", FAMILY)
    await runs(master, agent, run)
    off.write_text("exam week\nuntil friday\n")
    (result,) = await master.results_of(run)
    assert (result.outcome, result.reason) == (Outcome.GIVEN_BACK, f"switched off by {off}: exam week")
    await until(lambda: load(master).slots == 0)
    off.unlink()
    await until(lambda: load(master).slots == 1)


HOG = [sys.executable, "-I", "-S", "-c", "while True: pass"]


@pytest.mark.parametrize("at_the_desk", [False, True])
async def test_slots_follow_the_use_of_an_owners_program(
    master: SmallMaster, start: Start, hand: Hand, monkeypatch: pytest.MonkeyPatch, at_the_desk: bool
) -> None:
    """A real task and real CPU hogs, on a simulated computer of two cores without other load."""
    hogs: list[psutil.Popen] = []

    def busy_cpu_s(computer: Computer) -> float:
        """Any use counts as a full core: this machine may be busy."""
        return 20 * sum(sum(hog.cpu_times()[:2]) for hog in hogs) + time.process_time() + _tasks_cpu_s(agent)

    monkeypatch.setattr(load_module, "_SMOOTH_S", 0.1)
    monkeypatch.setattr(Computer, "here", classmethod(lambda cls: _Cores(None, contained=False)))
    hand.idle_s = 0.0 if at_the_desk else 9999.0
    agent = start(policy="spare", slots=2, reserve_cores=0)
    monkeypatch.setattr(Computer, "busy_cpu_s", busy_cpu_s)
    tasks = [python("open('begun', 'w')\nwhile True: pass", task=number) for number in (1, 2)]
    await until(lambda: master.reports and load(master).slots == 2)
    await runs(master, agent, *tasks)
    try:
        hogs += [psutil.Popen(HOG) for _ in range(8)]
        await until(lambda: load(master).slots < 2)
        await until(lambda: frozen(master).count(True) >= 1)
        assert load(master).withheld == "the owner's programs need the processor"
        assert load(master).in_use == at_the_desk
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
        hogs.clear()
    await until(lambda: load(master).slots == 2)
    await until(lambda: frozen(master) == [False, False])
    assert load(master).yielded.count == 0  # no input


class _Cores(Computer):
    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.measured_cores = 2.0

    def _usable_cores(self) -> float:
        return 2.0


def _tasks_cpu_s(agent: Started) -> float:
    """Measure our own tasks like the agent, which subtracts them."""
    try:
        return agent.agent.parts.runner.measure() + agent.agent.parts.launcher.cpu_s()
    except AttributeError:
        return 0.0


async def test_x11_from_the_mouse_to_frozen_tasks(master: SmallMaster, start: Start, tmp_path: Path) -> None:
    with x_server() as display:
        agent = start(only_display(display, tmp_path), idle_s=1)
        await runs(master, agent, run_of("sh", "-c", FAMILY))
        with moving_mouse(display):
            await until(lambda: frozen(master) == [True])
            await until(lambda: all_stopped(agent))
            await until(lambda: load(master).yielded.count == 1)
        await until(lambda: frozen(master) == [False])  # a second without input later


async def test_terminals_from_a_key_to_frozen_tasks(master: SmallMaster, start: Start, tmp_path: Path) -> None:
    with terminal() as (device, person):
        os.utime(device, (1e6, 1e6))
        (tmp_path / "dev" / "pts").mkdir(parents=True)
        (tmp_path / "dev" / "pts" / device.name).symlink_to(device)
        sockets = tmp_path / "sockets"
        sockets.touch()
        agent = start(Terminals(tmp_path / "dev", sockets, contained=False))
        await runs(master, agent, run_of("sh", "-c", FAMILY))
        type_at(device, person)
        await until(lambda: frozen(master) == [True])
        await until(lambda: all_stopped(agent))


async def test_probes_are_closed_when_the_agent_stops(start: Start, master: SmallMaster) -> None:
    closed = asyncio.Event()

    class Closing(Hand):
        def close(self) -> None:
            closed.set()

    agent = start(Closing())
    await until(lambda: master.reports)
    await agent.stop()
    assert closed.is_set()


async def test_no_new_attempt_is_taken_while_memory_is_short(master: SmallMaster, start: Start) -> None:
    start(policy="spare", reserve_memory_bytes=2**60)
    await until(lambda: master.reports)
    assert load(master).slots == 0
    run = run_of("true")
    await master.say(run)
    (result,) = await master.results_of(run)
    assert (result.outcome, result.wall_s) == (Outcome.GIVEN_BACK, 0.0)
    assert "memory" in result.reason


async def test_youngest_attempt_is_given_back_if_the_disk_is_nearly_full(
    master: SmallMaster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = start(disk_reserve_bytes=1)
    old, young = (run_of("sh", "-c", "echo > begun; sleep 100", task=number) for number in (1, 2))
    await runs(master, agent, old, young)
    free = {True: 0, False: 2}  # its space is sufficient
    held = agent.agent.parts.runner._attempts
    monkeypatch.setattr(agent.data_directory, "free_bytes", lambda: free[young.attempt in held])
    (result,) = await master.results_of(young)
    assert result.outcome is Outcome.GIVEN_BACK
    assert result.reason == "less than 1 bytes are free on its disk (disk_reserve_bytes of this worker)"
    assert old.attempt in held


async def test_failed_probes_do_not_count_as_an_input(master: SmallMaster, start: Start, hand: Hand) -> None:
    agent = start()
    await runs(master, agent, run_of("sh", "-c", FAMILY))
    hand.idle_s = None
    await until(lambda: frozen(master) == [True])
    await until(lambda: not agent.agent.parts.machine.freezing)
    assert agent.agent.parts.monitor.history.yielded().count == 0


async def test_computer_is_kept_awake_until_the_owner_comes(start: Start, master: SmallMaster, hand: Hand) -> None:
    agent = start()
    await until(lambda: master.reports and master.reports[-1].load.slots > 0)
    monitor = agent.agent.parts.monitor
    assert monitor.sleep_locks == ()
    await runs(master, agent, run_of("sh", "-c", FAMILY))
    await until(lambda: monitor.sleep_locks == ("idle",))
    hand.is_at_greeter = True  # type: ignore[attr-defined]
    assert monitor.sleep_locks == ("idle", "sleep")
    hand.idle_s = 0.0
    await until(lambda: monitor.sleep_locks == ())


async def test_computer_may_sleep_beside_tasks_if_its_owner_says_so(start: Start, master: SmallMaster) -> None:
    agent = start(keep_awake=False)
    await runs(master, agent, run_of("sh", "-c", FAMILY))
    await until(lambda: agent.agent.parts.monitor.watches)
    assert agent.agent.parts.monitor.sleep_locks == ()
