"""Containment (docs/containment.md): a nosy task tries to reach everything on a worker's computer."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path

import aiohttp
import psutil
import pytest

from loopline_shared.model import TaskId
from loopline_worker.supervisor.walls import landlock
from tests.live.conftest import running
from tests.live.grid import Grid, wait_for
from tests.sandboxes import needs_bubblewrap

pytestmark = [pytest.mark.campaign, pytest.mark.skipif(not Path("/proc/self/ns").exists(), reason="needs Linux")]
KINDS = [
    pytest.param("bubblewrap", marks=needs_bubblewrap),
    pytest.param("landlock", marks=pytest.mark.skipif(not landlock.version(), reason="no Landlock here")),
]
NOSY = r"""
import ctypes, glob, json, os, socket, subprocess, sys
home, token, agent, master = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
reached = []
def tries(what, act):
    try:
        if act(): reached.append(what)
    except (OSError, IndexError): pass
def read(path): return open(path).read()
def write(path): return open(path, "a").write("from a task")
def trace():
    libc = ctypes.CDLL(None)
    if libc.ptrace(16, agent, 0, 0): return False
    os.waitpid(agent, 0x40000000); libc.ptrace(17, agent, 0, 0); return True
def ask():
    with socket.create_connection(("127.0.0.1", master), 3) as one: return one.send(b"GET / HTTP/1.0\r\n\r\n")
tries("reads a file of the owner", lambda: read(home + "/.ssh/id"))
tries("reads the worker's token", lambda: read(token))
tries("reads the secret of the owner's page", lambda: read(home + "/nosy/owner-page"))
tries("lists the worker's data folder", lambda: set(os.listdir(home + "/nosy")) - {"scratch"})
tries("reads another task's folder", lambda: read(glob.glob(home + "/nosy/scratch/*/secret")[0]))
tries("reads the agent's environment", lambda: read("/proc/" + str(agent) + "/environ"))
tries("opens the agent's memory", lambda: os.open("/proc/" + str(agent) + "/mem", os.O_RDWR))
tries("traces the agent", trace)
tries("signals the agent", lambda: os.kill(agent, 0) is None)
tries("connects to the master on the loopback", ask)
tries("sees processes of others", lambda: len([name for name in os.listdir("/proc") if name.isdigit()]) > 8)
tries("has a token in its environment", lambda: [name for name in os.environ if "TOKEN" in name])
tries("has capabilities", lambda: int(read("/proc/self/status").split("CapEff:")[1].split()[0], 16))
tries("writes to /usr", lambda: write("/usr/loopline-nosy"))
tries("writes to /etc", lambda: write("/etc/loopline-nosy"))
remount = ["mount", "-o", "remount,rw", "/"]
tries("mounts / for writing", lambda: not subprocess.run(remount, capture_output=True).returncode)
tries("writes into the owner's home", lambda: write(home + "/.profile") and False)
print(json.dumps(reached))
"""
STEAL = """
for file in $(tr '\\0' '\\n' < /proc/$AGENT/cmdline 2>/dev/null | grep token) $TOKENS; do cat $file && exit; done
echo none
"""
STRAY = "(setsid env -i sleep 7531 >/dev/null 2>&1 &)"


@pytest.mark.parametrize("kind", KINDS)
async def test_nosy_task_reaches_nothing_outside_its_sandbox(tmp_path: Path, kind: str) -> None:
    async with running(tmp_path, "--order", "none") as grid:
        await _let_spy(grid, kind)


async def _let_spy(grid: Grid, kind: str) -> None:
    (grid.folder / ".ssh").mkdir()
    (grid.folder / ".ssh" / "id").write_text("secret")
    grid.sandbox = kind
    await grid.start_worker("nosy", slots=2, settings=_all_of_the_network(kind))
    neighbour = await grid.submit("echo mine > secret; sleep 600", max_replicas=1)
    await grid.attempts_when("the neighbour to begin", neighbour, lambda all_: any(one.started_at for one in all_))
    token = grid.data_dir / "tokens" / "worker"
    words = f"{grid.folder} {token} {grid.workers['nosy'].pid} {grid.port}"
    job = await grid.submit(f'python3 -I -c "$NOSY" {words}', environment={"NOSY": NOSY})
    assert (await grid.ended(job)).tasks.succeeded == 1, await _said(grid, job)
    assert json.loads(await _said(grid, job)) == []
    assert not (grid.folder / ".profile").exists(), "its file there was only in its own view of the folder"
    await grid.client().cancel(neighbour)
    await grid.ended(neighbour)


@pytest.mark.parametrize("kind", ["auto", *KINDS])
@pytest.mark.parametrize("is_pinned", [False, True], ids=["everybody's token", "a token of one name"])
async def test_task_cannot_steal_the_token_of_its_worker(tmp_path: Path, kind: str, is_pinned: bool) -> None:
    """With it, a task could impersonate the worker. It is below /srv, where an administrator may put it."""
    with tempfile.TemporaryDirectory(dir="/srv" if os.access("/srv", os.W_OK) else None) as folder:
        token = Path(folder, "token-of-a-worker")
        async with running(tmp_path, "--order", "none") as grid:
            token.write_text(await _joined(grid) if is_pinned else (grid.data_dir / "tokens" / "worker").read_text())
            token.chmod(0o600)
            grid.sandbox = kind
            settings = _all_of_the_network(kind)
            await grid.start_worker("honest", "--token-file", str(token), settings=settings)
            agent, mine = grid.workers["honest"].pid, grid.folder / "honest"
            places = f"{token} {grid.data_dir}/tokens/worker {mine}/owner-page {mine}/identity/*"
            job = await grid.submit(STEAL, environment={"AGENT": str(agent), "TOKENS": places})
            assert (await grid.ended(job)).tasks.succeeded == 1
            assert (await _said(grid, job)).splitlines()[-1] == "none"


async def _joined(grid: Grid) -> str:
    """Return the token of a computer that has joined under the name honest."""
    made = await grid.client().create_join_token(uses=1, expires_s=600)
    own = f"ll_0badcafe_{'p' * 43}"
    digest = hashlib.sha256(own.encode()).hexdigest()
    body = {"secret": made.secret, "worker": "honest", "token": "0badcafe", "hash": digest}
    async with aiohttp.ClientSession() as session, session.post(f"{grid.url}/api/v1/join", json=body) as answer:
        assert answer.status == 201, await answer.text()
    return own


@pytest.mark.parametrize("kind", KINDS)
async def test_daemon_of_a_task_ends_with_the_task_and_with_loopline(grid: Grid, kind: str) -> None:
    """A daemon without an environment ends with its task, and within 1 s if all Loopline processes are killed."""
    grid.sandbox = kind
    await grid.start_worker("nosy", settings=_all_of_the_network(kind))
    assert (await grid.ended(await grid.submit(f"{STRAY}; sleep 0.2"))).tasks.succeeded == 1
    assert not _strays()
    job = await grid.submit(f"{STRAY}; sleep 600", max_attempts=1)

    async def begun() -> bool:
        return bool(_strays())

    await wait_for("the stray to begin", begun)
    agent = psutil.Process(grid.workers["nosy"].pid)
    ours = [agent, *(one for one in agent.children(recursive=True) if "loopline" in " ".join(one.cmdline()))]
    for act in (psutil.Process.suspend, psutil.Process.kill):
        for one in ours:
            act(one)

    async def gone() -> bool:
        return not _strays()

    await wait_for("the stray to end with them", gone, seconds=1.0)
    await grid.workers["nosy"].wait()
    await grid.start_worker("nosy", settings=_all_of_the_network(kind))
    await grid.client().cancel(job)
    await grid.ended(job)


def _strays() -> list[int]:
    found = psutil.process_iter(["cmdline", "status"])
    return [one.pid for one in found if one.info["cmdline"] == ["sleep", "7531"]]


def _all_of_the_network(kind: str) -> dict[str, str]:
    return {"LOOPLINE_SANDBOX_NETWORK": "all"} if kind == "bubblewrap" else {}


async def _said(grid: Grid, job: int) -> str:
    return b"".join([piece async for piece in grid.client().output(TaskId(job, 1))]).decode()
