"""Answers of a study that are kept in a file, so that an interrupted study of hours can continue.

A line has a case (a digest of all its inputs), the version of the code that ran it, its CPU time and its figures.

Answers of other versions are valid if both versions give the same answers: the case's *witness*, the same case with
the study's first seed, is run with this version too, and its figures must agree in every digit that is kept.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import loopline_master.core
import loopline_shared
import loopline_simulator
import loopline_worker.checkpoints
from loopline_shared.errors import LooplineError
from loopline_simulator.fast.trial import Case
from loopline_simulator.study.section import Figures, StudyCase, measured
from loopline_simulator.traces.resampled import ResampledLog
from loopline_simulator.traces.window import LogWindow

_DIGITS = 9
_KEY_LENGTH = 16
_LINE_BEGINS = '{"case": "'


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """The figures of a case, the digest of the code that gave them, and the CPU time that they took."""

    case: str  # its key
    code: str
    cpu_s: float
    figures: Figures


MeasuredCase = tuple[StudyCase, KeptAnswer]


class KeptAnswers:
    """Answers by case, read from a file and added to it; without a file they are kept in memory alone."""

    def __init__(self, file: Path | None, first_seed: int) -> None:
        """Read the answers; ``first_seed`` is that of the witnesses.

        Raises LooplineError if the file is of another kind. A line that was cut off as it was written is taken out.
        """
        self._file, self._first_seed = file, first_seed
        self._known: dict[str, dict[str, KeptAnswer]] = defaultdict(dict)  # by case and code
        for line in _whole_lines(file) if file is not None and file.exists() else ():
            try:
                answer = KeptAnswer(**json.loads(line))
            except (ValueError, TypeError):
                raise LooplineError("study", f"{file}: this is no file of answers", "give another one") from None
            self._known[answer.case][answer.code] = answer

    def get(self, case: StudyCase) -> KeptAnswer | None:
        """Return this code's answer, or that of other code which gave the witness's figures alike."""
        known, witness = self._known[_key(case)], self._known[_key(replace(case, seed=self._first_seed))]
        if code() in known:
            return known[code()]
        ours = witness.get(code())
        alike = (known[other] for other in known if ours and other in witness and _are_alike(witness[other], ours))
        return next(alike, None)

    def add(self, answer: MeasuredCase) -> None:
        _, kept = answer
        self._known[kept.case][kept.code] = kept
        if self._file is not None:
            with self._file.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps({name: getattr(kept, name) for name in KeptAnswer.__slots__}) + "\n")


def answer(case: StudyCase) -> MeasuredCase:
    """Run a case; return it with its answer."""
    began = time.thread_time()
    figures = {name: float(f"{value:.{_DIGITS}g}") for name, value in measured(case).items()}
    return case, KeptAnswer(_key(case), code(), round(time.thread_time() - began, 3), figures)


def _are_alike(one: KeptAnswer, other: KeptAnswer) -> bool:
    return one.figures == other.figures


def _key(case: StudyCase) -> str:
    """Return a digest of all inputs of the case; of a log's file only the name, not the folder."""
    if isinstance(case, Case) and isinstance(case.log, LogWindow | ResampledLog):
        case = replace(case, log=replace(case.log, swf=Path(case.log.swf.name)))
    power = repr(case.park.watts) if isinstance(case, Case) and case.park.watts else ""
    return hashlib.sha256((repr(case) + power).encode()).hexdigest()[:_KEY_LENGTH]


def _whole_lines(file: Path) -> list[str]:
    """Return the complete lines, and remove a last, incomplete one from the file."""
    text = file.read_text("utf-8")
    whole, end, rest = text.rpartition("\n")
    if rest and (rest + _LINE_BEGINS).startswith(_LINE_BEGINS[: len(rest)]):
        file.write_text(whole + end, "utf-8")
        return whole.splitlines()
    return text.splitlines()


@cache
def code() -> str:
    """Return a digest of all code that bears on an answer: of scheduler and worlds, shared code, a worker's rule."""
    digest = hashlib.sha256()
    here = Path(loopline_simulator.__path__[0])
    rule = Path(loopline_worker.checkpoints.__path__[0]) / "interval.py"
    of_worlds = (here / "kernel.py", here / "streams.py", here / "study" / "bounds.py", rule)
    folders = (
        Path(loopline_shared.__path__[0]),
        Path(loopline_master.core.__path__[0]),
        here / "fast",
        here / "traces",
    )
    for file in (*of_worlds, *(file for folder in folders for file in sorted(folder.rglob("*.py")))):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]
