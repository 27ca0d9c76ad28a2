"""The owner's page: content, actions and access control; then the same from a terminal."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import stat
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from loopline_shared.model import Quarantine
from loopline_worker import agent as agent_module
from loopline_worker.core import owner as owner_rule
from loopline_worker.core.owner_policy import Decision
from loopline_worker.host import speed
from loopline_worker.owner import owner_monitor
from loopline_worker.owner.blockers import FOR_GOOD, Pause, PauseEnd
from loopline_worker.owner.page import headline, presence, render
from loopline_worker.owner.server import OwnerServer
from loopline_worker.owner.state import PastFreeze, RunningTask, WorkerState
from loopline_worker.presence.idle_detector import IdleDetector
from loopline_worker.state.attempt_log import Contributed
from tests.warm import starting
from tests.worker.bench import run_of, until
from tests.worker.presence.witnesses import Hand
from tests.worker.small_master import SmallMaster
from tests.worker.test_agent import Started

STATE = WorkerState(
    worker="pc-1", dedicated=False, slots=0, most_slots=4, why="somebody is using this computer", paused="",
    in_use=True, idle_s=2.5, seen_by="x11", running=[RunningTask("<pi>", 12.0, True), RunningTask("", 3.0, False)],
    freezes=[PastFreeze(0.0, 2, 0.113, True, "somebody")], yields=1, yield_p50_s=0.113, yield_p99_s=0.113,
    preferences=["Tasks <run>."], peers="Port 7462 is open to <others>.", sandbox="Tasks run in <Landlock>.",
    contributed={"<ann>": Contributed(2, 7200.0, 0.0)}, contributed_since=1.0,
)  # fmt: skip


def test_page_shows_running_tasks_escaped() -> None:
    page = render(STATE)
    for part in (
        "&lt;pi&gt;",
        "a job without a name",
        "<td>frozen",
        "0.113 s after your input",
        "Tasks &lt;run&gt;.",
        "Tasks run in &lt;Landlock&gt;.",
        "Port 7462 is open to &lt;others&gt;.",
        "&lt;ann&gt;: 2 tasks, 2.0 core-hours, last on ",
        "the last time 0.113 s",
    ):
        assert part in page
    assert "<pi>" not in page
    assert "<script" not in page
    assert "1 running, 1 frozen, 0 of 4 slots offered (somebody is using" in headline(STATE)
    assert presence(STATE) == "Last input 2 s ago, seen by x11."


def test_state_survives_json() -> None:
    assert WorkerState.from_json(json.loads(json.dumps(STATE.to_json()))) == STATE


@pytest.fixture
async def agent(tmp_path: Path, master: SmallMaster, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Started]:
    monkeypatch.setattr(agent_module, "SAMPLE_EVERY_S", 0.05)
    monkeypatch.setattr(owner_monitor, "_open_idle_detector", lambda: IdleDetector([Hand()]))
    monkeypatch.setattr(owner_rule, "decide", _decide)
    owners = {"dedicated": False, "reserve_memory_bytes": 0, "on_battery": True}
    agent = Started(tmp_path / "data", master.url, owners)
    await until(lambda: (tmp_path / "data" / "owner-page").exists())
    yield agent
    await agent.crash()


def _decide(preferences: Any, signs: Any, most: int, before: int) -> Decision:
    """Ignore other load on this machine."""
    return Decision(0, f"paused by the owner {signs.paused}", at_once=True) if signs.paused else Decision(most)


def address(agent: Started) -> str:
    return (agent.folder / "owner-page").read_text().strip()


async def ask(method: str, url: str, **more: Any) -> tuple[int, str, Any]:
    async with aiohttp.ClientSession() as session, session.request(method, url, allow_redirects=False, **more) as got:
        return got.status, await got.text(), got.headers


async def test_pause_and_resume_on_the_page(agent: Started, master: SmallMaster) -> None:
    run = run_of("sh", "-c", "echo > begun; sleep 100", job_name="pi")
    await master.say(run)
    await until(lambda: (agent.folder / "scratch" / "1.1.1" / "begun").exists())
    status, page, headers = await ask("GET", address(agent))
    assert status == 200
    assert "<td>pi<td>" in page
    assert "sleep" not in page  # the command is not shown
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert headers["Cache-Control"] == "no-store"
    status, _, headers = await ask("POST", f"{address(agent)}pause", data={"for": "1h"})
    assert (status, headers["Location"]) == (303, "/" + address(agent).split("/", 3)[3])
    (result,) = await master.results_of(run)
    assert result.outcome == "given_back"
    assert "paused until" in (await ask("GET", address(agent)))[1]
    assert Pause(agent.data_directory.pause).left_s(time.time()) > 3000
    await ask("POST", f"{address(agent)}resume")
    await until(lambda: master.reports[-1].load.slots == 2)
    assert not agent.data_directory.pause.exists()


async def test_page_shows_the_quarantine_of_this_computer(agent: Started, master: SmallMaster) -> None:
    master.quarantine = Quarantine(time.time() + 600, "task 1.2 failed there, and then succeeded on <bee>")
    await master.say()
    await until(lambda: agent.agent._quarantine)
    page = (await ask("GET", address(agent)))[1]
    until_when = time.strftime("%H:%M", time.localtime(master.quarantine.until))
    said = f"The grid gives this computer nothing new until {until_when}: task 1.2 failed there"
    assert f"{said}, and then succeeded on &lt;bee&gt;." in page
    assert said in (await owner(agent.folder))[1]
    master.quarantine = None
    await master.say()
    await until(lambda: agent.agent._quarantine is None)
    assert "nothing new" not in (await ask("GET", address(agent)))[1]


async def test_invalid_pause_is_refused(agent: Started) -> None:
    status, said, _ = await ask("POST", f"{address(agent)}pause", data={"for": "soon"})
    assert status == 400
    assert "until-tomorrow" in said


async def test_page_requires_its_secret(agent: Started) -> None:
    url = address(agent)
    root = url.rsplit("/", 2)[0]
    for path in ("", "/", "/x/", "/x/state", "/pause", f"/{'x' * 43}/pause"):
        for method in ("GET", "POST"):
            assert (await ask(method, root + path))[0] in (404, 405)
    assert stat.S_IMODE((agent.folder / "owner-page").stat().st_mode) == 0o600


async def test_head_request_gets_no_body(agent: Started, caplog: pytest.LogCaptureFixture) -> None:
    """With and without the secret: an invalid HTTP response would cause a traceback in the agent's log."""
    for url in (address(agent), f"{address(agent)}x", address(agent).rsplit("/", 2)[0]):
        status, said, headers = await ask("HEAD", url)
        assert (status, said, int(headers["Content-Length"]) > 0) == (404, "", True)
    assert "data_received" not in caplog.text


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:80"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
    ids=str,
)
async def test_other_sites_are_refused_even_with_the_secret(agent: Started, headers: dict[str, str]) -> None:
    assert (await ask("POST", f"{address(agent)}pause", data={"for": "for-good"}, headers=headers))[0] == 404
    assert (await ask("GET", f"{address(agent)}state", headers=headers))[0] == 404
    assert not agent.data_directory.pause.exists()


async def test_page_listens_on_loopback_until_the_agent_stops(agent: Started) -> None:
    url = address(agent)
    assert url.startswith("http://127.0.0.1:")
    page = agent.agent.owner_access.page
    assert page
    assert page._listener
    assert [socket.getsockname()[0] for socket in page._listener.sockets] == ["127.0.0.1"]
    await agent.stop()
    assert not (agent.folder / "owner-page").exists()
    with pytest.raises(aiohttp.ClientConnectionError):
        await ask("GET", url)


async def test_address_left_by_a_killed_agent_is_not_used(tmp_path: Path) -> None:
    """Another program may have its port now, and would receive the secret."""
    thief = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = thief.sockets[0].getsockname()[1]
    (tmp_path / "owner-page").write_text(f"http://127.0.0.1:{port}/old/\n")
    page = OwnerServer(tmp_path, _nobody(), port)
    await page.open()
    assert not (tmp_path / "owner-page").exists()
    await page.close()
    thief.close()


async def test_every_start_has_a_new_secret(tmp_path: Path) -> None:
    secrets = []
    for _ in range(2):
        page = OwnerServer(tmp_path, _nobody())
        await page.open()
        secrets.append((tmp_path / "owner-page").read_text().rsplit("/", 2)[1])
        await page.close()
    assert secrets[0] != secrets[1]


async def test_full_disk_disables_only_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "write_text", _full)
    page = OwnerServer(tmp_path, _nobody())
    await page.open()
    assert list(tmp_path.iterdir()) == []
    assert speed.kept(tmp_path / "speed.json", "cpu", 1) > 0
    await page.close()


def test_pause_takes_effect_even_if_it_cannot_be_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pause = Pause(tmp_path / "pause.json")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", _full)
        pause.set(PauseEnd(FOR_GOOD))
    assert pause.left_s(0.0) == FOR_GOOD
    assert pause.words(0.0) == (
        "for good, but only until the worker restarts: cannot be kept on disk (No space left on device)"
    )
    pause.set(PauseEnd(FOR_GOOD))
    assert pause.words(0.0) == "for good"
    pause.clear()
    assert (pause.left_s(0.0), list(tmp_path.iterdir())) == (0.0, [])


def _full(*_: Any) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _nobody() -> Any:
    """A monitor without probes."""
    return None


async def owner(folder: Path, *words: str) -> tuple[int, str, str]:
    """Run `loopline owner` as in a terminal."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LOOPLINE")}
    command = await asyncio.create_subprocess_exec(
        *starting("loopline"), "owner", "--data-dir", str(folder), *words,
        env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await command.communicate()
    assert command.returncode is not None
    return command.returncode, out.decode(), err.decode()


async def test_terminal_shows_the_same_as_the_page(agent: Started) -> None:
    code, shown, _ = await owner(agent.folder)
    assert code == 0
    for part in ("w1: 0 running, 2 of 2 slots offered", "running here:\n  nothing", address(agent)):
        assert part in shown
    code, shown, _ = await owner(agent.folder, "pause", "for-good", "--json")
    assert (code, json.loads(shown)["paused"]) == (0, "for good")
    assert Pause(agent.data_directory.pause).left_s(0.0) == float("inf")
    code, shown, _ = await owner(agent.folder, "resume")
    assert (code, shown.startswith("w1: 0 running")) == (0, True)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("pause", "soon"), 2, "error: expected a time such as 30m"),
        (("--json",), 5, '{"error": {"code": "unreachable", "message": "no worker of yours runs here'),
    ],
)
async def test_errors_in_a_terminal_are_reported(
    tmp_path: Path, words: tuple[str, ...], code: int, says: str
) -> None:
    if code == 2:
        (tmp_path / "owner-page").write_text("http://127.0.0.1:1/x/\n")
    status, _, said = await owner(tmp_path, *words)
    assert (status, said.startswith(says)) == (code, True), said


async def test_silent_connections_are_closed_for_new_ones(agent: Started) -> None:
    """Any user of the computer may open them, and each uses a descriptor of the agent."""
    port = int(address(agent).split("/")[2].partition(":")[2])
    silent = [(await asyncio.open_connection("127.0.0.1", port))[1] for _ in range(60)]
    page = agent.agent.owner_access.page
    assert page
    await until(lambda: 0 < len(page._visits) <= 16)
    assert (await ask("GET", address(agent)))[0] == 200
    for writer in silent:
        writer.close()
