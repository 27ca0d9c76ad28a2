"""Locks that prevent sleep, and suspend after work: the wing with logind and a desktop of python-dbusmock."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from loopline_shared.protocol.power import PowerOrders, SleepCause, WakeFacts
from loopline_shared.protocol.worker_link import Welcome
from loopline_worker.attempts.agent_wing import AgentView
from loopline_worker.core.sleep_rule import FollowOrders
from loopline_worker.power import suspend
from loopline_worker.power.sleep_wing import SleepWing
from loopline_worker.presence.bus import BusError
from loopline_worker.presence.session_lock import SessionLock, lock_session
from loopline_worker.presence.waiting.in_asyncio import run
from loopline_worker.task_group import TaskGroup
from tests.worker.presence.loops import in_both_loops, running
from tests.worker.presence.test_buses import Service, service
from tests.worker.presence.test_login_manager import locks, mock_logind, until_locked
from tests.worker.presence.witnesses import DBUS

pytest.importorskip("jeepney")
IDLE, SLEEP = ("idle", "Loopline", "block"), ("sleep", "Loopline", "block")
DESKTOP, PATH = "org.gnome.SessionManager", "/org/gnome/SessionManager"
OTHER, OTHER_PATH = "org.freedesktop.PowerManagement", "/org/freedesktop/PowerManagement/Inhibit"


@dataclass
class Computer:
    """What the wing sees of the agent, as the test sets it."""

    sleep_locks: tuple[str, ...] = ()
    is_in_use: bool = False
    is_wanted: bool = False


@asynccontextmanager
async def sleep_wing(computer: Computer) -> AsyncIterator[SleepWing]:
    async with TaskGroup() as task_group:
        wing = SleepWing(task_group, lambda can_suspend: None)
        wing.attach(cast("AgentView", computer))
        try:
            yield wing
        finally:
            wing.close()


async def test_locks_are_held_while_a_task_runs_and_the_owner_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    computer = Computer()
    async with mock_logind(monkeypatch) as logind, sleep_wing(computer) as wing:
        wing.on_sample()
        assert await locks(logind) == []
        computer.sleep_locks = ("idle",)
        wing.on_sample()
        await until_locked(logind, IDLE)
        computer.sleep_locks = ("idle", "sleep")
        wing.on_sample()
        while sorted(await locks(logind)) != [IDLE, SLEEP]:
            pass
        computer.sleep_locks = ()
        wing.on_sample()
        await until_locked(logind)


def order(after_s: float | None) -> FollowOrders:
    return FollowOrders(PowerOrders(sleep_after_s=after_s))


async def suspends(logind: Service) -> int:
    return len(await logind.does("GetMethodCalls", "s", "Suspend"))


async def test_computer_that_the_grid_woke_is_suspended_after_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    computer = Computer(is_wanted=True)
    async with mock_logind(monkeypatch) as logind, sleep_wing(computer) as wing:
        wing.obey(order(0.0))
        wing.on_sample()
        assert await suspends(logind) == 0, "it has a task"
        computer.is_wanted = False
        wing.on_sample()
        while not await suspends(logind):
            pass
        assert wing._cause is SleepCause.GRID
        wing.on_sample()
        assert await suspends(logind) == 1


async def test_suspend_for_a_test_sets_the_alarm_of_the_clock(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "wakealarm").touch()
    monkeypatch.setattr(suspend.suspend, "__defaults__", (None, tmp_path))
    async with mock_logind(monkeypatch) as logind, sleep_wing(Computer()) as wing:
        wing.obey(FollowOrders(PowerOrders(test_alarm_s=240.0)))
        while not await suspends(logind):
            pass
        assert wing._cause is SleepCause.TEST
        assert (tmp_path / "wakealarm").read_text() == "+240"


@pytest.mark.parametrize(("expects_work", "is_allowed"), [(True, True), (False, True), (True, False)])
def test_clock_wakes_the_computer_for_its_owners_hours_if_work_is_expected(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, expects_work: bool, is_allowed: bool
) -> None:
    (tmp_path / "wakealarm").touch()
    monkeypatch.setattr(suspend.set_alarm, "__defaults__", (tmp_path,))
    wing = SleepWing(TaskGroup(), lambda can_suspend: None)
    wing.obey(FollowOrders(PowerOrders(expects_work=expects_work)))
    wing._set_alarm(WakeFacts("eth0", "52:54:00:12:34:56", is_allowed=is_allowed, hours=((0, 60),)))
    assert bool((tmp_path / "wakealarm").read_text()) is (expects_work and is_allowed)


@pytest.mark.parametrize("case", ["woken by its owner", "owner has come", "not long enough", "new session"])
async def test_other_computers_stay_awake(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    computer = Computer()
    async with mock_logind(monkeypatch) as logind, sleep_wing(computer) as wing:
        if case != "woken by its owner":
            wing.obey(order(3600.0 if case == "not long enough" else 0.0))
        if case == "owner has come":
            computer.is_in_use = True
            wing.on_sample()
            computer.is_in_use = False
        if case == "new session":
            wing.connected(Welcome(1.0, 1.0))
        wing.on_sample()
        assert await suspends(logind) == 0


def inhibits(service: str) -> tuple[str, str, str, str]:
    return ("Inhibit", "susu", "u", "ret = 1") if service == DESKTOP else ("Inhibit", "ss", "u", "ret = 1")


@in_both_loops
@pytest.mark.parametrize(
    ("name", "path", "interface"), [(DESKTOP, PATH, DESKTOP), (OTHER, OTHER_PATH, f"{OTHER}.Inhibit")]
)
async def test_desktop_is_asked_not_to_suspend(
    monkeypatch: pytest.MonkeyPatch, loop: str, name: str, path: str, interface: str
) -> None:
    lock = SessionLock()
    async with service(monkeypatch, name, path, "--session", name, path, interface) as desktop:
        await desktop.does("AddMethod", "sssss", interface, *inhibits(name))

        async def calls() -> list[Any]:
            return cast("list[Any]", await desktop.does("GetMethodCalls", "s", "Inhibit"))

        async with running(loop, lock.hold()):
            for count in (1, 2):
                lock.set(is_wanted=True)
                while len(await calls()) < count:
                    pass
                lock.set(is_wanted=True)
                await until_names(desktop, 3)
                lock.set(is_wanted=False)
                await until_names(desktop, 2)
        assert len(await calls()) == 2, "it is not asked for again while it is held"


async def until_names(desktop: Service, count: int) -> None:
    """Wait until there are this many clients on the bus: the mock service, the test, and the holder of the lock."""
    while True:
        names = await run(desktop._bus.ask(DBUS, "/org/freedesktop/DBus", DBUS, "ListNames"))
        if sum(name.startswith(":") for name in names) == count:
            return


async def test_lock_that_no_desktop_grants_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async with service(monkeypatch, DESKTOP, PATH, "--session", DESKTOP, PATH, DESKTOP) as desktop:
        await desktop.does("AddMethod", "sssss", DESKTOP, "Inhibit", "susu", "u", "raise ValueError('no')")
        with pytest.raises(BusError):
            await run(lock_session())
        await until_names(desktop, 2)
