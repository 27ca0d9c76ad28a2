"""Options that make a job a sweep: many tasks of one command."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter

from loopline.cli.submission.options import FROM_FILE

Source = Annotated[Path | None, FROM_FILE]


@Parameter(name="*", group=Group("A sweep", sort_key=2))
@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """Which tasks there are.

    Parameters
    ----------
    param
        A parameter and its values: seed=1..100, seed=1..100:5 or lr=0.1,0.01. Several make a grid of all
        combinations, one task each. `{seed}` in the command is replaced by the task's value.
    array
        One task for each number: 1-1000 or 1-1000:2, as the parameter `index`.
    zip
        Take the first values together, then the second ones, and so on, instead of all combinations.
    each_line
        One task for each line of a file, as the parameter `line`; `-` reads stdin.
    csv
        One task for each row of a CSV file, whose first row names the parameters; `-` reads stdin.
    jsonl
        One task for each line of a file of JSON objects; `-` reads stdin.
    """

    param: Annotated[tuple[str, ...], Parameter(metavar="NAME=VALUES")] = ()
    array: Annotated[str | None, Parameter(metavar="FIRST-LAST")] = None
    zip: bool = False
    each_line: Source = None
    csv: Source = None
    jsonl: Source = None
