"""Runs of a sweep that are kept in a file, so that an interrupted sweep continues.

A line has a case (a digest of all its options, with the names of files), a digest of the code, and the answer. Only
runs of the same code are used. The study keeps its answers in a file of its own kind (study/answers.py).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError

import loopline_master.core
import loopline_master.transfers
import loopline_shared
import loopline_simulator
import loopline_worker.checkpoints
import loopline_worker.core
from loopline_shared.errors import LooplineError

Case = TypeVar("Case")
Answer = TypeVar("Answer")
_KEY_LENGTH = 20
_CASE = "case"
"""Field of most answers: the case itself, which is not written."""


class KeptRuns(Generic[Case, Answer]):
    """Answers of ``run``, which returns a dataclass."""

    def __init__(self, run: Callable[[Case], Answer], file: Path) -> None:
        """Read the file if there is one. Raises LooplineError if it is no file of runs or cannot be read."""
        self._file, self._experiment = file, run.__module__
        answer: Any = get_type_hints(run)["return"]
        hints, names = get_type_hints(answer), [field.name for field in fields(answer)]
        self._make, self._has_case = answer, _CASE in names
        self._kinds = {name: TypeAdapter[Any](hints[name]) for name in names if name != _CASE}
        self._known: dict[str, dict[str, Any]] = {}
        try:
            text = file.read_text("utf-8") if file.exists() else ""
            for line in text[: text.rfind("\n") + 1].splitlines():  # the last one may have been cut off
                kept = json.loads(line)
                if (kept["experiment"], kept["code"]) == (self._experiment, code()):
                    self._known[kept[_CASE]] = kept["answer"]
            if not text.endswith("\n"):
                file.write_text(text[: text.rfind("\n") + 1], "utf-8")
        except (ValueError, KeyError, TypeError):
            raise LooplineError("kept", f"{file}: this is no file of runs", "give another --keep") from None
        except OSError as error:
            raise LooplineError("kept", f"{file}: {error.strerror}", "give another --keep") from None

    def get(self, case: Case) -> Answer | None:
        """Return the kept answer."""
        kept = self._known.get(_key(case))
        if kept is None:
            return None
        try:
            values = {name: kind.validate_python(kept[name]) for name, kind in self._kinds.items()}
        except (KeyError, ValidationError):
            raise LooplineError("kept", f"{self._file}: a run in it is damaged", "give another --keep") from None
        answer: Answer = self._make(**values, **({_CASE: case} if self._has_case else {}))
        return answer

    def add(self, case: Case, answer: Answer) -> None:
        """Write an answer at the end of the file."""
        values = {name: kind.dump_python(getattr(answer, name)) for name, kind in self._kinds.items()}
        line = {"experiment": self._experiment, _CASE: _key(case), "code": code(), "answer": values}
        with self._file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(line) + "\n")


def _key(case: object) -> str:
    return hashlib.sha256(repr(case).encode()).hexdigest()[:_KEY_LENGTH]


@cache
def code() -> str:
    """Return a digest of all code that bears on a run."""
    digest = hashlib.sha256()
    packages = (
        loopline_master.core, loopline_master.transfers, loopline_shared, loopline_simulator,
        loopline_worker.checkpoints, loopline_worker.core,
    )  # fmt: skip
    for package in packages:
        for file in sorted(Path(package.__path__[0]).rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:12]
