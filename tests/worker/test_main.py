"""``python -m loopline_worker`` as users and service managers run it."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import psutil
import pytest

from loopline_shared.model import Outcome
from loopline_worker import __main__ as main_module
from tests.worker.bench import name_of, processes_of, run_of, until
from tests.worker.small_master import SmallMaster

Program = asyncio.subprocess.Process
Start = Callable[..., Awaitable[Program]]
ROOT = Path(__file__).parents[2]


@pytest.fixture
async def start(tmp_path: Path, master: SmallMaster) -> AsyncIterator[Start]:
    programs: list[Program] = []

    async def begin(*options: str) -> Program:
        command = ["-m", "loopline_worker", "--master", master.url, "--data-dir", str(tmp_path / "data"), *options]
        environment = os.environ | {
            "LOOPLINE_DISK_RESERVE_BYTES": "0",
            "LOOPLINE_TOKEN": "secret",
            "LOOPLINE_DEDICATED": "1",
        }
        program = await asyncio.create_subprocess_exec(
            sys.executable, *command, env=environment, stderr=asyncio.subprocess.PIPE
        )
        programs.append(program)
        return program

    yield begin
    for program in programs:
        if program.returncode is None:
            program.kill()
        await program.communicate()


async def said(program: Program) -> str:
    """Return the complete log once the process has ended."""
    _, log = await program.communicate()
    return log.decode()


def test_missing_token_file_ends_the_worker_even_without_a_master(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    absent = ["--token-file", str(tmp_path / "absent"), "--data-dir", str(tmp_path / "data")]
    assert main_module.main(["--master", "http://127.0.0.1:9", *absent]) == 4
    assert "cannot read the join token" in capsys.readouterr().err


async def test_killed_agent_leaves_no_process_behind(master: SmallMaster, start: Start, tmp_path: Path) -> None:
    agent = await start()
    run = run_of("sh", "-c", "(setsid sh -c 'trap \"\" TERM; sleep 100; sleep 100' &); sleep 100")
    await master.say(run)
    await until(lambda: len(processes_of(tmp_path)) >= 3)
    family = psutil.Process(agent.pid).children(recursive=True)
    agent.kill()
    await until(lambda: processes_of(tmp_path) == [])
    await until(lambda: not any(process.is_running() for process in family))


async def test_processes_of_a_killed_agent_are_killed_by_the_next(
    master: SmallMaster, start: Start, tmp_path: Path
) -> None:
    agent = await start()
    run = run_of("sh", "-c", "(setsid sleep 100 &); exec sleep 100")
    await master.say(run)
    await until(lambda: [name_of(process) for process in processes_of(tmp_path)] == ["sleep", "sleep"])
    ours = [*psutil.Process(agent.pid).children(recursive=True)[:2], psutil.Process(agent.pid)]
    for act in (psutil.Process.suspend, psutil.Process.kill):  # none may notice the end of another
        for process in ours:
            act(process)  # the launcher and the guard too, so no process is left to clean up
    assert processes_of(tmp_path)
    await start()
    await until(lambda: len(master.hellos) == 2)
    assert processes_of(tmp_path) == []
    assert list((tmp_path / "data" / "scratch").iterdir()) == []


async def test_signal_stops_the_worker_cleanly(master: SmallMaster, start: Start, tmp_path: Path) -> None:
    agent = await start()
    run = run_of("sh", "-c", "echo > begun; sleep 100")
    await master.say(run)
    await until(lambda: (tmp_path / "data" / "scratch" / "1.1.1" / "begun").exists())
    agent.send_signal(signal.SIGTERM)
    log = await said(agent)
    assert agent.returncode == 0
    assert master.result(run.attempt).outcome is Outcome.GIVEN_BACK
    for event in (
        "connected to",
        "attempt 1.1.1 starts: sh",
        "shutting down",
        "attempt 1.1.1 given_back: the worker was",
    ):
        assert event in log


async def test_refusal_exits_with_code_4_and_a_hint(master: SmallMaster, start: Start) -> None:
    master.status = 401
    agent = await start()
    log = await said(agent)
    assert agent.returncode == 4
    assert log.endswith("does not accept this worker's token\n`loopline token create` makes a new one for workers\n")


async def test_second_agent_on_a_folder_exits(master: SmallMaster, start: Start) -> None:
    await start()
    await until(lambda: master.is_connected)
    second = await start()
    assert "another agent uses" in await said(second)
    assert second.returncode == 2


async def test_misspelt_variable_is_named_in_the_log(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPLINE_TASK_MEMORY", "2000000000")
    agent = await start("--slots", "0")
    meant = "LOOPLINE_TASK_MEMORY is not a setting, and is ignored: did you mean LOOPLINE_TASK_MEMORY_BYTES?"
    assert meant in await said(agent)


async def test_wrong_option_exits_with_code_2(start: Start) -> None:
    agent = await start("--slots", "0")
    assert "error: --slots: has to be at least 1" in await said(agent)
    assert agent.returncode == 2


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_agent_raises_its_descriptor_limit_and_tasks_get_the_usual_one() -> None:
    code = """
import resource, subprocess, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 500))
from loopline_worker.host import descriptors
descriptors.raise_limit()
child = subprocess.Popen(["sleep", "100"])
descriptors.restore_limit(child.pid)
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], resource.prlimit(child.pid, resource.RLIMIT_NOFILE)[0])
child.kill()
child.wait()
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert said.stdout.split() == ["500", "100"]


def test_full_log_file_is_rotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main_module, "_LOG_BYTES", 1000)
    file = tmp_path / "logs" / "worker.log"
    handler = main_module._log_file(str(file))
    for number in range(1000):
        handler.emit(logging.LogRecord("worker", logging.INFO, "", 0, "line %d", (number,), None))
    handler.close()
    assert sorted(log.name for log in file.parent.iterdir()) == [
        "worker.log", "worker.log.1", "worker.log.2", "worker.log.3"
    ]  # fmt: skip
    assert all(log.stat().st_size <= 1000 for log in file.parent.iterdir())
    assert "line 999" in file.read_text()
