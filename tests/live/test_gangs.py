"""Gangs on a real grid: rendezvous, a killed member, a returning owner, a killed master."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import psutil
import pytest

from loopline.client import AsyncClient
from loopline.transfer.downloads import outputs_of
from loopline_shared.job.requirements import Requirements
from loopline_shared.model import AttemptState, JobState, TaskId
from loopline_shared.rest.bodies import AttemptView
from loopline_shared.spec import JobSpec
from loopline_worker.supervisor.walls import connect_filter
from tests.live.grid import Grid, wait_for
from tests.live.test_owner import OWNER
from tests.sandboxes import without_bubblewrap
from tests.worker.presence.witnesses import moving_mouse, x_server
from tests.worker.test_connect_filter import own_address

MEET = """
import os, socket, time
rank, nodes = int(os.environ["LOOPLINE_RANK"]), int(os.environ["LOOPLINE_NODES"])
host, _, port = os.environ["LOOPLINE_RENDEZVOUS"].rpartition(":")
secret, hosts = os.environ["LOOPLINE_GANG_SECRET"], os.environ["LOOPLINE_HOSTS"].split(",")
assert len(hosts) == nodes and len(secret) == 64, (hosts, secret)
if rank == 0:
    with socket.create_server((host, int(port))) as server:
        said = []
        while len(said) < nodes - 1:
            peer = server.accept()[0]
            said.append(peer.recv(1000).decode())
            peer.sendall(b"welcome")
    assert all(line.split()[1] == secret for line in said)
    print("met", *sorted(line.split()[0] for line in said))
else:
    while True:
        try:
            peer = socket.create_connection((host, int(port)))
            break
        except OSError:
            time.sleep(0.02)
    peer.sendall(f"{rank} {secret}".encode())
    print(rank, peer.recv(100).decode())
open(f"of-{rank}.txt", "w").write(str(rank))
open(os.environ["LOOPLINE_RESULT"], "w").write('{"rank": %d}' % rank)
"""


async def with_workers(grid: Grid, *names: str, settings: dict[str, str] | None = None) -> None:
    for name in names:
        await grid.start_worker(name, settings=settings)
    await grid.connected(*names)


async def submit(grid: Grid, script: str, nodes: int = 3, **options: object) -> int:
    spec = JobSpec(command=["sh", "-c", script], nodes=nodes, **options)  # type: ignore[arg-type]
    return (await grid.client().submit(spec)).id


async def text(client: AsyncClient, job: int, rank: int) -> str:
    return b"".join([piece async for piece in client.output(TaskId(job, 1), rank=rank)]).decode()


def all_run(attempts: list[AttemptView], launch: int = 0, nodes: int = 3) -> bool:
    members = attempts[launch * nodes : (launch + 1) * nodes]
    return len(members) == nodes and all(one.state is AttemptState.RUNNING for one in members)


async def test_members_meet_and_outputs_are_stored_by_rank(grid: Grid) -> None:
    """In the default sandbox: all members use this loopback, which is closed to other tasks."""
    await with_workers(grid, "ant", "bee", "cat", settings={"LOOPLINE_SANDBOX": "auto"})
    spec = JobSpec(command=[sys.executable, "-c", MEET], nodes=3, outputs=["*.txt"])
    job = (await grid.client().submit(spec)).id
    assert (await grid.ended(job)).state is JobState.SUCCEEDED, [a.reason for a in await grid.attempts(job)]
    client = grid.client()
    assert await text(client, job, 0) == "met 1 2\n"
    assert [await text(client, job, rank) for rank in (1, 2)] == ["1 welcome\n", "2 welcome\n"]
    assert [one.path for one in await outputs_of(client, TaskId(job, 1))] == [f"{n}/of-{n}.txt" for n in range(3)]
    attempts = await grid.attempts(job)
    assert [(one.rank, one.accepted) for one in attempts] == [(0, True), (1, True), (2, True)]
    assert len({one.worker for one in attempts}) == 3
    assert (await client.task(TaskId(job, 1))).metrics == {"rank": 0}


async def test_outputs_of_a_failed_gang_are_kept_by_rank(grid: Grid) -> None:
    await with_workers(grid, "ant", "bee")
    script = "echo $LOOPLINE_RANK > of.txt; test $LOOPLINE_RANK = 1 || exec sleep 600"
    job = await submit(grid, script, 2, outputs=["of.txt", "none.txt"])
    assert (await grid.ended(job)).state is JobState.FAILED
    assert len(await grid.attempts(job)) == 2, "a missing output causes no second launch"
    assert [one.path for one in await outputs_of(grid.client(), TaskId(job, 1))] == ["1/of.txt"]


TALK_TO_OTHERS = """
import os, socket
rank = int(os.environ["LOOPLINE_RANK"])
def connects(address):
    with socket.socket() as it:
        it.settimeout(5)
        it.connect(address)
def sends():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as it:
        it.sendto(b"x", ("192.0.2.1", 9))
for act in (lambda: connects(("192.0.2.1", 9)), sends):
    try:
        act()
        print("reached somebody else")
    except OSError as error:
        assert isinstance(error, PermissionError), error
"""


async def test_members_that_request_the_network_have_it_only_among_themselves(grid: Grid) -> None:
    """A worker with ``sandbox_network = gangs`` gives it to gangs only; one with ``none`` is named as refusing."""
    if without_bubblewrap() or not connect_filter.is_possible():
        pytest.skip("no bubblewrap here, or no notifications of seccomp")
    walls = {"LOOPLINE_SANDBOX": "bubblewrap", "LOOPLINE_ADDRESS": own_address()}
    await with_workers(grid, "ant", "bee", settings={**walls, "LOOPLINE_SANDBOX_NETWORK": "gangs"})
    await with_workers(grid, "cat", settings={**walls, "LOOPLINE_SANDBOX_NETWORK": "none"})
    asks, client = Requirements(network=True), grid.client()
    talks = JobSpec(command=[sys.executable, "-c", TALK_TO_OTHERS + MEET], nodes=2, requires=asks)
    job = (await client.submit(talks)).id
    assert (await grid.ended(job)).state is JobState.SUCCEEDED, [await text(client, job, rank) for rank in (0, 1)]
    assert await text(client, job, 0) == "met 1\n"
    assert {one.worker for one in await grid.attempts(job)} == {"ant", "bee"}
    plain = (await client.submit(JobSpec(command=["true"], nodes=2))).id
    assert (await grid.ended(plain)).state is JobState.SUCCEEDED, "the same workers run it without the network"
    alone = (await client.submit(JobSpec(command=["true"], requires=asks))).id
    assert "it needs the network" in (await client.explain(alone)).sentence
    larger = (await client.submit(talks.model_copy(update={"nodes": 3}))).id
    assert "refusing tasks the network: cat" in (await client.explain(larger)).sentence
    for waiting in (alone, larger):
        await client.cancel(waiting)


async def test_killed_member_ends_the_launch_as_one_failure(grid: Grid) -> None:
    await with_workers(grid, "ant", "bee", "cat")
    gate = grid.gate()
    job = await submit(grid, f"{gate.wait}; echo $LOOPLINE_RANK", max_attempts=2)
    await grid.attempts_when("all to run", job, all_run)

    async def of_rank_1() -> list[psutil.Process]:
        return grid.processes(LOOPLINE_RANK="1")

    victim = (await wait_for("the second member, which may not have become its program yet", of_rank_1))[0]
    victim.kill()
    again = await grid.attempts_when("all to run again", job, lambda found: all_run(found, launch=1))
    assert [one.state for one in again[:3]].count(AttemptState.FAILED) == 1
    assert (await grid.client().task(TaskId(job, 1))).failures == 1
    gate.open()
    assert (await grid.ended(job)).state is JobState.SUCCEEDED


@pytest.mark.campaign
async def test_killed_agent_moves_the_gang_without_a_failure(grid: Grid) -> None:
    await grid.kill_master()
    await grid.start_master(*grid.flags, "--gang-grace-s", "0.5")
    await with_workers(grid, "ant", "bee", "cat", "dog")
    gate = grid.gate()
    job = await submit(grid, f"{gate.wait}; echo $LOOPLINE_RANK", max_attempts=1)
    members = await grid.attempts_when("all to run", job, all_run)
    await grid.kill_worker(members[1].worker)
    await grid.attempts_when("all to run elsewhere", job, lambda found: all_run(found[-3:]) and len(found) > 3)
    gate.open()
    assert (await grid.ended(job)).state is JobState.SUCCEEDED
    assert (await grid.client().task(TaskId(job, 1))).failures == 0


async def test_gang_starts_after_the_master_is_killed_before_the_commit(grid: Grid) -> None:
    await with_workers(grid, "ant", "bee", "cat")
    grid.workers["cat"].send_signal(signal.SIGSTOP)
    job = await submit(grid, "echo $LOOPLINE_RANK")
    await grid.attempts_when(
        "two to be ready", job, lambda found: [one.state for one in found].count(AttemptState.PREPARED) == 2
    )
    await grid.kill_master()
    assert not grid.processes()
    grid.workers["cat"].send_signal(signal.SIGCONT)
    await grid.start_master()
    assert (await grid.ended(job)).state is JobState.SUCCEEDED
    assert [one.rank for one in await grid.attempts(job) if one.accepted] == [0, 1, 2]


@pytest.mark.campaign
async def test_gang_is_frozen_while_an_owner_uses_a_worker(tmp_path: Path) -> None:
    grid = Grid(tmp_path)
    try:
        await grid.start_master("--lease-s", "60", "--report-every-s", "0.5", "--gang-grace-s", "60")
        with x_server() as display:
            await grid.start_worker(
                "ant", owner=OWNER | display | {"LOOPLINE_GRACE_S": "600", "LOOPLINE_IDLE_S": "3"}
            )
            await with_workers(grid, "bee", "cat")
            await grid.connected("ant")
            gate = grid.gate()
            job = await submit(grid, f"{gate.wait}; echo $LOOPLINE_RANK", max_attempts=1)
            await grid.attempts_when("all to run", job, all_run)
            with moving_mouse(display):
                await grid.attempts_when(
                    "all to stand still", job, lambda found: all(one.state is AttemptState.FROZEN for one in found)
                )
            await grid.attempts_when("all to go on", job, all_run)
            gate.open()
            assert (await grid.ended(job)).state is JobState.SUCCEEDED
        assert len(await grid.attempts(job)) == 3
        await grid.check()
    finally:
        await grid.stop()
