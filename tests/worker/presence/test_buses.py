"""GNOME and logind by D-Bus, against python-dbusmock on a bus of their own."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from loopline_worker.host import boot_clock
from loopline_worker.host.boot_clock import steady
from loopline_worker.owner import metered
from loopline_worker.presence import bus as bus_module
from loopline_worker.presence import desktop, logind, mutter
from loopline_worker.presence.bus import Bus, BusProbe
from loopline_worker.presence.desktop import Desktop
from loopline_worker.presence.logind import Logind
from loopline_worker.presence.mutter import Mutter
from loopline_worker.presence.probe import Reading
from loopline_worker.presence.session_reports import SessionReport, SessionReports
from loopline_worker.presence.waiting.in_asyncio import run
from tests.worker.bench import until
from tests.worker.presence.loops import in_both_loops, running
from tests.worker.presence.witnesses import DBUS, MOCK, bus, mock_service

pytest.importorskip("jeepney")

MUTTER = "org.gnome.Mutter.IdleMonitor"
CORE = "/org/gnome/Mutter/IdleMonitor/Core"
LOGIND, ROOT = "org.freedesktop.login1", "/org/freedesktop/login1"
MANAGER = f"{LOGIND}.Manager"
KDE = ("org.freedesktop.ScreenSaver", "/org/freedesktop/ScreenSaver", "org.freedesktop.ScreenSaver")


async def until_told(asks: Callable[[], Awaitable[object]]) -> None:
    """Ask until the answer is true, and leave the processor to others in between."""
    while not await asks():
        await asyncio.sleep(0.01)


class Service:
    """A mock service with settable answers."""

    def __init__(self, bus: Bus, name: str, path: str) -> None:
        self._bus, self._name, self._path = bus, name, path

    async def there(self) -> None:
        """Wait until the service is on the bus."""
        await until_told(
            lambda: run(self._bus.ask(DBUS, "/org/freedesktop/DBus", DBUS, "NameHasOwner", "s", self._name))
        )

    async def does(self, member: str, signature: str, *body: Any) -> Any:
        return await run(self._bus.ask(self._name, self._path, MOCK, member, signature, *body))

    async def sets(self, path: str, interface: str, **properties: Any) -> None:
        await run(self._bus.ask(self._name, path, MOCK, "UpdateProperties", "sa{sv}", interface, properties))


@asynccontextmanager
async def service(monkeypatch: pytest.MonkeyPatch, name: str, path: str, *arguments: str) -> AsyncIterator[Service]:
    monkeypatch.setattr(bus_module, "_ASK_WITHIN_S", 60.0)  # of a busy computer
    with bus() as address, mock_service(address, *arguments):
        monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", address)
        monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", address)
        with await run(Bus.open(of_system=False)) as told:
            mock = Service(told, name, path)
            await mock.there()
            yield mock


@asynccontextmanager
async def listening(probe: BusProbe, loop: str) -> AsyncIterator[list[bool]]:
    """Yield the probe's notifications, once it has a reading."""
    inputs: list[bool] = []
    async with running(loop, probe.listen(lambda: inputs.append(True))):
        await until(lambda: probe.look().idle_s is not None)
        yield inputs


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bus_module, "_AGAIN_S", 0.05)
    monkeypatch.setattr(mutter, "_EVERY_S", 0.05)


@asynccontextmanager
async def gnome_idle_for_long(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Service]:
    async with service(monkeypatch, MUTTER, CORE, "--session", MUTTER, CORE, MUTTER) as gnome:
        await gnome.does("AddMethod", "sssss", MUTTER, "GetIdletime", "", "t", "ret = dbus.UInt64(600000)")
        await gnome.does("AddMethod", "sssss", MUTTER, "AddUserActiveWatch", "", "u", "ret = dbus.UInt32(7)")
        yield gnome


@in_both_loops
async def test_gnome_reports_an_input_at_once(monkeypatch: pytest.MonkeyPatch, loop: str) -> None:
    async with gnome_idle_for_long(monkeypatch) as gnome:
        probe = Mutter()
        async with listening(probe, loop) as inputs:
            reading = probe.look()
            assert reading.sees_desktop
            assert (reading.idle_s or 0) >= 600
            monkeypatch.setattr(mutter, "_EVERY_S", 3600)  # from here on, only signals
            await until_told(lambda: gnome.does("GetMethodCalls", "s", "AddUserActiveWatch"))
            await gnome.does("EmitSignal", "sssav", MUTTER, "WatchFired", "u", [("u", 8)])
            await gnome.does("GetCalls", "")
            assert not inputs  # that watch belongs to another client
            await gnome.does("EmitSignal", "sssav", MUTTER, "WatchFired", "u", [("u", 7)])
            await until(lambda: inputs)
            assert (probe.look().idle_s or 0) < 500
            assert len(inputs) == 1


@in_both_loops
async def test_ended_desktop_is_not_used_any_more(monkeypatch: pytest.MonkeyPatch, loop: str) -> None:
    probe = Mutter()
    async with gnome_idle_for_long(monkeypatch) as gnome, listening(probe, loop):
        await gnome.does("AddMethod", "sssss", MUTTER, "GetIdletime", "", "t", "raise ValueError('gone')")
        await until(lambda: probe.look().idle_s is None)
        assert "gone" in probe.look().detail


@in_both_loops
async def test_lost_bus_is_noticed_at_once_and_found_again(monkeypatch: pytest.MonkeyPatch, loop: str) -> None:
    probe = Mutter()
    async with AsyncExitStack() as listens:
        async with gnome_idle_for_long(monkeypatch) as gnome:
            await listens.enter_async_context(listening(probe, loop))
            asked = len(await gnome.does("GetMethodCalls", "s", "GetIdletime"))
            monkeypatch.setattr(mutter, "_EVERY_S", 3600)
            while len(await gnome.does("GetMethodCalls", "s", "GetIdletime")) == asked:
                pass
        await until(lambda: probe.look().idle_s is None)
        monkeypatch.setattr(mutter, "_EVERY_S", 0.05)
        async with gnome_idle_for_long(monkeypatch):
            await until(lambda: probe.look().idle_s is not None)


@in_both_loops
async def test_bus_that_does_not_answer_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loop: str
) -> None:
    monkeypatch.setattr(bus_module, "_ASK_WITHIN_S", 0.05)
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", f"unix:path={tmp_path}/mute")
    probe = Mutter()
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(f"{tmp_path}/mute")
        mute.listen()
        async with running(loop, probe.listen(lambda: None)):
            await until(lambda: probe.look().detail == "TimeoutError")


@in_both_loops
async def test_desktop_reports_lock_and_screen_inhibition(monkeypatch: pytest.MonkeyPatch, loop: str) -> None:
    monkeypatch.setattr(desktop, "_ASK_EVERY_S", 0.05)
    monkeypatch.setattr(desktop, "_AGAIN_S", 0.05)
    manager, path, told = "org.gnome.SessionManager", "/org/gnome/SessionManager", Desktop()
    async with AsyncExitStack() as watches:
        async with service(monkeypatch, manager, path, "--session", manager, path, manager) as gnome:
            film = "ret = args[0] == 8"
            await gnome.does("AddMethod", "sssss", manager, "IsInhibited", "u", "b", film)
            await watches.enter_async_context(running(loop, told.watch()))
            await until(lambda: told.is_inhibited)
            assert not told.is_locked, "no screen saver answers"
            with mock_service(os.environ["DBUS_SESSION_BUS_ADDRESS"], "--session", *KDE):
                saver = Service(gnome._bus, KDE[0], KDE[1])
                await saver.there()
                await saver.does("AddMethod", "sssss", KDE[2], "GetActive", "", "b", "ret = True")
                await until(lambda: told.is_locked)
            await until(lambda: not told.is_locked)
            assert told.is_inhibited
        await until(lambda: not told.is_inhibited)


@in_both_loops
async def test_logind_reports_logins_locks_and_idle_sessions(monkeypatch: pytest.MonkeyPatch, loop: str) -> None:
    async with service(monkeypatch, LOGIND, ROOT, "--system", "--template", "logind") as login:
        probe = Logind()
        async with listening(probe, loop) as inputs:
            assert probe.look().sees_desktop
            assert probe.look().detail == "nobody is logged in"
            path = await login.does("AddSession", "ssusb", "c1", "seat0", os.getuid() + 1, "ann", True)
            await login.sets(path, logind._SESSION, Type=("s", "wayland"), Class=("s", "user"))
            inputs.clear()
            monkeypatch.setattr(logind, "_EVERY_S", 0.05)
            await until(lambda: probe.look().idle_s == 0)
            await until(lambda: inputs)
            assert probe.look().detail == "session c1 is in use"
            await login.sets(path, logind._SESSION, LockedHint=("b", True))
            await until(lambda: "locked" in probe.look().detail)
            since = int((time.time() - 1000) * 1e6)
            await login.sets(path, logind._SESSION, IdleHint=("b", True), IdleSinceHint=("t", since))
            await until(lambda: (probe.look().idle_s or 0) >= 1000)


async def test_network_manager_reports_metered_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    name, path = metered._SERVICE, metered._PATH
    async with service(monkeypatch, name, path, "--system", name, path, name) as network:
        await network.does("AddProperty", "ssv", name, "Metered", ("u", 4))
        told: list[bool] = []
        async with running("asyncio", metered.watch(told.append)):
            await until(lambda: told[-1:] == [False])
            await network.sets(path, name, Metered=("u", 1))
            await until(lambda: told[-1])


OURS = os.getuid()


def test_reporter_counts_only_for_sessions_of_its_user() -> None:
    probe = Logind()
    probe.reports = SessionReports()
    both = {"1": session(), "2": session(**OTHERS)}
    assert probe.judge(both, 1000.0).idle_s == 0.0
    assert probe.people == {OURS, OURS + 1}
    probe.reports.note("x", OURS + 1, SessionReport(77.0))
    reading = probe.judge(both, 1000.0)
    assert not reading.sees_desktop, "the other session's state is unknown"
    probe.reports.note("y", OURS, SessionReport(88.0))
    reading = probe.judge(both, 1000.0)
    assert reading.sees_desktop
    assert 77 <= (reading.idle_s or 0) < 88


def test_screen_inhibition_counts_as_use_unless_locked() -> None:
    probe = Logind()
    probe._inhibitors = {OURS: "a film"}
    idle = {"IdleHint": True, "IdleSinceHint": 900 * 10**6}
    assert probe.judge({"1": session(**idle)}, 1000.0).idle_s == 0.0
    assert probe.judge({"1": session(LockedHint=True, **idle)}, 1000.0).idle_s == 100.0


@pytest.mark.parametrize("set_by_s", [-86400.0, 86400.0])
def test_idle_time_of_a_session_stays_when_the_clock_is_set(monkeypatch: pytest.MonkeyPatch, set_by_s: float) -> None:
    probe, wall = Logind(), time.time
    before = {"IdleHint": True, "IdleSinceHint": int((steady() - 100.0) * 1e6)}
    now = steady()
    assert probe.judge({"1": session(**before)}, now).idle_s == pytest.approx(100.0, abs=20.0)
    monkeypatch.setattr(boot_clock.time, "time", lambda: wall() + set_by_s)
    assert probe.judge({"1": session(**before)}, now).idle_s == pytest.approx(100.0, abs=20.0)
    since = {"IdleHint": True, "IdleSinceHint": int((wall() + set_by_s - 50.0) * 1e6)}
    assert probe.judge({"1": session(**since)}, steady()).idle_s == pytest.approx(50.0, abs=20.0)


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
        ([session()], None, False),  # desktops do not report reliably that they are not idle
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
def test_idle_time_follows_from_session_properties(
    sessions: list[dict[str, Any]], idle_s: float | None, sees_desktop: bool
) -> None:
    reading = Logind().judge({str(place): session for place, session in enumerate(sessions)}, now=1000.0)
    assert (reading.idle_s, reading.sees_desktop) == (idle_s, sees_desktop)


def test_locked_session_is_idle_since_its_lock() -> None:
    probe, locked = Logind(), {"1": session(LockedHint=True)}
    assert [probe.judge(locked, now=now).idle_s for now in (1000.0, 1300.0)] == [0.0, 300.0]
    assert probe.judge({"1": session()}, now=1400.0).idle_s is None
    assert probe.judge(locked, now=1500.0).idle_s == 0.0


@pytest.mark.parametrize("gone", [{"State": "closing"}, {"Class": "greeter"}, {"Active": False}])
def test_logout_counts_as_absence(gone: dict[str, Any]) -> None:
    probe = Logind()
    probe.judge({"1": session()}, now=1000.0)
    reading = probe.judge({"1": session(**gone)}, now=1060.0)
    assert (reading.idle_s, reading.sees_desktop, reading.detail) == (60.0, True, "nobody is logged in")


def test_reading_between_two_polls_ages_unless_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 1004.0)
    for probe, idle_s, told in ((Logind(), 0.0, 0.0), (Logind(), 9.0, 13.0), (Mutter(), 0.0, 4.0)):
        probe._learned = (1000.0, Reading(probe.name, idle_s, sees_desktop=True))
        assert probe.look().idle_s == told
        assert not probe.look().is_fresh


@in_both_loops
async def test_resume_from_suspend_counts_as_input(monkeypatch: pytest.MonkeyPatch, loop: str) -> None:
    async with service(monkeypatch, LOGIND, ROOT, "--system", "--template", "logind") as mock:
        probe = Logind()
        async with listening(probe, loop) as inputs:
            inputs.clear()
            await mock.does("EmitSignal", "sssav", MANAGER, "PrepareForSleep", "b", [("b", True)])
            await mock.does("GetCalls", "")
            assert not inputs
            await mock.does("EmitSignal", "sssav", MANAGER, "PrepareForSleep", "b", [("b", False)])
            await until(lambda: inputs)
