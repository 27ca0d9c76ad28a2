"""A command of the administrator: run within a time, and with bounded output."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Sequence
from contextlib import suppress

from loopline_master.timings import COMMAND_WITHIN_S
from loopline_shared.errors import LooplineError

_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TZ")
_KEPT_BYTES, _MOST_BYTES = 4096, 2**20
_CUT = 200
_FINISHES_WITHIN_S = 5.0


async def run(command: Sequence[str], body: str = "", **variables: str) -> str:
    """Run a command with ``body`` on stdin, and return up to 4 KiB of its stdout.

    Raises LooplineError if it fails, takes too long or prints too much.
    """
    environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment | variables,
            start_new_session=True,
        )
    except OSError as error:
        raise LooplineError("command", f"cannot run {command[0]}: {error.strerror}") from error
    assert process.stdin
    assert process.stdout
    assert process.stderr
    try:
        async with asyncio.timeout(COMMAND_WITHIN_S):
            answer, complaint, _ = await asyncio.gather(
                _beginning(process.stdout, process), _beginning(process.stderr, process), _send(process.stdin, body)
            )
            await process.wait()
    except TimeoutError:
        raise LooplineError("no_answer", f"{command[0]} had not ended after {COMMAND_WITHIN_S:g} s") from None
    finally:
        _kill(process)
        await _finish(process)
    if answer is None or complaint is None:
        raise LooplineError("command", "it printed more than 1 MiB")
    if process.returncode:
        said = complaint.strip()[:_CUT]
        raise LooplineError("command", f"{command[0]} ended with exit code {process.returncode}: {said}")
    return answer


async def _send(stdin: asyncio.StreamWriter, body: str) -> None:
    with suppress(ConnectionError):  # it may end without reading
        stdin.write(body.encode())
        await stdin.drain()
    stdin.close()


async def _beginning(stream: asyncio.StreamReader, process: Process) -> str | None:
    """Read a stream to its end, and return its first 4 KiB. None if it is too long: the command is killed."""
    kept, size_bytes = b"", 0
    while part := await stream.read(65536):
        kept += part[: _KEPT_BYTES - len(kept)]
        size_bytes += len(part)
        if size_bytes > _MOST_BYTES:
            _kill(process)
    return None if size_bytes > _MOST_BYTES else kept.decode(errors="replace")


async def _finish(process: Process) -> None:
    """Wait for a killed command, and read the rest of its output: asyncio waits until its pipes are empty.

    Give up if a process that has left its group keeps them open.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(_FINISHES_WITHIN_S):
            for stream in filter(None, (process.stdout, process.stderr)):
                while await stream.read(65536):
                    pass
            await process.wait()


def _kill(process: Process) -> None:
    """Kill the command with every process that it started."""
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
