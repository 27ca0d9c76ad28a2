"""Mutation tests of the scheduler's core with cosmic-ray: which mutants do the scheduler's tests not detect?

    make test-mutants                                 a sample of 40
    python -m tests.mutants --sample 400 --seed 2     another sample; --only policies: files with that in their path

It draws a sample of all mutations of cosmic-ray (a reversed comparison, a changed number, ``break`` for ``continue``
...). Each is applied in a copy of the repository, where tests/scheduling runs until a test fails (for
core/wings/transfers, tests/transfers; for core/wings/gangs/planning, first the tests of the rack).
It prints the share of survivors, and the changed line of each survivor, with the reason if known (``EXPLAINED``).
It is part of no suite: a mutant takes up to the time of those tests.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).parents[1]
LIBRARIES = ROOT / ".bench" / "mutants"
"""Folder where ``make test-mutants`` installs cosmic-ray, separate from the project's libraries."""
CORE = "master/loopline_master/core"
ROOTS = ("shared", "master", "simulator", "worker", "client", "migrations")
TESTS = ("tests/scheduling",)
TESTS_OF = {
    "/transfers/": ("tests/transfers",),
    "/planning/": ("tests/simulator/test_rack.py", "tests/scheduling"),
}
"""Tests of a part of the core, by a part of the path of its files."""
LEFT_OUT = ("BitOr", "BitXor", "BitAnd", "Shift", "Invert", "_Is_Eq", "_IsNot_NotEq")
"""Excluded operators. Bit operators raise at once on floats, and are never evaluated in annotations. Equality instead
of identity is equivalent for states and None."""
EXPLAINED = {
    "if len(ready) is FEW:": "a quicker way to the same first job, where there are few classes",
    "return self.failed.get(source, 1.0) > now": "of a source that never failed, any time that is over will do",
    r'words = [(int(word), "") if word.isdecimal() else (-2, word) for word in re.split(r"(\d+)", node.name)]': (
        "of a word, any number below those in names will do"
    ),
}
"""Reasons why mutants of a line survive, by the text of the line."""
LONGEST_S = 600


@dataclass(frozen=True, slots=True)
class Mutant:
    file: str
    operator: str
    occurrence: int

    def made_in(self, copy: Path) -> str:
        """Return the mutated text of the file."""
        from cosmic_ray.mutating import mutate_code
        from cosmic_ray.plugins import get_operator

        text = (copy / self.file).read_text("utf-8")
        return str(mutate_code(text, get_operator(self.operator)(), self.occurrence))


def main() -> int:
    """Print the survivors of a sample; the exit code is always 0, since a survivor need not be an error."""
    asking = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asking.add_argument("--sample", type=int, default=40)
    asking.add_argument("--seed", type=int, default=1)
    asking.add_argument("--only", default="", help="files with this in their path")
    asked = asking.parse_args()
    sys.path.append(str(LIBRARIES))
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder)
        _copy_to(copy)
        mutants = list(_all_mutants(copy, asked.only))
        chosen = Random(asked.seed).sample(mutants, min(asked.sample, len(mutants)))
        print(f"{len(chosen)} of {len(mutants):,} mutants, seed {asked.seed}", flush=True)
        survivors = [mutant for number, mutant in enumerate(chosen, 1) if _survives(mutant, copy, number)]
    print(f"\n{len(survivors)} of {len(chosen)} survive ({len(survivors) / max(1, len(chosen)):.0%})")
    return 0


def _copy_to(copy: Path) -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file() and not name.startswith(("web/", "docs/pictures")):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes((ROOT / name).read_bytes())


def _all_mutants(copy: Path, only: str) -> Iterator[Mutant]:
    from cosmic_ray.commands import init
    from cosmic_ray.work_db import WorkDB

    files = [file for file in sorted((copy / CORE).rglob("*.py")) if only in str(file.relative_to(copy / CORE))]
    work: Any = WorkDB(str(copy / "session.sqlite"), WorkDB.Mode.create)
    init(files, work, {})
    for item in work.work_items:
        (mutation,) = item.mutations
        if not any(name in mutation.operator_name for name in LEFT_OUT):
            file = str(Path(mutation.module_path).relative_to(copy))
            yield Mutant(file, mutation.operator_name, mutation.occurrence)


def _survives(mutant: Mutant, copy: Path, number: int) -> bool:
    """Return whether the tests pass with the mutation; print it then, and always revert it."""
    file = copy / mutant.file
    before = file.read_text("utf-8")
    after = mutant.made_in(copy)
    file.write_text(after, "utf-8")
    try:
        is_alive = _tests_pass(copy, next((tests for part, tests in TESTS_OF.items() if part in mutant.file), TESTS))
    finally:
        file.write_text(before, "utf-8")
    print(f"{number}: {'SURVIVES' if is_alive else 'killed'} {mutant.file} {mutant.operator}", flush=True)
    if is_alive:
        changed = list(unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0))[2:]
        reasons = [EXPLAINED[text] for line in changed if (text := line[1:].strip()) in EXPLAINED]
        print("\n".join(f"    {line}" for line in (*changed, *reasons)), flush=True)
    return is_alive


def _tests_pass(copy: Path, tests: Sequence[str]) -> bool:
    path = os.pathsep.join(str(copy / root) for root in ROOTS)
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, timeout=LONGEST_S, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
