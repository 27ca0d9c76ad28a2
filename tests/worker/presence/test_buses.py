"""GNOME and logind by D-Bus, against python-dbusmock on a bus of their own."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from loopline_worker.owner import metered
from loopline_worker.presence import bus as bus_module
from loopline_worker.presence import logind, mutter
from loopline_worker.presence.bus import Bus, BusProbe
from loopline_worker.presence.idle_detector import IdleDetector
from loopline_worker.presence.logind import Logind
from loopline_worker.presence.mutter import Mutter
from loopline_worker.presence.probe import Reading
from loopline_worker.presence.session_reports import SessionReport, SessionReports
from loopline_worker.task_group import TaskGroup
from tests.worker.bench import until
from tests.worker.presence.witnesses import DBUS, MOCK, bus, mock_service

pytest.importorskip("jeepney")

MUTTER = "org.gnome.Mutter.IdleMonitor"
CORE = "/org/gnome/Mutter/IdleMonitor/Core"
LOGIND, ROOT = "org.freedesktop.login1", "/org/freedesktop/login1"
MANAGER = f"{LOGIND}.Manager"


class Service:
    """A mock service, to be told what it answers."""

    def __init__(self, bus: Bus, name: str, path: str) -> None:
        self._bus, self._name, self._path = bus, name, path

    async def does(self, member: str, signature: str, *body: Any) -> Any:
        return await self._bus.ask(self._name, self._path, MOCK, member, signature, *body)

    async def sets(self, path: str, interface: str, **properties: Any) -> None:
        await self._bus.ask(self._name, path, MOCK, "UpdateProperties", "sa{sv}", interface, properties)


@asynccontextmanager
async def service(monkeypatch: pytest.MonkeyPatch, name: str, path: str, *arguments: str) -> AsyncIterator[Service]:
    with bus() as address, mock_service(address, *arguments):
        monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", address)
        monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", address)
        async with Bus.open(of_system=False) as told:

            async def is_there() -> bool:
                return bool(await told.ask(DBUS, "/org/freedesktop/DBus", DBUS, "NameHasOwner", "s", name))

            while not await is_there():
                pass
            yield Service(told, name, path)


@asynccontextmanager
async def listening(probe: BusProbe) -> AsyncIterator[IdleDetector]:
    detector = IdleDetector([probe])
    async with TaskGroup() as task_group:
        detector.listen(task_group)
        await until(lambda: probe.look().idle_s is not None)
        yield detector


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bus_module, "_AGAIN_S", 0.05)
    monkeypatch.setattr(mutter, "_EVERY_S", 0.05)


async def test_gnome_tells_of_an_input_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with service(monkeypatch, MUTTER, CORE, "--session", MUTTER, CORE, MUTTER) as gnome:
        await gnome.does("AddMethod", "sssss", MUTTER, "GetIdletime", "", "t", "ret = dbus.UInt64(600000)")
        await gnome.does("AddMethod", "sssss", MUTTER, "AddUserActiveWatch", "", "u", "ret = dbus.UInt32(7)")
        probe = Mutter()
        async with listening(probe) as detector:
            reading = probe.look()
            assert reading.sees_desktop
            assert (reading.idle_s or 0) >= 600
            monkeypatch.setattr(mutter, "_EVERY_S", 3600)  # from here on, only what it is told
            while not await gnome.does("GetMethodCalls", "s", "AddUserActiveWatch"):
                pass
            await gnome.does("EmitSignal", "sssav", MUTTER, "WatchFired", "u", [("u", 8)])
            await gnome.does("GetCalls", "")
            assert not detector.stirred.is_set()  # that watch is somebody else's
            await gnome.does("EmitSignal", "sssav", MUTTER, "WatchFired", "u", [("u", 7)])
            await detector.stirred.wait()
            assert (probe.look().idle_s or 0) < 500


async def test_a_desktop_that_goes_is_no_witness_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    probe = Mutter()
    async with service(monkeypatch, MUTTER, CORE, "--session", MUTTER, CORE, MUTTER) as gnome:
        await gnome.does("AddMethod", "sssss", MUTTER, "GetIdletime", "", "t", "ret = dbus.UInt64(600000)")
        await gnome.does("AddMethod", "sssss", MUTTER, "AddUserActiveWatch", "", "u", "ret = dbus.UInt32(7)")
        async with listening(probe):
            await gnome.does("AddMethod", "sssss", MUTTER, "GetIdletime", "", "t", "raise ValueError('gone')")
            await until(lambda: probe.look().idle_s is None)
            assert "gone" in probe.look().detail


async def test_logind_knows_that_nobody_is_there_and_who_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    async with service(monkeypatch, LOGIND, ROOT, "--system", "--template", "logind") as login:
        probe = Logind()
        async with listening(probe) as detector:
            assert probe.look().sees_desktop
            assert probe.look().detail == "nobody is logged in"
            path = await login.does("AddSession", "ssusb", "c1", "seat0", os.getuid() + 1, "ann", True)
            await login.sets(path, logind._SESSION, Type=("s", "wayland"), Class=("s", "user"))
            detector.stirred.clear()
            monkeypatch.setattr(logind, "_EVERY_S", 0.05)
            await until(lambda: probe.look().idle_s == 0)
            await detector.stirred.wait()
            assert probe.look().detail == "session c1 is in use"
            await login.sets(path, logind._SESSION, LockedHint=("b", True))
            await until(lambda: "locked" in probe.look().detail)
            since = int((time.time() - 1000) * 1e6)
            await login.sets(path, logind._SESSION, IdleHint=("b", True), IdleSinceHint=("t", since))
            await until(lambda: (probe.look().idle_s or 0) >= 1000)


async def test_what_listens_can_be_ended_though_its_bus_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Bus] = []

    async def stays() -> None:
        async with Bus.open(of_system=False) as connection:
            opened.append(connection)
            await asyncio.Event().wait()

    with bus() as address:
        monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", address)
        staying = asyncio.create_task(stays())
        await until(lambda: opened)
    await until(lambda: opened[0]._router._rcv_task.done())
    staying.cancel()
    await asyncio.wait([staying])
    assert staying.cancelled()


async def test_network_manager_tells_whether_the_connection_is_metered(monkeypatch: pytest.MonkeyPatch) -> None:
    name, path = metered._SERVICE, metered._PATH
    async with service(monkeypatch, name, path, "--system", name, path, name) as network, TaskGroup() as task_group:
        await network.does("AddProperty", "ssv", name, "Metered", ("u", 4))
        told: list[bool] = []
        task_group.start(metered.watch(told.append))
        await until(lambda: told == [False])
        await network.sets(path, name, Metered=("u", 1))
        await until(lambda: told[-1])


OURS = os.getuid()


def test_a_reporter_speaks_for_the_sessions_of_its_user_alone() -> None:
    probe = Logind()
    probe.reports = SessionReports()
    both = {"1": session(), "2": session(**OTHERS)}
    assert probe.judge(both, 1000.0).idle_s == 0.0
    assert probe.people == {OURS, OURS + 1}
    probe.reports.note("x", OURS + 1, SessionReport(77.0))
    reading = probe.judge(both, 1000.0)
    assert not reading.sees_desktop, "of the other session nothing is known"
    probe.reports.note("y", OURS, SessionReport(88.0))
    reading = probe.judge(both, 1000.0)
    assert reading.sees_desktop
    assert 77 <= (reading.idle_s or 0) < 88


def test_a_program_that_keeps_the_screen_on_is_a_use_unless_the_session_is_locked() -> None:
    probe = Logind()
    probe._inhibitors = {OURS: "a film"}
    idle = {"IdleHint": True, "IdleSinceHint": 900 * 10**6}
    assert probe.judge({"1": session(**idle)}, 1000.0).idle_s == 0.0
    assert probe.judge({"1": session(LockedHint=True, **idle)}, 1000.0).idle_s == 100.0


def session(**changes: Any) -> dict[str, Any]:
    known = {
        "Class": "user", "Type": "wayland", "User": (OURS, "/"), "Active": True, "Remote": False, "State": "active",
        "IdleHint": False, "IdleSinceHint": 0, "LockedHint": False,
    }  # fmt: skip
    return known | changes


OTHERS = {"User": (OURS + 1, "/")}


@pytest.mark.parametrize(
    ("sessions", "idle_s", "sees_desktop"),
    [
        ([session()], None, False),  # desktops are careless about saying that they are not idle
        ([session(IdleHint=True, IdleSinceHint=900 * 10**6)], 100.0, True),
        ([session(**OTHERS)], 0.0, True),
        ([session(IdleHint=True, IdleSinceHint=900 * 10**6), session(**OTHERS)], 0.0, True),
        ([session(IdleHint=True, IdleSinceHint=900 * 10**6), session()], 100.0, False),
        ([session(Class="user-light", **OTHERS)], 0.0, True),
        ([session(Class="user-early")], None, False),
        ([session(Type="tty")], None, False),
        ([session(Type="tty", Remote=True), session(IdleHint=True, IdleSinceHint=900 * 10**6)], 100.0, True),
        ([session(LockedHint=True)], 0.0, True),
    ],
)
def test_what_sessions_say(sessions: list[dict[str, Any]], idle_s: float | None, sees_desktop: bool) -> None:
    reading = Logind().judge({str(place): session for place, session in enumerate(sessions)}, now=1000.0)
    assert (reading.idle_s, reading.sees_desktop) == (idle_s, sees_desktop)


def test_a_locked_session_has_been_idle_since_it_was_locked() -> None:
    probe, locked = Logind(), {"1": session(LockedHint=True)}
    assert [probe.judge(locked, now=now).idle_s for now in (1000.0, 1300.0)] == [0.0, 300.0]
    assert probe.judge({"1": session()}, now=1400.0).idle_s is None
    assert probe.judge(locked, now=1500.0).idle_s == 0.0


@pytest.mark.parametrize("gone", [{"State": "closing"}, {"Class": "greeter"}, {"Active": False}])
def test_after_a_logout_nobody_is_there(gone: dict[str, Any]) -> None:
    probe = Logind()
    probe.judge({"1": session()}, now=1000.0)
    reading = probe.judge({"1": session(**gone)}, now=1060.0)
    assert (reading.idle_s, reading.sees_desktop, reading.detail) == (60.0, True, "nobody is logged in")


def test_between_two_polls_in_use_stays_in_use_and_an_input_grows_older() -> None:
    for probe, idle_s, told in ((Logind(), 0.0, 0.0), (Logind(), 9.0, 13.0), (Mutter(), 0.0, 4.0)):
        probe._learned = (time.monotonic() - 4, Reading(probe.name, idle_s, sees_desktop=True))
        assert probe.look().idle_s == pytest.approx(told, abs=0.5)
        assert not probe.look().is_fresh


async def test_waking_up_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with service(monkeypatch, LOGIND, ROOT, "--system", "--template", "logind") as mock:
        probe, woken = Logind(), list[bool]()
        async with listening(probe) as detector:
            detector.tell_of_waking(lambda: woken.append(True))
            detector.stirred.clear()
            await mock.does("EmitSignal", "sssav", MANAGER, "PrepareForSleep", "b", [("b", True)])
            await mock.does("EmitSignal", "sssav", MANAGER, "PrepareForSleep", "b", [("b", False)])
            await until(lambda: woken)
        assert woken == [True]
        assert detector.stirred.is_set()
