"""Notification by a command on the master's computer, which the administrator names in the settings."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

from loopline_master.timings import COMMAND_WITHIN_S
from loopline_shared.errors import LooplineError

_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TZ")


async def run(command: Sequence[str], message_id: str, body: str) -> None:
    """Run the command with the message as JSON on stdin. Raises LooplineError if it fails or takes too long."""
    environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=environment | {"LOOPLINE_MESSAGE": message_id},
            start_new_session=True,
        )
    except OSError as error:
        raise LooplineError("notify_command", f"cannot run {command[0]}: {error.strerror}") from error
    try:
        async with asyncio.timeout(COMMAND_WITHIN_S):
            _, complaint = await process.communicate(body.encode())
    except TimeoutError:
        raise LooplineError("no_answer", f"{command[0]} had not ended after {COMMAND_WITHIN_S:g} s") from None
    finally:
        _kill(process)
    if process.returncode:
        said = complaint.decode(errors="replace").strip()[:200]
        raise LooplineError("notify_command", f"{command[0]} ended with exit code {process.returncode}: {said}")


def _kill(process: asyncio.subprocess.Process) -> None:
    """Kill the command with every process that it started."""
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
