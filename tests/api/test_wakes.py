"""Sleeping computers that are woken: by a worker of their subnet, by the master, or by the operator's command."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from loopline_master.commands.wake_commands import WakeCommands
from loopline_master.core.kernel.effects import Effects
from loopline_master.core.kernel.entities import Grid
from loopline_master.core.wings.power.sleeper import Sleeper
from loopline_master.core.wings.power.wakes import WakeOrder
from loopline_shared.model import Load
from loopline_shared.power.magic_packets import PACKETS, magic_packet
from loopline_shared.protocol.host_link import HostLink
from loopline_shared.protocol.link_session import WorkerSession
from loopline_shared.protocol.power import Armed, GoodBye, SleepCause, SleepKind, WakeFacts, WakeTarget
from loopline_shared.protocol.worker_link import Assign, Welcome
from tests.api.bench import FACTS, Bench, running_master, until
from tests.api.test_links import connect

CARD, LOOPBACK, ELSEWHERE = "52:54:00:12:34:56", "127.0.0.0/8", "198.51.100.0/24"


async def fall_asleep(master: Bench, subnet: str) -> None:
    """Have the worker ``ant`` say good-bye."""
    wake = WakeFacts("eth0", CARD, subnet, from_suspend=Armed.YES, can_suspend=True)
    async with connect(master) as link:
        session = WorkerSession("ant", "boot", FACTS)
        await link.send_bytes(session.hello())
        assert isinstance(session.receive(await link.receive_bytes()), Welcome)
        good_bye = GoodBye(SleepKind.SUSPEND, SleepCause.IDLE, wake)
        await link.send_bytes(session.report((), (), Load(slots=1), good_bye=good_bye)[1])

        async def is_asleep() -> bool:
            return (await master.get("/workers/ant")).get("sleep") is not None

        await until(is_asleep)


async def test_worker_of_the_subnet_is_ordered_to_wake_it(master: Bench) -> None:
    await fall_asleep(master, ELSEWHERE)
    async with connect(master) as link:
        session = WorkerSession("bee", "boot", replace(FACTS, link=HostLink(ELSEWHERE, "")))
        await link.send_bytes(session.hello())
        session.receive(await link.receive_bytes())
        await link.send_bytes(session.report((), (), Load(slots=0))[1])
        session.receive(await link.receive_bytes())
        answer = await master.ask("POST", "/workers/ant/wake")
        assert answer.status == 200
        assert answer.body["sleep"]["wake_sent_at"] is not None
        order = session.receive(await link.receive_bytes())
        assert isinstance(order, Assign)
        assert order.power
        assert order.power.wake == (WakeTarget("ant", CARD, ELSEWHERE),)


async def test_master_sends_the_packets_itself(master: Bench) -> None:
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as card:
        card.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            card.bind(("", 9))
        except OSError as error:
            pytest.skip(f"cannot listen on port 9: {error.strerror}")
        card.setblocking(False)
        await fall_asleep(master, LOOPBACK)
        assert (await master.ask("POST", "/workers/ant/wake")).status == 200
        received = 0

        async def have_all_come() -> bool:
            nonlocal received
            try:
                received += card.recv(2048) == magic_packet(CARD)
            except BlockingIOError:
                return False
            return received == PACKETS

        await until(have_all_come)


async def test_command_wakes_a_computer_that_packets_cannot_reach(tmp_path: Path) -> None:
    said = tmp_path / "said"
    script = (
        f'echo "$LOOPLINE_WAKE $LOOPLINE_HARDWARE_ADDRESS $LOOPLINE_SUBNET" > {said}.part && mv {said}.part {said}'
    )
    async with running_master(tmp_path / "master", wake_command=["sh", "-c", script]) as master:
        await fall_asleep(master, ELSEWHERE)
        assert (await master.ask("POST", "/workers/ant/wake")).status == 200

        async def has_run() -> bool:
            return said.exists()

        await until(has_run)
        assert said.read_text() == f"ant {CARD} {ELSEWHERE}\n"


@contextmanager
def waking(folder: Path, script: str) -> Iterator[WakeCommands]:
    """Run commands in this folder."""
    commands = WakeCommands(["sh", "-c", f"cd {folder}; {script}"])
    running = asyncio.create_task(commands.run())
    try:
        yield commands
    finally:
        running.cancel()


def ordering(*workers: str, subnet: str = "") -> Effects:
    effects = Effects(Grid())
    for worker in workers:
        effects.tell(WakeOrder(worker, CARD, subnet, has_failed=True))
    return effects


async def test_command_runs_if_packets_cannot_be_sent(tmp_path: Path) -> None:
    with waking(tmp_path, "touch ran") as commands:
        commands.on_commit(ordering("ant", subnet="::1/128"))

        async def has_run() -> bool:
            return (tmp_path / "ran").exists()

        await until(has_run)


async def test_slow_command_does_not_delay_others(tmp_path: Path) -> None:
    with waking(tmp_path, "touch $LOOPLINE_WAKE; while [ ! -e bee ]; do sleep 0.01; done; touch ended") as commands:
        commands.on_commit(ordering("ant", "bee"))

        async def has_ended() -> bool:
            return (tmp_path / "ended").exists()

        await until(has_ended)


async def test_order_for_a_computer_that_has_come_is_dropped(tmp_path: Path) -> None:
    with waking(tmp_path, "touch $LOOPLINE_WAKE") as commands:
        commands.on_commit(ordering("ant", "bee"))
        come = Effects(Grid())
        come.note("ant", Sleeper("ant", None, SleepKind.SUSPEND, SleepCause.IDLE, None))
        commands.on_commit(come)

        async def has_run() -> bool:
            return (tmp_path / "bee").exists()

        await until(has_run)
        assert not commands._orders
        assert not (tmp_path / "ant").exists()


async def test_worker_that_is_awake_cannot_be_woken(master: Bench) -> None:
    async with master.worker("w1"):
        answer = await master.ask("POST", "/workers/w1/wake")
        assert (answer.status, answer.body["code"]) == (409, "not_asleep")
    assert (await master.ask("POST", "/workers/w1/wake", role="user")).status == 403


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({"failed_wakes": 3}, "did not wake 3 times in a row"),
        ({"failed_wakes": 4, "unused_wakes": 3}, "did not wake 4 times in a row"),
        ({"unused_wakes": 3}, "was woken 3 times in a row and got no task"),
        ({"failed_wakes": 2, "unused_wakes": 2}, ""),
    ],
)
def test_computer_that_is_left_asleep_is_logged_once(
    caplog: pytest.LogCaptureFixture, counts: dict[str, int], words: str
) -> None:
    commands, sleeper = WakeCommands([]), Sleeper("ant", 1000.0, SleepKind.SUSPEND, SleepCause.IDLE, None, **counts)
    for waking_since in (1000.0, None, None):
        effects = Effects(Grid())
        effects.note("ant", replace(sleeper, waking_since=waking_since))
        commands.on_commit(effects)
    assert [words in record.getMessage() for record in caplog.records] == [True] * bool(words)
