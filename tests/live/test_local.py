"""A local grid of one program: it works, and no part of it outlives the program."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from pydantic import SecretStr

import loopline
from loopline.local.local_grid import LocalGrid, new_grid, reserved
from loopline.settings import ClientSettings
from loopline_shared.errors import LooplineError
from loopline_shared.model import Order
from loopline_shared.spec import JobSpec
from tests.live.grid import wait_for
from tests.worker.bench import is_alive, name_of

_SCRIPT = """
import loopline
grid = loopline.Executor.local(slots=1, name="powers")
print(list(grid.map(pow, range(5), range(5))), flush=True)
print([future.result() for future in grid.attach("powers")], flush=True)
"""  # cleaned up when the program ends


@contextmanager
def local_grid(home: Path) -> Iterator[tuple[psutil.Process, dict[str, Any]]]:
    """Run ``loopline local`` for a user with this home; yield its process and its output."""
    command = [sys.executable, "-m", "loopline", "local", "--slots", "1", "--json"]
    with subprocess.Popen(command, env=environment(home), stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout
        try:
            lines = iter(process.stdout.readline, b"")
            text = b""
            for line in lines:
                text += line
                if line == b"}\n":
                    break
            yield psutil.Process(process.pid), json.loads(text)
        finally:
            process.kill()


def environment(home: Path) -> dict[str, str]:
    """The environment of an operator whose shell is set up for another, encrypted grid."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("LOOPLINE_", "XDG_"))}
    theirs = home / "tokens"
    theirs.mkdir(exist_ok=True)
    for name in ("admin", "ca.pem"):
        (theirs / name).write_text("another grid's", "utf-8")
    others = {"LOOPLINE_TOKEN_FILE": str(theirs / "admin"), "LOOPLINE_CA_FILE": str(theirs / "ca.pem")}
    return {**kept, **others, "HOME": str(home)}


async def nothing_is_left(processes: list[psutil.Process], home: Path) -> None:
    async def are_gone() -> bool:
        alive = [process for process in processes if is_alive(process)]
        return not alive and not list((home / ".local/share/loopline/local").glob("*"))

    await wait_for("the end of every process and folder", are_gone)


_LONG = [pytest.param(end, marks=pytest.mark.campaign) for end in ("interrupted", "caretaker killed")]


@pytest.mark.parametrize("end", ["killed", *_LONG])
async def test_grid_of_one_command_ends_with_the_command(
    end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # where a client finds the token without being given it
    for name in [name for name in os.environ if name.startswith(("LOOPLINE_", "XDG_"))]:
        monkeypatch.delenv(name)
    with local_grid(tmp_path) as (command, said):
        async with loopline.AsyncClient(said["master"]) as client:
            await client.submit(JobSpec(command=["sleep", "600"]))
            assert (await client.passing()).order is Order.NONE

        async def with_its_task() -> list[psutil.Process] | None:
            all_ = command.children(recursive=True)
            return all_ if any(name_of(process) == "sleep" for process in all_) else None

        everything = await wait_for("the task to run", with_its_task)
        to_end = everything[0] if end == "caretaker killed" else command
        to_end.send_signal(signal.SIGINT if end == "interrupted" else signal.SIGKILL)
        code = await asyncio.to_thread(command.wait, 60)
        if end == "interrupted":  # no process continues unnoticed
            assert code == 130
            assert not any(process.is_running() and process.status() != "zombie" for process in everything)
        if end == "caretaker killed":  # no process is left to remove the folder
            shutil.rmtree(tmp_path / ".local/share/loopline/local", ignore_errors=True)
        await nothing_is_left(everything, tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems keep no port for a daemon that is to come")
def test_reserved_port_can_be_used_only_by_its_daemon() -> None:
    mine = reserved()
    assert reserved(mine.number).number != mine.number, "two grids that start at once get different ports"
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", mine.number))
    with socket.create_server(("127.0.0.1", mine.number)):
        mine.release()
        assert reserved(mine.number).number != mine.number
        with pytest.raises(LooplineError, match=f"port {mine.number} of this computer cannot be used"):
            new_grid(mine.number)
    assert reserved(mine.number).number == mine.number


@pytest.mark.campaign
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])  # as a service manager stops it; killed
async def test_stopped_grid_ends_its_command_and_all_descendants(number: int, tmp_path: Path) -> None:
    child = tmp_path / "child"
    words = ["sh", "-c", f"sleep 600 & echo $! > {child}.new && mv {child}.new {child}; wait"]
    local = psutil.Popen(
        [sys.executable, "-m", "loopline", "local", "--", *words], env=os.environ | {"HOME": str(tmp_path)}
    )

    async def started() -> psutil.Process | None:
        return psutil.Process(int(child.read_text())) if child.exists() else None

    grandchild = await wait_for("the command to run", started)
    local.send_signal(number)  # only to this process
    await asyncio.to_thread(local.wait, 60)
    await nothing_is_left([grandchild], tmp_path)


def test_environment_of_a_local_grid_names_no_other_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOOPLINE_TOKEN", "LOOPLINE_CA_FILE", "LOOPLINE_MASTER"):
        monkeypatch.setenv(name, "another grid's")
    port = reserved()
    variables = LocalGrid(Path("folder"), port).environment()
    port.release()
    assert "another grid's" not in variables.values()


def test_ca_file_beside_a_token_applies_only_to_that_token(tmp_path: Path) -> None:
    (tmp_path / "admin").write_text("theirs", "utf-8")
    (tmp_path / "ca.pem").write_text("their CA", "utf-8")
    settings = ClientSettings(token_file=tmp_path / "admin")
    assert (settings.find_token(), settings.find_ca()) == ("theirs", "their CA")
    assert settings.model_copy(update={"token": SecretStr("mine")}).find_ca() == ""


def test_executor_can_have_its_own_grid(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(_SCRIPT)
    command = [sys.executable, str(script)]
    ran = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, check=False)
    assert ran.stdout.splitlines() == ["[1, 1, 4, 27, 256]"] * 2, ran.stderr
    asyncio.run(nothing_is_left([], tmp_path))
