"""Locks that prevent sleep, the good-bye, and suspend after work: the wing with logind and a desktop of dbusmock."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from loopline_shared.errors import LooplineError
from loopline_shared.protocol.power import Armed, PowerOrders, SleepCause, WakeFacts
from loopline_shared.protocol.worker_link import Welcome
from loopline_worker.attempts.agent_wing import AgentView
from loopline_worker.core.events import Event
from loopline_worker.core.sleep_rule import ComputerSleeps, ComputerWakes, FollowOrders
from loopline_worker.host.boot_clock import boot_s
from loopline_worker.power import login_manager, network_manager, sleep_locks, sleep_wing
from loopline_worker.power.clock_alarm import ClockAlarm
from loopline_worker.power.sleep_locks import SleepLocks
from loopline_worker.power.sleep_wing import SleepWing
from loopline_worker.presence.bus import BusError
from loopline_worker.presence.session_lock import SessionLock, lock_session
from loopline_worker.presence.waiting.in_asyncio import run
from loopline_worker.presence.waiting.routine import Routine, pause
from loopline_worker.task_group import TaskGroup
from tests.worker.bench import until
from tests.worker.presence.loops import in_both_loops, running
from tests.worker.presence.test_buses import Service, service, until_told
from tests.worker.presence.test_login_manager import DELAY, emit, locks, mock_logind, until_locked
from tests.worker.presence.witnesses import DBUS

pytest.importorskip("jeepney")
IDLE, SLEEP = ("idle", "Loopline", "block"), ("sleep", "Loopline", "block")
DESKTOP, PATH = "org.freedesktop.PowerManagement", "/org/freedesktop/PowerManagement/Inhibit"


@dataclass
class Computer:
    """What the wing sees of the agent, as the test sets it."""

    sleep_locks: tuple[str, ...] = ()
    is_in_use: bool = False
    is_wanted: bool = False
    idle_s: float | None = 3600.0
    is_linked: bool = False
    is_ending: bool = False
    own_address: str = "192.0.2.1"
    posted: list[Event] = field(default_factory=list)
    is_paused: bool = False

    def post(self, event: Event) -> None:
        self.posted.append(event)

    def pause_link(self) -> None:
        self.is_paused = True

    def resume_link(self) -> None:
        self.is_paused = False

    def speak(self) -> None:
        """Ignored."""


def facts_of(address: str, can_suspend: bool) -> WakeFacts:
    return WakeFacts("eth0", "52:54:00:12:34:56", address, can_suspend=can_suspend)


@asynccontextmanager
async def wing_of(
    computer: Computer, facts: sleep_wing.Facts = facts_of, *, knows_owner: bool = True, clock: Path = Path("/none")
) -> AsyncIterator[SleepWing]:
    async with TaskGroup() as task_group:
        wing = SleepWing(task_group, facts, knows_owner=knows_owner, alarm=ClockAlarm(clock))
        wing.attach(cast("AgentView", computer))
        task_group.start(wing.watch())
        try:
            yield wing
        finally:
            wing.close()


@pytest.fixture
def clock(tmp_path: Path) -> Path:
    (tmp_path / "wakealarm").touch()
    (tmp_path / "since_epoch").write_text("1000\n")
    return tmp_path


async def test_locks_are_held_while_a_task_runs_and_the_owner_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    computer = Computer()
    async with mock_logind(monkeypatch) as logind, wing_of(computer) as wing:
        wing.on_sample()
        await until_locked(logind, DELAY)
        computer.sleep_locks = ("idle",)
        wing.on_sample()
        await until_locked(logind, DELAY, IDLE)
        computer.sleep_locks = ("idle", "sleep")
        wing.on_sample()
        await until_locked(logind, DELAY, IDLE, SLEEP)
        computer.sleep_locks = ()
        wing.on_sample()
        await until_locked(logind, DELAY)


def order(after_s: float | None) -> FollowOrders:
    return FollowOrders(PowerOrders(sleep_after_s=after_s))


async def suspends(logind: Service) -> int:
    return len(await logind.does("GetMethodCalls", "s", "Suspend"))


async def test_computer_that_the_grid_woke_is_suspended_after_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    computer = Computer(is_wanted=True)
    async with mock_logind(monkeypatch) as logind, wing_of(computer) as wing:
        wing.obey(order(0.0))
        wing.on_sample()
        assert await suspends(logind) == 0, "it has a task"
        computer.is_wanted = False
        wing.on_sample()
        await until_told(lambda: suspends(logind))
        assert await causes(logind, wing) == SleepCause.GRID
        wing.on_sample()
        assert await suspends(logind) == 1


async def test_computer_that_its_owner_wakes_is_not_suspended_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with mock_logind(monkeypatch) as logind, wing_of(Computer()) as wing:
        wing.obey(order(0.0))  # it came too late for the sleep that was already requested
        wing._on_return()
        assert not wing.is_woken
        wing.on_sample()
        assert await suspends(logind) == 0


async def test_suspend_for_a_test_sets_the_alarm_of_the_clock(monkeypatch: pytest.MonkeyPatch, clock: Path) -> None:
    async with mock_logind(monkeypatch) as logind, wing_of(Computer(), clock=clock) as wing:
        await until_locked(logind, DELAY)
        wing.obey(FollowOrders(PowerOrders(test_alarm_s=240.0)))
        await until_told(lambda: suspends(logind))
        assert (clock / "wakealarm").read_text() == "+240"
        assert await causes(logind, wing) == SleepCause.TEST
        wing._on_return()
        assert (clock / "wakealarm").read_text() == "0", "no alarm is left"


@pytest.mark.parametrize("obstacle", ["a task runs", "allow_wake = false", "its lid is closed", "no network card"])
async def test_computer_that_is_wanted_or_must_not_be_woken_is_not_tested(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, clock: Path, obstacle: str
) -> None:
    facts = WakeFacts("eth0", "52:54:00:12:34:56", is_allowed=obstacle != "allow_wake = false")
    facts = replace(facts, obstacle=obstacle if "lid" in obstacle else "")
    async with (
        mock_logind(monkeypatch) as logind,
        wing_of(Computer(is_wanted=obstacle == "a task runs"), clock=clock) as wing,
    ):
        wing._facts = lambda address, can_suspend: None if obstacle == "no network card" else facts
        wing.obey(FollowOrders(PowerOrders(test_alarm_s=240.0)))
        assert obstacle in caplog.text
        assert not wing._requested
        assert await suspends(logind) == 0


@pytest.mark.parametrize("is_permitted", [True, False])
async def test_nothing_starts_while_a_suspend_is_requested(
    monkeypatch: pytest.MonkeyPatch, clock: Path, is_permitted: bool
) -> None:
    async def suspend() -> None:
        assert computer.posted == [ComputerSleeps(is_off=False)]
        if not is_permitted:
            raise LooplineError("no_suspend", "logind does not suspend this computer")

    computer = Computer()
    monkeypatch.setattr(sleep_wing, "suspend", suspend)
    monkeypatch.setattr(sleep_wing, "CALLED_OFF_S", 0.0)
    async with mock_logind(monkeypatch), wing_of(computer, clock=clock) as wing:
        await wing._suspend(SleepCause.TEST, "a test", 240.0)
    assert computer.posted == [ComputerSleeps(is_off=False), ComputerWakes()], "the sleep was not announced"


@pytest.mark.parametrize(("is_wanted", "knows_owner"), [(True, True), (False, False)])
async def test_computer_that_may_be_in_use_is_not_suspended_for_a_test(
    caplog: pytest.LogCaptureFixture, is_wanted: bool, knows_owner: bool
) -> None:
    async with wing_of(Computer(is_wanted=is_wanted), knows_owner=knows_owner) as wing:
        wing.obey(FollowOrders(PowerOrders(test_alarm_s=240.0)))
    assert "this computer is not suspended for a test" in caplog.text


@pytest.mark.parametrize(
    "case", ["by its owner", "owner has come", "not long enough", "new session", "unknown owner"]
)
async def test_other_computers_stay_awake(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    computer = Computer()
    knows_owner = case != "unknown owner"
    async with mock_logind(monkeypatch) as logind, wing_of(computer, knows_owner=knows_owner) as wing:
        if case != "by its owner":
            wing.obey(order(3600.0 if case == "not long enough" else 0.0))
        if case == "owner has come":
            computer.is_in_use, computer.idle_s = True, 0.0
            wing.on_sample()
            computer.is_in_use = False
        if case == "new session":
            wing.connected(Welcome(1.0, 1.0))
        wing.on_sample()
        assert await suspends(logind) == 0
        assert wing._requested is None


@pytest.mark.parametrize(
    ("idle_s", "awake_s", "is_woken"),
    [(None, 500.0, True), (100.0, 100.0, True), (100.0, 120.0, True), (100.0, 200.0, False)],
)
async def test_only_input_after_waking_shows_the_owner(idle_s: float | None, awake_s: float, is_woken: bool) -> None:
    computer = Computer(is_in_use=True, is_wanted=True, idle_s=idle_s)
    async with wing_of(computer) as wing:
        wing.obey(order(3600.0))
        wing._awake_since = boot_s() - awake_s
        wing.on_sample()
        assert wing.is_woken is is_woken


async def causes(logind: Service, wing: SleepWing) -> SleepCause:
    """Return the cause that the wing gives for a suspend that comes now."""
    await emit(logind, "PrepareForSleep", True)
    await until(lambda: wing._good_bye)
    assert wing._good_bye
    return wing._good_bye.by


@pytest.mark.parametrize(
    ("case", "cause"),
    [
        ("idle", SleepCause.IDLE),
        ("in use", SleepCause.OWNER),
        ("unknown owner", SleepCause.OWNER),
        ("requested by the worker", SleepCause.GRID),
        ("requested long ago", SleepCause.IDLE),
        ("requested, then in use", SleepCause.OWNER),
    ],
)
async def test_cause_of_a_sleep_is_reported(monkeypatch: pytest.MonkeyPatch, case: str, cause: SleepCause) -> None:
    computer = Computer(is_in_use="in use" in case)
    knows_owner = case != "unknown owner"
    async with mock_logind(monkeypatch) as logind, wing_of(computer, knows_owner=knows_owner) as wing:
        await until_locked(logind, DELAY)
        await until(lambda: wing._watch.can_suspend)
        if "requested" in case:
            wing._requested = SleepCause.GRID, boot_s() - (60.0 if "long ago" in case else 1.0)
        assert await causes(logind, wing) == cause
        assert wing._good_bye
        assert wing._good_bye.wake == facts_of("192.0.2.1", knows_owner)


async def test_good_bye_is_said_without_facts_if_they_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(address: str, can_suspend: bool) -> WakeFacts:
        raise OSError(24, "Too many open files")

    async with mock_logind(monkeypatch) as logind, wing_of(Computer(), fail) as wing:
        await until_locked(logind, DELAY)
        await causes(logind, wing)
        assert wing._good_bye
        assert wing._good_bye.wake is None
        await until_locked(logind)


async def test_card_is_armed_for_power_off_as_network_manager_sets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def armed(card: str) -> Routine[Armed]:
        assert card == "eth0"
        return Armed.YES
        yield  # a routine

    monkeypatch.setattr(network_manager, "armed", armed)
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nonexistent/bus")
    async with wing_of(Computer()) as wing:
        wing.connected(cast("Welcome", None))
        await until(lambda: wing._armed is Armed.YES)
        facts = wing._read_facts()
    assert facts
    assert (facts.from_suspend, facts.from_off) == (Armed.YES, Armed.YES)


async def test_good_bye_is_forgotten_if_the_sleep_is_called_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sleep_wing, "_WITHIN_S", 60.0)  # until then it is called off
    monkeypatch.setattr(sleep_wing, "_END_WITHIN_S", 60.0)
    computer = Computer(is_ending=True)
    async with mock_logind(monkeypatch) as logind, wing_of(computer) as wing:
        await until_locked(logind, DELAY)
        await emit(logind, "PrepareForSleep", True)
        await until(lambda: computer.posted == [ComputerSleeps(is_off=False)])
        leaving = wing._leaving
        assert leaving
        await emit(logind, "PrepareForSleep", False)
        await until(leaving.done)
        assert computer.posted[1:] == [ComputerWakes()]
        assert (wing._good_bye, wing.is_awake, computer.is_paused) == (None, False, False)
        assert await locks(logind) == [DELAY]


async def test_lock_that_was_refused_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(sleep_locks, "_AGAIN_S", 0.01)
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nonexistent/bus")
    tries = list[str]()

    def inhibit(what: str, why: str) -> Routine[int]:
        tries.append(what)
        return login_manager.inhibit(what, why)

    monkeypatch.setattr(sleep_locks, "inhibit", inhibit)
    async with TaskGroup() as task_group:
        held = SleepLocks(task_group)
        held.want(("idle",))
        await until(lambda: len(tries) >= 3)
        async with mock_logind(monkeypatch) as logind:
            await until_locked(logind, IDLE)
            held.want(())
            await until_locked(logind)
    assert caplog.text.count("there is no such bus here") == 1


async def test_changed_locks_end_the_taking_of_earlier_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = list[bool]()

    def slow() -> Routine[None]:
        try:
            yield from pause(3600.0)
        finally:
            ended.append(True)

    monkeypatch.setattr(sleep_locks, "lock_session", slow)
    async with mock_logind(monkeypatch) as logind, TaskGroup() as task_group:
        held = SleepLocks(task_group)
        held.want(("idle",))
        await until_locked(logind, IDLE)
        held.want(("idle", "sleep"))
        await until_locked(logind, IDLE, SLEEP)
        assert ended == [True]
        held.want(())


INHIBITS = ("Inhibit", "ss", "u", "ret = 1")


@in_both_loops
async def test_desktop_is_asked_not_to_suspend(monkeypatch: pytest.MonkeyPatch, loop: str) -> None:
    lock = SessionLock()
    async with service(monkeypatch, DESKTOP, PATH, "--session", DESKTOP, PATH, f"{DESKTOP}.Inhibit") as desktop:
        await desktop.does("AddMethod", "sssss", f"{DESKTOP}.Inhibit", *INHIBITS)

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


GNOME, GNOME_PATH = "org.gnome.SessionManager", "/org/gnome/SessionManager"


async def test_gnome_is_not_asked_because_its_lock_prevents_a_shutdown(monkeypatch: pytest.MonkeyPatch) -> None:
    async with service(monkeypatch, GNOME, GNOME_PATH, "--session", GNOME, GNOME_PATH, GNOME) as desktop:
        await desktop.does("AddMethod", "sssss", GNOME, "Inhibit", "susu", "u", "ret = 1")
        with pytest.raises(BusError):
            await run(lock_session())
        assert await desktop.does("GetMethodCalls", "s", "Inhibit") == []


async def until_names(desktop: Service, count: int) -> None:
    """Wait until there are this many clients on the bus: the mock service, the test, and the holder of the lock."""

    async def are_there() -> bool:
        names = await run(desktop._bus.ask(DBUS, "/org/freedesktop/DBus", DBUS, "ListNames"))
        return sum(name.startswith(":") for name in names) == count

    await until_told(are_there)


async def test_lock_that_no_desktop_grants_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async with service(monkeypatch, DESKTOP, PATH, "--session", DESKTOP, PATH, f"{DESKTOP}.Inhibit") as desktop:
        await desktop.does("AddMethod", "sssss", f"{DESKTOP}.Inhibit", *INHIBITS[:3], "raise ValueError('no')")
        with pytest.raises(BusError):
            await run(lock_session())
        await until_names(desktop, 2)
