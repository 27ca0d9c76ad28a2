"""``python -m loopline_master`` as a process: its output and its exit."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from loopline_master.__main__ import OneLine
from loopline_master.certificates import own_names
from tests.warm import starting

ROOT = Path(__file__).parents[2]


async def start(*command: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, env=dict(os.environ),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def said(*arguments: str) -> tuple[int | None, str]:
    """Fork a master that exits by itself; return exit code and standard error."""
    process = await start(*starting("loopline_master"), *arguments)
    _, errors = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode, errors.decode()


@asynccontextmanager
async def running(*arguments: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """Run a master; yield the process and its greeting."""
    process = await start(sys.executable, "-m", "loopline_master", *arguments)
    assert process.stdout
    try:
        lines = [(await asyncio.wait_for(process.stdout.readline(), 60)).decode() for _ in range(7)]
        yield process, "".join(lines)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_master_greets_serves_and_stops_at_sigterm(tmp_path: Path) -> None:
    async with running("--port", "0", "--data-dir", str(tmp_path)) as (process, greeting):
        url = greeting.split()[6]
        assert f"loopline worker --master {url} --token-file {tmp_path}/tokens/worker" in greeting
        assert f"page      {url}/\n" in greeting
        assert f"{url}/docs" in greeting
        assert f"export LOOPLINE_MASTER={url} LOOPLINE_TOKEN_FILE={tmp_path}/tokens/admin" in greeting
        headers = {"Authorization": f"Bearer {(tmp_path / 'tokens' / 'admin').read_text().strip()}"}
        async with aiohttp.ClientSession(headers=headers) as http, http.get(f"{url}/api/v1/events") as events:
            assert events.status == 200  # a client has an open stream
            process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), 60) == 0


async def test_second_master_on_a_port_or_database_is_refused(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        code, errors = await said("--port", port, "--data-dir", str(tmp_path / "other"))
        assert (code, "Traceback" in errors) == (1, False)
        assert f"127.0.0.1:{port} is in use" in errors
    async with running("--port", "0", "--data-dir", str(tmp_path)):
        code, errors = await said("--port", "0", "--data-dir", str(tmp_path))
        assert (code, "Traceback" in errors) == (1, False)
        assert "another master is using the database" in errors


async def test_invalid_start_exits_with_an_explanation(tmp_path: Path) -> None:
    (tmp_path / "loopline.db").write_text("this is no database, whatever it is called" * 100)
    code, errors = await said("--data-dir", str(tmp_path))
    assert (code, "Traceback" in errors) == (1, False)
    assert "not a Loopline database" in errors
    code, errors = await said("--policy", "round-robbin")
    assert (code, errors.count("\n")) == (2, 1)
    assert "did you mean round-robin?" in errors


async def test_misspelt_variable_is_named_in_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPLINE_LEASE", "77")
    (tmp_path / "loopline.db").write_text("this is no database, whatever it is called" * 100)
    _, errors = await said("--data-dir", str(tmp_path))
    assert "LOOPLINE_LEASE is not a setting, and is ignored: did you mean LOOPLINE_LEASE_S?" in errors


async def test_master_exits_when_the_disk_is_full(tmp_path: Path) -> None:
    async with running("--port", "0", "--data-dir", str(tmp_path)) as (process, greeting):
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (2**20, 2**20))
        url = f"{greeting.split()[6]}/api/v1/jobs"
        headers = {"Authorization": f"Bearer {(tmp_path / 'tokens' / 'admin').read_text().strip()}"}
        async with aiohttp.ClientSession(headers=headers) as http:
            status = 201
            while status == 201:
                async with http.post(url, json={"command": ["x" * 100_000]}) as response:
                    status = response.status
            assert status == 503
        assert process.stderr
        errors = (await asyncio.wait_for(process.stderr.read(), 60)).decode()
        assert await process.wait() == 1
        assert "error: writing to the database failed" in errors
        assert "Traceback" not in errors


def test_log_line_escapes_outside_text() -> None:
    def written(text: str) -> str:
        return OneLine("%(levelname)s %(message)s").format(
            logging.LogRecord("x", logging.INFO, __file__, 1, "worker %s joined", (text,), None)
        )

    assert written("a\n2026 ERROR \x1b[2Jé\u202e") == "INFO worker a\\n2026 ERROR \\x1b[2Jé\\u202e joined"
    assert written("x" * 10**6) == "INFO worker " + "x" * (2000 - 12) + "... (1,000,019 characters)"


def test_greeting_uses_a_resolvable_name_or_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_names, "_outside", lambda: "10.1.2.3")
    known = {"lab-pc": "127.0.1.1", "lab-pc.example.org": "10.1.2.3", "moved.example.org": "10.9.9.9"}
    monkeypatch.setattr(own_names.socket, "getaddrinfo", lambda name, _: [(2, 1, 6, "", (known[name], 0))])
    told = {}
    for name in known:
        monkeypatch.setattr(own_names.socket, "getfqdn", lambda name=name: name)
        told[name] = own_names.reached_at("0.0.0.0")
    assert told == {
        "lab-pc": "10.1.2.3",
        "lab-pc.example.org": "lab-pc.example.org",
        "moved.example.org": "10.1.2.3",
    }
    assert own_names.reached_at("fd00::1") == "[fd00::1]"
