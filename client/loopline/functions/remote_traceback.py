"""The traceback of an exception that was raised on a worker."""

from __future__ import annotations

import linecache
import re

_FRAME_WITHOUT_SOURCE = re.compile(r'^  File "(.+)", line (\d+), in .+\n(?!    )', re.MULTILINE)


class RemoteTraceback(Exception):  # noqa: N818 - it is where an exception comes from
    """The cause of an exception that was raised on a worker: its traceback there."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


def with_source(text: str) -> str:
    """Return a worker's traceback with the source lines of the user's own files, which exist here alone."""
    return _FRAME_WITHOUT_SOURCE.sub(_with_line, text)


def _with_line(frame: re.Match[str]) -> str:
    line = linecache.getline(frame[1], int(frame[2])).strip()
    return frame[0] + (f"    {line}\n" if line else "")
