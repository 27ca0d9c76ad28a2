"""A standby takes over after kill -9, SIGSTOP and a cut cable; the first master no longer answers."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from loopline.client import AsyncClient
from loopline.local.local_grid import reserved
from loopline_shared.errors import LooplineError
from loopline_shared.job.parameters import Range
from loopline_shared.spec import JobSpec
from tests.live.grid import Grid, Process, wait_for
from tests.store.postgres import Server

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(900)]
TASKS = 1500
WITHIN_S = 120.0  # maximum wait for a condition on a busy computer
SPEC = JobSpec(
    command=["sh", "-c", "sleep 0.3; head -c 20000 /dev/zero"],
    parameters={"i": Range(range=[1, TASKS])},
    size=TASKS * 0.3,
)
HERE, THERE, NETWORK = "10.213.77.1", "10.213.77.2", "10.213.77.0/24"


@pytest.fixture
async def grid(tmp_path: Path) -> AsyncIterator[Grid]:
    grid = Grid(tmp_path)
    yield grid
    await grid.stop()


class Twins:
    """Two masters with one database and one data folder, each the standby of the other."""

    def __init__(self, grid: Grid, server: Server) -> None:
        self._grid = grid
        self._flags = ["--database-url", f"{server.url}/postgres", "--data-dir", str(grid.data_dir), "--standby"]
        self._ports = [reserved(), reserved()]
        self.masters: list[Process] = []
        self.job = self._done = 0
        self._both: AsyncClient | None = None

    async def start(self, number: int) -> Process:
        arguments = ["--port", str(self._ports[number].number), *self._flags]
        return await self._grid._spawn(f"master{number}", "loopline_master", *arguments)

    def address(self, number: int) -> tuple[str, int]:
        return "127.0.0.1", self._ports[number].number

    def url(self, number: int) -> str:
        return "http://{}:{}".format(*self.address(number))

    @property
    def token(self) -> str:
        file = self._grid.data_dir / "tokens" / "admin"
        return file.read_text().strip() if file.exists() else "none"

    def client(self, *numbers: int) -> AsyncClient:
        """Return a client with these addresses; only a client with several of them retries."""
        ca = self._grid.data_dir / "tokens" / "ca.pem"
        return AsyncClient(
            ",".join(map(self.url, numbers)),
            self.token,
            patience_s=WITHIN_S if len(numbers) > 1 else 0.0,
            ca=ca.read_text() if ca.exists() else "",
        )

    async def why_not(self, number: int) -> str:
        """Return the code of a master's refusal, or "" if it serves."""
        async with self.client(number) as client:
            try:
                await client.whoami()
            except LooplineError as error:
                return error.code
        return ""

    async def begin(self) -> None:
        """Start both masters, a worker with both addresses, and a job."""
        for number in range(2):
            self.masters.append(await self.start(number))
            await (self.until_waiting(1) if number else self.until_served(0))
        await self._grid.start_worker("w", url=f"{self.url(0)},{self.url(1)}", slots=2)
        self._both = self.client(0, 1)
        self._grid._clients.append(self._both)
        self.job = (await self._both.submit(SPEC)).id

    async def until_served(self, number: int) -> None:
        async def serves() -> bool:
            return not await self.why_not(number)

        await wait_for(f"master {number} to serve", serves, WITHIN_S)

    async def until_waiting(self, number: int) -> None:
        async def waits() -> bool:
            assert self.masters[number].returncode is None, self._grid.log(f"master{number}")
            return await self.why_not(number) == "database_away"

        await wait_for(f"master {number} to wait", waits, WITHIN_S)

    async def check_continues(self, number: int) -> None:
        """Check that the worker follows, and that a client with both addresses reads earlier outputs."""

        async def further() -> int | None:
            async with self.client(number) as client:
                found = (await client.job(self.job)).tasks.succeeded
            return found if found > self._done else None

        self._done = await wait_for("the worker to follow, and the job to go on", further, WITHIN_S)
        assert self._both
        first = await anext(aiter(self._both.results(self.job)))
        assert first.stdout == "\0" * 20000

    def asked(self, number: int) -> socket.socket:
        """Send a request to a suspended master, which reads it once it resumes."""
        connection = socket.create_connection(self.address(number), timeout=WITHIN_S)
        head = [f"GET /api/v1/jobs/{self.job} HTTP/1.1", "Host: x", f"Authorization: Bearer {self.token}"]
        connection.sendall("\r\n".join([*head, "Connection: close", "", ""]).encode())
        return connection

    async def end(self, number: int, epochs: int, server: Server) -> None:
        async with self.client(number) as client:
            accepted = [one.id.task_id async for one in client.attempts(self.job) if one.accepted]
            assert len(accepted) == len(set(accepted)) >= self._done
            assert (await client.passing()).passings == 0
        connection = await asyncpg.connect(f"{server.url}/postgres")
        assert await connection.fetchval("SELECT epoch FROM mastership") == epochs
        await connection.close()
        for master in self.masters:
            master.terminate()
            await master.wait()
        for number in range(len(self.masters)):
            assert "Traceback" not in self._grid.log(f"master{number}")


def said(connection: socket.socket) -> bytes:
    """Return the first line of a response; empty if there was none."""
    with connection:
        try:
            return connection.recv(1000).partition(b"\r\n")[0]
        except ConnectionError:
            return b""


async def test_standby_takes_over_20_times_and_the_old_master_is_silent(grid: Grid, server: Server) -> None:
    await asyncio.to_thread(server.start)
    twins = Twins(grid, server)
    await twins.begin()
    took, old = list[float](), 0
    for turn in range(20):
        new, begun = 1 - old, time.monotonic()
        twins.masters[old].send_signal(signal.SIGKILL if turn % 2 else signal.SIGSTOP)
        await twins.until_served(new)
        took.append(time.monotonic() - begun)
        if turn % 2:
            await twins.masters[old].wait()
            twins.masters[old] = await twins.start(old)
        else:
            asked = twins.asked(old)
            twins.masters[old].send_signal(signal.SIGCONT)
            assert await asyncio.to_thread(said, asked) in (b"", b"HTTP/1.1 503 Service Unavailable")
        await twins.until_waiting(old)
        await twins.check_continues(new)
        old = new
    await twins.end(old, 21, server)
    print(f"20 times: after SIGSTOP within {max(took[::2]):.1f} s, after kill -9 within {max(took[1::2]):.1f} s")


class Cabled(Twins):
    """The first master on its own computer: a network namespace with a host name. Its cable can be cut."""

    def __init__(self, grid: Grid, server: Server) -> None:
        super().__init__(grid, server)
        self._space, self._bridge = f"loopline-{os.getpid()}", f"ll{os.getpid()}"
        self._flags[1] = self._flags[1].replace("127.0.0.1", HERE)

    def plug(self) -> None:
        """Create the computer, and a switch between it and this one."""
        cable = f"{self._bridge}a"
        for line in (
            f"ip netns add {self._space}",
            f"ip link add {self._bridge} type bridge",
            f"ip link add {cable} type veth peer name eth0 netns {self._space}",
            f"ip link set {cable} master {self._bridge} up",
            f"ip address add {HERE}/24 dev {self._bridge}",
            f"ip link set {self._bridge} up",
            f"ip -n {self._space} address add {THERE}/24 dev eth0",
            f"ip -n {self._space} link set eth0 up",
            f"ip -n {self._space} link set lo up",
        ):
            done = subprocess.run(line.split(), capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"no network namespaces here: {line}: {done.stderr.strip()}")

    def unplug(self) -> None:
        for line in (f"ip netns del {self._space}", f"ip link del {self._bridge}"):
            subprocess.run(line.split(), capture_output=True)

    def cable(self, state: str) -> None:
        """Set the cable ``up`` or ``down``."""
        subprocess.run(["ip", "link", "set", f"{self._bridge}a", state], check=True)

    async def start(self, number: int) -> Process:
        arguments = ["-m", "loopline_master", "--host", self.address(number)[0], *self._flags]
        arguments += ["--port", str(self._ports[number].number)]
        inside = [
            "ip",
            "netns",
            "exec",
            self._space,
            "unshare",
            "--uts",
            "sh",
            "-c",
            'hostname there; exec "$@"',
            "-",
        ]
        with (self._grid.folder / f"master{number}.log").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *([] if number else inside), sys.executable, *arguments, cwd=self._grid.folder, stdout=log, stderr=log
            )

    def address(self, number: int) -> tuple[str, int]:
        return HERE if number else THERE, self._ports[number].number

    def url(self, number: int) -> str:
        return super().url(number).replace("http:", "https:")


@pytest.fixture
def cabled(grid: Grid, server: Server) -> Iterator[Cabled]:
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("unshare"):
        pytest.skip("a computer with a cable of its own is a network namespace: that takes root, `ip` and `unshare`")
    twins = Cabled(grid, server)
    try:
        twins.plug()
        yield twins
    finally:
        for master in twins.masters:
            if master.returncode is None:
                master.kill()
        twins.unplug()


async def test_standby_takes_over_from_a_master_with_a_cut_cable(cabled: Cabled, server: Server) -> None:
    server.listen_at(HERE, NETWORK)
    await asyncio.to_thread(server.start)
    await cabled.begin()
    took = list[float]()
    for _ in range(3):
        begun = time.monotonic()
        cabled.cable("down")
        await cabled.until_served(1)
        took.append(time.monotonic() - begun)
        await cabled.check_continues(1)
        cabled.cable("up")
        await cabled.until_waiting(0)
        cabled.masters[1].kill()
        await cabled.masters[1].wait()
        await cabled.until_served(0)
        cabled.masters[1] = await cabled.start(1)
        await cabled.until_waiting(1)
        await cabled.check_continues(0)
    await cabled.end(0, 7, server)
    print("a cut cable: after " + ", ".join(f"{each:.1f} s" for each in took))
