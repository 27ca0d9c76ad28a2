"""Counts what a program of Python does: imported by each that finds this folder in its PYTHONPATH.

From SIGUSR1 to SIGUSR2: calls of Python functions, which functions those are, and bytecodes. Then it writes what it
has counted, as JSON, to a file in the folder ``COUNTS_INTO`` that is named after the process.
"""

from __future__ import annotations

import collections
import json
import os
import signal
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

FOLDER = os.environ.get("COUNTS_INTO")


class Tally:
    """What is called and run while it counts, by code object."""

    def __init__(self) -> None:
        self.counts = False
        self.calls: collections.Counter[CodeType] = collections.Counter()
        self.bytecodes: collections.Counter[CodeType] = collections.Counter()

    def profile(self, frame: FrameType, event: str, _: object) -> None:
        if self.counts and event == "call":
            self.calls[frame.f_code] += 1

    def trace(self, frame: FrameType, event: str, _: object) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if self.counts and event == "opcode":
            self.bytecodes[frame.f_code] += 1
        return self.trace

    def begin(self, *_: object) -> None:
        self.calls.clear()
        self.bytecodes.clear()
        self.counts = True

    def end(self, *_: object) -> None:
        self.counts = False
        whole = Path(str(FOLDER), f"{os.getpid()}.json")
        part = whole.with_suffix(".part")
        part.write_text(json.dumps({"calls": by_name(self.calls), "bytecodes": by_name(self.bytecodes)}), "utf-8")
        part.rename(whole)


def by_name(counted: collections.Counter[CodeType]) -> dict[str, int]:
    """Two functions of one name in one file count as one."""
    names: collections.Counter[str] = collections.Counter()
    for code, number in counted.items():
        names[f"{code.co_filename}:{code.co_qualname}"] += number
    return names


if FOLDER:
    tally = Tally()
    threading.setprofile(tally.profile)
    threading.settrace(tally.trace)
    sys.setprofile(tally.profile)
    sys.settrace(tally.trace)
    signal.signal(signal.SIGUSR1, tally.begin)
    signal.signal(signal.SIGUSR2, tally.end)
