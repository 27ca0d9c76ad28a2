"""Errors of the command line: their exit codes, and how they are printed."""

from __future__ import annotations

import json
import sys
from enum import IntEnum

from loopline_shared.errors import LooplineError


class Exit(IntEnum):
    """Exit codes of the command."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    NOT_AUTHORISED = 4
    UNREACHABLE = 5
    INTERRUPTED = 130


EXIT_CODES = (
    "Exit codes: 0 done; 1 the job failed, or an error; 2 wrong usage; 3 not found; 4 not authorised; "
    "5 no master answers; 130 interrupted."
)

_BY_CODE = {"usage": Exit.USAGE, "settings": Exit.USAGE, "unreachable": Exit.UNREACHABLE}
_BY_STATUS = {
    401: Exit.NOT_AUTHORISED,
    403: Exit.NOT_AUTHORISED,
    404: Exit.NOT_FOUND,
    422: Exit.USAGE,
}


def usage(message: str, hint: str = "") -> LooplineError:
    """Return an error about wrong usage."""
    return LooplineError("usage", message, hint)


def exit_code(error: LooplineError) -> Exit:
    """Return the exit code of an error."""
    return _BY_CODE.get(error.code) or _BY_STATUS.get(error.status, Exit.FAILED)


def report(error: LooplineError, as_json: bool) -> Exit:
    """Print an error on stderr, as text or as one line of JSON, and return its exit code."""
    if as_json:
        problem = {"error": {"code": error.code, "message": error.message, "hint": error.hint}}
        print(json.dumps(problem), file=sys.stderr)
    else:
        _print(error)
    return exit_code(error)


def _print(error: LooplineError) -> None:
    from rich.console import Console  # a quarter of the start-up time, and rarely needed
    from rich.text import Text

    from loopline.cli.render.printable import visible

    console = Console(stderr=True, soft_wrap=True)
    console.print(Text("error: ", "bold red"), Text(visible(error.message)), sep="")
    if error.hint:
        console.print(Text("hint: ", "bold cyan"), Text(visible(error.hint)), sep="")
