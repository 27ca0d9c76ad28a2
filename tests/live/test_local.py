"""A grid on this computer that belongs to one program: it answers, and nothing of it outlives the program."""

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
from loopline.local.local_grid import LocalGrid, new_grid
from loopline.local.reserved_port import reserved
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
"""  # which leaves it to the program's end


@contextmanager
def local_grid(home: Path) -> Iterator[tuple[psutil.Process, dict[str, Any]]]:
    """Run ``loopline local`` for a user with this home; give its process and what it said."""
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
    """Of an operator, whose shell is for another grid, which is encrypted."""
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


_LONG = [pytest.param(end, marks=pytest.mark.long) for end in ("interrupted", "caretaker killed")]


@pytest.mark.parametrize("end", ["killed", *_LONG])
async def test_a_grid_of_one_command_ends_with_it(end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # where a client looks for the token, which nobody gives it
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
        if end == "interrupted":  # nothing goes on behind the user's back
            assert code == 130
            assert not any(process.is_running() and process.status() != "zombie" for process in everything)
        if end == "caretaker killed":  # nobody is left to remove the folder
            shutil.rmtree(tmp_path / ".local/share/loopline/local", ignore_errors=True)
        await nothing_is_left(everything, tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems keep no port for a daemon that is to come")
def test_a_port_is_kept_for_the_daemon_that_is_to_listen_there_and_given_to_nobody_else() -> None:
    mine = reserved()
    assert reserved(mine.number).number != mine.number, "of two grids that start at once"
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", mine.number))
    with socket.create_server(("127.0.0.1", mine.number)):
        mine.release()
        assert reserved(mine.number).number != mine.number
        with pytest.raises(LooplineError, match=f"port {mine.number} of this computer cannot be used"):
            new_grid(mine.number)
    assert reserved(mine.number).number == mine.number


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])  # by a service manager; by anything
async def test_a_stopped_grid_takes_its_command_and_what_that_started_along(number: int, tmp_path: Path) -> None:
    child = tmp_path / "child"
    words = ["sh", "-c", f"sleep 600 & echo $! > {child}.new && mv {child}.new {child}; wait"]
    local = psutil.Popen(
        [sys.executable, "-m", "loopline", "local", "--", *words], env=os.environ | {"HOME": str(tmp_path)}
    )

    async def started() -> psutil.Process | None:
        return psutil.Process(int(child.read_text())) if child.exists() else None

    grandchild = await wait_for("the command to run", started)
    local.send_signal(number)  # to this process alone
    await asyncio.to_thread(local.wait, 60)
    await nothing_is_left([grandchild], tmp_path)


def test_a_program_beside_a_grid_is_told_nothing_of_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOOPLINE_TOKEN", "LOOPLINE_CA_FILE", "LOOPLINE_MASTER"):
        monkeypatch.setenv(name, "another grid's")
    port = reserved()
    told = LocalGrid(Path("folder"), port).environment()
    port.release()
    assert "another grid's" not in told.values()


def test_the_ca_beside_a_token_is_of_that_token_alone(tmp_path: Path) -> None:
    (tmp_path / "admin").write_text("theirs", "utf-8")
    (tmp_path / "ca.pem").write_text("their CA", "utf-8")
    settings = ClientSettings(token_file=tmp_path / "admin")
    assert (settings.find_token(), settings.find_ca()) == ("theirs", "their CA")
    assert settings.model_copy(update={"token": SecretStr("mine")}).find_ca() == ""


def test_an_executor_with_a_grid_of_its_own(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(_SCRIPT)
    command = [sys.executable, str(script)]
    ran = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, check=False)
    assert ran.stdout.splitlines() == ["[1, 1, 4, 27, 256]"] * 2, ran.stderr
    asyncio.run(nothing_is_left([], tmp_path))
