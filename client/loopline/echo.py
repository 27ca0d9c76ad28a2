"""Output of calls, printed as if they had been made in this program."""

from __future__ import annotations

import sys
from contextlib import aclosing, suppress

from loopline.rest_client import RestClient
from loopline_shared.errors import LooplineError
from loopline_shared.model import TaskId

_MOST_BYTES = 2**16
"""Most bytes of a task's stdout, and of its stderr, that are printed."""


async def print_output(client: RestClient, task: TaskId) -> None:
    """Print what a task has written to its stdout and stderr, to those of this program."""
    for name, stream in (("stdout", sys.stdout), ("stderr", sys.stderr)):
        content = b""
        with suppress(LooplineError):  # nothing was written, or it is gone
            async with aclosing(client.output(task, name)) as pieces:  # type: ignore[arg-type]
                async for piece in pieces:
                    content += piece
                    if len(content) > _MOST_BYTES:
                        content = content[:_MOST_BYTES] + f"... (`loopline logs {task}` has the rest)\n".encode()
                        break
        if content:
            stream.write(content.decode(errors="replace"))
            stream.flush()


def is_notebook() -> bool:
    """True in a notebook, where users expect to see what their functions print."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"
