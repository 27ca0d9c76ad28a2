"""Answers of a study that are kept in a file, so that a study of hours goes on where it was interrupted.

A line is the case, the code that it was run with, and its figures. Answers of other code are not used.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path

import loopline_master.core
import loopline_shared
import loopline_simulator
from loopline_shared.errors import LooplineError
from loopline_simulator.study.section import Figures, StudyCase, measured

MeasuredCase = tuple[StudyCase, Figures]


class KeptAnswers:
    """Figures by case, read from a file and added to it; without a file they are kept in memory alone."""

    def __init__(self, file: Path | None) -> None:
        """Read the answers of this code. Raises LooplineError if the file is of another kind."""
        self._file = file
        self._known: dict[str, Figures] = {}
        for line in file.read_text("utf-8").splitlines() if file is not None and file.exists() else ():
            try:
                entry = json.loads(line)
                if entry["code"] == code():
                    self._known[entry["case"]] = entry["figures"]
            except (ValueError, KeyError, TypeError):
                raise LooplineError("study", f"{file}: this is no file of answers", "give another one") from None

    def get(self, case: StudyCase) -> Figures | None:
        return self._known.get(repr(case))

    def add(self, answer: MeasuredCase) -> None:
        case, figures = answer
        self._known[repr(case)] = figures
        if self._file is not None:
            with self._file.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps({"case": repr(case), "code": code(), "figures": figures}) + "\n")


def answer(case: StudyCase) -> MeasuredCase:
    """Run a case; return it with its figures."""
    return case, measured(case)


@cache
def code() -> str:
    """Return a digest of all code that bears on an answer: the scheduler's, the shared, and of the worlds."""
    digest = hashlib.sha256()
    here = Path(loopline_simulator.__path__[0])
    of_worlds = (here / "kernel.py", here / "streams.py", here / "study" / "bounds.py")
    folders = (
        Path(loopline_shared.__path__[0]),
        Path(loopline_master.core.__path__[0]),
        here / "fast",
        here / "traces",
    )
    for file in (*of_worlds, *(file for folder in folders for file in sorted(folder.rglob("*.py")))):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]
